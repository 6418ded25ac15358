"""Plain tiled, vectorised loops: any kernel; maps that are transposed in registers.

tiles      the one tile and what it should take
lowering   the C function
transpose  maps whose operands are contiguous along another axis than their results
"""

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.loops.lowering import loops
from compiler.devices.cpu.algorithms.loops.tiles import loop_tiles

LOOPS = Algorithm(("loops",), loop_tiles, loops, takes=any_short)
