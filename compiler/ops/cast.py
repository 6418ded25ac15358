"""Conversions between element types."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import cast, map_kernel
from compiler.ops.operator import Arrays, Operator, Types, Unsupported

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
    assert types[0] is not None
    return (TensorType(dtype_of(node.attrs.get("to")), types[0].shape),)


def _infer_like(node: Node, types: Types) -> tuple[TensorType, ...]:
    assert types[0] is not None and types[1] is not None
    return (TensorType(types[1].dtype, types[0].shape),)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    return map_kernel(node.op, types, outs[0], lambda x, *like: cast(x, outs[0].dtype))


def _convert(array: np.ndarray, target: DType) -> np.ndarray:
    """As C converts, except that a float to a float keeps the precision it is given."""
    if target.is_float:
        wide = array.dtype == np.float64
        return array if wide else array.astype(target.numpy)
    with np.errstate(all="ignore"):
        return array.astype(target.numpy)


def _cast(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    assert arrays[0] is not None
    return (_convert(arrays[0], dtype_of(node.attrs.get("to"))),)


def _cast_like(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    assert arrays[0] is not None and arrays[1] is not None
    return (_convert(arrays[0], DType.of(arrays[1].dtype)),)


OPERATORS: tuple[Operator, ...] = (
    Operator("Cast", _infer_cast, _cast, _define),
    Operator("CastLike", _infer_like, _cast_like, _define),
)
