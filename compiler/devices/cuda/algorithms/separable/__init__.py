"""A window channel by channel and the product over its channels, the window's results in shared memory.

tiles          the legal tiles and what they should take
geometry       how blocks share pixels and channels
lowering       the CUDA C++
staged_window  the window, whose results the product reads
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.separable.lowering import lower_cuda_separable
from compiler.devices.cuda.algorithms.separable.tiles import EXACT, cuda_separable_tiles

SEPARABLE = CudaAlgorithm(
    (
        "separable",
        "separable_tf32",
        "separable_3xtf32",
        "separable_ffma",
    ),
    cuda_separable_tiles,
    lower_cuda_separable,
    in_fp32=frozenset(EXACT),
)
