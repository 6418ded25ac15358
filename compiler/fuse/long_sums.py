"""Long sums cut into segments, which are summed each by itself and then together.

The rounding error of a sum that is added element by element grows with its length, most of all where all elements have
one sign; that of segments and of their sums grows with the lengths of both (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 4.2: pairwise summation and its blocked forms). The cut is made in kernels, so that every
algorithm of every device sees short sums alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from compiler.forms.attention import as_attention
from compiler.forms.normal_form import contract_temps, reduces_then_maps
from compiler.fuse.draft import Draft, Op, Ops, bind
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

LONGEST = 1 << 15
"""Elements that are summed without being cut."""
SEGMENT = 1 << 13
"""Elements of a segment, at most."""
SHORTEST = 1 << 10
"""Elements of a segment, at least, where a divisor of the length decides."""


def split_long_sums(draft: Draft) -> tuple[Buffer, ...]:
    """Cuts the sums of all kernels that are longer than LONGEST; returns the buffers of the values that this makes.

    A kernel that is one sum and maps of it becomes several, so that those that sum segments keep its form, such as that
    of a product. In others, blocks become several. What attention sums over keys stays whole: its algorithms take them
    in blocks.
    """
    ops: list[Op] = []
    made: list[Buffer] = []
    for op in draft.ops:
        kernel = op.kernel
        if not isinstance(kernel, Kernel) or not any(map(_is_long, kernel.blocks)) or kernel.sequential:
            ops.append(op)
        elif reduces_then_maps(contract_temps(kernel)):
            ops += _several_kernels(op, kernel, draft, made)
        elif as_attention(kernel) is None:
            ops.append(replace(op, kernel=_several_blocks(kernel)))
        else:
            ops.append(op)
    draft.ops = Ops(ops)
    return tuple(made)


def _is_long(block: Block) -> bool:
    """Whether a block is a sum in fp32 of more than LONGEST elements."""
    points = prod(axis.extent for axis in block.reduction)
    return block.monoid == "sum" and block.accumulator is DType.F32 and not block.sequential and points > LONGEST


def _several_blocks(kernel: Kernel) -> Kernel:
    """A kernel with a temporary for the sums of the segments of each long sum."""
    blocks: list[Block] = []
    temps = list(kernel.temps)
    for block in kernel.blocks:
        if not _is_long(block):
            blocks.append(block)
            continue
        cut = _Cut.of(block.reduction)
        temps.append(Slot(f"t{len(temps)}", cut.type(block.axes)))
        blocks += [part.sums(block, temps[-1].name, block.axes, part.first) for part in cut.parts]
        blocks.append(cut.total(block, temps[-1].name, block.axes))
    return replace(kernel, blocks=tuple(blocks), temps=tuple(temps))


def _several_kernels(op: Op, kernel: Kernel, draft: Draft, made: list[Buffer]) -> Iterator[Op]:
    """Those that sum segments into parts of one buffer, and one that sums what is there and does what follows."""
    first, *rest = kernel.blocks
    cut = _Cut.of(first.reduction)
    inputs = {slot.name: bound for slot, bound in zip(kernel.inputs, op.inputs, strict=True)}
    outputs = {slot.name: bound for slot, bound in zip(kernel.outputs, op.outputs, strict=True)}
    all_sums = cut.type(kernel.shared)
    whole, storage = Slot("part", all_sums), Buffer.whole(draft.fresh(all_sums), all_sums)
    made.append(storage)
    for part in cut.parts:
        slot, value = Slot(whole.name, part.type(kernel.shared)), storage.id
        if slot.type != whole.type:
            value = draft.fresh(slot.type)
            offset = part.first * storage.strides[len(part.segments) - 1]
            made.append(replace(storage, id=value, type=slot.type, offset=offset))
        block = replace(part.sums(first, slot.name, kernel.shared), axes=())
        shared = (*part.segments, *kernel.shared)
        summed = replace(kernel, outputs=(slot,), blocks=(block,), temps=(), shared=shared)
        yield bind(summed, inputs, {slot.name: value}, op.sources)
    total = replace(cut.total(first, whole.name, kernel.shared), axes=())
    joined = replace(kernel, inputs=(*kernel.inputs, whole), blocks=(total, *rest))
    yield bind(joined, {**inputs, whole.name: storage.id}, outputs, op.sources)


@dataclass(frozen=True)
class _Part:
    """Some segments of a sum: axes over them, the innermost of which counts from `first`, and over what is inside.

    `mapping` gives the axes of the sum in terms of these.
    """

    segments: tuple[Axis, ...]
    inside: tuple[Axis, ...]
    mapping: Mapping[Axis, Index]
    first: int = 0

    def type(self, axes: tuple[Axis, ...]) -> TensorType:
        """Of their sums at all points of `axes`."""
        return TensorType(DType.F32, tuple(axis.extent for axis in (*self.segments, *axes)))

    def sums(self, block: Block, slot: str, axes: tuple[Axis, ...], first: int = 0) -> Block:
        """The block that stores them, for all points of `axes`, from place `first` on."""
        *outer, last = map(Index.of, self.segments)
        store = Store(slot, (*outer, last + first, *map(Index.of, axes)))
        values = tuple(value.substitute(self.mapping) for value in block.values)
        return replace(block, axes=(*self.segments, *block.axes), values=values, stores=(store,), reduction=self.inside)


@dataclass(frozen=True)
class _Cut:
    """A sum in segments: those of one length, and for the remainder one that is shorter."""

    parts: tuple[_Part, ...]

    @staticmethod
    def of(axes: tuple[Axis, ...]) -> _Cut:
        """Segments of at most SEGMENT elements: as many whole inner axes as fit, and a part of the next one."""
        most, inner, place = min(SEGMENT, LONGEST), 1, len(axes)
        while inner * axes[place - 1].extent <= most:
            place -= 1
            inner *= axes[place].extent
        outer, axis, held = axes[: place - 1], axes[place - 1], axes[place:]
        room = most // inner
        length = next(length for length in range(room, 0, -1) if axis.extent % length == 0)
        if length * inner < min(SHORTEST, most):
            length = room
        parts = []
        for begin, count, size in (
            (0, axis.extent // length, length),
            (axis.extent // length, 1, axis.extent % length),
        ):
            segment, element = Axis(f"{axis.name}Segment", count), Axis(f"{axis.name}Element", size)
            at = (Index.of(segment) + begin) * length + element
            parts.append(_Part((*outer, segment), (element, *held), {axis: at}, begin))
        return _Cut(tuple(part for part in parts if part.inside[0].extent))

    @property
    def segments(self) -> tuple[Axis, ...]:
        """Axes over all segments."""
        *outer, last = self.parts[-1].segments
        return (*outer, Axis(last.name, self.parts[-1].first + last.extent))

    def type(self, axes: tuple[Axis, ...]) -> TensorType:
        """Of the sums of all segments at all points of `axes`."""
        return replace(self.parts[0], segments=self.segments).type(axes)

    def total(self, block: Block, slot: str, axes: tuple[Axis, ...]) -> Block:
        """The block that sums these."""
        load = Load(slot, tuple(map(Index.of, (*self.segments, *axes))), DType.F32)
        return replace(block, values=(load,), reduction=self.segments)
