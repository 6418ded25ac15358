"""Sizes that data decide: how many elements are kept, and one of two values by a condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend.open.extent import Number, Numbers, high, is_open, low
from compiler.frontend.open.places import along, capacity, gathered
from compiler.frontend.open.site import OpenSite, capacities, iota
from compiler.frontend.open.values import OpenValues, measured
from compiler.frontend.open.views import Results
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

# One of two

ONE_ELEMENT = {(), (1,)}


def chosen(values: OpenValues, condition: int, then: int, otherwise: int) -> int:
    """`then` where the condition, a scalar, is true, else the other; their sizes may differ.

    A scalar and a tensor of one element give a scalar, as exporters declare both. Raises Unsupported where types or
    ranks differ otherwise.
    """
    if then == otherwise:
        return then
    mine, yours = values.graph.type(then), values.graph.type(otherwise)
    if mine.rank != yours.rank and 0 in (mine.rank, yours.rank) and {mine.dims, yours.dims} <= ONE_ELEMENT:
        then, otherwise = values.reshape(then, ()), values.reshape(otherwise, ())
        mine, yours = values.graph.type(then), values.graph.type(otherwise)
    if mine.dtype is not yours.dtype or mine.rank != yours.rank:
        raise Unsupported(
            f"what it gives is {mine} or {yours}, as a condition says that is known at run time only",
            "make both of one type and rank, or the condition a constant",
        )
    return _one_of(values, [condition], [then, otherwise])


def selected(values: OpenValues, flags: Sequence[int], ids: Sequence[int]) -> int:
    """The value whose flag, a scalar (bool), is true: of several one, which flag is the last one's is not looked at.

    Raises Unsupported where their types or ranks differ.
    """
    kinds = [values.graph.type(id) for id in ids]
    if len({(kind.dtype, kind.rank) for kind in kinds}) > 1:
        raise Unsupported(
            f"what it gives is {kinds[0]} or {kinds[-1]}, as data say", "give the value in the options, or a constant"
        )
    return ids[0] if len(set(ids)) == 1 else _one_of(values, flags[:-1], ids)


def _one_of(values: OpenValues, flags: Sequence[int], ids: Sequence[int]) -> int:
    """The value of the first flag that is true; the last one where none is."""
    columns = zip(*map(values.shape, ids), strict=True)
    shape = tuple(column[0] if len(set(column)) == 1 else _size_of(values, flags, column) for column in columns)
    fitting = [values.settled(id, shape, padded=False) for id in ids]
    return values.settled(_first(values, flags, fitting), shape, padded=False)


def _size_of(values: OpenValues, flags: Sequence[int], sizes: Sequence[Number]) -> Number:
    number = _first(values, flags, [*map(values.scalar, sizes)])
    return measured(values, number, max(min(map(low, sizes)), 0), max(map(high, sizes)), "chosen")


def _first(values: OpenValues, flags: Sequence[int], ids: Sequence[int]) -> int:
    found = ids[-1]
    for flag, id in zip(reversed(flags), reversed(ids[:-1]), strict=True):
        found = values.node("Where", (flag, id, found))
    return found


def truth(values: OpenValues, id: int) -> int:
    """A value of one element as a scalar of type bool. Raises Unsupported for another."""
    kind = values.graph.type(id)
    if kind.elements != 1:
        raise Unsupported(f"its condition has {kind.elements} elements", "give a scalar condition")
    found = values.cast(id, DType.BOOL)
    return found if kind.rank == 0 else values.reshape(found, ())


# Those that are kept


def positions_of(values: OpenValues, flags: int) -> tuple[int, Number]:
    """Where a vector of truth values is true, in ascending order (i64, at capacity), and how often that is."""
    (count,) = values.graph.type(flags).dims
    ones = values.cast(flags, DType.I64)
    running = values.node("CumSum", (ones, None), {"axis": 0, "exclusive": 1, "reverse": 0})
    found = spread(values, running, iota(values, count), flags)
    total = values.node("ReduceSum", (ones, None), {"axes": (0,), "keepdims": 0, "noop_with_empty_axes": 1})
    return found, measured(values, total, 0, count, "kept")


def spread(values: OpenValues, places: int, updates: int, real: int | None = None) -> int:
    """A vector of numbers (i64) put to places, each of which is there once; those that are not real go nowhere."""
    (room,) = values.graph.type(places).dims
    if real is not None:
        places = values.node("Where", (real, places, values.scalar(room)))
    zeros = np.broadcast_to(np.zeros((), np.int64), (room + (real is not None),))
    target = values.graph.constant(zeros, "")
    found = values.node("ScatterElements", (target, places, updates), {"axis": 0, "reduction": "none"})
    return found if real is None else values.part(found, 0, 0, room)


def non_zero(site: OpenSite) -> Results:
    """NonZero: the positions of the elements that are not zero, one column each.

    What lies beyond the sizes is zero, and the elements at capacity have the order that the real ones have.
    """
    values, x = site.values, site.first
    kind = values.graph.type(x)
    line = values.reshape(values.cast(x, DType.BOOL), (kind.elements,))
    found, count = positions_of(values, line)
    rows = []
    step = kind.elements
    for dim in kind.dims or (1,):
        step //= max(dim, 1)
        over = values.node("Div", (found, values.scalar(max(step, 1))))
        turns = values.node("Div", (over, values.scalar(max(dim, 1))))
        whole = values.node("Mul", (turns, values.scalar(max(dim, 1))))
        rows.append(values.node("Unsqueeze", (values.node("Sub", (over, whole)), None), {"axes": (0,)}))
    return [values.settled(values.joined(rows), (len(rows), count))]


def compress(site: OpenSite) -> Results:
    """Compress along an axis, or of all elements one after another, by a condition."""
    values, x = site.values, site.first
    shape, condition = values.shape(x), site.given(1)
    axis = site.attrs.get("axis")
    if axis is None:
        if is_open(shape[1:]):
            raise site.refuse("elements of open axes are taken one after another")
        x = values.reshape(x, (capacity(shape),))
        before: Numbers = ()
        after: Numbers = ()
        room = capacity(shape)
    else:
        place = site.axis(len(shape))
        before, after, room = shape[:place], shape[place + 1 :], high(shape[place])
    flags = values.settled(condition, (min(room, high(values.shape(condition)[0])),), padded=False)
    found, count = positions_of(values, flags)
    moved = gathered(values, x, found, len(before))
    return [along(values, moved, (*before, count, *after), len(before))]


def stacked(values: OpenValues, ids: list[int], count: Number) -> int:
    """Values of one shape along a new first axis, of which the first `count` are real."""
    shapes = {values.shape(id) for id in ids}
    kinds = {values.graph.type(id).dtype for id in ids}
    if len(shapes) != 1 or len(kinds) != 1:
        raise Unsupported("what it stacks changes its shape from iteration to iteration", "export without the loop")
    (shape,) = shapes
    rows = [values.reshape(id, (1, *capacities(shape))) for id in ids]
    return along(values, values.joined(rows), (count, *shape), 0)
