"""Conversions between element types."""

from __future__ import annotations

import numpy as np

from compiler.ir import arithmetic
from compiler.ir.expr import Expr, Load
from compiler.ir.graph import Node
from compiler.ir.index import Axis
from compiler.ir.kernel import Kernel
from compiler.ir.small import BITS, BITWISE, FLOATS, ROUNDINGS
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
    17: DType.F8E4M3FN,
    18: DType.F8E4M3FNUZ,
    19: DType.F8E5M2,
    20: DType.F8E5M2FNUZ,
    21: DType.U4,
    22: DType.I4,
    23: DType.F4E2M1,
    24: DType.F8E8M0,
    25: DType.U2,
    26: DType.I2,
    27: DType.F6E2M3,
    28: DType.F6E3M2,
}
"""Element types by their number in onnx.TensorProto."""


def dtype_of(number: object, *, small: bool = False) -> DType:
    """The element type an attribute names.

    Raises Unsupported for strings and complex numbers, and for small types unless an operator takes them.
    """
    if not isinstance(number, int) or number not in ONNX_DTYPES or (ONNX_DTYPES[number].is_small and not small):
        raise Unsupported(f"element type {number} is not supported", "convert the tensor to float32 or an integer type")
    return ONNX_DTYPES[number]


UNSIGNED = (DType.U32, DType.U64)


def _saturates(node: Node, source: DType, target: DType) -> bool:
    """Whether what is too large becomes the greatest: where ONNX asks, which is for small floats.

    And of a float that becomes one of UNSIGNED, to which ONNX gives no meaning where it does not fit: processors, and
    scalar and vector instructions of one, make different numbers of it. NaN becomes 0.
    """
    if source.is_float and target in UNSIGNED:
        return True
    return target in FLOATS and bool(node.attrs.get("saturate", 1))


def _rounding(node: Node, target: DType) -> str:
    """Of `ROUNDINGS`. Raises Unsupported for another."""
    rounding = node.attrs.get("round_mode", "up") if target is DType.F8E8M0 else ROUNDINGS[0]
    if rounding not in ROUNDINGS:
        raise Unsupported(f"round_mode {rounding!r} is unknown", f"use one of {', '.join(ROUNDINGS)}")
    return str(rounding)


def _infer_cast(node: Node, types: Types) -> tuple[TensorType, ...]:
    _rounding(node, dtype_of(node.attrs.get("to"), small=True))
    return (TensorType(dtype_of(node.attrs.get("to"), small=True), given(types, 0).shape),)


def _infer_like(node: Node, types: Types) -> tuple[TensorType, ...]:
    _rounding(node, given(types, 1).dtype)
    return (TensorType(given(types, 1).dtype, given(types, 0).shape),)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """A Cast of the first input; a CastLike does not read its second one."""

    def element(axes: tuple[Axis, ...]) -> Expr:
        x, target = given(types, 0), outs[0].dtype
        saturate, rounding = _saturates(node, x.dtype, target), _rounding(node, target)
        return cast(Load("x0", at(axes), x.dtype), target, saturate=saturate, rounding=rounding)

    return view_kernel(node.op, types, outs[0], element)


def _converted(node: Node, array: np.ndarray, target: DType) -> np.ndarray:
    """As C converts, except that a float64 stays one where the target is a shorter float: the oracle computes in it.

    What becomes a small type is rounded: that is what the operator is for.
    """
    if target.is_float and not target.is_small and array.dtype == np.float64:
        return array
    source = DType.of(array.dtype)
    saturates = _saturates(node, source, target)
    if saturates or target.is_small or source.is_small:
        return arithmetic.cast(array, target, saturates, _rounding(node, target))
    return array.astype(target.numpy)


def _cast(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (_converted(node, x, dtype_of(node.attrs.get("to"), small=True)),)


def _cast_like(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, like = arrays_at(arrays, 0, 1)
    return (_converted(node, x, DType.of(like.dtype)),)


# BitCast: the same bits in another type of the same width

HALVES = (DType.F16, DType.BF16)


def _infer_bits(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, target = given(types, 0), dtype_of(node.attrs.get("to"))
    if x.dtype.bytes != target.bytes:
        raise Unsupported(f"{x} and {target} have not the same width", "give a type of as many bits")
    if x.dtype is not target and ({x.dtype, target} & {*HALVES, *BITS}):
        raise Unsupported(f"it reads the bits of {x.dtype} as {target}", "use types of 32 or 64 bits, or integers")
    return (TensorType(target, x.shape),)


def _define_bits(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, target = given(types, 0), outs[0].dtype
    rounding = BITWISE if x.dtype.is_float != target.is_float else "nearest"
    return view_kernel(
        node.op, types, outs[0], lambda axes: cast(Load("x0", at(axes), x.dtype), target, rounding=rounding)
    )


def _bits(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    """Of a float that is given in float64 and stands for one of 32 bits: the bits of that."""
    (x,) = arrays_at(arrays, 0)
    target = dtype_of(node.attrs.get("to")).numpy
    if x.dtype.kind == "f":
        x = x.astype(np.dtype(f"f{target.itemsize}"))
    return (x.reshape(-1).view(target).reshape(x.shape),)


OPERATORS: tuple[Operator, ...] = (
    Operator("BitCast", _infer_bits, _bits, _define_bits, opsets=(26, 28), traits=Trait.ELEMENTWISE | Trait.UNARY),
    Operator("Cast", _infer_cast, _cast, _define, traits=Trait.ELEMENTWISE | Trait.UNARY),
    Operator("CastLike", _infer_like, _cast_like, _define),
)
