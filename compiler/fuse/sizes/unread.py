"""Results of which nobody reads what lies beyond a size: it need not be stored.

A program for all sizes of a dimension keeps zeros beyond the size (`compiler.forms.bounds`). Where every reader of a
result has the same bound, and reads for each of its points below the size only elements below it, these zeros are
written for nobody: at a batch of 2 of 8, three quarters of all that is written. A window reads a few elements behind
the size, its padding at the end, and no others: these alone are stored. Integers keep all: a number from memory that
nobody wrote must not become a place. Of the model's outputs nobody reads what lies beyond their sizes, but for those
of a body, which its next iteration may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.forms.bounds import Beyond, Bound, beyond_bounds, bounds_in, guarded_loads, quotient_of
from compiler.forms.size_bounds import Sizes
from compiler.forms.winograd import MOST_ELEMENTS, TAPS, sums_channels
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel


@dataclass(frozen=True)
class _Beyond:
    """A bound of a call: the buffer with the size, the axis that must stay below it, and what is stored beyond."""

    size: int
    axis: Axis
    whole: Beyond


@dataclass(frozen=True)
class _Limit:
    """`times` a size, by the id of its scalar: a kernel writes so many elements at each point of an axis below it."""

    sizes: Sizes
    size: int
    times: int

    def is_size(self, id: int) -> bool:
        """Whether a scalar is the limit."""
        return (id == self.size and self.times == 1) or self.sizes.is_times(id, self.size, self.times)


def with_unread(kernels: KernelGraph, cut: frozenset[int] = frozenset()) -> KernelGraph:
    """The same, with `unread` and `margins` right for each buffer.

    `cut`: outputs of which nobody outside reads what lies beyond their sizes.
    """
    sizes = Sizes(kernels)
    bounds = [_bounds(call) for call in kernels.calls]
    touched: dict[int, list[int]] = {}
    for at, call in enumerate(kernels.calls):
        for id in dict.fromkeys((*call.inputs, *call.outputs)):
            touched.setdefault(kernels.buffers[id].storage, []).append(at)
    kept = [id for id in kernels.outputs if id not in cut]
    fixed = {kernels.buffers[id].storage for id in (*kernels.inputs, *kept) if id in kernels.buffers}
    found: dict[int, tuple[bool, tuple[int, ...]]] = {}
    for at, call in enumerate(kernels.calls):
        for id in call.outputs if _is_bounded(call, bounds[at]) else ():
            buffer = kernels.buffers[id]
            if buffer.storage not in fixed and (buffer.type.dtype.is_float or id in kernels.outputs):
                found[id] = _margins(kernels, bounds, sizes, at, id, touched[buffer.storage])
    marks = {id: found.get(id, (False, ())) for id in kernels.buffers}
    if all((buffer.unread, buffer.margins) == marks[id] for id, buffer in kernels.buffers.items()):
        return kernels
    buffers = {id: replace(buffer, unread=marks[id][0], margins=marks[id][1]) for id, buffer in kernels.buffers.items()}
    return replace(kernels, buffers=buffers)


def _bounds(call: Call) -> tuple[_Beyond, ...]:
    """Bounds on single axes that all of a kernel's blocks share."""
    if not isinstance(call.kernel, Kernel):
        return ()
    found = []
    names = [slot.name for slot in call.kernel.inputs]
    for one in beyond_bounds(call.kernel):
        for axis in one.bound.place.axes & {*call.kernel.shared}:
            if one.bound.place == Index.of(axis):
                found.append(_Beyond(call.inputs[names.index(one.bound.size.slot)], axis, one))
    return tuple(found)


def _is_bounded(call: Call, bounds: Sequence[_Beyond]) -> bool:
    """Whether these are all bounds of a kernel along what it stores, in whatever form it is written.

    Where an axis ends that is only summed, as that of attention's keys, says nothing of what is stored.
    """
    if not bounds or not isinstance(call.kernel, Kernel):
        return False
    outputs = {slot.name for slot in call.kernel.outputs}
    stores = [store for block in call.kernel.blocks for store in block.stores if store.slot in outputs]
    along = {axis for store in stores for index in store.index for axis in index.axes}
    return len(bounds) == sum(not along.isdisjoint(one.place.axes) for one in bounds_in(call.kernel))


