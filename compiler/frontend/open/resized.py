"""Resize by coordinates found while running, one axis after another.

So it is where data say scales, sizes or a region, and where an open axis does not become a simple multiple.

Nearest elements are gathered; everything else is a product with a matrix of weights. Coordinates are float64. A scale
of fp32 stands for a simple ratio near it, so that coordinates halfway between elements are found NEARLY there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.open.data_dependent import element, give, is_by_data, most_of, size_by_data, taken
from compiler.frontend.open.extent import Number, high
from compiler.frontend.open.places import along
from compiler.frontend.open.site import OpenSite, iota
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import Results
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported
from compiler.ops.resize import ratio

ROUNDED = 1 + 2.0**-23
"""What a length is multiplied by before it is rounded down: a scale of fp32 may be so much too small."""
NEARLY = 2.0**13
"""Of what a coordinate is the nearest multiple of 1 in, to choose one element."""
LITTLE = 2.0**-12
"""A sum of integers that is so much less than an integer is that one: weights add up to 1 only nearly."""


@dataclass(frozen=True)
class Real:
    """A value in float64, with numpy's arithmetic."""

    values: OpenValues
    id: int

    def _with(self, op: str, other: Real | float) -> Real:
        right = other if isinstance(other, Real) else real(self.values, other)
        return Real(self.values, self.values.node(op, (self.id, right.id)))

    def __add__(self, other: Real | float) -> Real:
        return self._with("Add", other)

    def __sub__(self, other: Real | float) -> Real:
        return self._with("Sub", other)

    def __mul__(self, other: Real | float) -> Real:
        return self._with("Mul", other)

    def __truediv__(self, other: Real | float) -> Real:
        return self._with("Div", other)

    def least(self, other: Real | float) -> Real:
        """The lesser one."""
        return self._with("Min", other)

    def greatest(self, other: Real | float) -> Real:
        """The greater one."""
        return self._with("Max", other)

    def apply(self, op: str) -> Real:
        """A function of each element."""
        return Real(self.values, self.values.node(op, (self.id,)))

    def above(self, other: Real | float) -> int:
        """Where it is greater (bool)."""
        return self._with("Greater", other).id

    def whole(self) -> int:
        """Rounded down (i64)."""
        return self.values.cast(self.apply("Floor").id, DType.I64)


def real(values: OpenValues, number: float) -> Real:
    """A constant."""
    return Real(values, values.constant(np.array(number, np.float64)))


def where(condition: int, then: Real, otherwise: Real) -> Real:
    """One of two, by truth values."""
    return Real(then.values, then.values.node("Where", (condition, then.id, otherwise.id)))


@dataclass(frozen=True)
class Line:
    """One axis: its real extent, its scale, how long it becomes, and the region of interest; scalars but `outputs`."""

    axis: int
    extent: Real
    scale: Real
    outputs: Number
    start: Real
    end: Real

    @property
    def coordinates(self) -> Real:
        """Of each output, one column."""
        values = self.extent.values
        return Real(values, values.cast(iota(values, high(self.outputs)), DType.F64))


def resize(site: OpenSite) -> Results:
    """Resize along all axes, or those that are named; batch and channels of images keep their sizes."""
    values, rank, id = site.values, len(site.shape()), site.first
    axes = site.attrs.get("axes")
    named = [int(axis) % rank for axis in axes] if isinstance(axes, tuple) and axes else [*range(rank)]  # type: ignore[arg-type]
    lines = _lines(site, named)
    outside: int | None = None
    x, dtype = id, values.graph.type(id).dtype
    nearest = site.attrs.get("mode", "nearest") == "nearest"
    wide = DType.F64 if dtype is DType.F64 or (dtype.is_integer and dtype.bytes > 1) else DType.F32
    x = x if nearest else values.cast(x, wide)
    for line in lines:
        at = _coordinates(site, line)
        x = _nearest(site, x, line, at) if nearest else _mixed(site, x, line, at)
        if site.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            off = values.node("Or", (at.above(line.extent - 1), real(values, 0).above(at)))
            off = values.reshape(off, (high(line.outputs), *(1,) * (rank - line.axis - 1)))
            outside = off if outside is None else values.node("Or", (outside, off))
    whole = values.shape(x)
    if not nearest and dtype.is_integer:
        x = _to_integer(values, x, wide, dtype)
    x = values.cast(x, dtype)
    if outside is not None:
        filler = values.constant(np.array(site.attrs.get("extrapolation_value", 0.0), dtype.numpy))
        x = values.node("Where", (outside, filler, x))
    return [along(values, x, whole, *range(rank))]


