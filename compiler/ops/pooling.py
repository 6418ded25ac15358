"""Pools: MaxPool, AveragePool, LpPool and their global forms, each a reduction over the taps of a window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect, flatten, unflatten
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, Shape, TensorType, static
from compiler.ops.arrays import alike, as_array
from compiler.ops.build import call, cast, number
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.pieces import InPieces, Pieces, Region, regions, unfolded
from compiler.ops.slots import accumulator_of, arrays_at, given, input_slots, output_slots
from compiler.ops.traits import PLAIN, Trait
from compiler.ops.window import Window, check_rank, output_axes, tap_axes, taps_inside, windows, within

LAST = 2**63 - 1
"""An index behind every other one: the argmax prefers any tap that reads the tensor to one in the padding."""


def _global_windows(extents: tuple[int, ...]) -> tuple[Window, ...]:
    """One window over the whole of each spatial axis."""
    if min(extents, default=1) < 1:
        raise Unsupported(f"a spatial extent of {list(extents)} is 0", "bind larger input dimensions")
    return tuple(Window(extent, extent, 1, 1, 0, 0, 1) for extent in extents)


def _pool_windows(node: Node, dims: Shape) -> tuple[Window, ...]:
    if len(dims) < 3:
        raise Unsupported(f"the input has rank {len(dims)}", "give [N, C, spatial axes]")
    if node.op.startswith("Global"):
        check_rank(len(dims) - 2)
        return _global_windows(static(dims[2:]))
    kernel = node.attrs.get("kernel_shape")
    if not isinstance(kernel, tuple):
        raise Unsupported("kernel_shape is missing", "export the model again")
    return windows(node, static(dims[2:]), tuple(extent for extent in kernel if isinstance(extent, int)))


class _Loops:
    """The nest of a pool: shared axes (n, c, positions), reduction over taps, where x is read and y stored."""

    def __init__(self, places: tuple[Window, ...], dims: tuple[int, ...]) -> None:
        n, c = Axis("n", dims[0]), Axis("c", dims[1])
        self.places = places
        self.outputs = output_axes(tuple(window.outputs for window in places))
        self.shared = (n, c, *self.outputs)
        self.taps = tap_axes(tuple(window.kernel for window in places))
        read = tuple(window.at(o, t) for window, o, t in zip(places, self.outputs, self.taps, strict=True))
        self.x = (Index.of(n), Index.of(c), *read)
        self.y = tuple(Index.of(axis) for axis in self.shared)
        self.condition = within(read, dims[2:])

    def padded(self, value: Expr, padding: Expr) -> Expr:
        return value if self.condition is None else Where(self.condition, value, padding)

    def reduce(self, monoid: str, value: Expr, into: str) -> Block:
        return Block((), (value,), (Store(into, self.y),), self.taps, monoid, value.dtype)

    def then(self, value: Expr, into: str) -> Block:
        return Block((), (value,), (Store(into, self.y),))


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    places = _pool_windows(node, x.shape)
    shape = (*x.shape[:2], *(window.outputs for window in places))
    dtypes = (x.dtype, DType.I64)
    return tuple(TensorType(dtype, shape) for dtype in dtypes[: len(node.outputs)])


def _least(dtype: DType) -> Const:
    return number(-math.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min), dtype)


def _define_max(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    loops = _Loops(_pool_windows(node, x.dims), x.dims)
    value = loops.padded(Load("x0", loops.x, x.dtype), _least(x.dtype))
    slots, results = input_slots(types), output_slots(outputs)
    if len(outputs) == 1:
        return Kernel(node.op, slots, results, (loops.reduce("max", value, "y0"),), shared=loops.shared)
    place = loops.padded(Position(flatten(loops.x, x.dims)), number(LAST, DType.I64))
    if not node.attrs.get("storage_order", 0):
        stores = (Store("y0", loops.y), Store("y1", loops.y))
        best = Block((), (value, place), stores, loops.taps, "argmax_first", x.dtype)
        return Kernel(node.op, slots, results, (best,), shared=loops.shared)
    # Ties go to the first tap in row-major order even where the indices are column-major.
    stores = (Store("y0", loops.y), Store("t0", loops.y))
    best = Block((), (value, place), stores, loops.taps, "argmax_first", x.dtype)
    found = unflatten(Index.of(Indirect(Load("t0", loops.y, DType.I64), 0, max(x.elements - 1, 0))), x.dims)
    order = (0, 1, *reversed(range(2, x.rank)))
    column_major = flatten(tuple(found[axis] for axis in order), tuple(x.dims[axis] for axis in order))
    turned = loops.then(Position(column_major), "y1")
    temps = (Slot("t0", TensorType(DType.I64, outputs[1].shape)),)
    return Kernel(node.op, slots, results, (best, turned), temps, loops.shared)


def _divisor(node: Node, loops: _Loops, dtype: DType) -> Expr:
    """How many elements an average is over: all taps inside the input, or inside the padded input."""
    fixed, parts = 1, []
    for window, output in zip(loops.places, loops.outputs, strict=True):
        low, high = 0, window.extent
        if node.attrs.get("count_include_pad", 0):
            low, high = -window.before, window.extent + window.after
        count = taps_inside(window, output, low, high, dtype)
        if isinstance(count, int):
            fixed *= count
        else:
            parts.append(count)
    if fixed > 1 or not parts:
        parts.append(number(fixed, dtype))
    whole = parts[0]
    for part in parts[1:]:
        whole = call("mul", whole, part)
    return whole


def _define_average(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    loops = _Loops(_pool_windows(node, x.dims), x.dims)
    wide = accumulator_of(x.dtype)
    value = loops.padded(cast(Load("x0", loops.x, x.dtype), wide), number(0, wide))
    mean = cast(call("div", Load("t0", loops.y, wide), _divisor(node, loops, wide)), x.dtype)
    return _two_blocks(node, types, outputs, loops, wide, value, mean)


def _two_blocks(
    node: Node, types: Types, outputs: tuple[TensorType, ...], loops: _Loops, wide: DType, value: Expr, result: Expr
) -> Kernel:
    blocks = (loops.reduce("sum", value, "t0"), loops.then(result, "y0"))
    temps = (Slot("t0", TensorType(wide, outputs[0].shape)),)
    return Kernel(node.op, input_slots(types), output_slots(outputs), blocks, temps, loops.shared)


def _norm(node: Node) -> int:
    p = node.attrs.get("p", 2)
    if not isinstance(p, int) or p < 1:
        raise Unsupported(f"p is {p!r}", "use an integer from 1")
    return p


def _define_lp(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """(sum over taps of |x|^p)^(1/p)."""
    x = given(types, 0)
    loops = _Loops(_pool_windows(node, x.dims), x.dims)
    wide, p = accumulator_of(x.dtype), _norm(node)
    element = cast(Load("x0", loops.x, x.dtype), wide)
    total: Expr = Load("t0", loops.y, wide)
    power: Expr
    root: Expr
    if p == 1:
        power, root = call("abs", element), total
    elif p == 2:
        power, root = call("mul", element, element), call("sqrt", total)
    else:
        power = call("pow", call("abs", element), number(p, wide))
        root = call("pow", total, number(1 / p, wide))
    return _two_blocks(node, types, outputs, loops, wide, loops.padded(power, number(0, wide)), cast(root, x.dtype))


def _reduced(
    x: np.ndarray, places: tuple[Window, ...], padding: float, combine: Callable[[np.ndarray, Region], np.ndarray]
) -> Pieces:
    """For references: windows of x [N, C, *S] reduced, with `padding` outside of x.

    `combine` gets [n, c, *positions, taps] of a region of outputs, and these outputs.
    """
    outputs = tuple(window.outputs for window in places)
    shape = (*x.shape[:2], *outputs)

    def parts() -> Iterator[tuple[Region, np.ndarray]]:
        for batch, channels, *positions in regions(shape, math.prod(window.kernel for window in places)):
            windows = _windows_last(x[batch, channels], places, tuple(positions), padding)
            yield (batch, channels, *positions), combine(windows, tuple(positions))

    return Pieces(shape, x.dtype, parts())


def _windows_last(x: np.ndarray, places: tuple[Window, ...], outputs: Region, padding: float) -> np.ndarray:
    """[N, C, *outputs, taps]."""
    found = unfolded(x, places, outputs, padding)
    taps, counts = found.shape[2 : 2 + len(places)], found.shape[2 + len(places) :]
    return np.moveaxis(found.reshape(*x.shape[:2], math.prod(taps), *counts), 2, -1)


def _pieces_max(x: np.ndarray, places: tuple[Window, ...]) -> Pieces:
    return _reduced(x, places, _lowest(x.dtype), lambda windows, _: windows.max(axis=-1))


def _lowest(dtype: np.dtype) -> float:
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -math.inf


def _reference_max(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    places = _pool_windows(node, x.shape)
    most = _pieces_max(x, places).assembled()
    if len(node.outputs) == 1:
        return (most,)
    every = tuple(slice(0, window.outputs) for window in places)
    windows = _windows_last(x, places, every, _lowest(x.dtype))
    inside = _windows_last(np.ones_like(x, np.bool_), places, every, False)
    best = np.argmax(inside & (windows == most[..., None]), axis=-1)
    flat_index = np.arange(x.size, dtype=np.int64, like=x).reshape(x.shape)
    found = np.take_along_axis(_windows_last(flat_index, places, every, 0), best[..., None], axis=-1)[..., 0]
    if node.attrs.get("storage_order", 0):
        n, c, *spatial = np.unravel_index(found, x.shape)
        turned = (*x.shape[:2], *reversed(x.shape[2:]))
        found = np.ravel_multi_index((n, c, *reversed(spatial)), turned)
    return (most, found.astype(np.int64))


def _pieces_average(node: Node, arrays: Arrays) -> Pieces:
    (x,) = arrays_at(arrays, 0)
    places = _pool_windows(node, x.shape)
    padded = bool(node.attrs.get("count_include_pad", 0))

    def mean(windows: np.ndarray, outputs: Region) -> np.ndarray:
        counts = [_counted(window, one, padded) for window, one in zip(places, outputs, strict=True)]
        return as_array(windows.sum(axis=-1) / alike(reduce(np.multiply.outer, counts).astype(x.dtype), x))

    return _reduced(x, places, 0, mean)


def _counted(window: Window, outputs: slice, padded: bool) -> np.ndarray:
    """How many taps of each output read the input, or with `padded` the padded input."""
    low, high = (-window.before, window.extent + window.after) if padded else (0, window.extent)
    starts = np.arange(outputs.start, outputs.stop) * window.stride - window.before
    taps = np.arange(window.kernel) * window.dilation
    return np.searchsorted(taps, high - starts) - np.searchsorted(taps, low - starts)


def _pieces_lp(node: Node, arrays: Arrays) -> Pieces:
    (x,) = arrays_at(arrays, 0)
    p = _norm(node)
    return _reduced(
        x, _pool_windows(node, x.shape), 0, lambda windows, _: (np.abs(windows) ** p).sum(axis=-1) ** (1 / p)
    )


Reference = Callable[[Node, Arrays], tuple[np.ndarray, ...]]
Definition = Callable[[Node, Types, tuple[TensorType, ...]], Kernel]


def _pool(name: str, reference: Reference, define: Definition, traits: Trait = PLAIN) -> Operator:
    """A record; one whose window is all positions has no attribute for it."""
    window = PLAIN if name.startswith("Global") else Trait.WINDOW
    return Operator(name, _infer, reference, define, traits=Trait.POOL | Trait.CHANNELS | window | traits)


NORM = Trait.POSITIVE_HOMOGENEOUS | Trait.NOT_NEGATIVE

OPERATORS: tuple[Operator, ...] = (
    _pool("MaxPool", _reference_max, _define_max, Trait.POSITIVE_HOMOGENEOUS),
    _pool("AveragePool", InPieces(_pieces_average), _define_average),
    _pool("LpPool", InPieces(_pieces_lp), _define_lp, NORM),
    _pool("GlobalMaxPool", _reference_max, _define_max, Trait.POSITIVE_HOMOGENEOUS),
    _pool("GlobalAveragePool", InPieces(_pieces_average), _define_average),
    _pool("GlobalLpPool", InPieces(_pieces_lp), _define_lp, NORM),
)
