"""Which bytes of its operands a range of a kernel's tile tasks reads and writes.

A range of tasks is some boxes of the axes that tasks cut (`TaskGrid`). In each of them every index expression of a load
or a store has a least and a greatest value, and so has the place in memory that it leads to. The result may be too
large and is never too small:

- a block's own axes, those of its reduction and what depends on data take all of their values;
- a temporary lives at one point of the shared axes, so that what is read for it is read within the box;
- a load that conditions keep inside its tensor (padding) is cut off where the tensor ends;
- of all the places the hull is given, bytes between them included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.codegen.calls import workload_of
from compiler.codegen.task_grid import TaskGrid
from compiler.devices.cpu.emit.lower import task_grid
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.expr import Position
from compiler.ir.index import Index, Range
from compiler.ir.interval import Limits, range_of
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.plans.touched import Segment, Touched
from compiler.ir.tile import Tile


class KernelRegions:
    """`ir.touched.Regions` of a kernel graph on a CPU.

    Calls of equal workloads share all but where their operands lie.
    """

    def __init__(self, kernels: KernelGraph, target: CpuTarget) -> None:
        self._kernels, self._target = kernels, target
        self._distinct: dict[Workload, Footprints] = {}
        self._of_call: dict[int, Footprints] = {}

    def touched(self, call: int, tile: Tile, first: int, last: int) -> Touched:
        """Bytes of each operand's storage that tile tasks [first, last) of a call read and write under a tile."""
        found, bound = self._footprints(call).touched(tile, first, last), self._kernels.calls[call]
        return Touched(self._placed(found.reads, bound.inputs), self._placed(found.writes, bound.outputs))

    def _footprints(self, call: int) -> Footprints:
        if call not in self._of_call:
            workload = workload_of(self._kernels, self._kernels.calls[call]).nameless
            self._of_call[call] = self._distinct.setdefault(workload, Footprints(workload, self._target))
        return self._of_call[call]

    def _placed(self, segments: Sequence[Segment], buffers: Sequence[int]) -> tuple[Segment, ...]:
        """Segments counted from the first elements of buffers as segments of their storages; empty ones stay empty."""
        moved = []
        for segment, id in zip(segments, buffers, strict=True):
            buffer = self._kernels.buffers[id]
            at = buffer.offset * buffer.dtype.bytes if segment.end > segment.begin else 0
            moved.append(Segment(at + segment.begin, at + segment.end))
        return tuple(moved)


class Footprints:
    """What the tile tasks of one workload touch under each tile that was asked for; what was asked once is known."""

    def __init__(self, workload: Workload, target: CpuTarget) -> None:
        self._workload, self._target = workload, target
        self._under: dict[Tile, Footprint] = {}
        self._touched: dict[tuple[Tile, int, int], Touched] = {}

    def touched(self, tile: Tile, first: int, last: int) -> Touched:
        """By tile tasks [first, last), in bytes from the first element of each operand."""
        if tile not in self._under:
            self._under[tile] = Footprint.of(self._workload, task_grid(self._workload, tile, self._target))
        if (tile, first, last) not in self._touched:
            self._touched[tile, first, last] = self._under[tile].touched(first, last)
        return self._touched[tile, first, last]


@dataclass(frozen=True)
class Footprint:
    """What a kernel's tile tasks touch of each operand, in bytes from its buffer's first element.

    Without a grid that may be anything.
    """

    grid: TaskGrid | None
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]

    @staticmethod
    def of(workload: Workload, grid: TaskGrid | None) -> Footprint:
        """Of constants everything counts as read: they are never written, and what is packed lies in another order."""
        if grid is None:
            return Footprint(None, tuple(map(Operand, workload.inputs)), tuple(map(Operand, workload.outputs)))
        loads, stores = _loads(grid.kernel), _stores(grid.kernel)
        inputs = zip(grid.kernel.inputs, workload.inputs, workload.constant, strict=True)
        outputs = zip(grid.kernel.outputs, workload.outputs, strict=True)
        return Footprint(
            grid,
            tuple(Operand(buffer, None if constant else loads[slot.name]) for slot, buffer, constant in inputs),
            tuple(Operand(buffer, stores[slot.name]) for slot, buffer in outputs),
        )

    def touched(self, first: int, last: int) -> Touched:
        """By tile tasks [first, last)."""
        boxes = [*self.grid.boxes(first, last)] if self.grid else []
        reads, writes = ([operand.segment(boxes) for operand in side] for side in (self.reads, self.writes))
        return Touched(tuple(reads), tuple(writes))


