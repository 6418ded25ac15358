"""Browsers as targets: WebAssembly with vectors of four floats, by the algorithms, printers and runtime of CPUs.

kind    the descriptor
target  instruction-set profiles
"""
