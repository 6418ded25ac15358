"""Register-blocked products of fp32: matrices and convolutions.

tiles     the legal tiles and what they should take
lowering  the C function
"""

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.contraction.lowering import contraction
from compiler.devices.cpu.algorithms.contraction.tiles import contraction_tiles, reads_whole_rows

CONTRACTION = Algorithm(("contraction",), contraction_tiles, contraction, takes=reads_whole_rows)
