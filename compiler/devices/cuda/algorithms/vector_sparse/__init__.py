"""Products and convolutions by constant weights of which neighbouring columns have their zeros at the same places of k.

form      which kernels these are, and what each width of a panel keeps
tiles     the legal tiles and what they should take
lowering  the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.vector_sparse.form import DENSE_NAMES, OF_BYTES
from compiler.devices.cuda.algorithms.vector_sparse.lowering import lower_cuda_vector_sparse
from compiler.devices.cuda.algorithms.vector_sparse.tiles import cuda_vector_sparse_tiles

VECTOR_SPARSE = CudaAlgorithm(
    (*DENSE_NAMES, OF_BYTES),
    cuda_vector_sparse_tiles,
    lower_cuda_vector_sparse,
    in_fp32=frozenset({"sparse_ffma", "sparse_mma_3xtf32", OF_BYTES}),
)
