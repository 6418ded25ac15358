"""Maps as transposes: operands contiguous along one axis, results along another, as where NCHW becomes NHWC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.forms.normal_form import Slots, contract_temps, join_shared, without_unit_axes
from compiler.ir.expr import Load, certain_loads
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload


@dataclass(frozen=True)
class Transpose:
    """A map whose results are contiguous along `writes`, and some loads along `reads` and not along `writes`.

    `kernel` has only shared axes, joined where that costs no division; `transposed` are those loads that are carried
    out at every point.
    """

    kernel: Kernel
    reads: Axis
    writes: Axis
    transposed: tuple[Load, ...]

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The other axes."""
        return tuple(axis for axis in self.kernel.shared if axis not in (self.reads, self.writes))


def as_transpose(workload: Workload) -> Transpose | None:
    """A kernel without loops as a transpose, or None if it is not one."""
    if not isinstance(workload.kernel, Kernel) or workload.kernel.sequential:
        return None
    kernel, slots = contract_temps(without_unit_axes(workload.kernel)), Slots(workload)
    if len(kernel.blocks) == 1 and not kernel.shared and not kernel.temps:
        (block,) = kernel.blocks
        if block.sequential:
            return None
        kernel = replace(kernel, shared=block.axes, blocks=(replace(block, axes=()),))
    if any(block.axes or block.monoid for block in kernel.blocks) or any(temp.type.rank for temp in kernel.temps):
        return None
    outputs = {slot.name for slot in kernel.outputs}
    if any(block.reads & outputs for block in kernel.blocks):
        return None
    kernel = _joined(kernel, slots)
    written = [_offset(store.slot, store.index, slots) for store in _stores(kernel, outputs)]
    along = [axis for axis in kernel.shared if all(offset.coefficient(axis) == 1 for offset in written)]
    for writes in along[:1]:
        for reads in kernel.shared:
            transposed = tuple(
                load for load in _input_loads(kernel, slots) if _is_transposed(load, reads, writes, slots)
            )
            if transposed and reads != writes and all(offset.coefficient(reads) for offset in written):
                return Transpose(kernel, reads, writes, tuple(dict.fromkeys(transposed)))
    return None


def _stores(kernel: Kernel, outputs: set[str]) -> list[Load]:
    """Where outputs are stored, as the loads of the same elements."""
    return [
        Load(store.slot, store.index, kernel.slots[store.slot].type.dtype)
        for block in kernel.blocks
        for store in block.stores
        if store.slot in outputs
    ]


def _joined(kernel: Kernel, slots: Slots) -> Kernel:
    """Shared axes as the first output lies in memory, outermost first, and joined where they may be."""
    first = _stores(kernel, {slot.name for slot in kernel.outputs})[0]
    offset = _offset(first.slot, first.index, slots)
    shared = sorted(kernel.shared, key=lambda axis: -abs(offset.coefficient(axis) or 0))
    temps = {temp.name for temp in kernel.temps}

    def address(slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        return (slot, Index.of(0)) if slot in temps else slots.address(slot, index)

    return join_shared(replace(kernel, shared=tuple(shared)), address)


def _offset(slot: str, index: tuple[Index, ...], slots: Slots) -> Index:
    return slots.address(slot, index)[1]


def _is_transposed(load: Load, reads: Axis, writes: Axis, slots: Slots) -> bool:
    offset = _offset(load.slot, load.index, slots)
    return offset.coefficient(reads) == 1 and offset.coefficient(writes) not in (0, 1, None)


def _input_loads(kernel: Kernel, slots: Slots) -> Iterator[Load]:
    """The loads of inputs that are carried out whatever conditions say."""
    for block in kernel.blocks:
        for value in block.values:
            yield from (load for load in certain_loads(value) if load.slot in slots.buffers)
