"""Softmax, its logarithm, and its limit: the groups are the lines along one axis."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Apply, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.arrays import as_array, largest
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types
from compiler.ops.passes import Group
from compiler.ops.slots import accumulator_of, arrays_at, given, input_slots, output_slots
from compiler.ops.traits import Trait


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis_of(node, x.rank, default=-1)
    return (x,)


def _lines(node: Node, x: TensorType) -> tuple[Group, Expr]:
    """The lines along the axis, and the element of a line in the accumulator's dtype."""
    axes = axes_for(x.dims)
    group = Group(axes, (axes[axis_of(node, x.rank, default=-1)],), accumulator_of(x.dtype))
    return group, cast(Load("x0", at(axes), x.dtype), group.kind)


def _shifted(node: Node, x: np.ndarray) -> tuple[np.ndarray, int]:
    """x less the greatest value of its line, and the axis."""
    axis = axis_of(node, x.ndim, default=-1)
    return as_array(x - largest(x, axis, -np.inf)), axis


def _define_softmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """The greatest value, exponentials of the distances to it, their sum, the quotients."""
    x = given(types, 0)
    group, value = _lines(node, x)
    exponential = Load("t2", at(group.axes), group.kind)
    result = call("mul", exponential, call("reciprocal", group.held("t1")))
    blocks = (
        group.reduce("t0", "max", value),
        group.map(call("exp", call("sub", value, group.held("t0"))), Store("t2", at(group.axes))),
        group.reduce("t1", "sum", exponential),
        group.map(cast(result, x.dtype), Store("y0", at(group.axes))),
    )
    temps = (group.temp("t0"), group.temp("t1"), Slot("t2", TensorType(group.kind, x.shape)))
    return Kernel("Softmax", input_slots(types), output_slots(outs), blocks, temps, group.shared)


def _reference_softmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    with np.errstate(all="ignore"):
        shifted, axis = _shifted(node, x)
        powers = np.exp(shifted)
        return (powers / np.sum(powers, axis=axis, keepdims=True),)


def _define_log_softmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """The greatest value, the sum of exponentials below it, the distances less the sum's logarithm."""
    x = given(types, 0)
    group, value = _lines(node, x)
    below = call("sub", value, group.held("t0"))
    result = call("sub", below, call("log", group.held("t1")))
    blocks = (
        group.reduce("t0", "max", value),
        group.reduce("t1", "sum", call("exp", below)),
        group.map(cast(result, x.dtype), Store("y0", at(group.axes))),
    )
    temps = (group.temp("t0"), group.temp("t1"))
    return Kernel("LogSoftmax", input_slots(types), output_slots(outs), blocks, temps, group.shared)


def _reference_log_softmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    with np.errstate(all="ignore"):
        shifted, axis = _shifted(node, x)
        return (shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)),)


def _define_hardmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """1 at the first of the greatest values, 0 elsewhere."""
    x = given(types, 0)
    axes = axes_for(x.dims)
    over = axes[axis_of(node, x.rank, default=-1)]
    group = Group(axes, (over,), x.dtype)
    place = Position(Index.of(over), DType.I64)
    stores = (Store("t0", at(group.shared)), Store("t1", at(group.shared)))
    found = Block((), (Load("x0", at(axes), x.dtype), place), stores, (over,), "argmax_first", x.dtype)
    first = Apply("eq", (place, group.held("t1", DType.I64)))
    mark = group.map(Where(first, number(1, x.dtype), number(0, x.dtype)), Store("y0", at(axes)))
    temps = (group.temp("t0"), group.temp("t1", DType.I64))
    return Kernel("Hardmax", input_slots(types), output_slots(outs), (found, mark), temps, group.shared)


def _reference_hardmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    marks = np.zeros_like(x)
    axis = axis_of(node, x.ndim, default=-1)
    if x.size:
        np.put_along_axis(marks, np.expand_dims(np.argmax(x, axis), axis), 1, axis)
    return (marks,)


OPERATORS: tuple[Operator, ...] = (
    Operator("Softmax", _infer, _reference_softmax, _define_softmax, traits=Trait.NOT_NEGATIVE),
    Operator("LogSoftmax", _infer, _reference_log_softmax, _define_log_softmax),
    Operator("Hardmax", _infer, _reference_hardmax, _define_hardmax, traits=Trait.NOT_NEGATIVE),
)
