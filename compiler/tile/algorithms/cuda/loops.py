"""What is always legal on a GPU: teams of threads for each point of a kernel's shared axes, step after step where they have an order."""

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
THREADS, ELEMENTS = 128, 1024
"""Points of a block, a thread each; elements of a block whose threads share out points."""
STEP_NS = 1000.0
"""One step of a sequence: a trip to memory for each block, and barriers."""


def cuda_loop_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The tile of the `loops` or the `sequential` algorithm; for a Routine, its hand-written form."""
    kernel = workload.kernel
    moved = sum(buffer.type.elements * buffer.dtype.bytes for buffer in (*workload.inputs, *workload.outputs))
    if not isinstance(kernel, Kernel):
        elements = sum(buffer.type.elements for buffer in workload.inputs)
        return [Proposal(Tile("routine"), seconds(ROUTINE_NS * elements, target))]
    points = prod(axis.extent for axis in kernel.shared if axis not in kernel.sequential)
    elements = max(slot.type.elements for slot in (*kernel.inputs, *kernel.outputs))
    ns = moved_ns(moved, max(points // THREADS, elements // ELEMENTS), target)
    steps = prod(axis.extent for axis in kernel.sequential)
    in_blocks = [prod(axis.extent for axis in block.sequential) for block in kernel.blocks if block.sequential]
    if not kernel.sequential and not in_blocks:
        return [Proposal(Tile("loops"), seconds(ns, target))]
    return [Proposal(Tile("sequential"), seconds(ns + STEP_NS * steps * max(1, sum(in_blocks)), target))]
