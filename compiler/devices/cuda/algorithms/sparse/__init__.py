"""Products and convolutions by constant weights of which two of each four neighbours along k are zero, by `mma.sp`.

`sparse` multiplies floats of 16 bits, `sparse_integer` bytes.

form      which kernels these are
tiles     the legal tiles and what they should take
product   the multiply step: weights are the sparse operand, so that columns of the result are rows of the product
lowering  the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.sparse.lowering import lower_cuda_sparse
from compiler.devices.cuda.algorithms.sparse.tiles import cuda_sparse_tiles

SPARSE = CudaAlgorithm(("sparse", "sparse_integer"), cuda_sparse_tiles, lower_cuda_sparse)
