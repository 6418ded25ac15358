"""Batches: whether the samples of a batch are computed each by itself, and the kernels for fewer samples.

A value is *batched* along a dimension where that has `size * unit` elements and every `unit` of them, one after
another, belong to one sample. Inputs are batched along their first dimension; what follows is found kernel by kernel.
In each block one parallel axis has `size * step` iterations, and moving it by `step`, from one sample to the next, must
move each access to a batched value by its `unit` along its dimension, and nothing else: no other index, no position
that is used as a number. Accesses for the first sample must stay within it. Then sample n of every result is computed
from sample n of the inputs alone, by the same expressions for every n, and with another size the kernels compute as
many samples.

This is the analysis of dependences that loop fusion needs (Wolfe, High Performance Compilers for Parallel Computing,
1996, chapter 7), for one loop around the whole program: every dependence has distance 0 along it.

Where the size of the batch is only known while running, kernels keep what lies beyond it by choices
(`compiler.forms.bounds`). These are taken out (`compiler.fuse.batches.bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler.fuse.batches.bounds import Bounds, is_of_sample, without_bounds
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import Expr, Load, Position
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.tensor import TensorType


@dataclass(frozen=True)
class Along:
    """Along which dimension a value is batched, and how many elements of it belong to each sample."""

    dim: int
    unit: int


@dataclass(frozen=True)
class Samples:
    """How a kernel goes over samples: for each block the axis that does, if one does, and how slots are batched."""

    axes: tuple[Axis | None, ...]
    along: Mapping[str, Along]


@dataclass(frozen=True)
class Batch:
    """Kernels that compute `size` samples, each by itself.

    along  how buffers are batched, by id; others hold the same for all samples
    count  id of the scalar that says how many samples there are; None: always `size`
    calls  of each call
    """

    kernels: KernelGraph
    size: int
    along: Mapping[int, Along]
    calls: tuple[Samples, ...]
    count: int | None = None

    def of(self, samples: int) -> KernelGraph:
        """The kernels for so many samples, `size` at most. Their buffers keep their ids."""
        buffers = {id: self._buffer(buffer, samples) for id, buffer in self.kernels.buffers.items()}
        calls = tuple(
            replace(call, kernel=self._kernel(call.kernel, own, samples))
            for call, own in zip(self.kernels.calls, self.calls, strict=True)
        )
        constants = {id: self._constant(id, array, samples) for id, array in self.kernels.constants.items()}
        return replace(self.kernels, buffers=buffers, calls=calls, constants=constants)

    def _buffer(self, buffer: Buffer, samples: int) -> Buffer:
        along = self.along.get(buffer.id)
        return replace(buffer, type=_typed(buffer.type, along, samples)) if along else buffer

    def _constant(self, id: int, array: np.ndarray, samples: int) -> np.ndarray:
        along = self.along.get(id)
        if along is None:
            return array
        return np.ascontiguousarray(np.take(array, range(along.unit * samples), axis=along.dim))

    def _kernel(self, kernel: Kernel | Routine, own: Samples, samples: int) -> Kernel:
        assert isinstance(kernel, Kernel), "a batch has loop nests alone"

        def slot(one: Slot) -> Slot:
            return replace(one, type=_typed(one.type, own.along[one.name], samples)) if one.name in own.along else one

        mapping = {axis: self._fewer(axis, samples) for axis in own.axes if axis is not None}
        return replace(
            kernel,
            inputs=tuple(map(slot, kernel.inputs)),
            outputs=tuple(map(slot, kernel.outputs)),
            temps=tuple(map(slot, kernel.temps)),
            shared=tuple(mapping.get(axis, axis) for axis in kernel.shared),
            blocks=tuple(
                _with_axis(block, axis, self._fewer(axis, samples)) if axis else block
                for block, axis in zip(kernel.blocks, own.axes, strict=True)
            ),
        )

    def _fewer(self, axis: Axis, samples: int) -> Axis:
        return Axis(axis.name, axis.extent // self.size * samples)


def batch_of(kernels: KernelGraph, count: int | None = None) -> Batch | str | None:
    """The batch of kernels whose inputs have it as first dimension, or why samples depend on each other.

    None where no input has several samples. `count` is the scalar that says how many there are, by id: the first
    dimension is the greatest that it may be; None where it is always that.
    """
    firsts = [kernels.buffers[id].type.dims[:1] for id in kernels.inputs]
    size = max((dims[0] for dims in firsts if dims), default=1)
    if size <= 1:
        return None
    bounds: list[Bounds] = [{} for _ in kernels.calls]
    if count is not None:
        kernels, bounds = without_bounds(kernels, count, size)
    along = {id: Along(0, 1) for id, dims in zip(kernels.inputs, firsts, strict=True) if dims == (size,)}
    calls = []
    for call, own in zip(kernels.calls, bounds, strict=True):
        _look_at_views(kernels, call.inputs, size, along)
        found = _call(kernels, call, size, along)
        if isinstance(found, str):
            return f"{call.kernel.family} {found}"
        if not all(
            is_of_sample(bound, times, found.axes[at], size) for at, each in own.items() for bound, times in each
        ):
            return f"{call.kernel.family} compares the size of the batch with something else than a sample"
        calls.append(found)
    _look_at_views(kernels, kernels.buffers, size, along)
    for id in kernels.outputs:
        if not (_is_whole_result(kernels, id, along) or (id in along and along[id].dim == 0)) or id in kernels.inputs:
            return f"output {kernels.buffers[id].name!r} does not consist of a part for each sample"
    for storage, ids in kernels.lying_in.items():
        if not _lies_by_samples([kernels.buffers[id] for id in ids], along, size):
            return f"the samples of `{kernels.buffers[ids[0]]}` do not lie one after another in s{storage}"
    return Batch(kernels, size, along, tuple(calls), count)


def _is_whole_result(kernels: KernelGraph, id: int, along: Mapping[int, Along]) -> bool:
    """Whether an output is made by a call that makes nothing of samples."""
    return id in kernels.writer and along.keys().isdisjoint(kernels.calls[kernels.writer[id]].outputs)


def _look_at_views(kernels: KernelGraph, ids: Iterable[int], size: int, along: dict[int, Along]) -> None:
    """Buffers are batched as others of their storage, of which they are views: samples lie where they lie."""
    for id in ids:
        buffer = kernels.buffers[id]
        known = [kernels.buffers[other] for other in kernels.lying_in[buffer.storage] if other in along]
        if id in along or not known:
            continue
        length = _stride(known[0], along[known[0].id].dim) * along[known[0].id].unit
        for dim, extent in enumerate(buffer.type.dims):
            unit, rest = divmod(extent, size)
            if not rest and unit and not buffer.layout.block_of(dim) and _stride(buffer, dim) * unit == length:
                along[id] = Along(dim, unit)


def _stride(buffer: Buffer, dim: int) -> int:
    """Elements from one index of a whole dimension to the next."""
    return buffer.strides[buffer.layout.dims.index((dim, 0))]


def _call(kernels: KernelGraph, call: Call, size: int, along: dict[int, Along]) -> Samples | str:
    """How its kernel goes over samples; `along` gets what is known then of results, and of constants."""
    if not isinstance(call.kernel, Kernel):
        return "is no loop nest"
    slots = tuple(zip((*call.kernel.inputs, *call.kernel.outputs), (*call.inputs, *call.outputs), strict=True))
    found = _Kernel(call.kernel, size, {slot.name: along[id] for slot, id in slots if id in along})
    found.spread()
    if said := found.fault():
        return said
    for slot, id in slots:
        new = found.along.get(slot.name)
        if new is None or id in along:
            if new != along.get(id):
                return f"reads {slot.name} in two ways"
        elif id in kernels.constants:
            if not _is_the_same(kernels.constants[id], new, size):
                return "reads constants of which each sample has its own"
            along[id] = new
        elif slot in call.kernel.outputs:
            along[id] = new
        else:
            return f"reads {slot.name}, which is the same for all samples, sample by sample"
    return Samples(tuple(found.axes), found.along)


class _Kernel:
    """What is found of one kernel: how its slots are batched, and which axis of each block goes over samples."""

    def __init__(self, kernel: Kernel, size: int, known: Mapping[str, Along]) -> None:
        self.kernel, self.size, self.along = kernel, size, dict(known)
        self.axes: list[Axis | None] = [None] * len(kernel.blocks)

    def spread(self) -> None:
        """From what is known of some slots to the axes that go over samples, and on to all slots."""
        grown = True
        while grown:
            before = len(self.along), list(self.axes)
            for at, block in enumerate(self.kernel.blocks):
                if self.axes[at] is None:
                    self.axes[at] = self._axis(block)
                self._spread(block, self.axes[at])
            grown = before != (len(self.along), self.axes)

    def fault(self) -> str:
        """Why samples are not computed each by itself; empty where they are."""
        for block, axis in zip(self.kernel.blocks, self.axes, strict=True):
            for access in _accesses(block):
                if self._moves(access, axis) != self._wanted(access) or not self._stays(access, axis):
                    return f"reads or writes {access.slot} across samples"
            if axis is None:
                continue
            for position in _positions(block):
                if _move(position.index, axis, axis.extent // self.size) != 0:
                    return "computes with the number of the sample"
        return ""

    def _axis(self, block: Block) -> Axis | None:
        """The parallel axis that goes over samples, by a batched slot that the block accesses."""
        shared = [axis for axis in self.axes if axis in self.kernel.shared]
        if shared:
            return shared[0]
        ordered = {*block.reduction, *block.sequential, *self.kernel.sequential}
        for access in _accesses(block):
            if (along := self.along.get(access.slot)) is None:
                continue
            index = access.index[along.dim]
            for axis in sorted(index.axes, key=lambda one: one.name):
                step, rest = divmod(axis.extent, self.size)
                if not rest and axis not in ordered and _move(index, axis, step) == along.unit:
                    return axis
        return None

    def _spread(self, block: Block, axis: Axis | None) -> None:
        if axis is None:
            return
        for access in _accesses(block):
            moves = self._moves(access, axis)
            if access.slot in self.along or moves is None or sum(map(bool, moves)) != 1:
                continue
            dim, unit = next((dim, unit) for dim, unit in enumerate(moves) if unit)
            if self.kernel.slots[access.slot].type.dims[dim] == self.size * unit:
                self.along[access.slot] = Along(dim, unit)

    def _moves(self, access: Load | Store, axis: Axis | None) -> tuple[int, ...] | None:
        """By how much each index of an access moves from one sample to the next; None where it does otherwise."""
        if axis is None:
            return (0,) * len(access.index)
        moves = [_move(index, axis, axis.extent // self.size) for index in access.index]
        return None if None in moves else tuple(move for move in moves if move is not None)

    def _stays(self, access: Load | Store, axis: Axis | None) -> bool:
        """Whether what belongs to the first sample is all that is accessed for it."""
        along = self.along.get(access.slot)
        if along is None or axis is None:
            return True
        low, high = _of_first(access.index[along.dim], axis, self.size).range
        return low >= 0 and high < along.unit

    def _wanted(self, access: Load | Store) -> tuple[int, ...]:
        along = self.along.get(access.slot)
        return tuple(along.unit if along and along.dim == dim else 0 for dim in range(len(access.index)))


def _accesses(block: Block) -> Iterator[Load | Store]:
    """All that a block reads and writes, what indices are read from included."""
    for value in block.values:
        yield from value.loads
    for store in block.stores:
        yield store
        for index in store.index:
            yield from Position(index).loads


def _positions(block: Block) -> Iterator[Position]:
    """Indices that are used as numbers."""
    values: list[Expr] = [*block.values, *(Position(index) for store in block.stores for index in store.index)]
    own = set(map(id, values[len(block.values) :]))
    for value in values:
        yield from (one for one in value.walk() if isinstance(one, Position) and id(one) not in own)


def _move(index: Index, axis: Axis, step: int) -> int | None:
    """By how much an index rises where an axis does by a step, the same everywhere; None where it is not so.

    What is read from memory counts as unmoved: it is a number of the sample's own, and its loads are looked at
    themselves.
    """
    if any(isinstance(atom, Indirect) for atom, _ in index.terms):
        index = Index(tuple(term for term in index.terms if not isinstance(term[0], Indirect)), index.const)
    moved = index.substitute({axis: Index.of(axis) + step}) - index
    return moved.const if moved.is_const else None


def _of_first(index: Index, axis: Axis, size: int) -> Index:
    """An index for the first of `size` samples."""
    return index.substitute({axis: Index.of(Axis(axis.name, axis.extent // size))})


def _is_the_same(array: np.ndarray, along: Along, size: int) -> bool:
    """Whether a constant holds the same for every sample."""
    shape = (*array.shape[: along.dim], size, along.unit, *array.shape[along.dim + 1 :])
    samples = np.moveaxis(array.reshape(shape), along.dim, 0)
    return all(one.tobytes() == samples[0].tobytes() for one in samples[1:])


def _lies_by_samples(buffers: list[Buffer], along: Mapping[int, Along], size: int) -> bool:
    """Whether the buffers of a storage lie so that sample after sample is one stretch of it, the same in all of them.

    Then fewer samples lie as the first ones do.
    """
    if not any(buffer.id in along for buffer in buffers):
        return True
    lengths = set()
    for buffer in buffers:
        one = along.get(buffer.id)
        if one is None or buffer.layout.block_of(one.dim) or min(buffer.strides, default=0) < 0:
            return False
        if 0 in buffer.type.dims:
            return False
        length = _stride(buffer, one.dim) * one.unit
        if replace(buffer, type=_typed(buffer.type, one, 1)).span > length:
            return False
        lengths.add((length, buffer.dtype))
    return len(lengths) == 1


def _typed(type: TensorType, along: Along, samples: int) -> TensorType:
    dims = list(type.dims)
    dims[along.dim] = along.unit * samples
    return replace(type, shape=tuple(dims))


def _with_axis(block: Block, axis: Axis, fewer: Axis) -> Block:
    mapping = {axis: Index.of(fewer)}
    return replace(
        block,
        axes=tuple(fewer if one == axis else one for one in block.axes),
        values=tuple(value.substitute(mapping) for value in block.values),
        stores=tuple(
            replace(store, index=tuple(index.substitute(mapping) for index in store.index)) for store in block.stores
        ),
    )
