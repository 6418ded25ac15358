"""The algorithms a kernel may be carried out by, each listing its legal tiles for one workload on one target.

attention    two products and the softmax between them
contraction  register-blocked matrix products and convolutions
gated        the same for products with a gate on one operand, which is moved to the other
gemv         a few rows times a constant matrix, read once
integer      products of bytes, summed in int32
recurrent    recurrent layers, step by step
separable    a window channel by channel and the pointwise product that reads it, through rows that stay in a cache
window       sums and extremes over a window, channel by channel: depthwise convolution, pooling
winograd     convolutions of unit stride with fewer multiplications
bf16         matrix products and convolutions with operands rounded to bf16, where the job's precision is bf16
loops        plain tiled, vectorised loops: always legal
dot          what integer and bf16 share: k in steps of a group that fills a lane
blocking     what those that block products share: how axes are cut and registers filled
row_cuts     what those that work on images share: tiles that give each lane some rows

cuda         those of CUDA targets
"""

from collections.abc import Callable, Mapping
from typing import Any

from compiler.ir.machine import Workload
from compiler.targets.cpu import CpuTarget
from compiler.targets.cuda import CudaTarget
from compiler.targets.target import Target
from compiler.tile.algorithms.attention import attention_tiles
from compiler.tile.algorithms.bf16 import bf16_tiles
from compiler.tile.algorithms.contraction import contraction_tiles
from compiler.tile.algorithms.cuda import CUDA_ALGORITHMS, cuda_loop_tiles
from compiler.tile.algorithms.gated import gated_tiles
from compiler.tile.algorithms.gemv import gemv_tiles
from compiler.tile.algorithms.integer import integer_tiles
from compiler.tile.algorithms.loops import loop_tiles
from compiler.tile.algorithms.recurrent import recurrent_tiles
from compiler.tile.algorithms.separable import separable_tiles
from compiler.tile.algorithms.window import window_tiles
from compiler.tile.algorithms.winograd import winograd_tiles
from compiler.tile.model import Proposal

Algorithm = Callable[[Workload, CpuTarget, int], list[Proposal]]
"""The legal tiles of one workload on one target, for a plan of so many lanes."""

ALGORITHMS: tuple[Algorithm, ...] = (
    attention_tiles,
    contraction_tiles,
    gated_tiles,
    gemv_tiles,
    integer_tiles,
    recurrent_tiles,
    separable_tiles,
    window_tiles,
    winograd_tiles,
)
"""All are asked; `loop_tiles` only for a kernel that none of them takes."""

OF_PRECISION: Mapping[str, tuple[Algorithm, ...]] = {"fp32": (), "bf16": (bf16_tiles,)}
"""Those that a job of some precision asks as well: what they round away is what it asked for, and no part of its tolerance."""


def legal_tiles(workload: Workload, target: Target, lanes: int, precision: str) -> list[Proposal]:
    """What every algorithm of the target's kind proposes; plain loops take what nothing else does."""
    return OF_KIND[type(target)](workload, target, lanes, precision)


def _cpu_tiles(workload: Workload, target: CpuTarget, lanes: int, precision: str) -> list[Proposal]:
    asked = (*ALGORITHMS, *OF_PRECISION[precision])
    proposed = [option for algorithm in asked for option in algorithm(workload, target, lanes)]
    return proposed or loop_tiles(workload, target, lanes)


def _cuda_tiles(workload: Workload, target: CudaTarget, lanes: int, precision: str) -> list[Proposal]:
    proposed = [option for algorithm in CUDA_ALGORITHMS for option in algorithm(workload, target, precision)]
    return proposed or cuda_loop_tiles(workload, target, precision)


OF_KIND: Mapping[type, Callable[[Workload, Any, int, str], list[Proposal]]] = {
    CpuTarget: _cpu_tiles,
    CudaTarget: _cuda_tiles,
}
"""By the class of a target."""

__all__ = ["ALGORITHMS", "OF_PRECISION", "legal_tiles", "loop_tiles"]
