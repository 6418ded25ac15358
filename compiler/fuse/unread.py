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

from compiler.forms.bounds import Beyond, beyond_bounds, bounds_in
from compiler.forms.size_bounds import Sizes
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import Position
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel


@dataclass(frozen=True)
class _Beyond:
    """A bound of a call: the buffer with the size, the axis that must stay below it, and what is stored beyond."""

    size: int
    axis: Axis
    whole: Beyond


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
    """Whether these are all bounds of a kernel, in whatever form it is written."""
    return bool(bounds) and isinstance(call.kernel, Kernel) and len(bounds) == len([*bounds_in(call.kernel)])


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
    readers = [at for at in touching if at != writer]
    buffer = kernels.buffers[id]
    if any(kernels.buffers[other].storage == buffer.storage for at in readers for other in kernels.calls[at].outputs):
        return known
    call = kernels.calls[writer]
    if any(kernels.buffers[other].storage == buffer.storage for other in call.inputs):
        return known
    if [kernels.buffers[other].storage for other in call.outputs].count(buffer.storage) != 1:
        return known
    assert isinstance(call.kernel, Kernel)
    slot = call.kernel.outputs[call.outputs.index(id)].name
    stores = [store.index for block in call.kernel.blocks for store in block.stores if store.slot == slot]
    margins = [-1] * buffer.type.rank
    unread = True
    for one in bounds[writer]:
        digits = {_digit(buffer, index, one.axis) for index in stores}
        below = [
            len(digits) == 1
            and None not in digits
            and _stays_below(kernels, kernels.calls[at], bounds[at], one.size, buffer.storage, digits)
            for at in readers
        ]
        unread = unread and all(below)
        dims = {index.index(Index.of(one.axis)) for index in stores if Index.of(one.axis) in index}
        if len(dims) != 1 or len(stores) != 1:
            continue
        (dim,) = dims
        others = [at for at, is_below in zip(readers, below, strict=True) if not is_below]
        reached = [_reach(kernels, kernels.calls[at], bounds[at], sizes, one.size, buffer, dim) for at in others]
        margins[dim] = -1 if None in reached else max([0, *(reach for reach in reached if reach is not None)])
    return unread, () if unread or set(margins) == {-1} else tuple(margins)


def _reach(
    kernels: KernelGraph,
    call: Call,
    bounds: Sequence[_Beyond],
    sizes: Sizes,
    size: int,
    written: Buffer,
    dim: int,
) -> int | None:
    """How many elements behind a size along a dimension a reader's results come from at most; None if unknown."""
    if not isinstance(call.kernel, Kernel):
        return None
    slots = _slots(kernels, call, written.storage)
    if any(_geometry(buffer) != _geometry(written) for buffer in slots.values()):
        return None
    known = [one for one in bounds if not any(load.slot in slots for s in one.whole.stored for load in s.value.loads)]
    most = 0
    for _, index in _read(call.kernel, slots):
        ends = [_end(sizes, one, size, index[dim]) for one in known]
        least = min((end for end in ends if end is not None), default=None)
        if least is None:
            return None
        most = max(most, least)
    return most


def _end(sizes: Sizes, bound: _Beyond, size: int, place: Index) -> int | None:
    """How far behind a size a place lies at most, where a bound of a reader holds; None if unknown."""
    factor = place.coefficient(bound.axis)
    if not factor or factor < 0:
        return None
    excess = sizes.excess(bound.size, factor, size)
    others = Index(tuple(term for term in place.terms if term[0] != bound.axis), place.const)
    return None if excess is None else excess - factor + others.range[1] + 1


def _geometry(buffer: Buffer) -> tuple[object, ...]:
    """Where the elements of a buffer lie."""
    return buffer.type, buffer.layout, buffer.storage, buffer.strides, buffer.offset


def _stays_below(
    kernels: KernelGraph,
    call: Call,
    bounds: Sequence[_Beyond],
    size: int,
    storage: int,
    digits: set[tuple[int, int] | None],
) -> bool:
    """Whether a reader's results below a size come from elements of a storage below it, and others from none."""
    slots = _slots(kernels, call, storage)
    return isinstance(call.kernel, Kernel) and any(
        one.size == size
        and not any(load.slot in slots for stored in one.whole.stored for load in stored.value.loads)
        and {_digit(*place, one.axis) for place in _read(call.kernel, slots)} <= digits
        for one in bounds
    )


def _slots(kernels: KernelGraph, call: Call, storage: int) -> Mapping[str, Buffer]:
    """The slots through which a call reads a storage."""
    if not isinstance(call.kernel, Kernel):
        return {}
    bound = zip(call.kernel.inputs, call.inputs, strict=True)
    return {slot.name: kernels.buffers[id] for slot, id in bound if kernels.buffers[id].storage == storage}


def _read(kernel: Kernel, slots: Mapping[str, Buffer]) -> Iterator[tuple[Buffer, tuple[Index, ...]]]:
    """What a kernel reads through these slots, and at which index."""
    for block in kernel.blocks:
        values = (*block.values, *(Position(part) for store in block.stores for part in store.index))
        for load in (load for value in values for load in value.loads):
            if load.slot in slots:
                yield slots[load.slot], load.index


def _digit(buffer: Buffer, index: tuple[Index, ...], axis: Axis) -> tuple[int, int] | None:
    """An axis as a digit of an element's address: how much one step of it is, and its extent; None where it is none.

    All else in the address is less than a step, or makes whole turns of the axis. What is read is inside of the buffer,
    whatever range its index has.
    """
    step = buffer.address(index).coefficient(axis)
    if not step or step < 0:
        return None
    turn = step * axis.extent
    low = high = buffer.offset
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
