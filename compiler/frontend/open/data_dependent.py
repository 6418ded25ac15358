"""Sizes that only data say: numbers read while running, each up to a bound, beyond which the run is an error.

A bound follows from the operator (a slice is no longer than its axis), is given by the option `bounds` under the name
of the node, or is assumed: at most MOST, and so small that a result has at most ELEMENTS elements at capacity. One that
is assumed is as great as that of a size which it must be equal to, as long as a result has at most ROOM. What is
computed from a number is computed from one within its bounds, so that whatever data say, nothing outside is read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.open.extent import Extent, Number, Numbers, high, product
from compiler.frontend.open.places import along, capacity, decoded, gathered, linear
from compiler.frontend.open.site import OpenSite, capacities, iota
from compiler.frontend.open.values import OpenValues, measured
from compiler.frontend.open.views import Results, expanded, from_the_end, padded_by, reshaped, tiled
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

MOST, ELEMENTS, ROOM = 1024, 2**20, 2**24


# Reading numbers


def vector(site: OpenSite, position: int) -> tuple[int, int]:
    """An input of one axis as i64, and how many elements it has. Raises Unsupported where that is open."""
    values, id = site.values, site.given(position)
    kind, shape = values.graph.type(id), values.shape(id)
    if kind.rank > 1 or any(isinstance(dim, Extent) for dim in shape):
        raise site.refuse(f"how many numbers input {position} has is not known")
    if values.known(id) is None:
        values.read[id] = None
    return values.cast(values.reshape(id, (kind.elements,)), DType.I64), kind.elements


def element(values: OpenValues, line: int, place: int) -> int:
    """One element of a vector as a scalar."""
    return values.node("Gather", (line, values.scalar(place)), {"axis": 0})


def within(values: OpenValues, scalar: int, least: int, most: int) -> int:
    """A scalar (i64), or the end that it lies beyond."""
    return values.node("Min", (values.node("Max", (scalar, values.scalar(least))), values.scalar(most)))


def size_by_data(site: OpenSite, scalar: int, most: int, what: str, least: int = 0) -> Number:
    """The number that a scalar (i64) holds, of which a run demands that it lies within its bounds."""
    values = site.values
    values.demand(
        scalar, least, most, f"{what} of {_name(site)} must lie between {least} and {most}{_more(site, most)}"
    )
    inside = values.node("Sub", (within(values, scalar, least, most), values.scalar(least)))
    found = measured(values, inside, 0, most - least, what)
    if isinstance(found, Extent) and values.assumed.get(values.source) == most and site.op != "Loop":
        values.capped.update(dict.fromkeys(found.sizes, values.source))
    return found + least


def most_of(site: OpenSite, count: int, known: int = 1) -> int:
    """The greatest that each of `count` sizes may be, where they multiply `known` elements."""
    values = site.values
    if (given := values.bounds.get(values.source)) is not None:
        values.bounded[values.source] = given
        return given
    most = MOST
    while most > 4 and most**count * max(known, 1) > ELEMENTS:
        most -= 1
    wanted = (values.wide or {}).get(values.source, 0)
    while most < wanted and (2 * most) ** count * max(known, 1) <= ROOM:
        most = min(2 * most, wanted)
    values.bounded[values.source] = values.assumed[values.source] = most
    return most


def _name(site: OpenSite) -> str:
    return f"{site.op} {site.values.source!r:.100}"


def _more(site: OpenSite, most: int) -> str:
    if site.values.bounded.get(site.values.source) != most:
        return ""
    return f"; for more compile with the option bounds, such as {{{site.values.source!r:.100}: {2 * most}}}"


def _demand_zero(site: OpenSite, scalar: int, says: str) -> None:
    site.values.demand(scalar, 0, 0, f"{_name(site)}: {says}")


def _differ(values: OpenValues, one: int, other: int) -> int:
    """1 where two scalars differ, else 0."""
    return values.cast(values.node("Not", (values.node("Equal", (one, other)),)), DType.I64)


def _total(values: OpenValues, line: int, op: str = "ReduceSum") -> int:
    return values.node(op, (line, None), {"axes": (0,), "keepdims": 0, "noop_with_empty_axes": 1})


def give(site: OpenSite, position: int, *lines: Sequence[float]) -> None:
    """Examples of an input, each its elements in order."""
    kind = site.kind(position)
    arrays = [np.array(line, kind.dtype.numpy).reshape(kind.dims) for line in lines]
    site.values.give_examples(site.given(position), arrays)


def is_by_data(site: OpenSite, position: int) -> bool:
    """Whether an input is there, and only data say it."""
    id = site.ids[position] if position < len(site.ids) else None
    return id is not None and site.values.known(id) is None


# Shapes


def reshape(site: OpenSite) -> Results:
    """Reshape: elements in their order, each looked up where its number among the real ones lies."""
    values, shape = site.values, site.shape()
    line, count = vector(site, 1)
    whole = product(shape)
    total = values.scalar(whole)
    if not site.integer("allowzero", 0) and count:
        own = np.array([*shape[:count], *[0] * (count - len(shape))], object)
        here = values.at_run_time(values.holding(own, DType.I64))
        line = values.node("Where", (values.node("Equal", (line, values.scalar(0))), here, line))
    free = values.node("Equal", (line, values.scalar(-1)))
    values.demand(_total(values, values.cast(free, DType.I64)), 0, 1, f"{_name(site)}: one size at most may be -1")
    rest = _total(values, values.node("Where", (free, values.scalar(1), line)), "ReduceProd")
    line = values.node("Where", (free, values.node("Div", (total, rest)), line))
    if not capacity(shape):
        return [_empty(site, line, count)]
    _demand_zero(
        site,
        _differ(values, _total(values, line, "ReduceProd"), total),
        "its shape must have as many elements as the tensor",
    )
    most = min(most_of(site, count), max(high(whole), 1)) if count > 1 else high(whole)
    sizes = [size_by_data(site, element(values, line, place), most, "a size") for place in range(count)]
    wanted = tuple(sizes) if count != 1 else (whole,)
    give(site, 1, *_shapes_of(capacity(shape) if not isinstance(whole, Extent) else 0, count))
    if count <= 1:
        return [reshaped(values, site.first, wanted)]
    flat = values.reshape(site.first, (capacity(shape),))
    place = values.reshape(decoded(values, linear(values, wanted), shape), (capacity(wanted),))
    moved = values.reshape(gathered(values, flat, place, 0), capacities(wanted))
    return [along(values, moved, wanted, *range(count))]


def _empty(site: OpenSite, line: int, count: int) -> int:
    """A tensor without elements in a shape that data say."""
    values, most = site.values, most_of(site, count)
    wanted = tuple(size_by_data(site, element(values, line, place), most, "a size") for place in range(count))
    give(site, 1, [0] * count)
    zero = np.zeros((), values.graph.type(site.first).dtype.numpy)
    return values.settled(values.graph.constant(np.broadcast_to(zero, capacities(wanted)), ""), wanted, padded=False)


def _shapes_of(elements: int, count: int) -> list[list[int]]:
    """Shapes of so many axes that fit, as even as can be; without a known number of elements all in one axis."""
    ends = [[-1, *[1] * (count - 1)], [*[1] * (count - 1), -1]] if count else [[]]
    if not elements or count < 2:
        return ends
    even = [1] * count
    rest, factor = elements, 2
    while rest > 1:
        while rest % factor:
            factor += 1
        even[even.index(min(even))] *= factor
        rest //= factor
    return [even, even[::-1], [*even[:-1], -1]]


def expand(site: OpenSite) -> Results:
    """Expand: axes of one element, and new ones, are as large as data say."""
    values, shape = site.values, site.shape()
    line, count = vector(site, 1)
    rank = max(count, len(shape))
    own = (*(1,) * (rank - len(shape)), *shape)
    fresh = [axis for axis, dim in enumerate(own) if dim == 1 and axis >= rank - count]
    most = most_of(site, len(fresh), capacity(shape)) if fresh else 0
    whole: list[Number] = [*own]
    for place in range(count):
        axis = rank - count + place
        scalar = element(values, line, place)
        if axis in fresh:
            whole[axis] = size_by_data(site, scalar, most, "a size")
            continue
        here = values.scalar(own[axis])
        fits = values.node(
            "Or", (values.node("Equal", (scalar, here)), values.node("Equal", (scalar, values.scalar(1))))
        )
        values.demand(
            values.cast(fits, DType.I64),
            1,
            1,
            f"{_name(site)}: its shape must be 1 or the size of the tensor along axis {axis}",
        )
    give(
        site, 1, *([min(size, most) if rank - count + at in fresh else 1 for at in range(count)] for size in (2, 3, 1))
    )
    return [expanded(values, site.first, tuple(whole))]


def tile(site: OpenSite) -> Results:
    """Tile: how often data say, along each axis."""
    line, count = vector(site, 1)
    if count != len(site.shape()):
        raise Unsupported(f"{count} repeats are given for {len(site.shape())} axes", "export the model again")
    most = most_of(site, count, capacity(site.shape()))
    repeats = [
        size_by_data(site, element(site.values, line, axis), most, "a number of repeats") for axis in range(count)
    ]
    give(site, 1, [2] * count, [1] * count, [min(3, most)] * count)
    return [tiled(site.values, site.first, repeats)]


def shape_of(site: OpenSite) -> Numbers:
    """The shape that a ConstantOfShape is given."""
    line, count = vector(site, 0)
    most = most_of(site, count)
    give(site, 0, *([min(size, most)] * count for size in (3, 1, 4)))
    return tuple(size_by_data(site, element(site.values, line, axis), most, "a size") for axis in range(count))


def range_(site: OpenSite) -> Results:
    """Range: as many steps as lie before the limit, counted in float64 where its numbers are floats."""
    values, dtype = site.values, site.kind(0).dtype
    start, limit, delta = (values.reshape(site.given(place), ()) for place in range(3))
    wide = DType.F64 if dtype.is_float else DType.I64
    first, last, step = (values.cast(id, wide) for id in (start, limit, delta))
    distance, zero = values.node("Sub", (last, first)), values.cast(values.scalar(0), wide)
    if dtype.is_float:
        steps = values.cast(values.node("Ceil", (values.node("Div", (distance, step)),)), DType.I64)
    else:
        size = values.node("Abs", (step,))
        ahead = values.node("Where", (values.node("Less", (step, zero)), values.node("Neg", (distance,)), distance))
        more = values.node("Sub", (values.node("Add", (ahead, size)), values.scalar(1)))
        steps = values.node("Div", (more, size))
    _demand_zero(site, values.cast(values.node("Equal", (step, zero)), DType.I64), "its step must not be 0")
    count = size_by_data(site, values.node("Max", (steps, values.scalar(0))), most_of(site, 1), "the number of steps")
    for place, ends in enumerate(((0, 2, 5), (6, 9, -3), (1, 3, -2))):
        if is_by_data(site, place):
            give(site, place, *([end] for end in ends))
    turns = values.cast(iota(values, high(count)), dtype)
    found = values.node("Add", (start, values.node("Mul", (turns, delta))))
    return [along(values, found, (count,), 0)]


# Parts


@dataclass(frozen=True)
class Entries:
    """Which entry of a list of numbers is of which axis: `axes` as data say them (i64, counted from 0), or known."""

    values: OpenValues
    axes: Sequence[int] | int

    def of(self, line: int, axis: int, otherwise: int, begin: int = 0) -> int | None:
        """The entry of an axis, of a vector in which they begin at `begin`; None where it certainly has none.

        `otherwise` is the number where data say that it has none.
        """
        values = self.values
        if not isinstance(self.axes, int):
            return element(values, line, begin + self.axes.index(axis)) if axis in self.axes else None
        count = values.graph.type(self.axes).elements
        mine = values.node("Equal", (self.axes, values.scalar(axis)))
        part = values.part(line, 0, begin, begin + count)
        found = _total(values, values.node("Where", (mine, part, values.scalar(0))))
        some = values.node("Greater", (_total(values, values.cast(mine, DType.I64)), values.scalar(0)))
        return values.node("Where", (some, found, values.scalar(otherwise)))


def _entries(site: OpenSite, position: int, count: int) -> Entries:
    """The axes that an input says; without it the first `count` ones. A run demands that they are axes, each once."""
    values, rank = site.values, len(site.shape())
    if not is_by_data(site, position):
        axes = site.ints(position, "axes")
        return Entries(values, [axis % rank for axis in axes] if axes is not None else [*range(count)])
    line, count = vector(site, position)
    for place in range(count):
        says = f"an axis of {_name(site)} must lie between {-rank} and {rank - 1}"
        values.demand(element(values, line, place), -rank, rank - 1, says)
    places = from_the_end(values, line, values.scalar(rank))
    for axis in range(rank if count > 1 else 0):
        often = _total(values, values.cast(values.node("Equal", (places, values.scalar(axis))), DType.I64))
        values.demand(often, 0, 1, f"{_name(site)}: its axes must differ")
    give(site, position, [*range(count)], [*range(rank - count, rank)], [-1 - place for place in range(count)])
    return Entries(values, places)


def slice_(site: OpenSite) -> Results:
    """Slice where data say axes or steps too: elements of each axis from a place on, a step apart."""
    values, id = site.values, site.first
    starts, count = vector(site, 1)
    ends, _ = vector(site, 2)
    steps = (
        vector(site, 4)[0]
        if len(site.ids) > 4 and site.ids[4] is not None
        else values.constant(np.ones(count, np.int64))
    )
    entries = _entries(site, 3, count)
    for position, numbers in ((1, (0, 1, 0)), (2, (2**31 - 1, -1, 2)), (4, (1, 2, 1))):
        if is_by_data(site, position):
            give(site, position, *([number] * count for number in numbers))
    for axis, size in enumerate(site.shape()):
        start, end, step = (
            entries.of(line, axis, most) for line, most in ((starts, 0), (ends, sys.maxsize), (steps, 1))
        )
        if start is not None and end is not None and step is not None:
            _demand_zero(
                site, values.cast(values.node("Equal", (step, values.scalar(0))), DType.I64), "no step may be 0"
            )
            id = _sliced(values, id, axis, size, (start, end, step))
    return [id]


def _sliced(values: OpenValues, id: int, axis: int, size: Number, bounds: tuple[int, int, int]) -> int:
    """One axis from `start` to before `end` in steps, all scalars (i64), as numpy counts."""
    start, end, step = bounds
    here, far = values.scalar(size), max(high(size), 1)
    step = within(values, step, -far, far)
    ahead = values.node("Greater", (step, values.scalar(0)))
    first = values.node("Where", (ahead, values.scalar(0), values.scalar(-1)))
    last = values.node("Add", (here, first))

    def place(bound: int) -> int:
        counted = from_the_end(values, bound, here)
        return values.node("Min", (values.node("Max", (counted, first)), last))

    start, end = place(start), place(end)
    pace = values.node("Abs", (step,))
    way = values.node("Where", (ahead, values.node("Sub", (end, start)), values.node("Sub", (start, end))))
    more = values.node("Sub", (values.node("Add", (way, pace)), values.scalar(1)))
    count = measured(values, within(values, values.node("Div", (more, pace)), 0, high(size)), 0, high(size), "slice")
    steps = values.node("Mul", (iota(values, high(size)), step))
    return taken(values, id, axis, values.node("Add", (start, steps)), count)


def taken(values: OpenValues, id: int, axis: int, places: int, count: Number) -> int:
    """The elements at the first `count` of places along an axis."""
    shape = values.shape(id)
    return along(values, gathered(values, id, places, axis), (*shape[:axis], count, *shape[axis + 1 :]), axis)


def split(site: OpenSite) -> Results:
    """Split into parts as long as data say."""
    values, shape = site.values, site.shape()
    axis = site.axis(len(shape))
    size, (line, count) = shape[axis], vector(site, 1)
    _demand_zero(
        site, _differ(values, _total(values, line), values.scalar(size)), "its parts must make up the whole axis"
    )
    parts = [size_by_data(site, element(values, line, place), high(size), "a part") for place in range(count)]
    even = [high(size) // count + (place < high(size) % count) for place in range(count)]
    give(site, 1, even, even[::-1], [*[0] * (count - 1), high(size)])
    found, begin = [], values.scalar(0)
    for part in parts:
        places = values.node("Add", (iota(values, high(part)), begin))
        found.append(taken(values, site.first, axis, places, part))
        begin = values.node("Add", (begin, values.scalar(part)))
    return found


def pad(site: OpenSite) -> Results:
    """Pad by as many elements as data say, or take as many away."""
    values, shape, id = site.values, site.shape(), site.first
    line, count = vector(site, 1)
    entries, mode = _entries(site, 3, count // 2), str(site.attrs.get("mode", "constant"))
    filler = site.ids[2] if len(site.ids) > 2 else None
    most = values.bounds.get(values.source, 1)
    while (
        values.source not in values.bounds
        and most < MOST
        and capacity(tuple(high(dim) + 2 * most + 2 for dim in shape)) <= ELEMENTS
    ):
        most += 1
    values.bounded[values.source] = most
    give(site, 1, [1] * count, [0] * count, [1] * (count // 2) + [0] * (count // 2))
    for axis in range(len(shape)):
        begin, end = (entries.of(line, axis, 0, start) for start in (0, count // 2))
        if begin is not None and end is not None:
            before, after = (size_by_data(site, one, most, "a pad", -most) for one in (begin, end))
            id = padded_by(site, id, axis, before, after, mode, filler)
    return [id]


def one_hot(site: OpenSite) -> Results:
    """OneHot of a depth that data say: positions counted from the end where negative, and nothing for those beyond."""
    values, shape = site.values, site.shape()
    axis = site.axis(len(shape) + 1, default=-1)
    (line, _), pair = vector(site, 1), site.given(2)
    depth = size_by_data(site, element(values, line, 0), most_of(site, 1, capacity(shape)), "the depth")
    give(site, 1, [5], [1], [7])
    places = from_the_end(values, values.cast(site.first, DType.I64), values.scalar(depth))
    column = values.node("Unsqueeze", (places, None), {"axes": (axis,)})
    there = values.node("Equal", (column, iota(values, high(depth), len(shape) + 1, axis)))
    off, on = (element(values, pair, place) for place in (0, 1))
    return [values.settled(values.node("Where", (there, on, off)), (*shape[:axis], depth, *shape[axis:]))]


def triangle(site: OpenSite) -> Results:
    """Trilu: elements on one side of the diagonal that data say."""
    values, shape = site.values, site.shape()
    rows, columns = high(shape[-2]), high(shape[-1])
    k = within(values, values.cast(values.reshape(site.given(1), ()), DType.I64), -rows - 1, columns + 1)
    give(site, 1, [0], [1], [-1], [2])
    apart = values.node("Sub", (iota(values, columns, 2, 1), iota(values, rows, 2, 0)))
    kept = values.node("GreaterOrEqual" if site.integer("upper", 1) else "LessOrEqual", (apart, k))
    zero = values.constant(np.zeros((), values.graph.type(site.first).dtype.numpy))
    return [values.settled(values.node("Where", (kept, site.first, zero)), shape, padded=False)]


def held(site: OpenSite, position: int, same: int = 0) -> int:
    """An input that is a shape, or one size, as a value that holds sizes: what is computed from it is about these.

    A run demands that the first `same` ones are sizes of the first input.
    """
    values, kind = site.values, site.kind(position)
    line, count = vector(site, position)
    own = site.shape()[:same]
    most = most_of(site, count - same, capacity(own))
    give(site, position, *([*map(high, own)] + [min(size, most)] * (count - same) for size in (4, 3, 7)))
    sizes = np.empty(count, object)
    for place in range(count):
        scalar = element(values, line, place)
        if place < same:
            says = f"its size {place} must be that of its first input"
            _demand_zero(site, values.node("Sub", (scalar, values.scalar(own[place]))), says)
        sizes[place] = own[place] if place < same else size_by_data(site, scalar, most, "a size")
    return values.holding(sizes.reshape(kind.dims), kind.dtype)