def _margins(
    kernels: KernelGraph,
    bounds: Sequence[Sequence[_Beyond]],
    sizes: Sizes,
    writer: int,
    id: int,
    touching: Sequence[int],
) -> tuple[bool, tuple[int, ...]]:
    """`unread` and `margins` of a result, as those say that touch the same storage."""
    known = (False, ())
    buffer = kernels.buffers[id]
    others = [at for at in touching if at != writer]
    readers = [at for at in others if any(_shares(kernels, other, id) for other in kernels.calls[at].inputs)]
    if id not in kernels.outputs and any(_shares(kernels, other, id) for other in kernels.outputs):
        return known
    call = kernels.calls[writer]
    if any(_shares(kernels, other, id) for other in call.inputs):
        return known
    if [kernels.buffers[other].storage for other in call.outputs].count(buffer.storage) != 1:
        return known
    assert isinstance(call.kernel, Kernel)
    slot = call.kernel.outputs[call.outputs.index(id)].name
    stores = [store.index for block in call.kernel.blocks for store in block.stores if store.slot == slot]
    margins = [-1] * buffer.type.rank
    unread = True
    for one in bounds[writer]:
        dim, times = _dim_of(one.axis, stores)
        limit = _Limit(sizes, one.size, times)
        digits = {_digit(buffer, index, one.axis) for index in stores} if times == 1 else {_digit_of(buffer, dim)}
        below = [
            len(digits) == 1
            and None not in digits
            and _stays_below(kernels, kernels.calls[at], bounds[at], limit, buffer.storage, digits)
            for at in readers
        ]
        unread = unread and all(below)
        if dim < 0:
            continue
        others = [at for at, is_below in zip(readers, below, strict=True) if not is_below]
        reached = [_reach(kernels, kernels.calls[at], bounds[at], limit, buffer, dim) for at in others]
        margins[dim] = -1 if None in reached else max([0, *(reach for reach in reached if reach is not None)])
    return unread, () if unread or set(margins) == {-1} else tuple(margins)


def _dim_of(axis: Axis, stores: Sequence[tuple[Index, ...]]) -> tuple[int, int]:
    """The dimension along which an axis stands in the only store, and the elements there that belong to one point.

    -1 where it stands in none so, or there are more stores.
    """
    for dim, index in enumerate(stores[0] if len(stores) == 1 else ()):
        times = index.coefficient(axis)
        if times and times > 0:
            low, high = (index - Index.of(axis) * times).range
            if low == 0 and high == times - 1:
                return dim, times
    return -1, 1


def _shares(kernels: KernelGraph, one: int, other: int) -> bool:
    """Whether two buffers lie in one storage; ids of no buffer share nothing."""
    return one in kernels.buffers and kernels.buffers[one].storage == kernels.buffers[other].storage


def _reach(
    kernels: KernelGraph,
    call: Call,
    bounds: Sequence[_Beyond],
    limit: _Limit,
    written: Buffer,
    dim: int,
) -> int | None:
    """How many elements behind a size along a dimension a reader's results come from at most; None if unknown."""
    if not isinstance(call.kernel, Kernel):
        return None
    slots = _slots(kernels, call, written.storage)
    if not all(_alike(buffer, written, dim) for buffer in slots.values()):
        return None
    kernel_wide = [
        one for one in bounds if not any(load.slot in slots for s in one.whole.stored for load in s.value.loads)
    ]
    ids = {slot.name: id for slot, id in zip(call.kernel.inputs, call.inputs, strict=True)}
    tiled = sums_channels(call.kernel)
    most = 0
    for load, around in guarded_loads(call.kernel):
        if load.slot not in slots:
            continue
        known = [*((one.size, one.axis) for one in kernel_wide), *_axes(around, ids)]
        ends = [_end(limit, axis, bound, load.index[dim], tiled) for bound, axis in known]
        least = min((end for end in ends if end is not None), default=None)
        if least is None:
            return None
        most = max(most, least)
    return most


def _axes(bounds: Sequence[Bound], ids: Mapping[str, int]) -> Iterator[tuple[int, Axis]]:
    """Those bounds that are one axis, with the size's buffer."""
    for bound in bounds:
        for axis in bound.place.axes:
            if bound.place == Index.of(axis):
                yield ids[bound.size.slot], axis


