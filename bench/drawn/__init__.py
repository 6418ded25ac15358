"""Models drawn by seeds, for comparisons of two compilers: see `bench.replay`.

weights   weights with zeros, or of few values
layers    models of a layer or a few, and what they are compiled for
"""
