"""Products and convolutions by constant weights of which two of each four neighbours along k are zero, by `mma.sp`.

`sparse` multiplies floats of 16 bits, `sparse_integer` bytes; by warpgroups do `sparse_wgmma` and
`sparse_wgmma_integer`.

form             which kernels these are
tiles            the legal tiles of warps and what they should take
warpgroup_tiles  those of warpgroups
product          the multiply step: weights are the sparse operand, columns of the result rows of the product
warpgroups       the same by `wgmma.sp`
lowering         the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.sparse.lowering import lower_cuda_sparse
from compiler.devices.cuda.algorithms.sparse.tiles import cuda_sparse_tiles
from compiler.devices.cuda.algorithms.sparse.warpgroup_tiles import cuda_sparse_wgmma_tiles

SPARSE = CudaAlgorithm(
    ("sparse", "sparse_integer"), cuda_sparse_tiles, lower_cuda_sparse, in_fp32=frozenset({"sparse_integer"})
)
SPARSE_WGMMA = CudaAlgorithm(
    ("sparse_wgmma", "sparse_wgmma_integer"),
    cuda_sparse_wgmma_tiles,
    lower_cuda_sparse,
    in_fp32=frozenset({"sparse_wgmma_integer"}),
)
