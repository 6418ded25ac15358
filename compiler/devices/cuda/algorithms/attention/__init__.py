"""Both products of attention and the softmax between them, the scores in registers.

tiles     the legal tiles and what they should take
geometry  how blocks and warps share queries and keys
lowering  the CUDA C++
operands  how queries, keys and values come to the fragments
"""

from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.attention.lowering import lower_cuda_attention
from compiler.devices.cuda.algorithms.attention.tiles import cuda_attention_tiles

ATTENTION = CudaAlgorithm(
    (
        "attention",
        "attention_tf32",
        "attention_3xtf32",
    ),
    cuda_attention_tiles,
    lower_cuda_attention,
    in_fp32=frozenset({"attention_3xtf32"}),
)
