"""ByteTable, the compiler's own: a function of one byte as the 256 results that it has."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Expr, Load
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, cast, view_kernel
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given

BYTES = (DType.U8, DType.I8)
SIZE = 256


def least(dtype: DType) -> int:
    """The byte that the first element of a table is for."""
    return -128 if dtype is DType.I8 else 0


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, table = given(types, 0), given(types, 1)
    if x.dtype not in BYTES or table.dtype not in BYTES or table.shape != (SIZE,):
        raise Unsupported(f"a table {table} is no function of {x}", f"give {SIZE} bytes for a tensor of bytes")
    return (TensorType(table.dtype, x.shape),)


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, table = arrays_at(arrays, 0, 1)
    return (np.take(table, x.astype(np.int64) - least(DType.of(x.dtype))),)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, table = given(types, 0), given(types, 1)
    low = least(x.dtype)

    def element(axes: tuple[Axis, ...]) -> Expr:
        byte = cast(Load("x0", at(axes), x.dtype), DType.I64)
        return Load("x1", (Index.of(Indirect(byte, low, low + SIZE - 1)) - low,), table.dtype)

    return view_kernel("ByteTable", types, outs[0], element)


OPERATORS: tuple[Operator, ...] = (Operator("ByteTable", _infer, _reference, _define, opsets=NOT_IN_ONNX),)
"""`ByteTable(x, table)`: of each byte of x the element of `table`, which begins with that of the least byte."""
