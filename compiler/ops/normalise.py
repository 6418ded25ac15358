"""The normalisations: mean and variance, or a norm, of a group of elements, then a map over the group. Softmax is in `softmax`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.expr import Expr, Load, Where, inside
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType, extent
from compiler.ops import softmax
from compiler.ops.attributes import axes_of, ints, number_of
from compiler.ops.build import at, axes_for, call, cast, load_broadcast, number
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.passes import Group
from compiler.ops.slots import accumulator_of, arrays_at, given, input_slots, optional, output_slots, slot_names
from compiler.ops.traits import Trait

EPSILON = 1e-5
"""What is added to a variance where the node does not say."""
STASH = {1: DType.F32, 10: DType.F16, 11: DType.F64, 16: DType.BF16}
"""Element types that the statistics of a LayerNormalization may have, by their number in onnx.TensorProto."""


def _epsilon(node: Node) -> float:
    return number_of(node, "epsilon", EPSILON)


def _inverse_root(variance: Expr, epsilon: float) -> Expr:
    return call("rsqrt", call("add", variance, number(epsilon, variance.dtype)))


def _whole(node: Node, name: str, default: int) -> int:
    """An attribute that is one whole number, at least 1. Raises Unsupported where it is not."""
    value = number_of(node, name, default)
    if value != int(value) or value < 1:
        raise Unsupported(f"attribute {name!r} is {value}, where 1 or more is needed", "export the model again")
    return int(value)


# LayerNormalization, RMSNormalization


def _check_scales(types: Types, axis: int) -> None:
    """Scale and bias must broadcast to the input."""
    x = given(types, 0)
    for position, type in enumerate(types[1:3], 1):
        if type is not None and (
            type.rank > x.rank
            or any(a not in (1, b) for a, b in zip(reversed(type.shape), reversed(x.shape), strict=False))
        ):
            reason = f"input {position} of shape {list(type.shape)} does not broadcast to {list(x.shape)}"
            raise Unsupported(reason, f"give it the shape {list(x.shape[axis:])}")


def _infer_layer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis = axis_of(node, x.rank, default=-1)
    _check_scales(types, axis)
    stash = STASH.get(_whole(node, "stash_type", 1))
    if stash is None:
        raise Unsupported(f"stash_type {node.attrs['stash_type']} is no float type", "use stash_type 1 (float)")
    outer = TensorType(stash, (*x.shape[:axis], *(1,) * (x.rank - axis)))
    return (x, outer, outer)[: len(node.outputs)]


def _infer_rms(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    _check_scales(types, axis_of(node, x.rank, default=-1))
    return (TensorType(given(types, 1).dtype, x.shape),)


def _scaled(types: Types, value: Expr, axes: Sequence[Axis]) -> Expr:
    """value * scale + bias, as far as they are there (inputs 1 and 2)."""
    for position, function in ((1, "mul"), (2, "add")):
        type = types[position] if position < len(types) else None
        if type is not None:
            value = call(function, value, cast(load_broadcast(slot_names(types)[position], type, axes), value.dtype))
    return value


def _define_layer(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    axis = axis_of(node, x.rank, default=-1)
    axes = axes_for(x.dims)
    group = Group(axes, axes[axis:], accumulator_of(x.dtype))
    value = cast(Load("x0", at(axes), x.dtype), group.kind)
    sums, mean, variance = group.moments(value)
    normal = call("mul", call("sub", value, mean), group.held("t2"))
    blocks = [
        *sums,
        group.once("t2", _inverse_root(variance, _epsilon(node))),
        group.map(cast(_scaled(types, normal, axes), x.dtype), Store("y0", at(axes))),
    ]
    outer = (*at(axes[:axis]), *(Index.of(0),) * (x.rank - axis))
    for position, statistic in enumerate((mean, group.held("t2"))[: len(outs) - 1], 1):
        blocks.append(Block((), (cast(statistic, outs[position].dtype),), (Store(f"y{position}", outer),)))
    temps = tuple(group.temp(name) for name in ("t0", "t1", "t2"))
    slots = (input_slots(types), output_slots(outs))
    return Kernel("LayerNormalization", *slots, tuple(blocks), temps, group.shared)


def _define_rms(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    axes = axes_for(x.dims)
    group = Group(axes, axes[axis_of(node, x.rank, default=-1) :], accumulator_of(x.dtype))
    value = cast(Load("x0", at(axes), x.dtype), group.kind)
    square = call("div", group.held("t0"), number(group.count, group.kind))
    normal = call("mul", value, group.held("t1"))
    blocks = (
        group.reduce("t0", "sum", call("mul", value, value)),
        group.once("t1", _inverse_root(square, _epsilon(node))),
        group.map(cast(_scaled(types, normal, axes), outs[0].dtype), Store("y0", at(axes))),
    )
    temps = (group.temp("t0"), group.temp("t1"))
    return Kernel("RMSNormalization", input_slots(types), output_slots(outs), blocks, temps, group.shared)


def _reference_layer(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale = arrays_at(arrays, 0, 1)
    bias = optional(arrays, 2)
    over = tuple(range(axis_of(node, x.ndim, default=-1), x.ndim))
    with np.errstate(all="ignore"):
        mean = np.sum(x, axis=over, keepdims=True) / np.prod([x.shape[axis] for axis in over])
        variance = np.sum((x - mean) ** 2, axis=over, keepdims=True) / np.prod([x.shape[axis] for axis in over])
        inverse = 1 / np.sqrt(variance + _epsilon(node))
        result = (x - mean) * inverse * scale
        return (result if bias is None else result + bias, mean, inverse)[: len(node.outputs)]


def _reference_rms(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale = arrays_at(arrays, 0, 1)
    over = tuple(range(axis_of(node, x.ndim, default=-1), x.ndim))
    with np.errstate(all="ignore"):
        square = np.sum(x * x, axis=over, keepdims=True) / np.prod([x.shape[axis] for axis in over])
        return (x / np.sqrt(square + _epsilon(node)) * scale,)


# Normalisations over channels and space


def _infer_channels(node: Node, types: Types) -> tuple[TensorType, ...]:
    """The input's type, once every other input is a list with one element per channel."""
    x = given(types, 0)
    if x.rank < 2:
        raise Unsupported(f"its input has rank {x.rank}, where batch and channels are needed", "add a batch dimension")
    for position in range(1, len(types)):
        if given(types, position).shape != x.shape[1:2]:
            found = list(given(types, position).shape)
            raise Unsupported(f"input {position} has shape {found}, not [{x.shape[1]}]", "give one number per channel")
    return (x,)


