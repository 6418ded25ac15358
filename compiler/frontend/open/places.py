"""Elements at places that are computed while running: where they lie, and how they come into another order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.frontend.open.extent import Extent, Number, Numbers, high, is_open, product
from compiler.frontend.open.site import iota
from compiler.frontend.open.values import Moved, OpenValues


def capacity(shape: Numbers) -> int:
    """Elements that a shape has in the graph."""
    whole = 1
    for dim in shape:
        whole *= high(dim)
    return whole


def linear(values: OpenValues, shape: Numbers) -> int:
    """Of each element at capacity, which one it is among the real ones, counted row-major (i64)."""
    found: int | None = None
    for axis, dim in enumerate(shape):
        steps = iota(values, high(dim), len(shape), axis)
        if found is None:
            found = steps
        else:
            found = values.node("Add", (values.node("Mul", (found, values.scalar(dim))), steps))
    return values.scalar(0) if found is None else found


def decoded(values: OpenValues, number: int, shape: Numbers) -> int:
    """Where the real element with a number lies among those at capacity (i64)."""
    if not is_open(shape[1:]):
        return number
    found, step = values.scalar(0), 1
    for axis, dim in reversed(list(enumerate(shape))):
        place = number
        if axis:
            over = values.node("Div", (number, values.scalar(dim)))
            place = values.node("Sub", (number, values.node("Mul", (over, values.scalar(dim)))))
            number = over
        found = values.node("Add", (found, values.node("Mul", (place, values.scalar(step)))))
        step *= high(dim)
    return found


def gathered(values: OpenValues, id: int, places: int, axis: int) -> int:
    """Elements at places along an axis, of which those beyond the capacity belong to nothing that is real."""
    last = values.scalar(max(values.graph.type(id).dims[axis] - 1, 0))
    inside = values.node("Min", (values.node("Max", (places, values.scalar(0))), last))
    return values.node("Gather", (id, inside), {"axis": axis})


def along(values: OpenValues, id: int, shape: Numbers, *axes: int) -> int:
    """The value with a real shape, zero beyond it along `axes` too: along the others it is already."""
    id = values.settled(id, shape, padded=False)
    for axis in axes:
        if isinstance(shape[axis], Extent):
            id = values.beyond(id, axis, shape[axis], 0)
    return id


def row_major(shape: Numbers) -> Numbers:
    """How far apart neighbours along each axis are among the real elements."""
    steps: list[Number] = []
    step: Number = 1
    for dim in reversed(shape):
        steps.append(step)
        step = step * dim
    return tuple(reversed(steps))


def holds_all(moved: Moved, start: int, shape: Numbers) -> bool:
    """Whether axes that begin at `start` have this shape and hold all elements in the order of their numbers."""
    return (moved.start, moved.steps, moved.first, moved.count) == (start, row_major(shape), 0, product(shape))


def sliced_along(moved: Moved, at: int, begin: Number, step: int) -> Moved:
    """Every `step`-th place of one of its axes, from `begin` on."""
    own = moved.steps[at]
    steps = (*moved.steps[:at], own * step, *moved.steps[at + 1 :])
    return replace(moved, steps=steps, first=moved.first + begin * own)


def in_order(values: OpenValues, moved: Moved, shape: Numbers) -> int:
    """The value of a real shape that is one Gather of a line, and known as that to what moves it next."""
    axes = range(moved.start, moved.start + len(moved.steps))
    place, there = moved.place(_numbers(values, moved, tuple(shape[axis] for axis in axes)))
    found = gathered(values, moved.line, place, moved.start)
    if there is not None:
        dims = (*values.graph.type(there).dims, *(1,) * (len(shape) - axes.stop))
        zero = values.constant(np.zeros((), values.graph.type(found).dtype.numpy))
        found = values.node("Where", (values.reshape(there, dims), found, zero))
    found = along(values, found, shape, *axes)
    values.moved[found] = moved
    return found


def _numbers(values: OpenValues, moved: Moved, shape: Numbers) -> int:
    """The number of each element at capacity (i64)."""
    found = values.scalar(moved.first) if moved.first != 0 or not shape else None
    for axis, (dim, step) in enumerate(zip(shape, moved.steps, strict=True)):
        steps = iota(values, high(dim), len(shape), axis)
        part = steps if step == 1 else values.node("Mul", (steps, values.scalar(step)))
        found = part if found is None else values.node("Add", (found, part))
    assert found is not None
    return found
