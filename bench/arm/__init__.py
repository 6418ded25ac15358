"""Kernels for ARM CPUs judged without one: the instructions of their inner loops beside what a core can do.

kernels  the kernels that are judged, by themselves
loops    inner loops in a compiler's assembly text
cycles   what LLVM's model of a core says of a loop (llvm-mca)
run      the table
"""
