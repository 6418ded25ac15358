"""Register-blocked products of fp32: matrices and convolutions."""

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.products.contraction.lowering import contraction
from compiler.devices.cpu.products.contraction.tiles import contraction_tiles, reads_whole_rows

CONTRACTION = Algorithm(("contraction",), contraction_tiles, contraction, takes=reads_whole_rows)