def _lines(site: OpenSite, axes: Sequence[int]) -> list[Line]:
    values, shape = site.values, site.shape()
    given = [at for at in (2, 3) if at < len(site.ids) and site.ids[at] is not None and site.kind(at).elements]
    if len(given) != 1 or site.kind(given[0]).elements != len(axes):
        raise Unsupported(f"{len(axes)} axes are resized by other than {len(axes)} scales or sizes", "give either")
    by_scale = given[0] == 2
    numbers = _reals(site, given[0])
    extents = [Real(values, values.cast(values.scalar(shape[axis]), DType.F64)) for axis in axes]
    scales = numbers if by_scale else [size / extent for size, extent in zip(numbers, extents, strict=True)]
    policy = site.attrs.get("keep_aspect_ratio_policy", "stretch")
    if not by_scale and policy != "stretch":
        ratio = scales[0]
        for other in scales[1:]:
            ratio = ratio.least(other) if policy == "not_larger" else ratio.greatest(other)
        scales = [ratio] * len(axes)
        numbers = [(ratio * extent + 0.5).apply("Floor").greatest(1.0) for extent in extents]
    moving = [axis for axis in axes if axis > 1 or len(shape) < 3]
    lengths = _lengths(site, given[0], axes) if by_scale or policy == "stretch" else None
    most = _most(site, moving) if lengths is None else 0
    regions = _reals(site, 1) if len(site.ids) > 1 and site.ids[1] is not None and site.kind(1).elements else []
    regions = regions if len(regions) == 2 * len(axes) else [real(values, end) for end in (0, 1) for _ in axes]
    if lengths is None or is_by_data(site, 1):
        _give_examples(site, given[0], axes, most)
    found = []
    for place, axis in enumerate(axes):
        if lengths is not None:
            if lengths[place] != shape[axis] or by_scale or is_by_data(site, 1):
                ends = regions[place], regions[len(axes) + place]
                found.append(Line(axis, extents[place], scales[place], lengths[place], *ends))
            continue
        length = extents[place] * scales[place] * ROUNDED if by_scale else numbers[place]
        what = f"the size along axis {axis}"
        if axis in moving:
            outputs = size_by_data(site, length.whole(), max(most, high(shape[axis])), what, 1)
        else:
            outputs = _kept(site, length.whole(), shape[axis], what)
            if not is_by_data(site, 1):
                continue
        ends = regions[place], regions[len(axes) + place]
        found.append(Line(axis, extents[place], scales[place], outputs, *ends))
    return found


