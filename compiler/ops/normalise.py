"""Normalisations: elements moved and scaled by statistics of their group, of their channel, or of their neighbours."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Where, inside
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops import softmax
from compiler.ops.attributes import axes_of, number_of
from compiler.ops.build import at, axes_for, call, cast, load_broadcast, number
from compiler.ops.elementwise import broadcast_shape
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.passes import Group, Moments, inverse_root
from compiler.ops.slots import (
    accumulator_of,
    arrays_at,
    given,
    input_slots,
    optional,
    output_slots,
    present,
    slot_names,
)

MVN_EPSILON = 1e-9
"""What ONNX adds to the standard deviation in a MeanVarianceNormalization."""


def _epsilon(node: Node) -> float:
    return number_of(node, "epsilon", 1e-5)


# LayerNormalization, RMSNormalization: over the axes from `axis` on


def _layer_axes(node: Node, rank: int) -> tuple[int, ...]:
    return tuple(range(axis_of(node, rank, default=-1), rank))


def _infer_layer(node: Node, types: Types) -> tuple[TensorType, ...]:
    """The result, and for a LayerNormalization mean and inverse deviation, which are f32, as far as they are asked for."""
    x = given(types, 0)
    over = _layer_axes(node, x.rank)
    if node.attrs.get("stash_type", 1) != 1:
        raise Unsupported(f"stash_type is {node.attrs['stash_type']}", "export with stash_type 1 (float32)")
    if broadcast_shape(types) != x.dims:
        raise Unsupported(f"scale or bias do not broadcast to {x}", "export with the shape of the normalised axes")
    statistic = TensorType(DType.F32, tuple(1 if axis in over else extent for axis, extent in enumerate(x.dims)))
    return (x, statistic, statistic)[: len(node.outputs)]


def _parameters(types: Types, axes: tuple[Axis, ...], kind: DType) -> tuple[Expr, Expr | None]:
    """Scale and, where it is there, bias, broadcast to the axes."""
    names = slot_names(types)
    loads = [cast(load_broadcast(names[p], given(types, p), axes), kind) for p in (1, 2) if present(types, p)]
    return loads[0], loads[1] if len(loads) > 1 else None


def _scaled(value: Expr, scale: Expr, bias: Expr | None) -> Expr:
    value = call("mul", value, scale)
    return value if bias is None else call("add", value, bias)


def _define_layer(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    over = _layer_axes(node, x.rank)
    group = Group.over(x, over)
    moments, inverse = Moments(group), group.held("t2")
    place = tuple(Index.of(0 if axis in over else loop) for axis, loop in enumerate(group.axes))
    statistics = zip(outs[1:], (moments.mean, inverse), ("y1", "y2"), strict=False)
    return group.kernel(
        "LayerNormalization",
        types,
        outs,
        ("t0", "t1", "t2"),
        *moments.blocks,
        group.hold("t2", inverse_root(moments.variance, _epsilon(node))),
        group.result(_scaled(call("mul", moments.centred, inverse), *_parameters(types, group.axes, group.kind))),
        *(Block((), (cast(value, out.dtype),), (Store(slot, place),)) for out, value, slot in statistics),
    )


def _define_rms(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    group = Group.over(x, _layer_axes(node, x.rank))
    mean_square = call("div", group.held("t0"), group.count)
    scale, bias = _parameters(types, group.axes, group.kind)
    return group.kernel(
        "RMSNormalization",
        types,
        outs,
        ("t0", "t1"),
        group.reduce("t0", "sum", call("mul", group.element, group.element)),
        group.hold("t1", inverse_root(mean_square, _epsilon(node))),
        group.result(_scaled(call("mul", group.element, group.held("t1")), scale, bias)),
    )


def _reference_layer(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x, scale), bias = arrays_at(arrays, 0, 1), optional(arrays, 2)
    over = _layer_axes(node, x.ndim)
    mean = np.mean(x, axis=over, keepdims=True)
    inverse = 1 / np.sqrt(np.mean((x - mean) ** 2, axis=over, keepdims=True) + _epsilon(node))
    result = (x - mean) * inverse * scale
    return (result if bias is None else result + bias, mean, inverse)[: len(node.outputs)]


def _reference_rms(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale = arrays_at(arrays, 0, 1)
    square = np.mean(x * x, axis=_layer_axes(node, x.ndim), keepdims=True)
    return (x / np.sqrt(square + _epsilon(node)) * scale,)


# InstanceNormalization, GroupNormalization: over space, and the channels of a group


def _groups(node: Node, channels: int) -> int:
    """How many groups the channels make; in an InstanceNormalization each is one of its own."""
    groups = node.attrs.get("num_groups", channels)
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise Unsupported(f"num_groups is {groups!r}, there are {channels} channels", "use a divisor")
    return groups


def _infer_channels(node: Node, types: Types) -> tuple[TensorType, ...]:
    """The result, after making sure that every parameter has one element for each channel."""
    x = given(types, 0)
    if x.rank < 2:
        raise Unsupported(f"{x} has no channels", "export with a tensor of rank 2 or more")
    for position in range(1, len(types)):
        if given(types, position).dims != (x.dims[1],):
            reason = f"input {position} is {given(types, position)}, there are {x.dims[1]} channels"
            raise Unsupported(reason, "give one element for each channel")
    return (x,)


def _infer_grouped(node: Node, types: Types) -> tuple[TensorType, ...]:
    (x,) = _infer_channels(node, types)
    _groups(node, x.dims[1])
    return (x,)


def _define_grouped(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    groups = _groups(node, x.dims[1])
    n, g, c = Axis("n", x.dims[0]), Axis("g", groups), Axis("c", x.dims[1] // groups)
    space = axes_for(x.dims[2:], "s")
    channel = Index.of(g) * c.extent + c
    group = Group((n, g, c, *space), (c, *space), (Index.of(n), channel, *at(space)), x.dtype, accumulator_of(x.dtype))
    moments = Moments(group)
    scale, bias = (cast(Load(f"x{p}", (channel,), given(types, p).dtype), group.kind) for p in (1, 2))
    return group.kernel(
        node.op,
        types,
        outs,
        ("t0", "t1", "t2"),
        *moments.blocks,
        group.hold("t2", inverse_root(moments.variance, _epsilon(node))),
        group.result(_scaled(call("mul", moments.centred, group.held("t2")), scale, bias)),
    )


def _per_channel(parameter: np.ndarray, rank: int) -> np.ndarray:
    return parameter.reshape(1, -1, *(1,) * (rank - 2))


def _reference_grouped(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias = arrays_at(arrays, 0, 1, 2)
    rows = x.reshape(x.shape[0], _groups(node, x.shape[1]), -1)
    moved = rows - np.mean(rows, axis=2, keepdims=True)
    normal = moved / np.sqrt(np.mean(moved**2, axis=2, keepdims=True) + _epsilon(node))
    return (normal.reshape(x.shape) * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim),)


# BatchNormalization: by statistics that training has left


def _infer_batch(node: Node, types: Types) -> tuple[TensorType, ...]:
    if len(node.outputs) > 1 or node.attrs.get("training_mode", 0):
        raise Unsupported("it is in training mode", "export the model for inference (model.eval())")
    return _infer_channels(node, types)


def _define_batch(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """(x - mean) * (scale / sqrt(variance + epsilon)) + bias; the factor is the same for all of a channel."""
    x = given(types, 0)
    axes, kind = axes_for(x.dims), accumulator_of(x.dtype)
    scale, bias, mean, variance = (
        cast(Load(f"x{p}", (Index.of(axes[1]),), given(types, p).dtype), kind) for p in (1, 2, 3, 4)
    )
    moved = call("sub", cast(Load("x0", at(axes), x.dtype), kind), mean)
    result = _scaled(moved, call("mul", scale, inverse_root(variance, _epsilon(node))), bias)
    block = Block((), (cast(result, x.dtype),), (Store("y0", at(axes)),))
    return Kernel("BatchNormalization", input_slots(types), output_slots(outs), (block,), shared=axes)


def _reference_batch(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias, mean, variance = arrays_at(arrays, 0, 1, 2, 3, 4)
    factor = scale / np.sqrt(variance + _epsilon(node))
    return ((x - _per_channel(mean, x.ndim)) * _per_channel(factor, x.ndim) + _per_channel(bias, x.ndim),)


# LpNormalization, MeanVarianceNormalization: without parameters


def _lp_axis(node: Node, rank: int) -> int:
    return axis_of(node, rank, default=-1)


def _norm_is_absolute(node: Node) -> bool:
    p = node.attrs.get("p", 2)
    if p not in (1, 2):
        raise Unsupported(f"p is {p!r}", "use 1 or 2")
    return p == 1


def _infer_lp(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    _lp_axis(node, x.rank)
    _norm_is_absolute(node)
    return (x,)


def _define_lp(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """Where the norm is 0, so is the result."""
    x = given(types, 0)
    group = Group.over(x, (_lp_axis(node, x.rank),))
    value, total, zero = group.element, group.held("t0"), number(0, group.kind)
    absolute = _norm_is_absolute(node)
    quotient = call("div", value, total if absolute else call("sqrt", total))
    return group.kernel(
        "LpNormalization",
        types,
        outs,
        ("t0",),
        group.reduce("t0", "sum", call("abs", value) if absolute else call("mul", value, value)),
        group.result(Where(call("eq", total, zero), zero, quotient)),
    )


def _reference_lp(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    norm = np.linalg.norm(x, 1 if _norm_is_absolute(node) else 2, axis=_lp_axis(node, x.ndim), keepdims=True)
    return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)),)


def _mvn_axes(node: Node, rank: int) -> tuple[int, ...]:
    return axes_of(node, rank) or ()


def _infer_mvn(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    _mvn_axes(node, x.rank)
    return (x,)


def _define_mvn(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    group = Group.over(x, _mvn_axes(node, x.rank))
    moments = Moments(group)
    deviation = call("add", call("sqrt", moments.variance), number(MVN_EPSILON, group.kind))
    return group.kernel(
        "MeanVarianceNormalization",
        types,
        outs,
        ("t0", "t1", "t2"),
        *moments.blocks,
        group.hold("t2", deviation),
        group.result(call("div", moments.centred, group.held("t2"))),
    )


def _reference_mvn(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    over = _mvn_axes(node, x.ndim)
    return ((x - np.mean(x, axis=over, keepdims=True)) / (np.std(x, axis=over, keepdims=True) + MVN_EPSILON),)


# LRN: by the squares of neighbouring channels


def _size(node: Node) -> int:
    size = node.attrs.get("size")
    if not isinstance(size, int) or size < 1:
        raise Unsupported(f"size is {size!r}", "export with a positive one")
    return size


def _infer_lrn(node: Node, types: Types) -> tuple[TensorType, ...]:
    _size(node)
    return _infer_channels(node, types)


def _curve(node: Node) -> tuple[float, float, float]:
    """Alpha for one channel, beta and bias."""
    alpha = number_of(node, "alpha", 1e-4) / _size(node)
    return alpha, number_of(node, "beta", 0.75), number_of(node, "bias", 1.0)


def _define_lrn(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, size = given(types, 0), _size(node)
    axes, kind = axes_for(x.dims), accumulator_of(x.dtype)
    near = Axis("near", size)
    channel = Index.of(axes[1]) + near - (size - 1) // 2
    neighbour = cast(Load("x0", (Index.of(axes[0]), channel, *at(axes[2:])), x.dtype), kind)
    square, there = call("mul", neighbour, neighbour), inside(channel, x.dims[1])
    value = square if there is None else Where(there, square, Const(0.0, kind))
    alpha, beta, bias = (number(value, kind) for value in _curve(node))
    total = call("add", bias, call("mul", alpha, Load("t0", at(axes), kind)))
    result = call("div", cast(Load("x0", at(axes), x.dtype), kind), call("pow", total, beta))
    blocks = (
        Block((), (value,), (Store("t0", at(axes)),), (near,), "sum", kind),
        Block((), (cast(result, x.dtype),), (Store("y0", at(axes)),)),
    )
    return Kernel("LRN", input_slots(types), output_slots(outs), blocks, (Slot("t0", TensorType(kind, x.shape)),), axes)


def _reference_lrn(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,), size, (alpha, beta, bias) = arrays_at(arrays, 0), _size(node), _curve(node)
    before = (size - 1) // 2
    rest = [(0, 0)] * (x.ndim - 2)
    squares = np.pad(x * x, [(0, 0), (before, size - 1 - before), *rest])
    total = np.lib.stride_tricks.sliding_window_view(squares, size, axis=1).sum(axis=-1)
    return (x / (bias + alpha * total) ** beta,)


OPERATORS: tuple[Operator, ...] = (
    *softmax.OPERATORS,
    Operator("LayerNormalization", _infer_layer, _reference_layer, _define_layer),
    Operator("RMSNormalization", _infer_layer, _reference_rms, _define_rms),
    Operator("InstanceNormalization", _infer_grouped, _reference_grouped, _define_grouped),
    Operator("GroupNormalization", _infer_grouped, _reference_grouped, _define_grouped),
    Operator("BatchNormalization", _infer_batch, _reference_batch, _define_batch),
    Operator("LpNormalization", _infer_lp, _reference_lp, _define_lp),
    Operator("MeanVarianceNormalization", _infer_mvn, _reference_mvn, _define_mvn),
    Operator("LRN", _infer_lrn, _reference_lrn, _define_lrn),
)
