"""Softmax and its kin: the greatest element of a row first, so that no exponential overflows (or is marked, in a Hardmax)."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, axes_for, call, number
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types
from compiler.ops.passes import Group
from compiler.ops.slots import arrays_at, given, input_slots, output_slots


def _axis(node: Node, rank: int) -> int:
    return axis_of(node, rank, default=-1)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    _axis(node, x.rank)
    return (x,)


def _define_softmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """exp(x - max) is computed once and kept, in t2, for the sum and for the quotient."""
    x = given(types, 0)
    group = Group.over(x, (_axis(node, x.rank),))
    row, kept = Slot("t2", TensorType(group.kind, x.shape)), Load("t2", group.index, group.kind)
    exponential = call("exp", call("sub", group.element, group.held("t0")))
    blocks = (
        group.reduce("t0", "max", group.element),
        Block(group.inner, (exponential,), (Store("t2", group.index),)),
        group.reduce("t1", "sum", kept),
        group.result(call("mul", kept, call("reciprocal", group.held("t1")))),
    )
    shape = tuple(axis.extent for axis in group.outer)
    temps = (*(Slot(name, TensorType(group.kind, shape)) for name in ("t0", "t1")), row)
    return Kernel("Softmax", input_slots(types), output_slots(outs), blocks, temps, group.outer)


def _define_log_softmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """x - max - log(sum of exp(x - max)), which has no logarithm of a small quotient."""
    x = given(types, 0)
    group = Group.over(x, (_axis(node, x.rank),))
    below = call("sub", group.element, group.held("t0"))
    return group.kernel(
        "LogSoftmax",
        types,
        outs,
        ("t0", "t1"),
        group.reduce("t0", "max", group.element),
        group.reduce("t1", "sum", call("exp", below)),
        group.result(call("sub", below, call("log", group.held("t1")))),
    )


def _shifted(node: Node, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Elements less the greatest of their row, and the row's sum of exponentials."""
    (x,) = arrays_at(arrays, 0)
    axis = _axis(node, x.ndim)
    below = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return below, np.sum(np.exp(below), axis=axis, keepdims=True)


def _reference_softmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        below, total = _shifted(node, arrays)
        return (np.exp(below) / total,)


def _reference_log_softmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        below, total = _shifted(node, arrays)
        return (below - np.log(total),)


def _define_hardmax(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """The position of the first greatest element of each row, then 1 there and 0 elsewhere."""
    x = given(types, 0)
    axes = axes_for(x.dims)
    over = axes[_axis(node, x.rank)]
    outer = tuple(axis for axis in axes if axis != over)
    place = Position(Index.of(over))
    found = Block(
        (),
        (Load("x0", at(axes), x.dtype), place),
        (Store("t0", at(outer)), Store("t1", at(outer))),
        (over,),
        "argmax_first",
        x.dtype,
    )
    first = call("eq", place, Load("t1", at(outer), DType.I64))
    mark = Block((over,), (Where(first, number(1, x.dtype), number(0, x.dtype)),), (Store("y0", at(axes)),))
    shape = tuple(axis.extent for axis in outer)
    temps = (Slot("t0", TensorType(x.dtype, shape)), Slot("t1", TensorType(DType.I64, shape)))
    return Kernel("Hardmax", input_slots(types), output_slots(outs), (found, mark), temps, outer)


def _reference_hardmax(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    axis = _axis(node, x.ndim)
    marks = np.zeros_like(x)
    np.put_along_axis(marks, np.expand_dims(np.argmax(x, axis), axis), 1, axis)
    return (marks,)


OPERATORS: tuple[Operator, ...] = (
    Operator("Softmax", _infer, _reference_softmax, _define_softmax),
    Operator("LogSoftmax", _infer, _reference_log_softmax, _define_log_softmax),
    Operator("Hardmax", _infer, _reference_hardmax, _define_hardmax),
)
