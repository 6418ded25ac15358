"""Computations that are no loop nests, written by hand.

lowering  the CUDA C++ of each
boxes     boxes chosen by their overlap
forest    trees of decisions
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.routine.lowering import cuda_routine_tiles, lower_cuda_routine

ROUTINE = CudaAlgorithm(("routine",), cuda_routine_tiles, lower_cuda_routine)