def _end(limit: _Limit, axis: Axis, bound: int, place: Index, tiled: bool) -> int | None:
    """How far behind a limit a place lies at most, where an axis stays below a bound; None if unknown.

    `tiled`: whether Winograd's forms may compute the reader. They add up what a whole tile of outputs reads, some of
    which may lie beyond: in exact arithmetic that cancels, but not where what is there is not a number.
    """
    whole, divisor = quotient_of(place)
    if divisor > 1 and whole == Index.of(axis):
        excess = limit.sizes.excess(bound, 1, limit.size, divisor * limit.times)
        return None if excess is None else (excess - 1) // divisor + 1
    factor = place.coefficient(axis)
    if not factor or factor < 0:
        return None
    excess = limit.sizes.excess(bound, factor, limit.size, limit.times)
    others = Index(tuple(term for term in place.terms if term[0] != axis), place.const)
    taps = [tap.extent for tap in others.axes if tap.extent in TAPS] if factor == 1 and tiled else []
    around = max((MOST_ELEMENTS - count for count in taps), default=0)
    return None if excess is None else excess - factor + others.range[1] + 1 + around


def _alike(one: Buffer, other: Buffer, dim: int) -> bool:
    """Whether two buffers of one storage have the elements at each position of a dimension in the same places."""
    if _geometry(one) == _geometry(other):
        return True
    if one.type.rank != other.type.rank or one.type.dims[dim] != other.type.dims[dim]:
        return False
    first, second = (_digit_of(buffer, dim) for buffer in (one, other))
    return first is not None and first == second


def _digit_of(buffer: Buffer, dim: int) -> tuple[int, int] | None:
    axes = [Axis(f"a{at}", extent) for at, extent in enumerate(buffer.type.dims)]
    return _digit(buffer, tuple(map(Index.of, axes)), axes[dim])


def _geometry(buffer: Buffer) -> tuple[object, ...]:
    """Where the elements of a buffer lie."""
    return buffer.type, buffer.layout, buffer.storage, buffer.strides, buffer.offset


def _stays_below(
    kernels: KernelGraph,
    call: Call,
    bounds: Sequence[_Beyond],
    limit: _Limit,
    storage: int,
    digits: set[tuple[int, int] | None],
) -> bool:
    """Whether a reader's results below a limit come from elements of a storage below it, and others from none."""
    if not isinstance(call.kernel, Kernel):
        return False
    slots = _slots(kernels, call, storage)
    kernel_wide = [
        one.axis
        for one in bounds
        if limit.is_size(one.size) and not any(load.slot in slots for s in one.whole.stored for load in s.value.loads)
    ]
    ids = {slot.name: id for slot, id in zip(call.kernel.inputs, call.inputs, strict=True)}
    return all(
        any(
            _digit(slots[load.slot], load.index, axis) in digits
            for axis in (*kernel_wide, *(axis for id, axis in _axes(around, ids) if limit.is_size(id)))
        )
        for load, around in guarded_loads(call.kernel)
        if load.slot in slots
    )


def _slots(kernels: KernelGraph, call: Call, storage: int) -> Mapping[str, Buffer]:
    """The slots through which a call reads a storage."""
    if not isinstance(call.kernel, Kernel):
        return {}
    bound = zip(call.kernel.inputs, call.inputs, strict=True)
    return {slot.name: kernels.buffers[id] for slot, id in bound if kernels.buffers[id].storage == storage}


def _digit(buffer: Buffer, index: tuple[Index, ...], axis: Axis) -> tuple[int, int] | None:
    """An axis as a digit of an element's address: how much one step of it is, and its extent; None where it is none.

    All else in the address is less than a step, or makes whole turns of the axis. What is read is inside of the buffer,
    whatever range its index has.
    """
    step = buffer.address(index).coefficient(axis)
    if not step or step < 0:
        return None
    turn = step * axis.extent
    low = high = buffer.offset % turn
    extents = buffer.layout.physical(buffer.type.dims)
    for (dim, _), stride, extent in zip(buffer.layout.dims, buffer.strides, extents, strict=True):
        position = index[dim]
        if axis not in position.axes:
            high += (extent - 1) * stride if stride % turn else 0
            continue
        if buffer.layout.block_of(dim) or not all(isinstance(atom, Axis) for atom, _ in position.terms):
            return None
        rest = Index(tuple((atom, factor) for atom, factor in position.terms if atom != axis), position.const)
        least, most = rest.range
        low, high = low + stride * least, high + stride * most
    return (step, axis.extent) if low >= 0 and high < step else None
