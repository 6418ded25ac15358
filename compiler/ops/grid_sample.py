"""GridSample: reading an image at coordinates that a tensor holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from compiler.ir.expr import Cast, Expr, Load, Where, conjunction
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType, at_most
from compiler.ops.arrays import as_array
from compiler.ops.attributes import word_of
from compiler.ops.build import at, call, cast, chain, number, view_kernel
from compiler.ops.interpolation import cubic, hat
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, at_least_f32, given
from compiler.ops.traits import Trait

A = -0.75
"""Coefficient of the cubic kernel."""
Tap = tuple[Index, Expr | None, Expr | None]
"""Where an axis is read, with which weight (None: 1), and under which condition (None: always)."""


def _mode(node: Node) -> str:
    """nearest, linear or cubic. Raises Unsupported for another one and for an unknown padding_mode."""
    word_of(node, "padding_mode", "zeros", "border", "reflection")
    return word_of(node, "mode", "linear", "nearest", "cubic")


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    """x [N, C, *S] and grid [N, *O, len(S)] give [N, C, *O]; the grid's last axis counts from the innermost of S."""
    x, grid = given(types, 0), given(types, 1)
    mode = _mode(node)
    if x.rank < 3 or grid.rank != x.rank or grid.shape[-1] != x.rank - 2 or grid.shape[0] != x.shape[0]:
        raise Unsupported(f"the grid {grid} does not fit {x}", "bind dimensions that fit")
    if not all(at_most(1, dim) for dim in x.shape[2:]):
        raise Unsupported("a spatial axis is empty", "bind larger input dimensions")
    if {"nearest": 1, "linear": 2, "cubic": 4}[mode] ** (x.rank - 2) > 64:
        raise Unsupported(f"{mode} over {x.rank - 2} axes is not supported", "use linear")
    return (TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1])),)


def _limits(node: Node, extent: int) -> tuple[float, float]:
    """The coordinates of the image's edges: of the outermost elements' centres, or of their outer sides."""
    return (0.0, extent - 1.0) if node.attrs.get("align_corners", 0) else (-0.5, extent - 0.5)


def _clamp(value: Expr, low: float, high: float) -> Expr:
    return call("min", call("max", value, number(low, value.dtype)), number(high, value.dtype))


def _reflected(value: Expr, low: float, high: float) -> Expr:
    """The coordinate folded at low and high as often as needed."""
    span, dtype = high - low, value.dtype
    if span == 0:
        return number(low, dtype)
    distance = call("abs", call("sub", value, number(low, dtype)))
    rest = call("fmod", distance, number(2 * span, dtype))
    folded = Where(call("le", rest, number(span, dtype)), rest, call("sub", number(2 * span, dtype), rest))
    return call("add", folded, number(low, dtype))


def _coordinate(node: Node, value: Expr, extent: int) -> Expr:
    """The grid's -1 .. 1 in elements of the image."""
    low, high = _limits(node, extent)
    dtype = value.dtype
    scaled = call("mul", call("add", value, number(1, dtype)), number((high - low) / 2, dtype))
    return call("add", scaled, number(low, dtype)) if low else scaled


def _place(node: Node, position: Expr, extent: int) -> tuple[Index, Expr | None]:
    """An element on an axis, given a whole number that may lie outside.

    Also the condition that it lies inside, for zero padding.
    """
    dtype = position.dtype
    condition = None
    padding = node.attrs.get("padding_mode", "zeros")
    if padding == "zeros":
        above = call("ge", position, number(0, dtype))
        condition = call("and", above, call("le", position, number(extent - 1, dtype)))
    elif padding == "reflection":
        position = _reflected(position, *_limits(node, extent))
    whole = Cast(_clamp(position, 0, extent - 1), DType.I64, saturate=True)
    return Index.of(Indirect(whole, 0, extent - 1)), condition


