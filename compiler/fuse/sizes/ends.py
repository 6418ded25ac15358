"""Kernels end where what they sum or store ends, if the kernels around them say where.

A kernel stops at a size where its own results say so (`compiler.forms.bounds`). When all is fused, two things more are
known. A sum over elements that are zero beyond a size may end there. And where all readers of a result read it below a
size only, the kernel that makes it may stop at the size. Where it computes an element at `factor` * a + phase, as a
transposed convolution does, it stops at the size of a, which is another scalar.

This is done behind the choice of layouts and joins, so that these are what they are without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from compiler.forms.bounds import Bound, beyond_bounds, bounds_in, guarded_loads, quotient_of, within
from compiler.forms.size_bounds import Sizes
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

SIZE = TensorType(DType.I64, ())
Ends = frozenset[tuple[int, int]]
"""Of a buffer: dimensions, and the sizes, by the id of their scalar, from which on nothing matters along them."""


def with_ends(kernels: KernelGraph) -> KernelGraph:
    """The same with the ends of sums, and of results, in the kernels that did not say them."""
    if not any(isinstance(call.kernel, Kernel) and any(bounds_in(call.kernel)) for call in kernels.calls):
        return kernels
    return _Ending(kernels).done()


@dataclass(frozen=True)
class _End:
    """That a kernel's shared axis stays below a size, by the id of its scalar."""

    axis: Axis
    size: int


