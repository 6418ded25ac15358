"""Recurrent layers: hidden units dealt out to a cluster of blocks, which exchange the state.

tiles     the legal tiles and what they should take
chains    recurrent layers as chains of steps
lowering  the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.recurrent.lowering import lower_cuda_recurrent
from compiler.devices.cuda.algorithms.recurrent.tiles import cuda_recurrent_tiles

RECURRENT = CudaAlgorithm(("recurrent",), cuda_recurrent_tiles, lower_cuda_recurrent)
