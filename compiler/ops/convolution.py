"""Convolutions: Conv, ConvTranspose and the integer forms ConvInteger, QLinearConv and ConvTransposeInteger.

The last is the compiler's own: a ConvTranspose of bytes with the inputs and the result of a ConvInteger.

Each is `sum c, taps . mul(where(inside, x), w)` over shared axes (n, g, k, positions), with the group as an axis of its
own, so that a depthwise convolution has k of extent 1; bias and requantisation follow in a second block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Apply, Expr, Load, Where, conjunction
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, Shape, TensorType, extent, static
from compiler.ops.build import call, cast, number
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.pieces import InPieces, Pieces, Region, regions, span, unfolded
from compiler.ops.quantised import parameter, requantise, requantised, scalar_or_along, spread, zeroed
from compiler.ops.slots import (
    accumulator_of,
    arrays_at,
    at_least_f32,
    given,
    input_slots,
    optional,
    output_slots,
    present,
    slot_names,
)
from compiler.ops.traits import Trait
from compiler.ops.transposed import TransposedWindow, transposed_windows
from compiler.ops.window import Window, output_axes, tap_axes, windows, within


@dataclass(frozen=True)
class _Loops:
    """The nest of a convolution: where it reads x and w, under which condition, and where it stores y."""

    shared: tuple[Axis, ...]
    reduction: tuple[Axis, ...]
    x: tuple[Index, ...]
    w: tuple[Index, ...]
    y: tuple[Index, ...]
    condition: Expr | None

    @property
    def channel(self) -> Index:
        """The output channel."""
        return self.y[1]


def _groups(node: Node, channels: int, filters: int) -> int:
    groups = node.attrs.get("group", 1)
    assert isinstance(groups, int)
    if groups < 1 or channels % groups or filters % groups:
        reason = f"group {groups} does not divide {channels} input channels and {filters} filters"
        raise Unsupported(reason, "export with a group that divides both")
    return groups


def _windows(node: Node, x: Shape, w: Shape) -> tuple[Window, ...]:
    """Windows of a Conv of shapes x [N, C, *S] and w [K, C/g, *R]. Raises Unsupported when they do not fit."""
    w = static(w)
    groups = _groups(node, extent(x[1]) if len(x) > 1 else 0, w[0] if w else 0)
    if len(x) != len(w) or x[1] != w[1] * groups:
        reason = f"weights of shape {list(w)} in {groups} groups do not fit an input of shape {list(x)}"
        raise Unsupported(reason, "bind the input dimensions that the weights need")
    kernel = node.attrs.get("kernel_shape")
    if kernel is not None and kernel != w[2:]:
        raise Unsupported(f"kernel_shape is {kernel}, the weights have {w[2:]}", "remove the attribute kernel_shape")
    return windows(node, static(x[2:]), w[2:])


def _conv_loops(node: Node, x: tuple[int, ...], w: tuple[int, ...]) -> _Loops:
    places = _windows(node, x, w)
    groups = _groups(node, x[1], w[0])
    filters = w[0] // groups
    n, g, k, c = Axis("n", x[0]), Axis("g", groups), Axis("k", filters), Axis("c", w[1])
    outputs = output_axes(tuple(window.outputs for window in places))
    taps = tap_axes(w[2:])
    read = tuple(window.at(o, t) for window, o, t in zip(places, outputs, taps, strict=True))
    channel = Index.of(g) * filters + k
    return _Loops(
        shared=(n, *((g,) if groups > 1 else ()), k, *outputs),
        reduction=(c, *taps),
        x=(Index.of(n), Index.of(g) * w[1] + c, *read),
        w=(channel, Index.of(c), *map(Index.of, taps)),
        y=(Index.of(n), channel, *map(Index.of, outputs)),
        condition=within(read, x[2:]),
    )


def _transposed_loops(node: Node, x: tuple[int, ...], w: tuple[int, ...]) -> _Loops:
    places = _transposed_windows(node, x, w)
    groups = _groups(node, x[1], w[0])
    depth = w[0] // groups
    n, g, m, c = Axis("n", x[0]), Axis("g", groups), Axis("k", w[1]), Axis("c", depth)
    nests = [place.nest(index + 3 - len(places)) for index, place in enumerate(places)]
    conditions = [nest.condition for nest in nests if nest.condition is not None]
    channel = Index.of(g) * w[1] + m
    return _Loops(
        shared=(n, *((g,) if groups > 1 else ()), m, *(axis for nest in nests for axis in nest.shared)),
        reduction=(c, *(nest.tap for nest in nests)),
        x=(Index.of(n), Index.of(g) * depth + c, *(nest.read for nest in nests)),
        w=(Index.of(g) * depth + c, Index.of(m), *(nest.weight for nest in nests)),
        y=(Index.of(n), channel, *(nest.output for nest in nests)),
        condition=conjunction(conditions),
    )


def _transposed_windows(node: Node, x: Shape, w: Shape) -> tuple[TransposedWindow, ...]:
    """Windows of a ConvTranspose of shapes x [N, C, *S] and w [C, M/g, *R]. Raises Unsupported when they do not fit."""
    if len(x) != len(w) or len(x) < 2 or x[1] != w[0]:
        reason = f"weights of shape {list(w)} do not fit an input of shape {list(x)}"
        raise Unsupported(reason, "bind the input dimensions that the weights need")
    _groups(node, extent(x[1]), extent(w[0]))
    return transposed_windows(node, static(x[2:]), static(w[2:]))


def _product(loops: _Loops, x: Expr, w: Expr) -> Expr:
    """mul(where(inside, x), w); x and w have one dtype, in which it is accumulated."""
    padded = x if loops.condition is None else Where(loops.condition, x, number(0, x.dtype))
    return Apply("mul", (padded, w))


def _sum(loops: _Loops, value: Expr, into: str) -> Block:
    return Block((), (value,), (Store(into, loops.y),), loops.reduction, "sum", value.dtype)


def _float_kernel(family: str, loops: _Loops, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """Convolution and, in a second block, bias. Half types are multiplied and added up in f32."""
    slots, results = input_slots(types), output_slots(outputs)
    dtype = outputs[0].dtype
    wide = accumulator_of(dtype)
    x, w = cast(Load("x0", loops.x, dtype), wide), cast(Load("x1", loops.w, dtype), wide)
    value = _product(loops, x, w)
    if len(slots) == 2:
        return Kernel(family, slots, results, (_sum(loops, value, "y0"),), shared=loops.shared)
    bias = cast(Load("x2", (loops.channel,), dtype), wide)
    biased = Block((), (cast(call("add", Load("t0", loops.y, wide), bias), dtype),), (Store("y0", loops.y),))
    temps = (Slot("t0", TensorType(wide, outputs[0].shape)),)
    return Kernel(family, slots, results, (_sum(loops, value, "t0"), biased), temps, loops.shared)


def _infer_conv(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, w = given(types, 0), given(types, 1)
    outputs = tuple(window.outputs for window in _windows(node, x.shape, w.shape))
    _check_bias(types, 2, w.dims[0])
    return (TensorType(x.dtype, (x.shape[0], w.dims[0], *outputs)),)


def _check_bias(types: Types, position: int, filters: int) -> None:
    bias = types[position] if len(types) > position else None
    if bias is not None and bias.shape != (filters,):
        raise Unsupported(f"the bias has shape {list(bias.shape)}, not [{filters}]", "give one bias for each filter")


def _check_channels(types: Types, positions: Sequence[int], filters: int) -> None:
    """Raises Unsupported where a scale or zero point has neither one element nor one for each filter."""
    for position in positions:
        type = types[position] if position < len(types) else None
        if type is not None and type.elements not in (1, filters):
            reason = f"a scale or zero point has {type.elements} elements for {filters} filters"
            raise Unsupported(reason, "give one, or one for each filter")


def _define_conv(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    loops = _conv_loops(node, given(types, 0).dims, given(types, 1).dims)
    return _float_kernel("Conv", loops, types, outputs)


def _infer_transposed(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, w = given(types, 0), given(types, 1)
    outputs = tuple(window.outputs for window in _transposed_windows(node, x.shape, w.shape))
    filters = w.dims[1] * _groups(node, extent(x.shape[1]), w.dims[0])
    _check_bias(types, 2, filters)
    return (TensorType(x.dtype, (x.shape[0], filters, *outputs)),)


def _define_transposed(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    loops = _transposed_loops(node, given(types, 0).dims, given(types, 1).dims)
    return _float_kernel("ConvTranspose", loops, types, outputs)


def _integer_product(loops: _Loops, types: Types, positions: tuple[int, int, int, int], names: tuple[str, ...]) -> Expr:
    """mul(where(inside, x - x_zero), w - w_zero) in i32. `positions` are those of x, w and their zero points."""
    x, w = given(types, positions[0]), given(types, positions[1])
    x_zero = scalar_or_along(types, names, positions[2], Index.of(0))
    w_zero = scalar_or_along(types, names, positions[3], loops.channel)
    return _product(
        loops,
        zeroed(Load(names[positions[0]], loops.x, x.dtype), x_zero),
        zeroed(Load(names[positions[1]], loops.w, w.dtype), w_zero),
    )


def _infer_integer(node: Node, types: Types) -> tuple[TensorType, ...]:
    infer = _infer_transposed if node.op == TRANSPOSED_BYTES else _infer_conv
    shape = infer(node, types[:2])[0].shape
    _check_channels(types, (3,), extent(shape[1]))
    return (TensorType(DType.I32, shape),)


def _define_integer(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    loops_of = _transposed_loops if node.op == TRANSPOSED_BYTES else _conv_loops
    loops = loops_of(node, given(types, 0).dims, given(types, 1).dims)
    value = _integer_product(loops, types, (0, 1, 2, 3), slot_names(types))
    return Kernel(node.op, input_slots(types), output_slots(outputs), (_sum(loops, value, "y0"),), shared=loops.shared)


def _infer_quantised(node: Node, types: Types) -> tuple[TensorType, ...]:
    """Inputs: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias."""
    shape = _infer_conv(node, (types[0], types[3]))[0].shape
    filters = given(types, 3).dims[0]
    _check_bias(types, 8, filters)
    _check_channels(types, (1, 2, 4, 5, 6, 7), filters)
    return (TensorType(given(types, 7).dtype, shape),)


def _define_quantised(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    loops = _conv_loops(node, given(types, 0).dims, given(types, 3).dims)
    names = slot_names(types)
    value = _integer_product(loops, types, (0, 3, 2, 5), names)
    total: Expr = Load("t0", loops.y, DType.I32)
    if present(types, 8):
        total = call("add", total, Load(names[8], (loops.channel,), DType.I32))
    x_scale, w_scale, y_scale, y_zero = (parameter(types, names, position, loops.channel) for position in (1, 4, 6, 7))
    scaled = Block((), (requantise(total, x_scale, w_scale, y_scale, y_zero),), (Store("y0", loops.y),))
    temps = (Slot("t0", TensorType(DType.I32, outputs[0].shape)),)
    blocks = (_sum(loops, value, "t0"), scaled)
    return Kernel("QLinearConv", input_slots(types), output_slots(outputs), blocks, temps, loops.shared)


def _correlated(node: Node, x: np.ndarray, w: np.ndarray) -> Pieces:
    """Cross-correlation of x [N, C, *S] with w [K, C/g, *R]: windows unfolded, matrices multiplied group by group."""
    places = _windows(node, x.shape, w.shape)
    groups = _groups(node, x.shape[1], w.shape[0])
    filters = w.reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:]))
    outputs = tuple(window.outputs for window in places)

    def parts() -> Iterator[tuple[Region, np.ndarray]]:
        for batch, *positions in regions((x.shape[0], *outputs), x.shape[1] * math.prod(w.shape[2:]) + w.shape[0]):
            columns = unfolded(x[batch], places, tuple(positions))
            found = columns.shape[0], groups, filters.shape[2], math.prod(columns.shape[-len(places) :])
            product = np.matmul(filters, columns.reshape(found))
            yield (
                (batch, slice(None), *positions),
                product.reshape(columns.shape[0], w.shape[0], *columns.shape[-len(places) :]),
            )

    return Pieces((x.shape[0], w.shape[0], *outputs), np.result_type(x, w), parts())


def _biased(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return y if bias is None else y + bias.reshape(1, -1, *(1,) * (y.ndim - 2))


def _each(pieces: Pieces, change: Callable[[np.ndarray], np.ndarray], dtype: np.dtype) -> Pieces:
    """With every part changed, element by element or along the channels, to another dtype."""
    return Pieces(pieces.shape, dtype, ((region, change(part)) for region, part in pieces.parts))


def _pieces_conv(node: Node, arrays: Arrays) -> Pieces:
    x, w = map(at_least_f32, arrays_at(arrays, 0, 1))
    return _each(_correlated(node, x, w), lambda y: _biased(y, optional(arrays, 2)), np.result_type(x, w))


def _pieces_transposed(node: Node, arrays: Arrays) -> Pieces:
    """Every tap adds its multiple of the inputs to the outputs that it reaches."""
    x, w = map(at_least_f32, arrays_at(arrays, 0, 1))
    places = _transposed_windows(node, x.shape, w.shape)
    groups = _groups(node, x.shape[1], w.shape[0])
    filters = groups * w.shape[1]
    outputs = tuple(place.outputs for place in places)
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])

    def parts() -> Iterator[tuple[Region, np.ndarray]]:
        for batch, *positions in regions((x.shape[0], *outputs), x.shape[1] + 2 * filters):
            counts = tuple(one.stop - one.start for one in positions)
            y = np.zeros_like(x, shape=(batch.stop - batch.start, groups, w.shape[1], *counts))
            for tap in np.ndindex(*w.shape[2:]):
                kernel = (
                    w[(slice(None), slice(None), *tap)].reshape(groups, x.shape[1] // groups, w.shape[1]).swapaxes(1, 2)
                )
                _add_tap(
                    y, grouped[batch], kernel, [_reached(*one) for one in zip(places, tap, positions, strict=True)]
                )
            made = y.reshape(len(y), filters, *counts)
            yield (batch, slice(None), *positions), _biased(made, optional(arrays, 2))

    return Pieces((x.shape[0], filters, *outputs), np.result_type(x, w), parts())


def _add_tap(y: np.ndarray, x: np.ndarray, kernel: np.ndarray, reached: Sequence[tuple[slice, slice]]) -> None:
    """Adds kernel [G, M, C] times the inputs that a tap multiplies to the outputs that it reaches."""
    whole = (slice(None),) * 3
    read = x[(*whole, *(inputs for inputs, _ in reached))]
    if read.size:
        product = np.matmul(kernel, read.reshape(*read.shape[:3], math.prod(read.shape[3:])))
        y[(*whole, *(outputs for _, outputs in reached))] += product.reshape(*product.shape[:3], *read.shape[3:])


def _reached(place: TransposedWindow, tap: int, outputs: slice) -> tuple[slice, slice]:
    """The inputs of which a tap reaches an output of a range, and these outputs, counted from its first."""
    return span(
        tap * place.dilation - place.before - outputs.start, place.stride, outputs.stop - outputs.start, place.extent
    )


def _integer_sum(
    node: Node, x: np.ndarray | None, w: np.ndarray | None, x_zero: np.ndarray | None, w_zero: np.ndarray | None
) -> Pieces:
    """Exact in float64: products of bytes stay below 2**53."""
    assert x is not None
    assert w is not None
    x_wide, w_wide = x.astype(np.float64), w.astype(np.float64)
    if x_zero is not None:
        x_wide = x_wide - spread(x_zero, 0, 1)
    if w_zero is not None:
        w_wide = w_wide - spread(w_zero, 0, w.ndim)
    return _correlated(node, x_wide, w_wide)


def _pieces_transposed_bytes(node: Node, arrays: Arrays) -> Pieces:
    """Exact in float64 as well; a zero point of w for each filter, those of a group side by side."""
    x, w = (array.astype(np.float64) for array in arrays_at(arrays, 0, 1))
    x_zero, w_zero = (optional(arrays, at) for at in (2, 3))
    if x_zero is not None:
        x = x - x_zero.reshape(()).astype(np.float64)
    if w_zero is not None:
        each = np.broadcast_to(w_zero.reshape(-1), w.shape[1] * _groups(node, x.shape[1], w.shape[0]))
        of_inputs = np.repeat(each.reshape(-1, w.shape[1]), w.shape[0] * w.shape[1] // len(each), axis=0)
        w = w - of_inputs.reshape(*w.shape[:2], *(1,) * (w.ndim - 2))
    return _each(_pieces_transposed(node, (x, w)), lambda y: y.astype(np.int32), np.dtype(np.int32))


def _pieces_integer(node: Node, arrays: Arrays) -> Pieces:
    total = _integer_sum(node, arrays[0], arrays[1], optional(arrays, 2), optional(arrays, 3))
    return _each(total, lambda y: y.astype(np.int32), np.dtype(np.int32))


def _pieces_quantised(node: Node, arrays: Arrays) -> Pieces:
    total = _integer_sum(node, arrays[0], arrays[3], arrays[2], arrays[5])
    x_scale, w_scale, y_scale = (spread(scale, 1, len(total.shape)) for scale in arrays_at(arrays, 1, 4, 6))
    (zero,) = arrays_at(arrays, 7)

    def quantised(y: np.ndarray) -> np.ndarray:
        return requantised(_biased(y, optional(arrays, 8)), x_scale, w_scale, y_scale, zero)

    return _each(total, quantised, zero.dtype)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "Conv",
        _infer_conv,
        InPieces(_pieces_conv),
        _define_conv,
        traits=Trait.CONTRACTION | Trait.LINEAR | Trait.WINDOW | Trait.CHANNELS,
    ),
    Operator(
        "ConvTranspose",
        _infer_transposed,
        InPieces(_pieces_transposed),
        _define_transposed,
        traits=Trait.CONTRACTION | Trait.LINEAR | Trait.WINDOW | Trait.CHANNELS,
    ),
    Operator(
        "ConvInteger",
        _infer_integer,
        InPieces(_pieces_integer),
        _define_integer,
        traits=Trait.CONTRACTION | Trait.WINDOW | Trait.CHANNELS | Trait.QUANTISED,
    ),
    Operator(
        "QLinearConv",
        _infer_quantised,
        InPieces(_pieces_quantised),
        _define_quantised,
        traits=Trait.CONTRACTION | Trait.WINDOW | Trait.CHANNELS | Trait.QUANTISED,
    ),
)
TRANSPOSED_BYTES = "ConvTransposeInteger"
OWN: tuple[Operator, ...] = (
    Operator(
        TRANSPOSED_BYTES,
        _infer_integer,
        InPieces(_pieces_transposed_bytes),
        _define_integer,
        opsets=NOT_IN_ONNX,
        traits=Trait.CONTRACTION | Trait.WINDOW | Trait.CHANNELS | Trait.QUANTISED,
    ),
)
