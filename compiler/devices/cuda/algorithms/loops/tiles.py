"""What is always legal on a GPU.

Teams of threads for each point of a kernel's shared axes, step after step where they have an order.
"""

from __future__ import annotations

from math import prod

from compiler.devices.cuda.model import moved_ns, seconds
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots, contract_temps, without_unit_axes
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel, Slot
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

THREADS, ELEMENTS = 128, 1024
"""Points of a block, a thread each; elements of a block whose threads share out points."""
SECTOR_BYTES = 32
"""What memory moves at least."""
LOADS = 32
"""Elements that a multiprocessor loads in a cycle."""
STEP_NS = 1000.0
"""One step of a sequence: a trip to memory for each block, and barriers."""


def cuda_loop_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """A tile named `loops`, or `sequential` for a kernel with steps; empty for a Routine."""
    kernel = workload.kernel
    if not isinstance(kernel, Kernel):
        return []
    points = prod(axis.extent for axis in kernel.shared if axis not in kernel.sequential)
    touched = [_touched(kernel, slot) for slot in (*kernel.inputs, *kernel.outputs)]
    buffers = (*workload.inputs, *workload.outputs)
    wasted = _waste(workload)
    moved = sum(count * buffer.dtype.bytes * more for count, buffer, more in zip(touched, buffers, wasted, strict=True))
    elements = max(touched)
    blocks = max(points // THREADS, elements // ELEMENTS)
    ns = max(moved_ns(moved, blocks, target), _loading_ns(kernel, blocks, target))
    steps = prod(axis.extent for axis in kernel.sequential)
    in_blocks = [prod(axis.extent for axis in block.sequential) for block in kernel.blocks if block.sequential]
    if not kernel.sequential and not in_blocks:
        return [Proposal(Tile("loops"), seconds(ns, target))]
    return [Proposal(Tile("sequential"), seconds(ns + STEP_NS * steps * max(1, sum(in_blocks)), target))]


def _loading_ns(kernel: Kernel, blocks: int, target: CudaTarget) -> float:
    """Of the loads that threads carry out, also those of elements that others have loaded."""
    loads = 0
    for block in kernel.blocks:
        points = prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))
        loads += points * len({load for value in block.values for load in value.loads})
    return loads / (max(min(blocks, target.multiprocessors), 1) * LOADS * target.clock_ghz)


def _waste(workload: Workload) -> list[float]:
    """By operand and result, how many times more than its elements is moved.

    Neighbouring threads whose elements are apart fetch sectors of their own.
    """
    assert isinstance(workload.kernel, Kernel)
    kernel, slots = without_unit_axes(contract_temps(workload.kernel)), Slots(workload)
    wasted = dict.fromkeys(slots.buffers, 1.0)
    for block in kernel.blocks:
        stores = [slots.address(store.slot, store.index)[1] for store in block.stores if store.slot in slots.buffers]
        steps = {axis: _step(stores[0], axis) for axis in (*kernel.shared, *block.axes)} if stores else {}
        near = min((axis for axis in steps if steps[axis]), key=lambda axis: steps[axis], default=None)
        if near is None:
            continue
        loads = (load for value in block.values for load in value.loads if load.slot in slots.buffers)
        for load in loads:
            apart = _step(slots.address(load.slot, load.index)[1], near)
            most = SECTOR_BYTES / slots.buffers[load.slot].dtype.bytes
            wasted[load.slot] = max(wasted[load.slot], min(apart, most))
    return [wasted[slot.name] for slot in (*kernel.inputs, *kernel.outputs)]


def _step(address: Index, axis: Axis) -> int:
    """How far apart neighbours along an axis are; 0 if unknown."""
    return abs(address.coefficient(axis) or 0)


def _touched(kernel: Kernel, slot: Slot) -> int:
    """Elements of a slot that are loaded or stored, at most: of a table that is gathered from, a few rows."""
    accesses = 0
    for block in kernel.blocks:
        points = prod(axis.extent for axis in (*kernel.shared, *block.axes, *block.reduction))
        loads = {load for value in block.values for load in value.loads if load.slot == slot.name}
        accesses += points * (len(loads) + sum(store.slot == slot.name for store in block.stores))
    return min(slot.type.elements, accesses)
