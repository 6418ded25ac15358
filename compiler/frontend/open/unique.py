"""Unique: sorted elements, or slices of a tensor, of which those stay that differ from the one before."""

from __future__ import annotations

from math import prod

import numpy as np

from compiler.frontend.open.extent import Extent, Number, Numbers, is_open
from compiler.frontend.open.measured import positions_of, spread
from compiler.frontend.open.places import capacity, gathered
from compiler.frontend.open.site import OpenSite, capacities, iota
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import Results
from compiler.ir.graph import Attr, Node
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

WIDEST = 64
"""Elements of a slice: one is sorted by each of them, the last one first."""


def unique(site: OpenSite) -> Results:
    """The distinct elements or slices, where each is first, which each one is, and how often each is there.

    NaN is equal to NaN, as in ONNX's reference. What lies beyond the size is sorted among the others and taken out.
    """
    values, x, shape = site.values, site.first, site.shape()
    if (array := values.graph.constants.get(x)) is not None or not capacity(shape):
        return _constants(site, np.zeros(capacities(shape), site.kind(0).dtype.numpy) if array is None else array)
    size, rest, line = _lined_up(site, shape)
    elements, places = _sorted(values, line)
    (room, _) = values.graph.type(line).dims
    steps = iota(values, room)
    real = None
    if isinstance(size, Extent):
        inside, _ = positions_of(values, values.node("Less", (places, values.scalar(size))))
        elements, places = gathered(values, elements, inside, 0), gathered(values, places, inside, 0)
        real = values.node("Less", (steps, values.scalar(size)))
    flags = _begins(values, elements)
    flags = flags if real is None else values.node("And", (flags, real))
    starts, count = positions_of(values, flags)
    found, first = gathered(values, elements, starts, 0), gathered(values, places, starts, 0)
    there = values.node("Less", (steps, values.scalar(count)))
    often = _distances(values, values.node("Where", (there, starts, values.scalar(size))), size)
    which = spread(values, places, _groups(values, flags), real)
    if not site.integer("sorted", 1):
        keys = values.node("Where", (there, first, values.scalar(room)))
        _, order = _ascending(values, keys)
        found, first, often = (values.node("Gather", (id, order), {"axis": 0}) for id in (found, first, often))
        which = values.node("Gather", (spread(values, order, steps), which), {"axis": 0})
    vectors = ((first, count), (which, size), (often, count))
    results = [_laid_out(values, found, rest, count)]
    results += [values.settled(id, (length,)) for id, length in vectors[: site.outputs - 1]]
    return results


def _lined_up(site: OpenSite, shape: Numbers) -> tuple[Number, tuple[tuple[int, ...], int], int]:
    """What is compared as a matrix with a row for each, how many are real, and what a row is made of.

    The latter as the extents of the other axes and the place of the axis among them. Raises Unsupported.
    """
    values = site.values
    axis = None if site.attrs.get("axis") is None else site.axis(len(shape))
    if axis is None:
        if is_open(shape[1:]):
            raise site.refuse("elements of open axes are taken one after another")
        size: Number = 1
        for dim in shape:
            size = size * dim
        return size, ((), 0), values.reshape(site.first, (capacity(shape), 1))
    others = (*shape[:axis], *shape[axis + 1 :])
    if is_open(others):
        raise site.refuse("slices along an axis are compared")
    rest = capacities(others)
    if not 1 <= prod(rest) <= WIDEST:
        raise Unsupported(
            f"slices of {prod(rest)} elements along axis {axis} are compared", f"export with slices of up to {WIDEST}"
        )
    turned = site.first
    if axis:
        perm = (axis, *(at for at in range(len(shape)) if at != axis))
        turned = values.node("Transpose", (turned,), {"perm": perm})
    return shape[axis], (rest, axis), values.reshape(turned, (capacities(shape)[axis], prod(rest)))


def _laid_out(values: OpenValues, rows: int, rest: tuple[tuple[int, ...], int], count: Number) -> int:
    """Rows as slices along their axis, of which so many are real."""
    extents, axis = rest
    (room, _) = values.graph.type(rows).dims
    found = values.reshape(rows, (room, *extents))
    if axis:
        perm = (*range(1, axis + 1), 0, *range(axis + 1, len(extents) + 1))
        found = values.node("Transpose", (found,), {"perm": perm})
    return values.settled(found, (*extents[:axis], count, *extents[axis:]))


def _constants(site: OpenSite, array: np.ndarray) -> Results:
    node = Node(site.op, (), (0,) * site.outputs, dict(site.attrs))
    return [site.values.constant(found) for found in site.values.operators[site.op].reference(node, (array,))]


def _sorted(values: OpenValues, matrix: int) -> tuple[int, int]:
    """Rows in ascending order and where they were, the lower place first among equals.

    They are sorted by their last column, then by the one before: sorting is stable.
    """
    room, width = values.graph.type(matrix).dims
    order: int | None = None
    for column in reversed(range(width)):
        keys = values.reshape(values.part(matrix, 1, column, column + 1), (room,))
        if order is not None:
            keys = values.node("Gather", (keys, order), {"axis": 0})
        elements, places = _ascending(values, keys)
        order = places if order is None else values.node("Gather", (order, places), {"axis": 0})
    assert order is not None
    if width == 1:
        return values.reshape(elements, (room, 1)), order
    return values.node("Gather", (matrix, order), {"axis": 0}), order


def _ascending(values: OpenValues, line: int) -> tuple[int, int]:
    """A vector's elements in ascending order and where they were, the lower place first among equals."""
    attrs: dict[str, Attr] = {"axis": 0, "k": values.graph.type(line).elements, "largest": 0, "sorted": 1}
    elements, places = values.node_of("TopK", (line, None), attrs, 2)
    return elements, places


def _begins(values: OpenValues, rows: int) -> int:
    """Whether each of sorted rows differs from the one before."""
    kind = values.graph.type(rows)
    room, width = kind.dims
    begin = values.constant(np.ones(1, np.bool_))
    if room == 1:
        return begin
    later, earlier = (values.part(rows, 0, at, room - 1 + at) for at in (1, 0))
    equal = values.node("Equal", (later, earlier))
    if kind.dtype.is_float:
        neither = values.node("And", (values.node("IsNaN", (later,)), values.node("IsNaN", (earlier,))))
        equal = values.node("Or", (equal, neither))
    unlike = values.node("Not", (equal,))
    if width > 1:
        ones = values.cast(unlike, DType.I64)
        most = values.node("ReduceMax", (ones, None), {"axes": (1,), "keepdims": 0})
        unlike = values.node("Greater", (most, values.scalar(0)))
    return values.node("Concat", (begin, values.reshape(unlike, (room - 1,))), {"axis": 0})


def _distances(values: OpenValues, starts: int, size: Number) -> int:
    """From each start to the next one, from the last to the end."""
    (room,) = values.graph.type(starts).dims
    ends = values.node("Unsqueeze", (values.scalar(size), None), {"axes": (0,)})
    if room > 1:
        ends = values.node("Concat", (values.part(starts, 0, 1, room), ends), {"axis": 0})
    return values.node("Sub", (ends, starts))


def _groups(values: OpenValues, flags: int) -> int:
    """Of each sorted element the number of the distinct one that it is."""
    ones = values.cast(flags, DType.I64)
    running = values.node("CumSum", (ones, None), {"axis": 0, "exclusive": 0, "reverse": 0})
    return values.node("Sub", (running, values.scalar(1)))
