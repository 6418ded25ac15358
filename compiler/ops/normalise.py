"""Softmax and the normalisations: several passes over one group of elements, each a block inside the same loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where, conjunction, inside
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of
from compiler.ops.views import axis_of


def _first(types: Types) -> TensorType:
    assert types[0] is not None
    return types[0]


def _same(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (_first(types),)


def _float_attr(node: Node, name: str, default: float) -> float:
    value = node.attrs.get(name, default)
    return float(value) if isinstance(value, int | float) else default


@dataclass(frozen=True)
class _Group:
    """The passes over one group: shared axes outside it, `inner` axes within, temporaries of the shared shape."""

    axes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    kind: DType

    @property
    def shared(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis not in self.inner)

    @property
    def count(self) -> int:
        return math.prod(axis.extent for axis in self.inner)

    def temp(self, name: str) -> Slot:
        return Slot(name, TensorType(self.kind, tuple(axis.extent for axis in self.shared)))

    def held(self, name: str) -> Expr:
        return Load(name, at(self.shared), self.kind)

    def reduce(self, name: str, monoid: str, value: Expr) -> Block:
        return Block((), (value,), (Store(name, at(self.shared)),), self.inner, monoid, self.kind)

    def map(self, value: Expr, *stores: Store) -> Block:
        return Block(self.inner, (value,), stores)


def _moments(group: _Group, x: Expr) -> tuple[list[Block], Expr, Expr]:
    """Mean and variance in two passes: blocks for the sum and the sum of squared differences, and the two values."""
    count = number(group.count, group.kind)
    mean = call("div", group.held("t0"), count)
    centred = call("sub", x, mean)
    blocks = [group.reduce("t0", "sum", x), group.reduce("t1", "sum", call("mul", centred, centred))]
    return blocks, mean, call("div", group.held("t1"), count)


def _inverse_root(variance: Expr, epsilon: float) -> Expr:
    return call("rsqrt", call("add", variance, number(epsilon, variance.dtype)))


# Softmax


def _softmax(name: str) -> Operator:
    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = _first(types)
        axes = axes_for(x.dims)
        group = _Group(axes, (axes[axis_of(node, x.rank, default=-1)],), accumulator_of(x.dtype))
        value = cast(Load("x0", at(axes), x.dtype), group.kind)
        below = call("sub", value, group.held("t0"))
        exponential = call("exp", below)
        if name == "LogSoftmax":
            result = call("sub", below, call("log", group.held("t1")))
            stored = [group.reduce("t1", "sum", exponential)]
            temps = [group.temp("t0"), group.temp("t1")]
        else:
            row = Slot("t2", TensorType(group.kind, x.shape))
            stored = [group.map(exponential, Store("t2", at(axes))), group.reduce("t1", "sum", Load("t2", at(axes), group.kind))]
            result = call("mul", Load("t2", at(axes), group.kind), call("reciprocal", group.held("t1")))
            temps = [group.temp("t0"), group.temp("t1"), row]
        last = group.map(cast(result, x.dtype), Store("y0", at(axes)))
        blocks = (group.reduce("t0", "max", value), *stored, last)
        return Kernel(name, (Slot("x0", x),), (Slot("y0", outs[0]),), blocks, tuple(temps), group.shared)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x = arrays[0]
        assert x is not None
        axis = axis_of(node, x.ndim, default=-1)
        with np.errstate(all="ignore"):
            shifted = x - np.max(x, axis=axis, keepdims=True)
            total = np.sum(np.exp(shifted), axis=axis, keepdims=True)
            return (shifted - np.log(total) if name == "LogSoftmax" else np.exp(shifted) / total,)

    return Operator(name, _same, reference, define)


def _define_hardmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
    axes = axes_for(x.dims)
    over = axes[axis_of(node, x.rank, default=-1)]
    shared = tuple(axis for axis in axes if axis != over)
    shape = tuple(axis.extent for axis in shared)
    found = Block(
        (),
        (Load("x0", at(axes), x.dtype), Position(Index.of(over), DType.I64)),
        (Store("t0", at(shared)), Store("t1", at(shared))),
        (over,),
        "argmax_first",
        x.dtype,
    )
    first = Apply("eq", (Position(Index.of(over), DType.I64), Load("t1", at(shared), DType.I64)))
    mark = Block((over,), (Where(first, number(1, x.dtype), number(0, x.dtype)),), (Store("y0", at(axes)),))
    temps = (Slot("t0", TensorType(x.dtype, shape)), Slot("t1", TensorType(DType.I64, shape)))
    return Kernel("Hardmax", (Slot("x0", x),), (Slot("y0", outs[0]),), (found, mark), temps, shared)


def _reference_hardmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    assert x is not None
    axis = axis_of(node, x.ndim, default=-1)
    marks = np.zeros_like(x)
    np.put_along_axis(marks, np.expand_dims(np.argmax(x, axis), axis), 1, axis)
    return (marks,)


# LayerNormalization, RMSNormalization


def _infer_layer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    axis = axis_of(node, x.rank, default=-1)
    outer = TensorType(DType.F32, (*x.shape[:axis], *(1,) * (x.rank - axis)))
    return (x, outer, outer)[: len(node.outputs)]


def _scaled(types: Types, position: int, axes: Sequence[Axis], kind: DType) -> Expr | None:
    """An optional scale or bias, broadcast to the axes."""
    if position >= len(types) or types[position] is None:
        return None
    type = types[position]
    assert type is not None
    slot = f"x{sum(1 for earlier in types[:position] if earlier is not None)}"
    own = axes[len(axes) - type.rank :]
    index = tuple(Index.of(a) if extent != 1 else Index.of(0) for a, extent in zip(own, type.dims, strict=True))
    return cast(Load(slot, index, type.dtype), kind)


def _inputs(types: Types) -> tuple[Slot, ...]:
    return tuple(Slot(f"x{p}", type) for p, type in enumerate(type for type in types if type is not None))


def _layer(name: str) -> Operator:
    centred = name == "LayerNormalization"

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = _first(types)
        axis = axis_of(node, x.rank, default=-1)
        axes = axes_for(x.dims)
        group = _Group(axes, axes[axis:], accumulator_of(x.dtype))
        value = cast(Load("x0", at(axes), x.dtype), group.kind)
        epsilon = _float_attr(node, "epsilon", 1e-5)
        if centred:
            blocks, mean, variance = _moments(group, value)
            moved = call("sub", value, mean)
        else:
            blocks = [group.reduce("t1", "sum", call("mul", value, value))]
            mean, moved = number(0, group.kind), value
            variance = call("div", group.held("t1"), number(group.count, group.kind))
        blocks.append(Block((), (_inverse_root(variance, epsilon),), (Store("t2", at(group.shared)),)))
        result = call("mul", moved, group.held("t2"))
        scale, bias = _scaled(types, 1, axes, group.kind), _scaled(types, 2, axes, group.kind)
        result = result if scale is None else call("mul", result, scale)
        result = result if bias is None else call("add", result, bias)
        blocks.append(group.map(cast(result, x.dtype), Store("y0", at(axes))))
        outer = (*at(axes[:axis]), *(Index.of(0),) * (x.rank - axis))
        for position, stat in enumerate((mean, group.held("t2"))[: len(outs) - 1], 1):
            blocks.append(Block((), (cast(stat, outs[position].dtype),), (Store(f"y{position}", outer),)))
        temps = tuple(group.temp(t) for t in (("t0", "t1", "t2") if centred else ("t1", "t2")))
        slots = tuple(Slot(f"y{position}", type) for position, type in enumerate(outs))
        return Kernel(name, _inputs(types), slots, tuple(blocks), temps, group.shared)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x, scale, bias = (*arrays, None, None)[:3]
        assert x is not None
        over = tuple(range(axis_of(node, x.ndim, default=-1), x.ndim))
        mean = np.mean(x, axis=over, keepdims=True) if centred else np.zeros(1, x.dtype)
        inverse = 1 / np.sqrt(np.mean((x - mean) ** 2, axis=over, keepdims=True) + _float_attr(node, "epsilon", 1e-5))
        result = (x - mean) * inverse
        result = result if scale is None else result * scale
        return (result if bias is None else result + bias, mean, inverse)[: len(node.outputs)]

    return Operator(name, _infer_layer if centred else _same, reference, define)


# Normalisations over channels and space


def _channel(axes: Sequence[Axis]) -> tuple[Index, ...]:
    return (Index.of(axes[1]),) if axes[1].extent != 1 else (Index.of(0),)


def _define_instance(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
    axes = axes_for(x.dims)
    group = _Group(axes, axes[2:], accumulator_of(x.dtype))
    value = cast(Load("x0", at(axes), x.dtype), group.kind)
    blocks, mean, variance = _moments(group, value)
    blocks.append(Block((), (_inverse_root(variance, _float_attr(node, "epsilon", 1e-5)),), (Store("t2", at(group.shared)),)))
    scaled = call("mul", call("mul", call("sub", value, mean), group.held("t2")), cast(Load("x1", _channel(axes), x.dtype), group.kind))
    result = call("add", scaled, cast(Load("x2", _channel(axes), x.dtype), group.kind))
    blocks.append(group.map(cast(result, x.dtype), Store("y0", at(axes))))
    temps = tuple(group.temp(name) for name in ("t0", "t1", "t2"))
    return Kernel("InstanceNormalization", _inputs(types), (Slot("y0", outs[0]),), tuple(blocks), temps, group.shared)


def _reference_instance(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias = arrays
    assert x is not None and scale is not None and bias is not None
    over = tuple(range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean = np.mean(x, axis=over, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=over, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + _float_attr(node, "epsilon", 1e-5))
    return (normal * scale.reshape(shape) + bias.reshape(shape),)


def _groups(node: Node) -> int:
    groups = node.attrs["num_groups"]
    assert isinstance(groups, int)
    return groups


def _define_group(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, groups = _first(types), _groups(node)
    if x.dims[1] % groups:
        raise Unsupported(f"{groups} groups do not divide {x.dims[1]} channels", "use a divisor")
    n, g = Axis("n", x.dims[0]), Axis("g", groups)
    c = Axis("c", x.dims[1] // groups)
    space = axes_for(x.dims[2:], "s")
    group = _Group((n, g, c, *space), (c, *space), accumulator_of(x.dtype))
    channel = Index.of(g) * c.extent + c
    index = (Index.of(n), channel, *at(space))
    value = cast(Load("x0", index, x.dtype), group.kind)
    blocks, mean, variance = _moments(group, value)
    blocks.append(Block((), (_inverse_root(variance, _float_attr(node, "epsilon", 1e-5)),), (Store("t2", at(group.shared)),)))
    scaled = call("mul", call("mul", call("sub", value, mean), group.held("t2")), cast(Load("x1", (channel,), x.dtype), group.kind))
    result = call("add", scaled, cast(Load("x2", (channel,), x.dtype), group.kind))
    blocks.append(group.map(cast(result, x.dtype), Store("y0", index)))
    temps = tuple(group.temp(name) for name in ("t0", "t1", "t2"))
    return Kernel("GroupNormalization", _inputs(types), (Slot("y0", outs[0]),), tuple(blocks), temps, group.shared)


def _reference_group(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias = arrays
    assert x is not None and scale is not None and bias is not None
    grouped = x.reshape(x.shape[0], _groups(node), -1)
    mean = np.mean(grouped, axis=2, keepdims=True)
    variance = np.mean((grouped - mean) ** 2, axis=2, keepdims=True)
    normal = ((grouped - mean) / np.sqrt(variance + _float_attr(node, "epsilon", 1e-5))).reshape(x.shape)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return (normal * scale.reshape(shape) + bias.reshape(shape),)


def _define_batch(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    if len(outs) > 1:
        raise Unsupported("it is in training mode", "export the model for inference (model.eval())")
    x = _first(types)
    axes = axes_for(x.dims)
    kind = accumulator_of(x.dtype)

    def parameter(position: int) -> Expr:
        type = types[position]
        assert type is not None
        return cast(Load(f"x{position}", _channel(axes), type.dtype), kind)

    value = cast(Load("x0", at(axes), x.dtype), kind)
    factor = call("mul", parameter(1), _inverse_root(parameter(4), _float_attr(node, "epsilon", 1e-5)))
    result = call("add", call("mul", call("sub", value, parameter(3)), factor), parameter(2))
    block = Block((), (cast(result, x.dtype),), (Store("y0", at(axes)),))
    return Kernel("BatchNormalization", _inputs(types), (Slot("y0", outs[0]),), (block,), shared=axes)


def _infer_batch(node: Node, types: Types) -> tuple[TensorType, ...]:
    if len(node.outputs) > 1:
        raise Unsupported("it is in training mode", "export the model for inference (model.eval())")
    return (_first(types),)


def _reference_batch(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, scale, bias, mean, variance = arrays
    assert x is not None and scale is not None and bias is not None and mean is not None and variance is not None
    shape = (1, -1, *(1,) * (x.ndim - 2))
    factor = (scale / np.sqrt(variance + _float_attr(node, "epsilon", 1e-5))).reshape(shape)
    return ((x - mean.reshape(shape)) * factor + bias.reshape(shape),)


def _define_lp(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
    axes = axes_for(x.dims)
    group = _Group(axes, (axes[axis_of(node, x.rank, default=-1)],), accumulator_of(x.dtype))
    value = cast(Load("x0", at(axes), x.dtype), group.kind)
    one = node.attrs.get("p", 2) == 1
    total = group.reduce("t0", "sum", call("abs", value) if one else call("mul", value, value))
    norm = group.held("t0") if one else call("sqrt", group.held("t0"))
    zero = number(0, group.kind)
    result = Where(Apply("eq", (group.held("t0"), zero)), zero, call("div", value, norm))
    blocks = (total, group.map(cast(result, x.dtype), Store("y0", at(axes))))
    return Kernel("LpNormalization", _inputs(types), (Slot("y0", outs[0]),), blocks, (group.temp("t0"),), group.shared)


def _reference_lp(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    assert x is not None
    axis = axis_of(node, x.ndim, default=-1)
    one = node.attrs.get("p", 2) == 1
    norm = np.sum(np.abs(x), axis=axis, keepdims=True) if one else np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)),)


def _define_lrn(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
    size = node.attrs["size"]
    assert isinstance(size, int)
    axes, kind = axes_for(x.dims), accumulator_of(x.dtype)
    near = Axis("near", size)
    channel = Index.of(axes[1]) + near - (size - 1) // 2
    load = cast(Load("x0", (Index.of(axes[0]), channel, *at(axes[2:])), x.dtype), kind)
    condition = conjunction([test for test in (inside(channel, x.dims[1]),) if test is not None])
    square = call("mul", load, load)
    value = square if condition is None else Where(condition, square, Const(0.0, kind))
    alpha, beta, bias = _float_attr(node, "alpha", 1e-4), _float_attr(node, "beta", 0.75), _float_attr(node, "bias", 1.0)
    total = call("add", number(bias, kind), call("mul", number(alpha / size, kind), Load("t0", at(axes), kind)))
    result = call("div", cast(Load("x0", at(axes), x.dtype), kind), call("pow", total, number(beta, kind)))
    blocks = (
        Block((), (value,), (Store("t0", at(axes)),), (near,), "sum", kind),
        Block((), (cast(result, x.dtype),), (Store("y0", at(axes)),)),
    )
    temps = (Slot("t0", TensorType(kind, x.shape)),)
    return Kernel("LRN", (Slot("x0", x),), (Slot("y0", outs[0]),), blocks, temps, axes)


def _reference_lrn(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    size = node.attrs["size"]
    assert x is not None and isinstance(size, int)
    before = (size - 1) // 2
    padded = np.pad(x * x, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = sum(padded[:, shift : shift + x.shape[1]] for shift in range(size))
    alpha, beta, bias = _float_attr(node, "alpha", 1e-4), _float_attr(node, "beta", 0.75), _float_attr(node, "bias", 1.0)
    return (x / (bias + alpha / size * total) ** beta,)


OPERATORS: tuple[Operator, ...] = (
    _softmax("Softmax"),
    _softmax("LogSoftmax"),
    Operator("Hardmax", _same, _reference_hardmax, _define_hardmax),
    _layer("LayerNormalization"),
    _layer("RMSNormalization"),
    Operator("InstanceNormalization", _same, _reference_instance, _define_instance),
    Operator("GroupNormalization", _same, _reference_group, _define_group),
    Operator("BatchNormalization", _infer_batch, _reference_batch, _define_batch),
    Operator("LpNormalization", _same, _reference_lp, _define_lp),
    Operator("LRN", _same, _reference_lrn, _define_lrn),
)