class _Ending:
    """One pass over a kernel graph: forwards for sums, backwards for results."""

    def __init__(self, kernels: KernelGraph) -> None:
        self.kernels, self.calls = kernels, list(kernels.calls)
        self.sizes = Sizes(kernels)
        self.made = {kernels.buffers[id].storage: at for at, call in enumerate(self.calls) for id in call.outputs}
        self.alone = self._alone()

    def done(self) -> KernelGraph:
        """The kernel graph with all ends."""
        zero: dict[int, Ends] = {}
        for at, call in enumerate(self.calls):
            self.calls[at] = call = _with_ended_maps(_with_ended_sums(call, zero), zero)
            zero.update(_zero(call))
        for at in reversed(range(len(self.calls))):
            self.calls[at] = self._ended(at)
        return replace(self.kernels, calls=tuple(self.calls))

    def _alone(self) -> frozenset[int]:
        """Buffers of floats that share their storage with no other, and that nobody outside reads."""
        buffers = self.kernels.buffers
        storages = [buffer.storage for buffer in buffers.values()]
        outside = {buffers[id].storage for id in (*self.kernels.outputs, *self.kernels.inputs) if id in buffers}
        return frozenset(
            id
            for id, buffer in buffers.items()
            if storages.count(buffer.storage) == 1 and buffer.storage not in outside and buffer.type.dtype.is_float
        )

    def _ended(self, at: int) -> Call:
        """A call whose results end where their readers do."""
        call = self.calls[at]
        kernel = call.kernel
        if not isinstance(kernel, Kernel) or not _in_any_order(kernel) or not {*call.outputs} <= self.alone:
            return call
        found = reduce(frozenset.__and__, (self._wanted(at, place) for place in range(len(call.outputs))))
        bounded = {(one.bound.place, one.bound.size) for one in beyond_bounds(kernel)}
        for end in sorted(found, key=lambda end: (end.axis.name, end.size)):
            kernel, inputs, size = _with_size(kernel, call.inputs, end.size)
            if (Index.of(end.axis), size) not in bounded:
                ended = _with_end(kernel, end.axis, size)
                call = replace(call, kernel=ended, inputs=inputs) if ended else call
                kernel = call.kernel if isinstance(call.kernel, Kernel) else kernel
        return call

    def _wanted(self, at: int, place: int) -> frozenset[_End]:
        """Below which sizes alone a result is read, as ends of the kernel's axes."""
        call = self.calls[at]
        kernel, id = call.kernel, call.outputs[place]
        assert isinstance(kernel, Kernel)
        stores = [
            store for block in kernel.blocks for store in block.stores if store.slot == kernel.outputs[place].name
        ]
        readers = [other for other in self.calls[at + 1 :] if id in other.inputs]
        if len(stores) != 1 or not readers:
            return frozenset()
        ends = reduce(frozenset.__and__, (self._read(reader, id) for reader in readers))
        found = (self._end(at, kernel, stores[0].index[dim], size) for dim, size in ends)
        return frozenset(end for end in found if end is not None)

    def _end(self, at: int, kernel: Kernel, place: Index, size: int) -> _End | None:
        """`place` < size as the end of one axis, where it is one."""
        for axis, factor in place.terms:
            if not isinstance(axis, Axis) or axis not in kernel.shared or factor < 1:
                continue
            low, high = (place - Index.of(axis) * factor).range
            if (low, high) == (0, 0) and factor == 1:
                return _End(axis, size) if self._is_known(size, at) else None
            if low >= 0 and high < factor:
                parts = (part for part in self.sizes.parts(size, factor) if self._is_known(part, at))
                return next((_End(axis, part) for part in parts), None)
        return None

    def _is_known(self, size: int, at: int) -> bool:
        """Whether a scalar, or what it is a view of, is made before a call."""
        return self.made.get(self.kernels.buffers[size].storage, -1) < at

    def _read(self, call: Call, id: int) -> Ends:
        """Beyond which sizes a call reads nothing of a buffer."""
        kernel = call.kernel
        if not isinstance(kernel, Kernel):
            return Ends()
        slots = {slot.name for slot, other in zip(kernel.inputs, call.inputs, strict=True) if other == id}
        whole = [
            one.bound
            for one in beyond_bounds(kernel)
            if not any(load.slot in slots for stored in one.stored for load in stored.value.loads)
        ]
        sizes = {slot.name: other for slot, other in zip(kernel.inputs, call.inputs, strict=True)}
        each = [
            frozenset(self._ends(load, [*whole, *bounds], sizes))
            for load, bounds in guarded_loads(kernel)
            if load.slot in slots
        ]
        return reduce(frozenset.__and__, each) if each else Ends()

    def _ends(self, load: Load, bounds: Sequence[Bound], sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """The dimensions along which what is loaded lies below a size, with the size."""
        for bound in bounds:
            size = sizes[bound.size.slot]
            for dim, index in enumerate(load.index):
                whole, divisor = quotient_of(index)
                if index == bound.place:
                    yield dim, size
                elif whole == bound.place:
                    yield from ((dim, part) for part in self.sizes.parts(size, divisor))


def _in_any_order(kernel: Kernel) -> bool:
    return not kernel.sequential and not any(block.sequential for block in kernel.blocks)


def _with_size(kernel: Kernel, inputs: tuple[int, ...], size: int) -> tuple[Kernel, tuple[int, ...], Load]:
    """A kernel that is given a size, what it is given, and the size as it loads it."""
    for slot, id in zip(kernel.inputs, inputs, strict=True):
        if id == size:
            return kernel, inputs, Load(slot.name, (), DType.I64)
    name = _free(kernel, "x", len(kernel.inputs))
    return replace(kernel, inputs=(*kernel.inputs, Slot(name, SIZE))), (*inputs, size), Load(name, (), DType.I64)


def _free(kernel: Kernel, letter: str, first: int) -> str:
    """A name that no slot has."""
    return next(
        name for at in range(first, first + len(kernel.slots) + 1) if (name := f"{letter}{at}") not in kernel.slots
    )


def _below(axis: Axis, size: Load, value: Expr) -> Expr:
    return Where(Apply("lt", (Position(Index.of(axis)), size)), value, Const(0.0, value.dtype))


# Results


def _with_end(kernel: Kernel, axis: Axis, size: Load) -> Kernel | None:
    """A kernel whose results are zero where an axis is not below a size; None where its form does not allow it."""
    outputs = {slot.name for slot in kernel.outputs}
    blocks: list[Block] = []
    temps = list(kernel.temps)
    for block in kernel.blocks:
        if not block.writes & outputs:
            blocks.append(within(block, (Bound(Index.of(axis), size),)))
        elif not block.monoid:
            pairs = zip(block.stores, block.values, strict=True)
            values = (_below(axis, size, value) if store.slot in outputs else value for store, value in pairs)
            blocks.append(replace(block, values=tuple(values)))
        else:
            (store, *others) = block.stores
            type = kernel.slots[store.slot].type
            if others or block.accumulator is not type.dtype:
                return None
            temp = Slot(_free(kernel, "t", len(temps)), type)
            temps.append(temp)
            summed = replace(block, stores=(Store(temp.name, store.index),))
            ended = _below(axis, size, Load(temp.name, store.index, type.dtype))
            blocks += [summed, Block(block.axes, (ended,), (store,))]
    return replace(kernel, blocks=tuple(blocks), temps=tuple(temps))


def _with_ended_maps(call: Call, zero: Mapping[int, Ends]) -> Call:
    """A call that says where its results are zero because what it reads beside its sum is, as a residual.

    Else it would read that beyond the size, and whoever makes it would have to store zeros up to the capacity.
    """
    kernel = call.kernel
    if not isinstance(kernel, Kernel) or not _in_any_order(kernel):
        return call
    ids = {slot.name: id for slot, id in zip(kernel.inputs, call.inputs, strict=True)}
    for one in beyond_bounds(kernel):
        place, size = one.bound.place, ids[one.bound.size.slot]

        def at_zero(part: Expr, place: Index = place, size: int = size) -> Expr:
            if isinstance(part, Load):
                ends = zero.get(ids.get(part.slot, -1), Ends())
                if any(of == size and part.index[dim] == place for dim, of in ends):
                    return Const(0.0, part.dtype)
            return part

        loaded = any(stored.value.loads for stored in one.stored)
        axis = next((axis for axis in kernel.shared if place == Index.of(axis)), None)
        if axis is not None and loaded and all(_is_zero(stored.value.transform(at_zero)) for stored in one.stored):
            ended = _with_end(kernel, axis, one.bound.size)
            return replace(call, kernel=ended) if ended else call
    return call


# Sums


def _with_ended_sums(call: Call, zero: Mapping[int, Ends]) -> Call:
    """A call whose sums end where what they sum is zero."""
    kernel, inputs = call.kernel, call.inputs
    if not isinstance(kernel, Kernel) or not _in_any_order(kernel):
        return call
    for place, block in enumerate(kernel.blocks):
        for axis, size in sorted(_ends_of_sum(kernel, block, inputs, zero), key=str):
            kernel, inputs, load = _with_size(kernel, inputs, size)
            (value,) = kernel.blocks[place].values
            if any(bound == Bound(Index.of(axis), load) for _, bounds in guarded_loads(kernel) for bound in bounds):
                continue
            ended = replace(kernel.blocks[place], values=(_below(axis, load, value),))
            kernel = replace(kernel, blocks=(*kernel.blocks[:place], ended, *kernel.blocks[place + 1 :]))
    return replace(call, kernel=kernel, inputs=inputs) if kernel is not call.kernel else call


def _ends_of_sum(
    kernel: Kernel, block: Block, inputs: Sequence[int], zero: Mapping[int, Ends]
) -> frozenset[tuple[Axis, int]]:
    """The axes of a sum of elements of one operand, and the sizes beyond which they are zero."""
    loads = {load for value in block.values for load in value.loads}
    if block.monoid != "sum" or len(loads) != 1 or len(block.values) != 1:
        return frozenset()
    (load,) = loads
    ids = {slot.name: id for slot, id in zip(kernel.inputs, inputs, strict=True)}
    number = Const(0.0, load.dtype)
    if not load.dtype.is_float or not _is_zero(
        block.values[0].transform(lambda part: number if part == load else part)
    ):
        return frozenset()
    return frozenset(
        (axis, size)
        for dim, size in zero.get(ids.get(load.slot, -1), Ends())
        for axis in block.reduction
        if load.index[dim] == Index.of(axis)
    )


def _zero(call: Call) -> dict[int, Ends]:
    """Beyond which sizes the results of a call are zero."""
    kernel = call.kernel
    if not isinstance(kernel, Kernel):
        return {}
    sizes = {slot.name: id for slot, id in zip(kernel.inputs, call.inputs, strict=True)}
    found: dict[str, set[tuple[int, int]]] = {}
    for one in beyond_bounds(kernel):
        for stored in one.stored:
            if _is_zero(stored.value):
                dims = [dim for dim, index in enumerate(stored.store.index) if index == one.bound.place]
                found.setdefault(stored.store.slot, set()).update((dim, sizes[one.bound.size.slot]) for dim in dims)
    stores = [store.slot for block in kernel.blocks for store in block.stores]
    return {
        id: frozenset(found.get(slot.name, ()))
        for slot, id in zip(kernel.outputs, call.outputs, strict=True)
        if stores.count(slot.name) == 1
    }


def _is_zero(value: Expr) -> bool:
    """Whether an expression that depends on nothing is zero; a product is, where one factor is."""
    if isinstance(value, Apply) and value.function == "mul" and any(map(_is_zero, value.args)):
        return True
    if value.loads or value.axes:
        return False
    result = Slot("y0", TensorType(value.dtype, ()))
    (found,) = evaluate(Kernel("number", (), (result,), (Block((), (value,), (Store("y0", ()),)),)), ())
    return not found.any()
