"""Resize: nearest, linear and cubic interpolation on a grid known when compiling.

Output position x reads input coordinate (a * x + b) / d for integers a, b, d, exactly; so indices are quasi-affine and
the weights come from a remainder. A scale that is a simple ratio rounded to f32 (0.6 for 3/5) counts as that ratio: the
coordinates it was chosen for then fall on elements, not beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where, conjunction, inside
from compiler.ir.graph import Attr, Node
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.arrays import alike
from compiler.ops.build import call, cast, number
from compiler.ops.interpolation import cubic, hat
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given, input_slots, output_slots
from compiler.ops.traits import Trait

SIMPLE = 1024
"""Greatest denominator of a ratio for which a rounded scale is taken."""
TAPS = 100
"""Greatest number of elements that one result may mix."""
NEARLY = 2**-12
"""A sum that is so much less than an integer is that integer: 16 weights in f32 miss 255 by up to 1.2e-4."""


@dataclass(frozen=True)
class Line:
    """One resized axis: output x in 0 .. outputs-1 reads coordinate slope * x + offset of an axis of `extent`."""

    extent: int
    outputs: int
    scale: Fraction
    slope: Fraction
    offset: Fraction

    @property
    def identity(self) -> bool:
        """Whether output x is element x."""
        return self.extent == self.outputs and self.slope == 1 and self.offset == 0


def ratio(value: float) -> Fraction:
    """What a scale stands for: a simple ratio that fp32 rounds to it, such as 1/300 or 457/1000; else itself."""
    simple = Fraction(value).limit_denominator(SIMPLE)
    return simple if np.float32(float(simple)) == np.float32(value) else Fraction(float(value))


def _numbers(value: Attr) -> tuple[float, ...]:
    items = value if isinstance(value, tuple) else ()
    return tuple(item for item in items if isinstance(item, int | float))


def lines(node: Node, dims: tuple[int, ...]) -> tuple[Line, ...]:
    """One Line for each axis of an input of shape `dims`. Raises Unsupported when scales, sizes or modes do not fit."""
    rank = len(dims)
    axes = [int(axis) % rank for axis in _numbers(node.attrs.get("axes"))] or list(range(rank))
    extents = [dims[axis] for axis in axes]
    if min(extents, default=1) < 1:
        raise Unsupported(f"an axis of {list(dims)} is empty", "bind larger input dimensions")
    scales, outputs = _scales(node, extents)
    roi = [ratio(value) for value in _numbers(node.attrs.get("roi"))]
    if len(roi) != 2 * len(axes):
        roi = [Fraction(0)] * len(axes) + [Fraction(1)] * len(axes)
    found = [Line(extent, extent, Fraction(1), Fraction(1), Fraction(0)) for extent in dims]
    for place, axis in enumerate(axes):
        slope, offset = _coordinates(
            node, dims[axis], outputs[place], scales[place], roi[place], roi[len(axes) + place]
        )
        found[axis] = Line(dims[axis], outputs[place], scales[place], slope, offset)
    return tuple(found)


def _scales(node: Node, extents: list[int]) -> tuple[list[Fraction], list[int]]:
    """Scale and number of outputs of each resized axis."""
    scales, sizes = _numbers(node.attrs.get("scales")), _numbers(node.attrs.get("sizes"))
    if bool(scales) == bool(sizes) or len(scales or sizes) != len(extents):
        reason = f"{len(scales)} scales and {len(sizes)} sizes are given for {len(extents)} axes"
        raise Unsupported(reason, "give either, one for each axis")
    if min(scales or sizes) <= 0:
        raise Unsupported("a scale or size is not positive", "use positive ones")
    if scales:
        ratios = [ratio(scale) for scale in scales]
        outputs = [math.floor(extent * ratio) for extent, ratio in zip(extents, ratios, strict=True)]
        if min(outputs) < 1:
            raise Unsupported("an axis would have no output", "use larger scales or bind larger dimensions")
        return ratios, outputs
    ratios = [Fraction(int(size), extent) for size, extent in zip(sizes, extents, strict=True)]
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return ratios, [int(size) for size in sizes]
    if policy not in ("not_larger", "not_smaller"):
        raise Unsupported(f"keep_aspect_ratio_policy is {policy!r}", "use stretch, not_larger or not_smaller")
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [one] * len(extents), [max(1, math.floor(one * extent + Fraction(1, 2))) for extent in extents]


def _coordinates(
    node: Node, extent: int, outputs: int, scale: Fraction, start: Fraction, end: Fraction
) -> tuple[Fraction, Fraction]:
    """slope and offset of a coordinate_transformation_mode; the resized length is the exact one, extent * scale."""
    mode = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    half, length = Fraction(1, 2), extent * scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and outputs > 1):
        return 1 / scale, half / scale - half
    if mode == "half_pixel_symmetric":
        centre = Fraction(extent, 2) * (1 - outputs / length)
        return 1 / scale, centre + half / scale - half
    if mode == "asymmetric":
        return 1 / scale, Fraction(0)
    if mode == "align_corners":
        return (Fraction(extent - 1) / (length - 1) if outputs > 1 else Fraction(0)), Fraction(0)
    if mode == "tf_crop_and_resize":
        if outputs > 1:
            return (end - start) * (extent - 1) / (length - 1), start * (extent - 1)
        return Fraction(0), (start + end) / 2 * (extent - 1)
    if mode == "pytorch_half_pixel":
        return Fraction(0), Fraction(0)
    raise Unsupported(f"coordinate_transformation_mode is {mode!r}", "use one that ONNX names")


@dataclass(frozen=True)
class _Grid:
    """Integers of a Line: the coordinate of `axis` is numerator / divisor."""

    line: Line
    numerator: Index
    divisor: int

    @staticmethod
    def of(line: Line, axis: Axis) -> _Grid:
        divisor = math.lcm(line.slope.denominator, line.offset.denominator)
        factor, start = int(line.slope * divisor), int(line.offset * divisor)
        if (abs(factor) * line.outputs + abs(start) + divisor) * 4 >= 2**62:
            raise Unsupported("a scale or region of interest has too many digits", "round it to a simple ratio")
        return _Grid(line, Index.of(axis) * factor + start, divisor)

    def clamped(self, index: Index) -> Index:
        last = self.line.extent - 1
        low, high = index.range
        if low >= 0 and high <= last:
            return index
        expr: Expr = Position(index)
        if low < 0:
            expr = call("max", expr, Const(0, DType.I64))
        if high > last:
            expr = call("min", expr, Const(last, DType.I64))
        return Index.of(Indirect(expr, 0, last))

    def nearest(self, mode: Attr) -> Index:
        numerator, d = self.numerator, self.divisor
        if mode == "floor":
            return self.clamped(numerator // d)
        if mode == "ceil":
            return self.clamped((numerator + (d - 1)) // d)
        if mode == "round_prefer_floor":
            return self.clamped((numerator * 2 + (d - 1)) // (2 * d))
        if mode == "round_prefer_ceil":
            return self.clamped((numerator * 2 + d) // (2 * d))
        raise Unsupported(f"nearest_mode is {mode!r}", "use floor, ceil, round_prefer_floor or round_prefer_ceil")

    def beyond(self) -> list[Expr]:
        """Conditions under which the coordinate lies inside the axis, as far as that is not always so."""
        found = inside(self.numerator, (self.line.extent - 1) * self.divisor + 1)
        return [] if found is None else [found]


Tap = tuple[Index, Expr | None]
"""Where an axis is read and with which weight; None is 1."""


def _taps(node: Node, grid: _Grid, dtype: DType) -> list[Tap]:
    floor, remainder = grid.numerator // grid.divisor, grid.numerator % grid.divisor
    antialias = bool(node.attrs.get("antialias", 0)) and grid.line.scale < 1
    if remainder == Index.of(0) and not antialias:
        return [(grid.clamped(floor), None)]
    part = call("mul", Position(remainder, dtype), number(1 / grid.divisor, dtype))
    scale = min(grid.line.scale, Fraction(1)) if antialias else Fraction(1)
    kernel: Callable[[Expr], Expr] = hat
    reach = 1
    if node.attrs.get("mode") == "cubic":
        kernel, reach = cubic(_coefficient(node)), 2
    first = math.floor(-reach / scale) + 1
    offsets = range(first, 2 - first)
    weights = []
    for offset in offsets:
        distance = call("abs", call("sub", number(offset, dtype), part))
        weights.append(kernel(call("mul", distance, number(float(scale), dtype)) if scale != 1 else distance))
    excluded = bool(node.attrs.get("exclude_outside", 0))
    if excluded:
        holds = [inside(floor + offset, grid.line.extent) for offset in offsets]
        weights = [w if h is None else Where(h, w, number(0, dtype)) for w, h in zip(weights, holds, strict=True)]
    if excluded or antialias:
        total = weights[0]
        for weight in weights[1:]:
            total = call("add", total, weight)
        weights = [call("div", weight, total) for weight in weights]
    return [(grid.clamped(floor + offset), weight) for offset, weight in zip(offsets, weights, strict=True)]


def _coefficient(node: Node) -> float:
    return float(_numbers((node.attrs.get("cubic_coeff_a", -0.75),))[0])


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    return (TensorType(x.dtype, tuple(line.outputs for line in lines(node, x.dims))),)


def _define(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    found = lines(node, x.dims)
    axes = tuple(Axis(f"i{place}", line.outputs) for place, line in enumerate(found))
    grids = [_Grid.of(line, axis) for line, axis in zip(found, axes, strict=True)]
    value = _nearest(node, x, grids) if node.attrs.get("mode", "nearest") == "nearest" else _mixed(node, x, grids)
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        condition = conjunction([part for grid in grids for part in grid.beyond()])
        outside = _numbers((node.attrs.get("extrapolation_value", 0.0),))[0]
        if condition is not None:
            value = Where(condition, value, cast(number(float(outside), DType.F64), x.dtype))
    block = Block((), (value,), (Store("y0", tuple(map(Index.of, axes))),))
    return Kernel("Resize", input_slots(types), output_slots(outputs), (block,), shared=axes)


def _nearest(node: Node, x: TensorType, grids: list[_Grid]) -> Expr:
    mode = node.attrs.get("nearest_mode", "round_prefer_floor")
    return Load("x0", tuple(grid.nearest(mode) for grid in grids), x.dtype)


def _mixed(node: Node, x: TensorType, grids: list[_Grid]) -> Expr:
    if node.attrs.get("mode") not in ("linear", "cubic"):
        raise Unsupported(f"mode is {node.attrs.get('mode')!r}", "use nearest, linear or cubic")
    wide = DType.F64 if x.dtype is DType.F64 or (x.dtype.is_integer and x.dtype.bytes > 1) else DType.F32
    taps = [_taps(node, grid, wide) for grid in grids]
    if math.prod(map(len, taps)) > TAPS:
        raise Unsupported(f"one result mixes {math.prod(map(len, taps))} elements", "resize in several steps")

    def mix(index: tuple[Index, ...]) -> Expr:
        if len(index) == len(taps):
            return cast(Load("x0", index, x.dtype), wide)
        total: Expr | None = None
        for place, weight in taps[len(index)]:
            inner = mix((*index, place))
            part = inner if weight is None else Apply("mul", (weight, inner))
            total = part if total is None else call("add", total, part)
        assert total is not None
        return total

    return _to_integer(mix(()), x.dtype) if x.dtype.is_integer else cast(mix(()), x.dtype)


def _to_integer(value: Expr, dtype: DType) -> Expr:
    """Truncated, but for what is NEARLY an integer: weights add up to 1 only nearly, and 2.9999998 is 3."""
    little = number(NEARLY, value.dtype)
    negative = call("lt", value, number(0, value.dtype))
    return cast(Where(negative, call("sub", value, little), call("add", value, little)), dtype, saturate=True)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """One axis at a time: a choice of rows for nearest, a matrix of weights otherwise."""
    (x,) = arrays_at(arrays, 0)
    found = lines(node, x.shape)
    y = x if node.attrs.get("mode", "nearest") == "nearest" or x.dtype.kind == "f" else x.astype(np.float64)
    outside = np.zeros(tuple(line.outputs for line in found), np.bool_)
    for axis, line in enumerate(found):
        if line.identity:
            continue
        at = np.round(float(line.slope) * np.arange(line.outputs) + float(line.offset), 9)
        if node.attrs.get("mode", "nearest") == "nearest":
            y = np.take(y, alike(_nearest_rows(node, at, line.extent), y), axis=axis)
        else:
            rows = _weight_rows(node, at, line).astype(y.dtype if y.dtype.itemsize >= 4 else np.float32)
            y = np.moveaxis(np.tensordot(alike(rows, y), y.astype(rows.dtype, copy=False), axes=(1, axis)), 0, axis)
        outside |= ((at < 0) | (at > line.extent - 1)).reshape(-1, *(1,) * (x.ndim - axis - 1))
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        y = np.where(alike(outside, y), y.dtype.type(_numbers((node.attrs.get("extrapolation_value", 0.0),))[0]), y)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        y = np.trunc(np.clip(y + np.copysign(NEARLY, y), limits.min, limits.max)) if y.dtype.kind == "f" else y
    return (y.astype(x.dtype, copy=False),)


def _nearest_rows(node: Node, at: np.ndarray, extent: int) -> np.ndarray:
    rounding: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda c: np.ceil(c - 0.5),
        "round_prefer_ceil": lambda c: np.floor(c + 0.5),
    }
    rows = rounding[str(node.attrs.get("nearest_mode", "round_prefer_floor"))](at)
    return np.asarray(np.clip(rows, 0, extent - 1), np.int64)


def _weight_rows(node: Node, at: np.ndarray, line: Line) -> np.ndarray:
    """[outputs, extent]: the weight of every input element; what falls outside goes to the nearest end."""
    scale = min(1.0, float(line.scale)) if node.attrs.get("antialias", 0) else 1.0
    cubic = node.attrs.get("mode") == "cubic"
    a = _coefficient(node)
    reach = math.ceil((2 if cubic else 1) / scale) + 1
    places = np.floor(at)[:, None].astype(np.int64) + np.arange(-reach, reach + 1)
    s = np.abs(places - at[:, None]) * scale
    if cubic:
        near, far = (a + 2) * s**3 - (a + 3) * s**2 + 1, a * (s**3 - 5 * s**2 + 8 * s - 4)
        weights = np.where(s <= 1, near, np.where(s < 2, far, 0))
    else:
        weights = np.clip(1 - s, 0, 1)
    if node.attrs.get("exclude_outside", 0):
        weights = np.where((places >= 0) & (places < line.extent), weights, 0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    rows = np.zeros((line.outputs, line.extent))
    np.add.at(rows, (np.arange(line.outputs)[:, None], np.clip(places, 0, line.extent - 1)), weights)
    return rows


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "Resize",
        _infer,
        _reference,
        _define,
        ((1, "roi"), (2, "scales"), (3, "sizes")),
        traits=Trait.RESAMPLE | Trait.CHANNELS,
    ),
)