def _lengths(site: OpenSite, position: int, axes: Sequence[int]) -> list[Number] | None:
    """How long each axis becomes, by scales or sizes that follow from shapes; None where data say them."""
    if is_by_data(site, position):
        return None
    if position == 3:
        return site.known(3, "sizes")
    scales = site.values.known(site.given(2))
    if scales is None or any(not isinstance(item, float | np.floating) for item in scales.reshape(-1)):
        return None
    shares = [ratio(float(item)) for item in scales.reshape(-1)]
    shape = site.shape()
    return [shape[axis] * by.numerator // by.denominator for axis, by in zip(axes, shares, strict=True)]


def _most(site: OpenSite, moving: Sequence[int]) -> int:
    """The greatest size that these axes may get, as data say."""
    around = 1
    for axis, dim in enumerate(site.shape()):
        around *= 1 if axis in moving else high(dim)
    return most_of(site, len(moving), around)


def _kept(site: OpenSite, scalar: int, size: Number, what: str) -> Number:
    """The size that an axis keeps: a run demands that data say it."""
    values = site.values
    apart = values.node("Sub", (scalar, values.scalar(size)))
    values.demand(apart, 0, 0, f"{what} of Resize {values.source!r:.100} must stay as it is")
    return size


def _reals(site: OpenSite, position: int) -> list[Real]:
    values, kind = site.values, site.kind(position)
    line = values.cast(values.reshape(site.given(position), (kind.elements,)), DType.F64)
    return [Real(values, element(values, line, place)) for place in range(kind.elements)]


def _give_examples(site: OpenSite, position: int, axes: Sequence[int], most: int) -> None:
    shape, fixed = site.shape(), [axis < 2 and len(site.shape()) > 2 for axis in axes]
    extents = [high(shape[axis]) for axis in axes]
    if is_by_data(site, position):
        factors = [factor for factor in (2.0, 1.0, 1.5) if max(extents) * factor <= most] or [1.0]
        lines = [[1.0 if keeps else factor for keeps in fixed] for factor in factors]
        if position == 3:
            lines = [[int(size * factor) for size, factor in zip(extents, line, strict=True)] for line in lines]
        give(site, position, *lines)
    if is_by_data(site, 1) and site.kind(1).elements == 2 * len(axes):
        count = len(axes)
        give(site, 1, [0.0] * count + [1.0] * count, [0.25] * count + [0.75] * count, [0.0] * count + [1.25] * count)


def _coordinates(site: OpenSite, line: Line) -> Real:
    """Where in the axis each output lies."""
    values, x, extent, scale = site.values, line.coordinates, line.extent, line.scale
    mode = str(site.attrs.get("coordinate_transformation_mode", "half_pixel"))
    outputs = Real(values, values.cast(values.scalar(line.outputs), DType.F64))
    length, several, zero = extent * scale, outputs.above(1.0), real(values, 0.0)
    centred = (x + 0.5) / scale - 0.5
    if mode == "half_pixel":
        return centred
    if mode == "pytorch_half_pixel":
        return where(several, centred, zero)
    if mode == "half_pixel_symmetric":
        return extent * 0.5 * (real(values, 1.0) - outputs / length) + centred
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return where(several, x * (extent - 1) / (length - 1), zero)
    if mode == "tf_crop_and_resize":
        begin, last = line.start * (extent - 1), line.end * (extent - 1)
        return where(several, begin + x * (last - begin) / (length - 1), (begin + last) * 0.5)
    raise Unsupported(f"coordinate_transformation_mode is {mode!r:.60}", "use one that ONNX names")


def _nearest(site: OpenSite, id: int, line: Line, at: Real) -> int:
    """The element at each coordinate, by `nearest_mode`."""
    mode = str(site.attrs.get("nearest_mode", "round_prefer_floor"))
    at = (at * NEARLY).apply("Round") / NEARLY
    rounded = {
        "floor": lambda: at.apply("Floor"),
        "ceil": lambda: at.apply("Ceil"),
        "round_prefer_floor": lambda: (at - 0.5).apply("Ceil"),
        "round_prefer_ceil": lambda: (at + 0.5).apply("Floor"),
    }
    if mode not in rounded:
        raise Unsupported(f"nearest_mode is {mode!r:.60}", "use one that ONNX names")
    inside = rounded[mode]().least(line.extent - 1).greatest(0.0)
    return taken(site.values, id, line.axis, inside.whole(), line.outputs)


def _mixed(site: OpenSite, id: int, line: Line, at: Real) -> int:
    """Sums of elements, each by its distance from the coordinate; what lies outside counts for the nearest end."""
    values, attrs, shape = site.values, site.attrs, site.values.shape(id)
    cubic, room = attrs.get("mode") == "cubic", high(shape[line.axis])
    if not cubic and attrs.get("mode") != "linear":
        raise Unsupported(f"mode is {attrs.get('mode')!r:.60}", "use nearest, linear or cubic")
    scale = line.scale.least(1.0) if site.integer("antialias", 0) else real(values, 1.0)
    reach = 2 if cubic else 1
    margin = reach * (room if site.integer("antialias", 0) else 1) + 1
    steps = values.node("Sub", (iota(values, room + 2 * margin), values.scalar(margin)))
    places = Real(values, values.cast(steps, DType.F64))
    at = at.least(line.extent).greatest(-1.0)
    column = Real(values, values.reshape(at.id, (high(line.outputs), 1)))
    weights = _kernel((places - column).apply("Abs") * scale, cubic, attrs.get("cubic_coeff_a", -0.75))
    if site.integer("exclude_outside", 0):
        apart = (places - places.least(line.extent - 1).greatest(0.0)).apply("Abs")
        weights = where(apart.above(0.0), real(values, 0.0), weights)
    total = values.node("ReduceSum", (weights.id, None), {"axes": (1,), "keepdims": 1, "noop_with_empty_axes": 1})
    weights = weights / Real(values, total)
    inside = values.reshape(places.least(line.extent - 1).greatest(0.0).whole(), (room + 2 * margin, 1))
    ends = values.cast(values.node("Equal", (inside, iota(values, room))), DType.F64)
    rows = values.cast(values.node("MatMul", (weights.id, ends)), values.graph.type(id).dtype)
    order = [axis for axis in range(len(shape)) if axis != line.axis]
    last = values.node("Transpose", (id,), {"perm": (*order, line.axis)}) if line.axis < len(order) else id
    mixed = values.node("MatMul", (last, values.node("Transpose", (rows,), {"perm": (1, 0)})))
    back = (*range(line.axis), len(shape) - 1, *range(line.axis, len(shape) - 1))
    found = values.node("Transpose", (mixed,), {"perm": back})
    return along(values, found, (*shape[: line.axis], line.outputs, *shape[line.axis + 1 :]), line.axis)


def _kernel(distance: Real, cubic: bool, coefficient: object) -> Real:
    """The weight of an element: the hat, or the cubic convolution kernel (Keys 1981)."""
    if not cubic:
        return (real(distance.values, 1.0) - distance).greatest(0.0)
    a = float(coefficient) if isinstance(coefficient, int | float) else -0.75
    near = (distance * (a + 2) - (a + 3)) * distance * distance + 1.0
    far = ((distance * a - 5 * a) * distance + 8 * a) * distance - 4 * a
    outer = where(distance.above(2.0), real(distance.values, 0.0), far)
    return where(distance.above(1.0), outer, near)


def _to_integer(values: OpenValues, id: int, wide: DType, dtype: DType) -> int:
    """Truncated towards zero, but for what is nearly an integer, within the type's range."""
    zero, little = (values.constant(np.array(number, wide.numpy)) for number in (0, LITTLE))
    below = values.node("Less", (id, zero))
    moved = values.node("Where", (below, values.node("Sub", (id, little)), values.node("Add", (id, little))))
    ends = np.iinfo(dtype.numpy)
    least, most = (values.constant(np.array(end, wide.numpy)) for end in (ends.min, ends.max))
    return values.node("Min", (values.node("Max", (moved, least)), most))
