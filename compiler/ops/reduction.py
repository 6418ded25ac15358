"""Reductions over axes: sums, means, norms, extremes, and positions of extremes. Running sums are in `running`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, Shape, TensorType, at_most, static
from compiler.ops import running
from compiler.ops.arrays import as_array, largest, smallest
from compiler.ops.attributes import axes_of
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of, arrays_at, given, input_slots, output_slots
from compiler.ops.traits import PLAIN, Trait

Over = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
"""A reduction of an array over axes, which stay with extent 1."""


def _reduced(node: Node, rank: int) -> tuple[int, ...]:
    """Axes that are reduced, ascending: without any given, all of them or, where the node says so, none."""
    if axes := axes_of(node, rank):
        return tuple(sorted(axes))
    return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))


def _keeps(node: Node) -> bool:
    return bool(node.attrs.get("keepdims", 1))


def _kept_dims(dims: Shape, over: tuple[int, ...], keeps: bool) -> Shape:
    if keeps:
        return tuple(1 if axis in over else extent for axis, extent in enumerate(dims))
    return tuple(extent for axis, extent in enumerate(dims) if axis not in over)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    return (TensorType(x.dtype, _kept_dims(x.shape, _reduced(node, x.rank), _keeps(node))),)


@dataclass(frozen=True)
class _Nest:
    """The loops of a reduction: all axes of its input, those it runs over, and where its result lies."""

    axes: tuple[Axis, ...]
    over: tuple[int, ...]
    keeps: bool

    @property
    def shared(self) -> tuple[Axis, ...]:
        return tuple(axis for position, axis in enumerate(self.axes) if position not in self.over)

    @property
    def reduction(self) -> tuple[Axis, ...]:
        return tuple(self.axes[position] for position in self.over)

    @property
    def count(self) -> int:
        return math.prod(axis.extent for axis in self.reduction)

    @property
    def index(self) -> tuple[Index, ...]:
        if not self.keeps:
            return at(self.shared)
        return tuple(Index.of(0 if position in self.over else axis) for position, axis in enumerate(self.axes))

    def reduce(self, slot: str, monoid: str, value: Expr, accumulator: DType) -> Block:
        return Block((), (value,), (Store(slot, self.index),), self.reduction, monoid, accumulator)

    def map(self, slot: str, value: Expr) -> Block:
        return Block((), (value,), (Store(slot, self.index),))


def _nest(node: Node, x: TensorType) -> _Nest:
    return _Nest(axes_for(x.dims), _reduced(node, x.rank), _keeps(node))


def _same(x: Expr) -> Expr:
    return x


def _square(x: Expr) -> Expr:
    return call("mul", x, x)


def _reference(function: Over) -> Callable[[Node, Arrays], tuple[np.ndarray, ...]]:
    def evaluate(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        over = _reduced(node, x.ndim)
        with np.errstate(all="ignore"):
            result = as_array(function(x, over)).astype(x.dtype)
        return (result.reshape(static(_kept_dims(x.shape, over, _keeps(node)))),)

    return evaluate


def _reduce(
    name: str,
    function: Over,
    before: Callable[[Expr], Expr] = _same,
    after: Callable[[Expr, int], Expr] | None = None,
    monoid: str = "sum",
    traits: Trait = PLAIN,
) -> Operator:
    """A record: `monoid` over `before` of each element, then `after` of the result and the number of elements."""

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = given(types, 0)
        nest, kind = _nest(node, x), accumulator_of(x.dtype)
        value = before(cast(Load("x0", at(nest.axes), x.dtype), kind))
        if after is None:
            blocks, temps = (nest.reduce("y0", monoid, value, kind),), ()
            return Kernel(name, input_slots(types), output_slots(outs), blocks, temps, nest.shared)
        result = cast(after(Load("t0", nest.index, kind), nest.count), x.dtype)
        total = Slot("t0", TensorType(kind, outs[0].shape))
        steps = (nest.reduce("t0", monoid, value, kind), nest.map("y0", result))
        return Kernel(name, input_slots(types), output_slots(outs), steps, (total,), nest.shared)

    return Operator(name, _infer, _reference(function), define, ((1, "axes"),), traits=Trait.REDUCTION | traits)


def _divided(x: Expr, count: int) -> Expr:
    return call("div", x, number(count, x.dtype))


def _real(function: str) -> Callable[[Expr, int], Expr]:
    """A function of real numbers; integers are computed in double."""
    return lambda x, count: call(function, x if x.dtype.is_float else cast(x, DType.F64))


# Extremes: the greatest and least of booleans are `or` and `and`


def _extreme(name: str, monoid: str, on_booleans: str) -> Operator:
    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = given(types, 0)
        nest = _nest(node, x)
        combine = on_booleans if x.dtype is DType.BOOL else monoid
        block = nest.reduce("y0", combine, Load("x0", at(nest.axes), x.dtype), x.dtype)
        return Kernel(name, input_slots(types), output_slots(outs), (block,), shared=nest.shared)

    def reference(x: np.ndarray, over: tuple[int, ...]) -> np.ndarray:
        """Of no elements at all, the identity: what every element is at least, or at most."""
        if x.dtype == np.bool_:
            return as_array((np.any if monoid == "max" else np.all)(x, axis=over, keepdims=True))
        real = not np.issubdtype(x.dtype, np.integer)
        low, high = (-np.inf, np.inf) if real else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        if monoid == "max":
            return largest(x, over, low)
        return smallest(x, over, high)

    traits = Trait.REDUCTION | Trait.STEPWISE | Trait.POSITIVE_HOMOGENEOUS
    return Operator(name, _infer, _reference(reference), define, ((1, "axes"),), traits=traits)


# ReduceLogSumExp: the greatest value first, then the sum of exponentials below it, neither of which overflows


def _define_log_sum_exp(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """An infinite greatest value is not subtracted: infinity minus itself is no number."""
    x = given(types, 0)
    nest, kind = _nest(node, x), accumulator_of(x.dtype) if x.dtype.is_float else DType.F64
    value, top = cast(Load("x0", at(nest.axes), x.dtype), kind), Load("t0", nest.index, kind)
    finite = Where(call("isinf", top), number(0, kind), top)
    total = call("add", call("log", Load("t1", nest.index, kind)), finite)
    blocks = (
        nest.reduce("t0", "max", value, kind),
        nest.reduce("t1", "sum", call("exp", call("sub", value, finite)), kind),
        nest.map("y0", cast(total, x.dtype)),
    )
    temps = tuple(Slot(name, TensorType(kind, outs[0].shape)) for name in ("t0", "t1"))
    return Kernel("ReduceLogSumExp", input_slots(types), output_slots(outs), blocks, temps, nest.shared)


def _log_sum_exp(x: np.ndarray, over: tuple[int, ...]) -> np.ndarray:
    wide = x.astype(np.float64)
    top = largest(wide, over, -np.inf)
    top = np.where(np.isinf(top), 0, top)
    return as_array(np.log(np.sum(np.exp(wide - top), axis=over, keepdims=True)) + top)


# Positions of extremes


def _infer_arg(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis = axis_of(node, x.rank)
    if not at_most(1, x.shape[axis]):
        raise Unsupported(f"axis {axis} of {x} has no elements", "bind larger input dimensions")
    return (TensorType(DType.I64, _kept_dims(x.shape, (axis,), _keeps(node))),)


def _arg(name: str, best: str, function: Callable[..., np.ndarray]) -> Operator:
    """A record: the first or last position of the greatest or least element; a NaN is beyond every number."""

    def last(node: Node) -> bool:
        return bool(node.attrs.get("select_last_index", 0))

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        x = given(types, 0)
        nest = _Nest(axes_for(x.dims), (axis_of(node, x.rank),), _keeps(node))
        values = (Load("x0", at(nest.axes), x.dtype), Position(Index.of(nest.reduction[0])))
        stores = (Store("t0", nest.index), Store("y0", nest.index))
        block = Block((), values, stores, nest.reduction, f"{best}_last" if last(node) else f"{best}_first", x.dtype)
        extreme = Slot("t0", TensorType(x.dtype, outs[0].shape))
        return Kernel(name, input_slots(types), output_slots(outs), (block,), (extreme,), nest.shared)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        axis = axis_of(node, x.ndim)
        if last(node):
            found = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis)
        else:
            found = function(x, axis=axis)
        return (as_array(found).reshape(static(_kept_dims(x.shape, (axis,), _keeps(node)))),)

    return Operator(name, _infer_arg, reference, define)


_sum = functools.partial(np.sum, keepdims=True)

OPERATORS: tuple[Operator, ...] = (
    _reduce("ReduceSum", lambda x, over: _sum(x, axis=over), traits=Trait.STEPWISE),
    _reduce(
        "ReduceMean",
        lambda x, over: _sum(x, axis=over) / math.prod(x.shape[axis] for axis in over),
        after=_divided,
        traits=Trait.STEPWISE,
    ),
    _reduce("ReduceProd", lambda x, over: np.prod(x, axis=over, keepdims=True), monoid="prod", traits=Trait.STEPWISE),
    _reduce(
        "ReduceL1",
        lambda x, over: _sum(np.abs(x), axis=over),
        lambda x: call("abs", x),
        traits=Trait.POSITIVE_HOMOGENEOUS | Trait.NOT_NEGATIVE,
    ),
    _reduce(
        "ReduceL2",
        lambda x, over: np.sqrt(_sum(x * x, axis=over)),
        _square,
        _real("sqrt"),
        traits=Trait.POSITIVE_HOMOGENEOUS | Trait.NOT_NEGATIVE,
    ),
    _reduce("ReduceSumSquare", lambda x, over: _sum(x * x, axis=over), _square, traits=Trait.NOT_NEGATIVE),
    _reduce("ReduceLogSum", lambda x, over: np.log(_sum(x, axis=over)), after=_real("log")),
    Operator(
        "ReduceLogSumExp",
        _infer,
        _reference(_log_sum_exp),
        _define_log_sum_exp,
        ((1, "axes"),),
        traits=Trait.REDUCTION | Trait.STEPWISE,
    ),
    _extreme("ReduceMax", "max", "or"),
    _extreme("ReduceMin", "min", "and"),
    _arg("ArgMax", "argmax", np.argmax),
    _arg("ArgMin", "argmin", np.argmin),
    *running.OPERATORS,
)
