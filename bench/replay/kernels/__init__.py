"""Kernels of drawn models as two commits of the compiler generate them: some two thousand of each kind of device.

lowering  the program that generates their kernels, each tree's own
texts     kernels of a tree, out of the cache where they are known
run       the comparison
"""
