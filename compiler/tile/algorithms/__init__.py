"""The algorithms a kernel may be carried out by, each listing its legal tiles for one workload on one target.

contraction  register-blocked matrix products and convolutions
loops        plain tiled, vectorised loops: always legal
"""

from collections.abc import Callable

from compiler.ir.machine import Workload
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.contraction import contraction_tiles
from compiler.tile.algorithms.loops import loop_tiles
from compiler.tile.model import Proposal

ALGORITHMS: tuple[Callable[[Workload, CpuTarget, int], list[Proposal]], ...] = (contraction_tiles,)
"""All are asked; `loop_tiles` only for a kernel that none of them takes."""

__all__ = ["ALGORITHMS", "loop_tiles"]
