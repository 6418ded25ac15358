"""What is always legal on a GPU: teams of threads for each point of a kernel's shared axes, step after step where they have an order."""

from __future__ import annotations

from math import prod

from compiler.ir.kernel import Kernel, Slot
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
    if not isinstance(kernel, Kernel):
        elements = sum(buffer.type.elements for buffer in workload.inputs)
        return [Proposal(Tile("routine"), seconds(ROUTINE_NS * elements, target))]
    points = prod(axis.extent for axis in kernel.shared if axis not in kernel.sequential)
    touched = [_touched(kernel, slot) for slot in (*kernel.inputs, *kernel.outputs)]
    buffers = (*workload.inputs, *workload.outputs)
    moved = sum(count * buffer.dtype.bytes for count, buffer in zip(touched, buffers, strict=True))
    elements = max(touched)
    ns = moved_ns(moved, max(points // THREADS, elements // ELEMENTS), target)
    steps = prod(axis.extent for axis in kernel.sequential)
    in_blocks = [prod(axis.extent for axis in block.sequential) for block in kernel.blocks if block.sequential]
    if not kernel.sequential and not in_blocks:
        return [Proposal(Tile("loops"), seconds(ns, target))]
    return [Proposal(Tile("sequential"), seconds(ns + STEP_NS * steps * max(1, sum(in_blocks)), target))]


def _touched(kernel: Kernel, slot: Slot) -> int:
    """Elements of a slot that are loaded or stored, at most: of a table that is gathered from, a few rows."""
    accesses = 0
    for block in kernel.blocks:
        points = prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))
        loads = {load for value in block.values for load in value.loads if load.slot == slot.name}
        accesses += points * (len(loads) + sum(store.slot == slot.name for store in block.stores))
    return min(slot.type.elements, accesses)
