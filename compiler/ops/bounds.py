"""PadBeyond, the compiler's own: what keeps the elements of an axis apart whose size is only known while running.

A tensor with such an axis has the axis's capacity in memory. PadBeyond gives the elements from the size on a number,
so that operators that combine elements along the axis see what changes nothing (zero in a sum).
"""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import number_of
from compiler.ops.build import at, call, number, view_kernel
from compiler.ops.indices import axis_of
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, size = given(types, 0), given(types, 1)
    axis_of(node, x.rank)
    if size.dtype is not DType.I64 or size.shape != ():
        raise Unsupported(f"its size is {size}", "give a scalar i64")
    return (x,)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, size = arrays_at(arrays, 0, 1)
    padded = x.copy()
    np.moveaxis(padded, axis_of(node, x.ndim), 0)[max(int(size), 0) :] = number_of(node, "value", 0)
    return (padded,)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    axis, value = axis_of(node, x.rank), number_of(node, "value", 0)

    def element(axes: tuple[Axis, ...]) -> Expr:
        kept = call("lt", Position(Index.of(axes[axis])), Load("x1", (), DType.I64))
        return Where(kept, Load("x0", at(axes), x.dtype), number(value, x.dtype))

    return view_kernel("PadBeyond", types, outs[0], element)


OPERATORS: tuple[Operator, ...] = (Operator("PadBeyond", _infer, _reference, _define, opsets=NOT_IN_ONNX),)
"""`PadBeyond(x, size)` with attributes `axis` and `value`: x at positions below `size`, a scalar i64, else `value`."""
