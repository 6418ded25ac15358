"""Products and convolutions by tensor cores or multiply-adds, block tile by block tile.

tiles        the legal tiles of warps and of threads
wgmma_tiles  those of warpgroups, for large products of 16-bit operands on sm_90a
lowering     the CUDA C++ of both, from parts of `compiler.devices.cuda.products`
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.contraction.lowering import lower_cuda_contraction
from compiler.devices.cuda.algorithms.contraction.tiles import cuda_contraction_tiles
from compiler.devices.cuda.algorithms.contraction.wgmma_tiles import cuda_wgmma_tiles

CONTRACTION = CudaAlgorithm(
    (
        "mma",
        "mma_tf32",
        "mma_3xtf32",
        "ffma",
    ),
    cuda_contraction_tiles,
    lower_cuda_contraction,
    in_fp32=frozenset({"ffma", "mma_3xtf32"}),
)
WGMMA = CudaAlgorithm(("wgmma",), cuda_wgmma_tiles, lower_cuda_contraction)
