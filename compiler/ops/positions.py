"""Operators whose elements depend on where they are: triangles, diagonals, sequences of different lengths."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import number_of
from compiler.ops.build import at, call, cast, number, view_kernel
from compiler.ops.cast import dtype_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import Trait


def _diagonal(axes: tuple[Axis, ...]) -> Expr:
    """Which diagonal an element of a matrix lies on: 0 is the main one, above it they count up."""
    return Position(Index.of(axes[-1]) - Index.of(axes[-2]))


def _matrix(types: Types) -> TensorType:
    x = given(types, 0)
    if x.rank < 2:
        raise Unsupported(f"{x} holds no matrices", "export with a tensor of rank 2 or more")
    return x


# Trilu: one triangle of each matrix, zero elsewhere


def _infer_trilu(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (_matrix(types),)


def _reference_trilu(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    triangle = np.triu if node.attrs.get("upper", 1) else np.tril
    return (triangle(x, int(number_of(node, "k", 0))),)


def _define_trilu(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, k = given(types, 0), int(number_of(node, "k", 0))

    def element(axes: tuple[Axis, ...]) -> Expr:
        kept = Apply("ge" if node.attrs.get("upper", 1) else "le", (_diagonal(axes), Const(k, DType.I64)))
        return Where(kept, Load("x0", at(axes), x.dtype), number(0, x.dtype))

    return view_kernel("Trilu", types[:1], outs[0], element)


# EyeLike: ones on one diagonal; of its input only the shape matters


def _infer_eye(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _matrix(types)
    if x.rank != 2:
        raise Unsupported(f"{x} is no matrix", "export with a tensor of rank 2")
    dtype = x.dtype if node.attrs.get("dtype") is None else dtype_of(node.attrs["dtype"])
    return (TensorType(dtype, x.shape),)


def _reference_eye(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    dtype = x.dtype if node.attrs.get("dtype") is None else dtype_of(node.attrs["dtype"]).numpy
    rows, columns = x.shape
    return (np.eye(rows, columns, int(number_of(node, "k", 0)), dtype=dtype),)


def _define_eye(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    k = Const(int(number_of(node, "k", 0)), DType.I64)
    return view_kernel("EyeLike", types, outs[0], lambda axes: cast(call("eq", _diagonal(axes), k), outs[0].dtype))


# ReverseSequence: of each sequence, the first `sequence_lens` elements in reverse order


def _sequence_axes(node: Node, types: Types) -> tuple[int, int]:
    """The time axis and the batch axis.

    Raises Unsupported unless they are the first two and every sequence has a length.
    """
    x, lengths = given(types, 0), given(types, 1)
    time, batch = node.attrs.get("time_axis", 0), node.attrs.get("batch_axis", 1)
    if not (isinstance(time, int) and isinstance(batch, int) and x.rank >= 2 and {time, batch} == {0, 1}):
        raise Unsupported(f"time_axis is {time!r} and batch_axis {batch!r}", "use 0 and 1, or 1 and 0")
    if lengths.shape != (x.shape[batch],):
        raise Unsupported(f"lengths {lengths} do not fit axis {batch} of {x}", "give one for each sequence")
    return time, batch


def _infer_reverse(node: Node, types: Types) -> tuple[TensorType, ...]:
    _sequence_axes(node, types)
    return (given(types, 0),)


def _reference_reverse(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, lengths = arrays_at(arrays, 0, 1)
    outer = x if node.attrs.get("time_axis", 0) == 0 else x.swapaxes(0, 1)
    steps, lengths = np.arange(outer.shape[0], like=x)[:, None], np.minimum(lengths, outer.shape[0])
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    reversed_ = outer[source, np.arange(outer.shape[1], like=x)]
    return (reversed_ if outer is x else reversed_.swapaxes(0, 1),)


def _define_reverse(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """A length beyond the sequence, which ONNX leaves undefined, is taken for all of it."""
    x = given(types, 0)
    time, batch = _sequence_axes(node, types)
    extent = x.dims[time]

    def element(axes: tuple[Axis, ...]) -> Expr:
        step = Position(Index.of(axes[time]))
        length = cast(Load("x1", (Index.of(axes[batch]),), given(types, 1).dtype), DType.I64)
        length = call("min", length, Const(extent, DType.I64))
        mirrored = call("sub", call("sub", length, Const(1, DType.I64)), step)
        source = Indirect(Where(call("lt", step, length), mirrored, step), 0, max(extent - 1, 0))
        index = list(at(axes))
        index[time] = Index.of(source)
        return Load("x0", tuple(index), x.dtype)

    return view_kernel("ReverseSequence", types, outs[0], element)


OPERATORS: tuple[Operator, ...] = (
    Operator("Trilu", _infer_trilu, _reference_trilu, _define_trilu, ((1, "k"),)),
    Operator("EyeLike", _infer_eye, _reference_eye, _define_eye),
    Operator("ReverseSequence", _infer_reverse, _reference_reverse, _define_reverse, traits=Trait.MOVES),
)
