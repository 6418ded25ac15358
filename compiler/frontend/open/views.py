"""Rules for operators that move elements: what is done at capacity, and which elements of that are real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.frontend.open.appended import appended
from compiler.frontend.open.extent import (
    Extent,
    Number,
    Numbers,
    Undecided,
    divided,
    greatest,
    high,
    is_less,
    is_open,
    least,
    low,
    product,
)
from compiler.frontend.open.places import (
    along,
    capacity,
    decoded,
    gathered,
    holds_all,
    in_order,
    linear,
    row_major,
    sliced_along,
)
from compiler.frontend.open.site import OpenSite, broadcast, capacities, fitted, iota, is_by_data, same
from compiler.frontend.open.values import Moved, OpenValues, measured
from compiler.frontend.reading.tensors import DTYPES, check_size
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

Results = Sequence[int]
Rule = Callable[[OpenSite], Results]


# The same elements in the same order


def reshape(site: OpenSite) -> Results:
    """Reshape to numbers and sizes: 0 keeps a dimension, -1 is what is left over."""
    shape, wanted = site.shape(), site.known(1, "shape")
    assert wanted is not None
    if not site.integer("allowzero", 0):
        wanted = [shape[place] if dim == 0 and place < len(shape) else dim for place, dim in enumerate(wanted)]
    if wanted.count(-1) == 1:
        place = wanted.index(-1)
        wanted[place] = 1
        wanted[place] = _left_over(site.values, product(shape), product(tuple(wanted)), shape, wanted)
    if any(isinstance(dim, int) and dim < 0 for dim in wanted):
        raise Unsupported(f"its shape {list(map(str, wanted))} is none", "export the model again")
    return [reshaped(site.values, site.first, tuple(wanted))]


def _left_over(values: OpenValues, whole: Number, rest: Number, shape: Numbers, wanted: Sequence[Number]) -> Number:
    try:
        return divided(whole, rest)
    except Undecided as no:
        if isinstance(rest, int) and rest > 0 and is_by_data(whole, 0):
            return whole // rest
        if is_by_data(whole, rest) and high(whole):
            # Of a size 0 another one might be kept, as a number 0 in a shape asks for.
            number = values.scalar(rest)
            values.demand(number, 1, max(high(rest), 1), f"node {values.source!r:.100} divides by size {rest!s:.60}")
            divisor = values.node("Max", (number, values.scalar(1)))
            number = values.node("Div", (values.scalar(whole), divisor))
            return measured(values, number, 0, high(whole) // max(low(rest), 1), "rest")
        before, after = (", ".join(map(str, one)) for one in (shape, wanted))
        raise Unsupported(
            f"[{before}] is reshaped to [{after}] and what is left over: {no}", "bind these dimensions to numbers"
        ) from None


def flatten(site: OpenSite) -> Results:
    """`axis` is a place between dimensions, from 0 to the rank."""
    shape = site.shape()
    axis = site.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [reshaped(site.values, site.first, (product(shape[:axis]), product(shape[axis:])))]


def squeeze(site: OpenSite) -> Results:
    """Squeeze: without the axes that are named, all of size 1 if none is."""
    shape, axes = site.shape(), site.ints(1, "axes")
    gone = (
        [axis % len(shape) for axis in axes] if axes is not None else [at for at, dim in enumerate(shape) if dim == 1]
    )
    ones = tuple(same(site.values, dim, 1) if at in gone else dim for at, dim in enumerate(shape))
    id = site.first if ones == shape else site.values.settled(site.first, ones, padded=False)
    return [reshaped(site.values, id, tuple(dim for at, dim in enumerate(ones) if at not in gone))]


def unsqueeze(site: OpenSite) -> Results:
    """Unsqueeze: with new axes of size 1."""
    shape, axes = site.shape(), site.ints(1, "axes") or []
    rank = len(shape) + len(axes)
    new, rest = {axis % rank for axis in axes}, iter(shape)
    return [reshaped(site.values, site.first, tuple(1 if at in new else next(rest) for at in range(rank)))]


def reshaped(values: OpenValues, id: int, wanted: Numbers) -> int:
    """The value in another shape with the same elements in row-major order.

    Dimensions fall into groups of equal products. Where only the first of a group is open, elements that are real come
    first in memory before and after; else they have to be gathered.
    """
    shape = values.shape(id)
    if (whole := product(shape)) != (new := product(wanted)):
        if is_by_data(whole, new) and low(whole - new) <= 0 <= high(whole - new):
            return _assumed_to_fit(values, id, wanted)
        before, after = (", ".join(map(str, one)) for one in (shape, wanted))
        raise Unsupported(f"[{before}] cannot be reshaped to [{after}] for all sizes", "bind shapes that agree")
    done: list[Number] = []
    rest = list(shape)
    for olds, news in _groups(shape, wanted):
        rest = rest[len(olds) :]
        if not _keeps_order(olds, news):
            middle = (*done, *olds, *rest)
            id = _regrouped(values, _at_capacity(values, id, middle), middle, len(done), olds, news)
        done += news
    return _at_capacity(values, id, wanted)


def _assumed_to_fit(values: OpenValues, id: int, wanted: Numbers) -> int:
    """The value in a shape that has as many elements in each run that has a meaning."""
    shape = values.shape(id)
    same(values, product(shape), product(wanted))
    flat = values.reshape(id, (capacity(shape),))
    place = values.reshape(decoded(values, linear(values, wanted), shape), (capacity(wanted),))
    moved = values.reshape(gathered(values, flat, place, 0), capacities(wanted))
    return along(values, moved, wanted, *range(len(wanted)))


def _at_capacity(values: OpenValues, id: int, shape: Numbers) -> int:
    """The value with other capacities of the same number of elements in the same order."""
    dims = capacities(shape)
    if values.graph.type(id).shape != dims:
        id = values.reshape(id, dims)
    return values.settled(id, shape, padded=False)


def _groups(shape: Numbers, wanted: Numbers) -> list[tuple[Numbers, Numbers]]:
    """Runs of dimensions of both that have the same product, as short as can be seen."""
    found: list[tuple[Numbers, Numbers]] = []
    olds: list[Number] = []
    news: list[Number] = []
    left, right = list(shape), list(wanted)
    while left or right or olds or news:
        before, after = product(tuple(olds)), product(tuple(news))
        if before == after and (olds or news):
            while left and left[0] == 1 and not (right and right[0] == 1):
                olds.append(left.pop(0))
            found.append((tuple(olds), tuple(news)))
            olds, news = [], []
        elif not left and not right:
            break
        elif right and (not left or (high(after) < high(before)) or (not news and olds)):
            news.append(right.pop(0))
        else:
            olds.append(left.pop(0))
    if olds or news:
        found.append((tuple(olds), tuple(news)))
    return found


def _keeps_order(olds: Numbers, news: Numbers) -> bool:
    """Whether what is real lies in memory, among what is not, at the same places before and after."""
    before = [dim for dim in olds if dim != 1]
    after = [dim for dim in news if dim != 1]
    if before == after:
        return True
    if is_open(tuple(before[1:])) or is_open(tuple(after[1:])):
        return False
    return capacity(tuple(before)) == capacity(tuple(after))


def _regrouped(values: OpenValues, id: int, shape: Numbers, start: int, olds: Numbers, news: Numbers) -> int:
    """The value with one group of dimensions in another shape, element by element through run-time positions."""
    before, after = shape[:start], shape[start + len(olds) :]
    moved = values.moved.get(id)
    if moved is None or not holds_all(moved, start, olds):
        line = values.reshape(id, (*capacities(before), capacity(olds), *capacities(after)))
        moved = Moved(line, start, (), 0, product(olds), lambda numbers: (decoded(values, numbers, olds), None))
    return in_order(values, replace(moved, steps=row_major(news)), (*before, *news, *after))


# Selecting


def slice_(site: OpenSite) -> Results:
    """Slice by numbers and sizes."""
    values, id = site.values, site.first
    shape, count = site.shape(), high(values.shape(site.given(1))[0])
    axes = site.ints(3, "axes") or list(range(count))
    steps = site.ints(4, "steps") or [1] * count
    sizes = [shape[axis] for axis in axes]
    starts, ends = (_bounds(site, place, name, sizes, steps) for place, name in ((1, "starts"), (2, "ends")))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        id = sliced(values, id, axis % len(shape), start, end, step)
    return [id]


def _bounds(site: OpenSite, place: int, name: str, sizes: Numbers | list[Number], steps: Sequence[int]) -> list[Number]:
    """Where slices begin or end; what data say is a size of its own, limited to the axis."""
    values, id = site.values, site.given(place)
    if values.known(id) is not None:
        return site.known(place, name) or []
    if min(steps) < 0:
        raise site.refuse(f"{name} are computed from data, and a step is negative")
    found: list[Number] = []
    wide = values.cast(id, DType.I64)
    for number, size in enumerate(sizes):
        one = values.node("Gather", (wide, values.scalar(number)), {"axis": 0})
        one = from_the_end(values, one, values.scalar(size))
        found.append(measured(values, limited(values, one, size), 0, high(size), name))
    return found


def limited(values: OpenValues, scalar: int, most: Number) -> int:
    """A scalar (i64), but at least 0 and at most a number."""
    least = values.node("Max", (scalar, values.scalar(0)))
    return values.node("Min", (least, values.scalar(most)))


def sliced(values: OpenValues, id: int, axis: int, start: Number, end: Number, step: int = 1) -> int:
    """One axis of a value from `start` to before `end`, as ONNX counts: negative numbers from the end."""
    shape = values.shape(id)
    size = shape[axis]
    try:
        begin, count = _window(size, start, end, step)
    except Undecided as no:
        raise Unsupported(f"a slice depends on {no}", "bind that dimension to a number") from None
    if begin == 0 and step == 1 and count == size:
        return id
    whole = (*shape[:axis], count, *shape[axis + 1 :])
    moved = values.moved.get(id)
    if moved is not None and 0 <= axis - moved.start < len(moved.steps):
        return in_order(values, sliced_along(moved, axis - moved.start, begin, step), whole)
    if isinstance(begin, int) and step > 0:
        found = values.part(id, axis, begin, 2**62, step)
    else:
        places = values.node("Mul", (iota(values, high(count)), values.scalar(step)))
        found = gathered(values, id, values.node("Add", (places, values.scalar(begin))), axis)
    return along(values, found, whole, axis)


def _window(size: Number, start: Number, end: Number, step: int) -> tuple[Number, Number]:
    """Where a slice begins and how many elements it has. Raises Undecided."""
    start, end = (bound + size if is_less(bound, 0) else bound for bound in (start, end))
    if step > 0:
        begin, past = least(greatest(start, 0), size), least(greatest(end, 0), size)
        return begin, greatest((past - begin + (step - 1)) // step, 0)
    begin, past = least(greatest(start, 0), size - 1), least(greatest(end, -1), size - 1)
    return begin, greatest((begin - past + (-step - 1)) // -step, 0)


def split(site: OpenSite) -> Results:
    """Split into parts of given sizes, or into equal ones."""
    shape = site.shape()
    axis = site.axis(len(shape))
    sizes = site.known(1, "split")
    if sizes is None:
        whole, count = shape[axis], site.integer("num_outputs", site.outputs) or site.outputs
        part = (whole + (count - 1)) // count
        sizes = [part] * (count - 1)
        sizes.append(whole - part * (count - 1))
    found, begin = [], 0 * shape[axis]
    for part in sizes:
        found.append(sliced(site.values, site.first, axis, begin, begin + part))
        begin = begin + part
    return found


def gather(site: OpenSite) -> Results:
    """Gather along an axis: a negative position counts from the real end."""
    values, shape = site.values, site.shape()
    axis, index = site.axis(len(shape)), site.given(1)
    size, places = shape[axis], values.shape(index)
    if isinstance(size, Extent):
        index = from_the_end(values, index, values.scalar(size))
    found = values.node("Gather", (site.first, index), {"axis": axis})
    whole = (*shape[:axis], *places, *shape[axis + 1 :])
    return [along(values, found, whole, *range(axis, axis + len(places)))]


def from_the_end(values: OpenValues, index: int, size: int) -> int:
    """Places along an axis, negative ones counted from its real end; `size` is the value that holds where it is."""
    known = values.graph.constants.get(index)
    if known is not None and (known >= 0).all():
        return index
    wide = values.cast(index, DType.I64)
    below = values.node("Less", (wide, values.scalar(0)))
    return values.node("Where", (below, values.node("Add", (wide, size)), wide))


def transpose(site: OpenSite) -> Results:
    """Transpose: the axes in the order of `perm`, reversed without one."""
    shape, perm = site.shape(), site.attrs.get("perm")
    order = perm if isinstance(perm, tuple) else tuple(reversed(range(len(shape))))
    found = site.values.node("Transpose", (site.first,), {"perm": order})
    return [site.values.settled(found, tuple(shape[axis] for axis in order), padded=False)]  # type: ignore[index]


def triangle(site: OpenSite) -> Results:
    """Trilu: which elements stay is said by where they stand, counted from the beginning."""
    ids, attrs = [*site.ids], dict(site.attrs)
    (attrs["k"],) = site.ints(1, "k") or [0]
    found = site.values.node("Trilu", (ids[0], None), attrs)
    return [site.values.settled(found, site.shape(), padded=False)]


def eye(site: OpenSite) -> Results:
    """EyeLike: ones on a diagonal, of which the input says the shape alone."""
    values, (rows, columns) = site.values, site.shape()
    right = values.node("Sub", (iota(values, high(columns), 2, 1), iota(values, high(rows), 2, 0)))
    ones = values.node("Equal", (right, values.scalar(site.integer("k", 0))))
    code = site.attrs.get("dtype")
    dtype = DTYPES[code] if isinstance(code, int) else site.kind(0).dtype
    return [values.settled(values.cast(ones, dtype), (rows, columns))]


# Joining and repeating


def concat(site: OpenSite) -> Results:
    """Parts one after another: each begins where the real elements of those before it end."""
    values = site.values
    ids = [id for id in site.ids if id is not None]
    shapes = [values.shape(id) for id in ids]
    axis = site.axis(len(shapes[0]))
    whole = list(shapes[0])
    for shape in shapes[1:]:
        whole = [
            same(values, one, other) if at != axis else one
            for at, (one, other) in enumerate(zip(whole, shape, strict=True))
        ]
    parts = [shape[axis] for shape in shapes]
    total: Number = 0
    for part in parts:
        total = total + part
    whole[axis] = total
    if (found := appended(values, ids, parts[0], tuple(whole), axis)) is not None:
        return [found]
    ids = [
        values.settled(id, (*whole[:axis], part, *whole[axis + 1 :]), padded=False)
        for id, part in zip(ids, parts, strict=True)
    ]
    found = values.node("Concat", ids, {"axis": axis})
    if is_open(tuple(parts[:-1])):
        found = gathered(values, found, _places(values, parts, high(total)), axis)
        return [along(values, found, tuple(whole), axis)]
    return [values.settled(found, tuple(whole), padded=False)]


def _places(values: OpenValues, parts: Sequence[Number], count: int) -> int:
    """For each element of parts side by side, where it lies when each part has its capacity (i64)."""
    steps = iota(values, count)
    found, begin, room = steps, 0 * parts[0], 0
    for before in parts[:-1]:
        begin, room = begin + before, room + high(before)
        if begin == room:
            continue
        behind = values.node("GreaterOrEqual", (steps, values.scalar(begin)))
        found = values.node("Where", (behind, values.node("Add", (steps, values.scalar(room - begin))), found))
    return found


def expand(site: OpenSite) -> Results:
    """Expand: broadcast to a shape that is known."""
    values, shape = site.values, site.shape()
    wanted = site.known(1, "shape")
    assert wanted is not None
    return [expanded(values, site.first, broadcast(values, [shape, tuple(wanted)]))]


def expanded(values: OpenValues, id: int, whole: Numbers) -> int:
    """The value broadcast to a shape."""
    shape = values.shape(id)
    id = fitted(values, id, whole)
    found = values.node("Expand", (id, None), {"shape": capacities(whole)})
    own = (*(1,) * (len(whole) - len(shape)), *shape)
    fresh = [at for at, dim in enumerate(whole) if own[at] == 1 and dim != 1]
    return along(values, found, whole, *fresh)


def tile(site: OpenSite) -> Results:
    """Tile: repeated along each axis a known number of times."""
    return [tiled(site.values, site.first, site.known(1, "repeats") or [])]


def tiled(values: OpenValues, id: int, repeats: Sequence[Number]) -> int:
    """The value repeated so often along each axis."""
    for axis, count in enumerate(repeats):
        shape = values.shape(id)
        size = shape[axis]
        whole = (*shape[:axis], size * count, *shape[axis + 1 :])
        if count == 1:
            continue
        if size == 1:
            id = expanded(values, id, whole)
            continue
        steps = iota(values, high(whole[axis]))
        turns = values.node("Mul", (values.node("Div", (steps, values.scalar(size))), values.scalar(size)))
        id = gathered(values, id, values.node("Sub", (steps, turns)), axis)
        id = along(values, id, whole, axis)
    return id


def pad(site: OpenSite) -> Results:
    """Pad with a constant, or with elements of the tensor, before and after the real elements."""
    id, shape, pads = site.first, site.shape(), site.known(1, "pads") or []
    rank = len(shape)
    axes = site.ints(3, "axes")
    padded = [axis % rank for axis in axes] if axes is not None else list(range(rank))
    mode = str(site.attrs.get("mode", "constant"))
    value = site.ids[2] if len(site.ids) > 2 else None
    for axis, begin, end in zip(padded, pads[: len(padded)], pads[len(padded) :], strict=True):
        if (begin, end) != (0, 0):
            id = padded_by(site, id, axis, begin, end, mode, value)
    return [id]


COPYING = ("reflect", "edge", "wrap")
"""Modes of Pad that take elements of the tensor."""


def padded_by(site: OpenSite, id: int, axis: int, begin: Number, end: Number, mode: str, value: int | None) -> int:
    """One axis with so many elements more before and after it; with a mode `constant` these are `value`, absent 0."""
    values = site.values
    shape = values.shape(id)
    size = shape[axis]
    whole = (*shape[:axis], greatest(begin + size + end, 0), *shape[axis + 1 :])
    known = np.zeros(1) if value is None else values.graph.constants.get(value)
    is_zero = known is not None and not known.any()
    if mode == "constant" and is_zero and (moved := values.moved.get(id)) and holds_all(moved, axis, (size,)):
        return in_order(values, _padded(values, moved, begin, whole[axis]), whole)
    is_copy = mode in COPYING or is_zero  # what is zero beyond other axes stays so
    if is_copy and isinstance(size, int) and isinstance(begin, int) and isinstance(end, int) and max(begin, end) < size:
        pads = [0] * 2 * len(shape)
        pads[axis], pads[len(shape) + axis] = begin, end
        found = values.node("Pad", (id, None, None), {"pads": tuple(pads), "mode": mode})
        return values.settled(found, whole, padded=mode in COPYING)  # a window takes zeros as its own pads
    if mode == "constant" and is_zero and isinstance(begin, int) and begin >= 0 and low(end) >= 0:
        pads = [0] * 2 * len(shape)
        pads[axis] = begin
        before = values.node("Pad", (id, None, None), {"pads": tuple(pads), "mode": "constant"}) if begin else id
        return values.settled(before, whole, padded=False)
    places = values.node("Sub", (iota(values, high(whole[axis])), values.scalar(begin)))
    last = values.node("Sub", (values.scalar(size), values.scalar(1)))
    if mode == "reflect":
        period = values.node("Mul", (last, values.scalar(2)))
        turned = values.node("Mod", (places, period))
        places = values.node("Min", (turned, values.node("Sub", (period, turned))))
    elif mode == "wrap":
        places = values.node("Mod", (places, values.scalar(size)))
    elif mode not in ("constant", "edge"):
        raise site.refuse(f"an open axis is padded by {mode}")
    if mode == "edge":
        places = values.node("Min", (places, last))
    found = gathered(values, id, places, axis)
    if mode == "constant":
        inside = values.node("GreaterOrEqual", (places, values.scalar(0)))
        below = values.node("Less", (places, values.scalar(size)))
        kept = values.node("And", (inside, below))
        column = values.node("Reshape", (kept, None), {"shape": (-1, *(1,) * (len(shape) - axis - 1)), "allowzero": 0})
        zero = values.constant(np.zeros((), values.graph.type(id).dtype.numpy))
        filler = zero if value is None else values.reshape(value, ())
        found = values.node("Where", (column, found, filler))
        others = [] if is_zero else [at for at in range(len(whole)) if at != axis]
        return along(values, found, whole, axis, *others)
    return along(values, found, whole, axis)


def _padded(values: OpenValues, moved: Moved, begin: Number, count: Number) -> Moved:
    """All elements of one axis with zeros before and after them, `count` together."""

    def place(numbers: int) -> tuple[int, int | None]:
        inner = values.node("Sub", (numbers, values.scalar(begin))) if begin != 0 else numbers
        found, there = moved.place(inner)
        inside = values.node("Less", (inner, values.scalar(moved.count)))
        if begin != 0:
            inside = values.node("And", (inside, values.node("GreaterOrEqual", (inner, values.scalar(0)))))
        return found, inside if there is None else values.node("And", (there, inside))

    return replace(moved, count=count, place=place)


def range_(site: OpenSite) -> Results:
    """Range by numbers and sizes."""
    values, dtype = site.values, site.kind(0).dtype
    (start,), (limit,), (delta,) = (
        site.known(place, name) or [0] for place, name in enumerate(("start", "limit", "delta"))
    )
    if not isinstance(delta, int) or delta == 0:
        raise site.refuse("the step of a Range depends on sizes")
    distance = limit - start if delta > 0 else start - limit
    count = greatest((distance + (abs(delta) - 1)) // abs(delta), 0)
    steps = values.node("Mul", (iota(values, max(high(count), 0)), values.scalar(delta)))
    found = values.node("Add", (steps, values.scalar(start)))
    return [along(values, values.cast(found, dtype), (count,), 0)]


def constant_of_shape(site: OpenSite, shape: Numbers, value: np.ndarray) -> Results:
    """One value everywhere up to the sizes."""
    if any(low(dim) < 0 for dim in shape):
        raise site.refuse("a size of its shape may be negative")
    check_size(capacities(shape), DType.of(value.dtype), "a ConstantOfShape at its greatest size", site.values.limits)
    whole = site.values.graph.constant(np.broadcast_to(value.reshape(()), capacities(shape)), "")
    axes = range(len(shape)) if value.any() else ()
    return [along(site.values, whole, shape, *axes)]


VIEWS: Mapping[str, Rule] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Slice": slice_,
    "Split": split,
    "Gather": gather,
    "Transpose": transpose,
    "Concat": concat,
    "Expand": expand,
    "Tile": tile,
    "EyeLike": eye,
    "Pad": pad,
    "Range": range_,
    "Trilu": triangle,
}