def _loads(kernel: Kernel) -> dict[str, set[tuple[Index, ...]]]:
    """Where each input is read."""
    found: dict[str, set[tuple[Index, ...]]] = {slot.name: set() for slot in kernel.inputs}
    for block in kernel.blocks:
        values = (*block.values, *(Position(index) for store in block.stores for index in store.index))
        for load in (load for value in values for load in value.loads):
            if load.slot in found:
                found[load.slot].add(load.index)
    return found


def _stores(kernel: Kernel) -> dict[str, set[tuple[Index, ...]]]:
    """Where each output is written."""
    found: dict[str, set[tuple[Index, ...]]] = {slot.name: set() for slot in kernel.outputs}
    for store in (store for block in kernel.blocks for store in block.stores):
        if store.slot in found:
            found[store.slot].add(store.index)
    return found


class Operand:
    """One operand, and the indices at which it is accessed; None: anywhere."""

    def __init__(self, buffer: Buffer, indices: Iterable[tuple[Index, ...]] | None = None) -> None:
        self._bytes, self._whole = buffer.dtype.bytes, _reach(buffer)
        self._places = None if indices is None else [_Place(buffer, index) for index in indices]

    def segment(self, boxes: Sequence[Limits]) -> Segment:
        """What is touched at the points of some boxes."""
        if self._places is None:
            found = [self._whole] if self._whole else []
        else:
            found = [ends for place in self._places for box in boxes if (ends := place.within(box))]
        if not found:
            return Segment(0, 0)
        low, high = min(low for low, _ in found), max(high for _, high in found)
        return Segment(low * self._bytes, (high + 1) * self._bytes)


def _reach(buffer: Buffer) -> Range | None:
    """Least and greatest offset of an element from the first; None where there is none.

    A view may go backwards through memory.
    """
    extents = buffer.layout.physical(buffer.type.dims)
    if 0 in extents:
        return None
    steps = [(extent - 1) * stride for extent, stride in zip(extents, buffer.strides, strict=True)]
    return sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)


class _Place:
    """The element at one index of a buffer.

    Its offset has bounds as a sum of axes, and as a sum of dimensions, each kept inside the tensor.
    """

    def __init__(self, buffer: Buffer, index: tuple[Index, ...]) -> None:
        self._index, self._dims = index, buffer.type.dims
        self._offset = buffer.address(index) - buffer.offset
        layout = buffer.layout
        self._steps = [
            (axis, block, layout.block_of(axis), stride)
            for (axis, block), stride in zip(layout.dims, buffer.strides, strict=True)
        ]

    def within(self, limits: Limits) -> Range | None:
        """Least and greatest offset from the first element, in elements; None where it lies outside the tensor."""
        ends = []
        for index, extent in zip(self._index, self._dims, strict=True):
            low, high = range_of(index, limits)
            ends.append((max(low, 0), min(high, extent - 1)))
        if any(low > high for low, high in ends):
            return None
        first, last = range_of(self._offset, limits)
        least = most = 0
        for axis, block, inner, stride in self._steps:
            low, high = ends[axis]
            if block:
                low, high = (low % inner, high % inner) if low // inner == high // inner else (0, inner - 1)
            elif inner:
                low, high = low // inner, high // inner
            least += min(low * stride, high * stride)
            most += max(low * stride, high * stride)
        least, most = max(first, least), min(last, most)
        return (least, most) if least <= most else None
