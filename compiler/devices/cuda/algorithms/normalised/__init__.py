"""A normalisation of rows and the product of them, the normalised rows in shared memory.

tiles     the legal tiles and what they should take
geometry  what is asked of a kernel, and how it reads its rows
rows      the rows, which the product reads
lowering  the CUDA C++
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.normalised.lowering import lower_cuda_normalised
from compiler.devices.cuda.algorithms.normalised.tiles import EXACT, cuda_normalised_tiles

NORMALISED = CudaAlgorithm(
    (
        "normalised",
        "normalised_tf32",
        "normalised_3xtf32",
        "normalised_ffma",
    ),
    cuda_normalised_tiles,
    lower_cuda_normalised,
    in_fp32=frozenset(EXACT),
)