def _taps(node: Node, value: Expr, extent: int) -> list[Tap]:
    coordinate = _coordinate(node, value, extent)
    padding, mode = node.attrs.get("padding_mode", "zeros"), _mode(node)
    # The cubic kernel pads element by element, the others pad the coordinate first.
    if padding == "border" and mode != "cubic":
        coordinate = _clamp(coordinate, 0, extent - 1)
    elif padding == "reflection" and mode != "cubic":
        coordinate = _reflected(coordinate, *_limits(node, extent))
    if mode == "nearest":
        place, condition = _place(node, call("round", coordinate), extent)
        return [(place, None, condition)]
    floor = call("floor", coordinate)
    part = call("sub", coordinate, floor)
    kernel: Callable[[Expr], Expr] = hat if mode == "linear" else cubic(A)
    found: list[Tap] = []
    for offset in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
        weight = kernel(call("abs", call("sub", number(offset, part.dtype), part)))
        place, condition = _place(node, call("add", floor, number(offset, part.dtype)), extent)
        found.append((place, weight, condition))
    return found


def _define(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x, grid = given(types, 0), given(types, 1)
    wide = DType.F64 if x.dtype is DType.F64 or grid.dtype is DType.F64 else DType.F32
    rank = x.rank - 2

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = at(axes)
        taps = []
        for place in range(rank):
            value = Load("x1", (index[0], *index[2:], Index.of(rank - 1 - place)), grid.dtype)
            taps.append(_taps(node, cast(value, wide), x.dims[2 + place]))
        parts = []
        for chosen in itertools.product(*taps):
            read: Expr = cast(Load("x0", (*index[:2], *(tap[0] for tap in chosen)), x.dtype), wide)
            condition = conjunction([tap[2] for tap in chosen if tap[2] is not None])
            if condition is not None:
                read = Where(condition, read, number(0, wide))
            parts.append(chain("mul", [*(tap[1] for tap in chosen if tap[1] is not None), read]))
        return cast(chain("add", parts), x.dtype)

    return view_kernel("GridSample", types, outputs[0], element)


def _folded(c: np.ndarray, low: float, high: float) -> np.ndarray:
    """A triangle wave between low and high."""
    if high == low:
        return np.full_like(c, low)
    phase = np.mod((c - low) / (high - low), 2)
    return as_array(low + (high - low) * (1 - np.abs(phase - 1)))


def _tap_arrays(node: Node, g: np.ndarray, extent: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For the reference: positions and weights (0 outside for zero padding) along one axis."""
    low, high = _limits(node, extent)
    padding, mode = node.attrs.get("padding_mode", "zeros"), _mode(node)
    c = (g + 1) / 2 * (high - low) + low
    if padding == "border" and mode != "cubic":
        c = np.clip(c, 0, extent - 1)
    elif padding == "reflection" and mode != "cubic":
        c = _folded(c, low, high)
    found = []
    base = np.rint(c) if mode == "nearest" else np.floor(c)
    for offset in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]:
        place = base + offset
        s = np.abs(c - place)
        weight = np.ones_like(c) if mode == "nearest" else 1 - s
        if mode == "cubic":
            outer = A * (s**3 - 5 * s**2 + 8 * s - 4)
            weight = np.where(s <= 1, (A + 2) * s**3 - (A + 3) * s**2 + 1, outer)
        if padding == "zeros":
            weight = np.where((place < 0) | (place >= extent), 0, weight)
        elif padding == "reflection":
            place = np.rint(_folded(place, low, high))
        found.append((np.clip(place, 0, extent - 1).astype(np.int64), weight))
    return found


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, grid = map(at_least_f32, arrays_at(arrays, 0, 1))
    rank = x.ndim - 2
    axes = [_tap_arrays(node, grid[..., rank - 1 - place], x.shape[2 + place]) for place in range(rank)]
    total = np.zeros_like(x, shape=(*x.shape[:2], math.prod(grid.shape[1:-1])))
    batch = np.arange(x.shape[0], like=x)[:, None]
    for chosen in itertools.product(*axes):
        weight = math.prod((tap[1] for tap in chosen), start=np.ones_like(x, shape=grid.shape[:-1]))
        flat = np.zeros_like(x, np.int64, shape=grid.shape[:-1])
        for (place, _), extent in zip(chosen, x.shape[2:], strict=True):
            flat = flat * extent + place
        picked = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)[batch, flat.reshape(x.shape[0], -1)]
        total += picked.swapaxes(1, 2) * weight.reshape(x.shape[0], 1, -1)
    return (total.reshape(*x.shape[:2], *grid.shape[1:-1]),)


OPERATORS: tuple[Operator, ...] = (
    Operator("GridSample", _infer, _reference, _define, opsets=(16, 28), traits=Trait.RESAMPLE | Trait.CHANNELS),
)
