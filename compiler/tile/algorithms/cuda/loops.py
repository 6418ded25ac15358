"""Plain loops on a GPU: teams of threads for each point of a kernel's shared axes."""

from __future__ import annotations

from math import prod

from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.targets.cuda import CudaTarget
from compiler.tile.algorithms.cuda.model import moved_ns, seconds
from compiler.tile.model import Proposal

ROUTINE_NS = 1.0
"""One element through a hand-written routine."""


def cuda_loop_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The tile of the `loops` algorithm; for a Routine, its hand-written form."""
    kernel = workload.kernel
    moved = sum(buffer.type.elements * buffer.dtype.bytes for buffer in (*workload.inputs, *workload.outputs))
    if not isinstance(kernel, Kernel):
        elements = sum(buffer.type.elements for buffer in workload.inputs)
        return [Proposal(Tile("routine"), seconds(ROUTINE_NS * elements, target))]
    points = prod(axis.extent for axis in kernel.shared)
    return [Proposal(Tile("loops"), seconds(moved_ns(moved, points // 128, target), target))]
