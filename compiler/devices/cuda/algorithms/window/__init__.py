"""Sums and extremes over a window, channel by channel: the window slides in registers.

tiles     the legal tiles and what they should take
lowering  the CUDA C++
strip     the outputs of one thread
split     where threads share a reduction
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.window.lowering import lower_cuda_window
from compiler.devices.cuda.algorithms.window.tiles import cuda_window_tiles

WINDOW = CudaAlgorithm(("window",), cuda_window_tiles, lower_cuda_window, in_fp32=frozenset({"window"}))
