"""Conversions between element types."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Expr, Load
from compiler.ir.graph import Node
from compiler.ir.index import Axis
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, cast, view_kernel
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import Trait

ONNX_DTYPES: dict[int, DType] = {
    1: DType.F32,
    2: DType.U8,
    3: DType.I8,
    4: DType.U16,
    5: DType.I16,
    6: DType.I32,
    7: DType.I64,
    9: DType.BOOL,
    10: DType.F16,
    11: DType.F64,
    12: DType.U32,
    13: DType.U64,
    16: DType.BF16,
}
"""Element types by their number in onnx.TensorProto."""


def dtype_of(number: object) -> DType:
    """The element type an attribute names. Raises Unsupported for strings, complex numbers and 8-bit floats."""
    if not isinstance(number, int) or number not in ONNX_DTYPES:
        raise Unsupported(f"element type {number} is not supported", "convert the tensor to float32 or an integer type")
    return ONNX_DTYPES[number]


def _infer_cast(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(dtype_of(node.attrs.get("to")), given(types, 0).shape),)


def _infer_like(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(given(types, 1).dtype, given(types, 0).shape),)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """A Cast of the first input; a CastLike does not read its second one."""

    def element(axes: tuple[Axis, ...]) -> Expr:
        x = given(types, 0)
        return cast(Load("x0", at(axes), x.dtype), outs[0].dtype)

    return view_kernel(node.op, types, outs[0], element)


def _converted(array: np.ndarray, target: DType) -> np.ndarray:
    """As C converts, except that a float64 stays one where the target is a shorter float: the oracle computes in it."""
    if target.is_float and array.dtype == np.float64:
        return array
    return array.astype(target.numpy)


def _cast(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (_converted(x, dtype_of(node.attrs.get("to"))),)


def _cast_like(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, like = arrays_at(arrays, 0, 1)
    return (_converted(x, DType.of(like.dtype)),)


OPERATORS: tuple[Operator, ...] = (
    Operator("Cast", _infer_cast, _cast, _define, traits=Trait.ELEMENTWISE | Trait.UNARY),
    Operator("CastLike", _infer_like, _cast_like, _define),
)
