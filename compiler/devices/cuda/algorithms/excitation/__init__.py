"""The mean of each channel and two small products of it (squeeze and excitation), by blocks that meet once.

tiles     the legal tiles and what they should take
geometry  how blocks share channels and images
lowering  the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.excitation.lowering import lower_cuda_excitation
from compiler.devices.cuda.algorithms.excitation.tiles import cuda_excitation_tiles

EXCITATION = CudaAlgorithm(("excitation",), cuda_excitation_tiles, lower_cuda_excitation)
