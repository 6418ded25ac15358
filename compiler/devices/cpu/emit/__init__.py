"""Plan -> Program for a CPU.

lower    one kernel, by the algorithm its tile names
regions  which bytes tile tasks read and write
host     the plans as tables
library  kernels and headers as a shared library
program  all of it together
"""