def _per_channel(array: np.ndarray, rank: int) -> np.ndarray:
    return array.reshape(1, -1, *(1,) * (rank - 2))


def _define_in_groups(node: Node, types: Types, outs: tuple[TensorType, ...], groups: int) -> Kernel:
    """Axes n, g, c in the group, and space: a group spans c and space."""
    x = given(types, 0)
    n, g, c = Axis("n", x.dims[0]), Axis("g", groups), Axis("c", x.dims[1] // max(groups, 1))
    space = axes_for(x.dims[2:], "s")
    group = Group((n, g, c, *space), (c, *space), accumulator_of(x.dtype))
    channel = Index.of(g) * c.extent + c
    index = (Index.of(n), channel, *at(space))
    value = cast(Load("x0", index, x.dtype), group.kind)
    sums, mean, variance = group.moments(value)
    normal = call("mul", call("sub", value, mean), group.held("t2"))
    scaled = call("mul", normal, cast(Load("x1", (channel,), given(types, 1).dtype), group.kind))
    result = call("add", scaled, cast(Load("x2", (channel,), given(types, 2).dtype), group.kind))
    blocks = (
        *sums,
        group.once("t2", _inverse_root(variance, _epsilon(node))),
        group.map(cast(result, x.dtype), Store("y0", index)),
    )
    temps = tuple(group.temp(name) for name in ("t0", "t1", "t2"))
    return Kernel(node.op, input_slots(types), output_slots(outs), blocks, temps, group.shared)


def _define_instance(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    return _define_in_groups(node, types, outs, given(types, 0).dims[1])


def _reference_instance(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias = arrays_at(arrays, 0, 1, 2)
    over = tuple(range(2, x.ndim))
    mean = np.mean(x, axis=over, keepdims=True)
    normal = (x - mean) / np.sqrt(np.var(x, axis=over, keepdims=True) + _epsilon(node))
    return (normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim),)


def _infer_group(node: Node, types: Types) -> tuple[TensorType, ...]:
    (x,) = _infer_channels(node, types)
    groups = _whole(node, "num_groups", 0)
    if extent(x.shape[1]) % groups:
        raise Unsupported(f"{groups} groups do not divide {x.shape[1]} channels", "use a divisor of the channels")
    return (x,)


def _define_group(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    return _define_in_groups(node, types, outs, _whole(node, "num_groups", 0))


def _reference_group(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias = arrays_at(arrays, 0, 1, 2)
    groups = _whole(node, "num_groups", 0)
    grouped = x.reshape(x.shape[0], groups, x.size // max(x.shape[0] * groups, 1))
    mean, variance = np.mean(grouped, axis=2, keepdims=True), np.var(grouped, axis=2, keepdims=True)
    normal = ((grouped - mean) / np.sqrt(variance + _epsilon(node))).reshape(x.shape)
    return (normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim),)


def _infer_batch(node: Node, types: Types) -> tuple[TensorType, ...]:
    if len(node.outputs) > 1 or node.attrs.get("training_mode", 0):
        raise Unsupported("it is in training form", "export the model for inference (model.eval())")
    return _infer_channels(node, types)


def _define_batch(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    axes = axes_for(x.dims)
    kind = accumulator_of(x.dtype)

    def parameter(position: int) -> Expr:
        return cast(Load(f"x{position}", (Index.of(axes[1]),), given(types, position).dtype), kind)

    value = cast(Load("x0", at(axes), x.dtype), kind)
    factor = call("mul", parameter(1), _inverse_root(parameter(4), _epsilon(node)))
    result = call("add", call("mul", call("sub", value, parameter(3)), factor), parameter(2))
    block = Block((), (cast(result, x.dtype),), (Store("y0", at(axes)),))
    return Kernel("BatchNormalization", input_slots(types), output_slots(outs), (block,), shared=axes)


def _reference_batch(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, *parameters = arrays_at(arrays, 0, 1, 2, 3, 4)
    scale, bias, mean, variance = (_per_channel(parameter, x.ndim) for parameter in parameters)
    with np.errstate(all="ignore"):
        return ((x - mean) / np.sqrt(variance + _epsilon(node)) * scale + bias,)


# MeanVarianceNormalization, LpNormalization, LRN

STANDARD_EPSILON = 1e-9
"""What MeanVarianceNormalization adds to the standard deviation."""


def _infer_standard(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axes_of(node, x.rank)
    return (x,)


def _define_standard(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    axes, over = axes_for(x.dims), axes_of(node, x.rank) or ()
    group = Group(axes, tuple(axes[axis] for axis in sorted(over)), accumulator_of(x.dtype))
    value = cast(Load("x0", at(axes), x.dtype), group.kind)
    sums, mean, variance = group.moments(value)
    deviation = call("add", call("sqrt", variance), number(STANDARD_EPSILON, group.kind))
    result = call("mul", call("sub", value, mean), group.held("t2"))
    blocks = (
        *sums,
        group.once("t2", call("reciprocal", deviation)),
        group.map(cast(result, x.dtype), Store("y0", at(axes))),
    )
    temps = tuple(group.temp(name) for name in ("t0", "t1", "t2"))
    return Kernel("MeanVarianceNormalization", input_slots(types), output_slots(outs), blocks, temps, group.shared)


def _reference_standard(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    over = tuple(axis % x.ndim for axis in ints(node, "axes") or ())
    mean, deviation = np.mean(x, axis=over, keepdims=True), np.std(x, axis=over, keepdims=True)
    return ((x - mean) / (deviation + STANDARD_EPSILON),)


def _infer_lp(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis_of(node, x.rank, default=-1)
    if _whole(node, "p", 2) > 2:
        raise Unsupported(f"p is {node.attrs['p']}, where ONNX has 1 and 2", "use p = 1 or p = 2")
    return (x,)


def _define_lp(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    axes = axes_for(x.dims)
    group = Group(axes, (axes[axis_of(node, x.rank, default=-1)],), accumulator_of(x.dtype))
    value = cast(Load("x0", at(axes), x.dtype), group.kind)
    one = _whole(node, "p", 2) == 1
    total = group.reduce("t0", "sum", call("abs", value) if one else call("mul", value, value))
    norm = group.held("t0") if one else call("sqrt", group.held("t0"))
    zero = number(0, group.kind)
    result = Where(call("eq", group.held("t0"), zero), zero, call("div", value, norm))
    blocks = (total, group.map(cast(result, x.dtype), Store("y0", at(axes))))
    slots = (input_slots(types), output_slots(outs))
    return Kernel("LpNormalization", *slots, blocks, (group.temp("t0"),), group.shared)


def _reference_lp(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    axis = axis_of(node, x.ndim, default=-1)
    norm = np.linalg.norm(x, _whole(node, "p", 2), axis, keepdims=True)
    with np.errstate(all="ignore"):
        return (np.where(norm == 0, np.zeros_like(x), x / norm),)


def _infer_lrn(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    if x.rank < 2:
        raise Unsupported(f"its input has rank {x.rank}, where batch and channels are needed", "add a batch dimension")
    _whole(node, "size", 0)
    return (x,)


def _lrn_numbers(node: Node) -> tuple[float, float, float, int]:
    """Alpha, beta, bias and size."""
    defaults = (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    alpha, beta, bias = (number_of(node, name, default) for name, default in defaults)
    return alpha, beta, bias, _whole(node, "size", 0)


def _define_lrn(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """The sum of squares over the channels near by, then x / (bias + alpha / size * sum) ** beta."""
    x = given(types, 0)
    alpha, beta, bias, size = _lrn_numbers(node)
    axes, kind = axes_for(x.dims), accumulator_of(x.dtype)
    near = Axis("near", size)
    channel = Index.of(axes[1]) + near - (size - 1) // 2
    load = cast(Load("x0", (Index.of(axes[0]), channel, *at(axes[2:])), x.dtype), kind)
    square, condition = call("mul", load, load), inside(channel, x.dims[1])
    value = square if condition is None else Where(condition, square, number(0, kind))
    total = call("add", number(bias, kind), call("mul", number(alpha / size, kind), Load("t0", at(axes), kind)))
    result = call("div", cast(Load("x0", at(axes), x.dtype), kind), call("pow", total, number(beta, kind)))
    blocks = (
        Block((), (value,), (Store("t0", at(axes)),), (near,), "sum", kind),
        Block((), (cast(result, x.dtype),), (Store("y0", at(axes)),)),
    )
    temps = (Slot("t0", TensorType(kind, x.shape)),)
    return Kernel("LRN", input_slots(types), output_slots(outs), blocks, temps, axes)


def _reference_lrn(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    alpha, beta, bias, size = _lrn_numbers(node)
    before = (size - 1) // 2
    padded = np.pad(x * x, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = sum(padded[:, shift : shift + x.shape[1]] for shift in range(size))
    with np.errstate(all="ignore"):
        return (x / (bias + alpha / size * total) ** beta,)


OPERATORS: tuple[Operator, ...] = (
    *softmax.OPERATORS,
    Operator("LayerNormalization", _infer_layer, _reference_layer, _define_layer),
    Operator("RMSNormalization", _infer_rms, _reference_rms, _define_rms),
    Operator("InstanceNormalization", _infer_channels, _reference_instance, _define_instance, traits=Trait.CHANNELS),
    Operator("GroupNormalization", _infer_group, _reference_group, _define_group, traits=Trait.CHANNELS),
    Operator("BatchNormalization", _infer_batch, _reference_batch, _define_batch, traits=Trait.CHANNELS),
    Operator("MeanVarianceNormalization", _infer_standard, _reference_standard, _define_standard),
    Operator("LpNormalization", _infer_lp, _reference_lp, _define_lp),
    Operator("LRN", _infer_lrn, _reference_lrn, _define_lrn, traits=Trait.WINDOW | Trait.CHANNELS),
)
