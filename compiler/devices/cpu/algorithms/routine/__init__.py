"""What is no loop nest, written by hand in C.

lowering  the algorithm, and the k greatest or least of a row
boxes     boxes that overlap little, chosen
forest    trees of decisions
"""

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.routine.lowering import routine, routine_tiles

ROUTINE = Algorithm(("routine",), routine_tiles, routine)
