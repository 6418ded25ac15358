"""Reductions over axes: sums, means, norms, extremes, their positions, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of
from compiler.ops.views import axes_of, axis_of

Map = Callable[[Expr], Expr]


def _first(types: Types) -> TensorType:
    assert types[0] is not None
    return types[0]


def _reduced_axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = axes_of(node, rank)
    if axes:
        return tuple(sorted(set(axes)))
    return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    axes = _reduced_axes(node, x.rank)
    if node.attrs.get("keepdims", 1):
        return (TensorType(x.dtype, tuple(1 if a in axes else dim for a, dim in enumerate(x.shape))),)
    return (TensorType(x.dtype, tuple(dim for a, dim in enumerate(x.shape) if a not in axes)),)


@dataclass(frozen=True)
class _Form:
    """A reduction as monoid over `before` of each element, then `after` of the result and the number of elements."""

    monoid: str
    before: Map
    after: Callable[[Expr, int], Expr]


def _same(x: Expr) -> Expr:
    return x


def _unchanged(x: Expr, count: int) -> Expr:
    return x


def _square(x: Expr) -> Expr:
    return call("mul", x, x)


def _define(form: _Form) -> Callable[[Node, Types, tuple[TensorType, ...]], Kernel]:
    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = _first(types)
        over = _reduced_axes(node, x.rank)
        axes = axes_for(x.dims)
        kept = tuple(axis for position, axis in enumerate(axes) if position not in over)
        reduction = tuple(axes[position] for position in over)
        index = _kept_index(axes, over, bool(node.attrs.get("keepdims", 1)))
        accumulator = accumulator_of(x.dtype) if form.monoid in ("sum", "prod") else x.dtype
        count = math.prod(axis.extent for axis in reduction)
        value = form.before(cast(Load("x0", at(axes), x.dtype), accumulator))
        total = Slot("t0", TensorType(accumulator, outs[0].shape))
        after = cast(form.after(Load("t0", index, accumulator), count), outs[0].dtype)
        blocks = (
            Block((), (value,), (Store("t0", index),), reduction, form.monoid, accumulator),
            Block((), (after,), (Store("y0", index),)),
        )
        if after == Load("t0", index, accumulator):
            only = Block((), (value,), (Store("y0", index),), reduction, form.monoid, accumulator)
            return Kernel(node.op, (Slot("x0", x),), (Slot("y0", outs[0]),), (only,), shared=kept)
        return Kernel(node.op, (Slot("x0", x),), (Slot("y0", outs[0]),), blocks, (total,), kept)

    return define


def _kept_index(axes: tuple[Axis, ...], over: tuple[int, ...], keepdims: bool) -> tuple[Index, ...]:
    if keepdims:
        return tuple(Index.of(0) if position in over else Index.of(axis) for position, axis in enumerate(axes))
    return tuple(Index.of(axis) for position, axis in enumerate(axes) if position not in over)


def _reference(function: Callable[..., np.ndarray]) -> Callable[[Node, Arrays], tuple[np.ndarray, ...]]:
    def evaluate(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x = arrays[0]
        assert x is not None
        axes = _reduced_axes(node, x.ndim)
        with np.errstate(all="ignore"):
            result = function(x, axis=axes, keepdims=bool(node.attrs.get("keepdims", 1)))
        return (np.asarray(result).astype(x.dtype),)

    return evaluate


def _reduce(name: str, monoid: str, function: Callable[..., np.ndarray], before: Map = _same, after: Callable[[Expr, int], Expr] = _unchanged) -> Operator:
    return Operator(name, _infer, _reference(function), _define(_Form(monoid, before, after)), ((1, "axes"),))


def _divided(x: Expr, count: int) -> Expr:
    return call("div", x, number(count, x.dtype))


def _root(x: Expr, count: int) -> Expr:
    if x.dtype.is_float:
        return call("sqrt", x)
    return cast(call("sqrt", cast(x, DType.F64)), x.dtype)


def _log(x: Expr, count: int) -> Expr:
    if x.dtype.is_float:
        return call("log", x)
    return cast(call("log", cast(x, DType.F64)), x.dtype)


def _extreme(function: Callable[..., np.ndarray], empty: float) -> Callable[..., np.ndarray]:
    """numpy refuses to reduce nothing; the identity of the monoid is what ONNX says."""

    def reduce(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        if x.dtype == np.bool_:
            return function(x.astype(np.uint8), axis=axis, keepdims=keepdims).astype(np.bool_)
        low, high = (-np.inf, np.inf) if np.issubdtype(x.dtype, np.floating) else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        return function(x, axis=axis, keepdims=keepdims, initial=low if empty < 0 else high)

    return reduce


def _log_sum_exp_reference(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else total.reshape(np.sum(x, axis=axis).shape)


def _define_log_sum_exp(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """The greatest value first, then the sum of exponentials below it: neither can overflow."""
    x = _first(types)
    over = _reduced_axes(node, x.rank)
    axes = axes_for(x.dims)
    kept = tuple(axis for position, axis in enumerate(axes) if position not in over)
    reduction = tuple(axes[position] for position in over)
    index = _kept_index(axes, over, bool(node.attrs.get("keepdims", 1)))
    kind = accumulator_of(x.dtype)
    load = cast(Load("x0", at(axes), x.dtype), kind)
    top = Load("t0", index, kind)
    finite = Where(Apply("isinf", (top,)), number(0, kind), top)
    total = call("add", call("log", Load("t1", index, kind)), finite)
    blocks = (
        Block((), (load,), (Store("t0", index),), reduction, "max", kind),
        Block((), (call("exp", call("sub", load, finite)),), (Store("t1", index),), reduction, "sum", kind),
        Block((), (cast(total, outs[0].dtype),), (Store("y0", index),)),
    )
    temps = tuple(Slot(f"t{n}", TensorType(kind, outs[0].shape)) for n in range(2))
    return Kernel("ReduceLogSumExp", (Slot("x0", x),), (Slot("y0", outs[0]),), blocks, temps, kept)


# Positions of extremes


def _infer_arg(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    axis = axis_of(node, x.rank)
    kept = (1,) if node.attrs.get("keepdims", 1) else ()
    return (TensorType(DType.I64, (*x.shape[:axis], *kept, *x.shape[axis + 1 :])),)


def _arg(name: str, best: str, function: Callable[..., np.ndarray]) -> Operator:
    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = _first(types)
        over = axis_of(node, x.rank)
        axes = axes_for(x.dims)
        kept = tuple(axis for position, axis in enumerate(axes) if position != over)
        index = _kept_index(axes, (over,), bool(node.attrs.get("keepdims", 1)))
        monoid = f"{best}_last" if node.attrs.get("select_last_index", 0) else f"{best}_first"
        values = (Load("x0", at(axes), x.dtype), Position(Index.of(axes[over]), DType.I64))
        extreme = Slot("t0", TensorType(x.dtype, outs[0].shape))
        block = Block((), values, (Store("t0", index), Store("y0", index)), (axes[over],), monoid, x.dtype)
        return Kernel(name, (Slot("x0", x),), (Slot("y0", outs[0]),), (block,), (extreme,), kept)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x = arrays[0]
        assert x is not None
        axis = axis_of(node, x.ndim)
        if node.attrs.get("select_last_index", 0):
            found = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=True)
        else:
            found = function(x, axis=axis, keepdims=True)
        return (found if node.attrs.get("keepdims", 1) else np.squeeze(found, axis),)

    return Operator(name, _infer_arg, reference, define)


# Running sums and products


def _running_axis(node: Node, rank: int) -> int:
    value = node.attrs.get("axis", 0)
    value = value[0] if isinstance(value, tuple) else value
    assert isinstance(value, int)
    if not -rank <= value < rank:
        raise Unsupported(f"axis {value} is out of range for {rank} dimensions", "export with an axis that exists")
    return value % rank


def _running(name: str, function: str, start: float, accumulate: Callable[..., np.ndarray]) -> Operator:
    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = _first(types)
        over = _running_axis(node, x.rank)
        extent = x.dims[over]
        outer = tuple(axis for position, axis in enumerate(axes_for(x.dims)) if position != over)
        step = Axis("step", extent)
        place = Index.of(step) * -1 + (extent - 1) if node.attrs.get("reverse", 0) else Index.of(step)
        before = place + 1 if node.attrs.get("reverse", 0) else place - 1

        def index(position: Index) -> tuple[Index, ...]:
            rest = iter(outer)
            return tuple(position if axis == over else Index.of(next(rest)) for axis in range(x.rank))

        exclusive = bool(node.attrs.get("exclusive", 0))
        earlier = Where(
            Apply("gt", (Position(Index.of(step)), Const(0, DType.I64))), Load("y0", index(before), x.dtype), number(start, x.dtype)
        )
        element: Expr = Load("x0", index(before if exclusive else place), x.dtype)
        if exclusive:
            element = Where(Apply("gt", (Position(Index.of(step)), Const(0, DType.I64))), element, number(start, x.dtype))
        block = Block((step,), (call(function, earlier, element),), (Store("y0", index(place)),), sequential=(step,))
        return Kernel(name, (Slot("x0", x),), (Slot("y0", outs[0]),), (block,), shared=outer)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        x = arrays[0]
        assert x is not None
        axis = _running_axis(node, x.ndim)
        x = np.flip(x, axis) if node.attrs.get("reverse", 0) else x
        if node.attrs.get("exclusive", 0):
            first = np.full_like(np.take(x, [0], axis), start)
            x = np.concatenate([first, np.take(x, range(x.shape[axis] - 1), axis)], axis)
        total = accumulate(x, axis=axis, dtype=x.dtype)
        return (np.flip(total, axis) if node.attrs.get("reverse", 0) else total,)

    return Operator(name, lambda node, types: (_first(types),), reference, define, ((1, "axis"),))


def _norm(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


OPERATORS: tuple[Operator, ...] = (
    _reduce("ReduceSum", "sum", np.sum),
    _reduce("ReduceMean", "sum", np.mean, after=_divided),
    _reduce("ReduceMax", "max", _extreme(np.max, -1)),
    _reduce("ReduceMin", "min", _extreme(np.min, 1)),
    _reduce("ReduceProd", "prod", np.prod),
    _reduce("ReduceL1", "sum", lambda x, axis, keepdims: np.sum(np.abs(x), axis=axis, keepdims=keepdims), lambda x: call("abs", x)),
    _reduce("ReduceL2", "sum", _norm, _square, _root),
    _reduce("ReduceSumSquare", "sum", lambda x, axis, keepdims: np.sum(x * x, axis=axis, keepdims=keepdims), _square),
    _reduce("ReduceLogSum", "sum", lambda x, axis, keepdims: np.log(np.sum(x, axis=axis, keepdims=keepdims)), after=_log),
    Operator("ReduceLogSumExp", _infer, _reference(_log_sum_exp_reference), _define_log_sum_exp, ((1, "axes"),)),
    _arg("ArgMax", "argmax", np.argmax),
    _arg("ArgMin", "argmin", np.argmin),
    _running("CumSum", "add", 0, np.cumsum),
    _running("CumProd", "mul", 1, np.cumprod),
)
