"""Recurrent layers, step by step.

lowering  with weights as they are
sparse    without weights that are zero
"""

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.recurrent.lowering import recurrent, recurrent_tiles
from compiler.devices.cpu.algorithms.recurrent.sparse import KEPT, PICKED, sparse_recurrent, sparse_recurrent_tiles

RECURRENT = Algorithm(("recurrent", "recurrent24", "recurrent8"), recurrent_tiles, recurrent)
SPARSE_RECURRENT = Algorithm((KEPT, PICKED), sparse_recurrent_tiles, sparse_recurrent)
