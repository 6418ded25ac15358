"""The algorithms of CPU targets, one module each: which kernels it takes, its legal tiles with costs, its lowering.

attention    two products and the softmax between them
few_queries  the same for so few queries that the keys and values are read where they lie
byte_attention  the same where both products are of bytes, and the softmax rounds to them
contraction  register-blocked matrix products and convolutions
byte_groups  convolutions of bytes in groups of channels, by dot products within vectors
byte_extremes  the greatest or the least byte of a window, channel by channel
byte_sums    sums of bytes over a window, channel by channel, that end in bytes: average pools
coded_gemv   a few rows times a constant matrix of few distinct values, kept as indices into them
gated        the same for products with a gate on one operand, which is moved to the other
gated_bf16   `bf16` with such a gate on the weights, which are packed without it
gemv         a few rows times a constant matrix, read once
integer      products of bytes, summed in int32
recurrent    recurrent layers, step by step
separable    a window channel by channel and the pointwise product that reads it, through rows that stay in a cache
window       sums and extremes over a window, channel by channel: depthwise convolution, pooling
sparse       products and convolutions by constant weights of which a good part is zero
sparse_dot   products of bytes, and of bf16, without weights that are zero
picked_gemv  a few rows times a matrix in fp32, without weights that are zero
quantised_gemv  a few rows times a constant matrix that was quantised in blocks, from codes of few bits
sparse_recurrent  recurrent layers without weights that are zero
winograd     convolutions of unit stride with fewer multiplications
amx          products of bytes, and of bf16 where that is the precision, by tiles of 16 rows (Intel AMX)
amx_attention  attention by such tiles, where the job's precision is bf16
amx_window   the same for convolutions, of an image that is staged once
dot_window   convolutions of bytes, and of bf16, by dot products, of such an image
bf16         matrix products and convolutions with operands rounded to bf16, where the job's precision is bf16
bf16_attention  attention by dot products of such operands
loops        plain tiled, vectorised loops: any loop nest
routine      what is no loop nest, written by hand
region       loops and branches that are decided while running, around kernels of all the others

What several share lies in `products`, `attention` and `codegen` beside it: none imports another. `algorithm` says what
an algorithm is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from compiler.codegen.functions import with_c_names
from compiler.contract.kinds import AUTO
from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.amx import AMX_BF16, AMX_INTEGER
from compiler.devices.cpu.algorithms.amx_attention import AMX_ATTENTION
from compiler.devices.cpu.algorithms.amx_window import AMX_BF16_WINDOW, AMX_INTEGER_WINDOW
from compiler.devices.cpu.algorithms.attention import ATTENTION
from compiler.devices.cpu.algorithms.bf16 import BF16
from compiler.devices.cpu.algorithms.bf16_attention import BF16_ATTENTION
from compiler.devices.cpu.algorithms.byte_attention import BYTE_ATTENTION
from compiler.devices.cpu.algorithms.byte_extremes import BYTE_EXTREMES
from compiler.devices.cpu.algorithms.byte_groups import BYTE_GROUPS
from compiler.devices.cpu.algorithms.byte_sums import BYTE_SUMS
from compiler.devices.cpu.algorithms.coded_gemv import CODED_GEMV
from compiler.devices.cpu.algorithms.contraction import CONTRACTION
from compiler.devices.cpu.algorithms.dot_window import BF16_WINDOW, INTEGER_WINDOW
from compiler.devices.cpu.algorithms.few_queries import FEW_QUERIES
from compiler.devices.cpu.algorithms.gated import GATED
from compiler.devices.cpu.algorithms.gated_bf16 import GATED_BF16
from compiler.devices.cpu.algorithms.gemv import GEMV
from compiler.devices.cpu.algorithms.integer import INTEGER
from compiler.devices.cpu.algorithms.loops import LOOPS
from compiler.devices.cpu.algorithms.picked_gemv import PICKED_GEMV
from compiler.devices.cpu.algorithms.quantised_gemv import QUANTISED_GEMV
from compiler.devices.cpu.algorithms.recurrent import RECURRENT, SPARSE_RECURRENT
from compiler.devices.cpu.algorithms.region import region_algorithm
from compiler.devices.cpu.algorithms.routine import ROUTINE
from compiler.devices.cpu.algorithms.separable import SEPARABLE
from compiler.devices.cpu.algorithms.sparse import SPARSE
from compiler.devices.cpu.algorithms.sparse_dot import (
    FAR_BF16,
    FAR_INTEGER,
    NEAR_BF16,
    NEAR_INTEGER,
    SPARSE_BF16,
    SPARSE_INTEGER,
)
from compiler.devices.cpu.algorithms.window import WINDOW
from compiler.devices.cpu.algorithms.winograd import WINOGRAD
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.codebook import CODED
from compiler.encodings.quantised import READ_AS_FLOATS, READ_BY, READ_ROUNDED, WORTH_BYTES
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal, without_dense

ALGORITHMS: tuple[Algorithm, ...] = (
    ATTENTION,
    BYTE_ATTENTION,
    BYTE_EXTREMES,
    BYTE_GROUPS,
    BYTE_SUMS,
    CODED_GEMV,
    CONTRACTION,
    FEW_QUERIES,
    GATED,
    GEMV,
    INTEGER,
    INTEGER_WINDOW,
    RECURRENT,
    SEPARABLE,
    SPARSE,
    SPARSE_INTEGER,
    NEAR_INTEGER,
    FAR_INTEGER,
    PICKED_GEMV,
    QUANTISED_GEMV,
    SPARSE_RECURRENT,
    WINDOW,
    WINOGRAD,
    BF16,
    BF16_ATTENTION,
    BF16_WINDOW,
    GATED_BF16,
    SPARSE_BF16,
    NEAR_BF16,
    FAR_BF16,
    AMX_BF16,
    AMX_INTEGER,
    AMX_BF16_WINDOW,
    AMX_INTEGER_WINDOW,
    AMX_ATTENTION,
)
"""All are asked; of several tiles that cost the same the first proposed is taken."""

READ_CODES = (READ_BY, READ_ROUNDED, READ_AS_FLOATS, CODED)
"""Algorithms that read a constant as codes."""
DEARER = 1.1
"""How much dearer by the model an algorithm may be that takes elements of bf16 in memory, beside the best of all."""


def legal_tiles(workload: Workload, target: CpuTarget, lanes: int, precision: str) -> list[Proposal]:
    """What every algorithm proposes that a job of this precision asks; plain loops and routines take what is left.

    Where codes of few bits can be read, what makes them dense is left out unless the model of costs says that it is
    faster by more than WORTH_BYTES.
    """
    able = ("fp32", "bf16" if precision == AUTO else precision)
    asked = [one for one in ALGORITHMS if one.precision in able and one.takes(workload)]
    proposed = [option for one in asked for option in one.tiles(workload, target, lanes)]
    proposed = without_dense(proposed, READ_CODES, WORTH_BYTES)
    return proposed or [
        option for one in ALWAYS if one.takes(workload) for option in one.tiles(workload, target, lanes)
    ]


def takes_short(workload: Workload, target: CpuTarget, precision: str) -> bool:
    """Whether a kernel keeps an algorithm that is about as fast as any with the elements that it has in memory.

    A kernel whose buffers are all fp32 does.
    """
    plain = replace(workload, inputs=_wide(workload.inputs), outputs=_wide(workload.outputs))
    return plain == workload or _keeps_pace(workload.nameless, plain.nameless, target, precision)


@lru_cache(maxsize=4096)
def _keeps_pace(workload: Workload, plain: Workload, target: CpuTarget, precision: str) -> bool:
    able = legal_tiles(workload, target, 1, precision)
    best = min(one.seconds for one in legal_tiles(plain, target, 1, precision))
    return any(one.seconds <= DEARER * best for one in able)


def _wide(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    return tuple(replace(buffer, element=None) for buffer in buffers)


def lowering(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel about to be written in C by the algorithm that its tile names, with names that clash with nothing in C.

    Raises KeyError for an algorithm that there is not.
    """
    workload = replace(workload, kernel=with_c_names(workload.kernel))
    return BY_NAME[tile.algorithm].lower(name, workload, tile, target)


ALWAYS: tuple[Algorithm, ...] = (LOOPS, ROUTINE, region_algorithm(legal_tiles, lowering))
"""Those that take whatever no other does."""
BY_NAME: Mapping[str, Algorithm] = {name: one for one in (*ALGORITHMS, *ALWAYS) for name in one.names}
"""By what tiles call them."""
