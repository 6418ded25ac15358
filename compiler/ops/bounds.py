"""PadBeyond, PadOutside and Toeplitz, the compiler's own.

A tensor with an axis whose size is only known while running has the axis's capacity in memory. PadBeyond gives the
elements from the size on a number, so that operators that combine elements along the axis see what changes nothing
(zero in a sum). PadOutside leaves a range of the axis as it is, which may be another one for each element of the other
axes. Toeplitz is a matrix by its diagonals: a map that reads it needs no more of it in memory.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import number_of
from compiler.ops.build import at, call, load_broadcast, number, view_kernel
from compiler.ops.indices import axis_of
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import Trait


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


def _infer_outside(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, first, past = (given(types, place) for place in range(3))
    axis = axis_of(node, x.rank)
    for end in (first, past):
        own = axis - (x.rank - end.rank)
        if end.dtype is not DType.I64 or end.rank > x.rank or (own >= 0 and end.dims[own] != 1):
            raise Unsupported(
                f"an end of its range is {end}", f"give i64 of at most {x.rank} axes, 1 along axis {axis}"
            )
    try:
        shape = np.broadcast_shapes(x.dims, first.dims, past.dims)
    except ValueError:
        raise Unsupported(f"{x}, {first} and {past} do not broadcast", "give shapes that do") from None
    return (TensorType(x.dtype, shape),)


def _reference_outside(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, first, past = arrays_at(arrays, 0, 1, 2)
    axis = axis_of(node, x.ndim)
    place = np.arange(x.shape[axis]).reshape([-1 if at == axis else 1 for at in range(x.ndim)])
    inside = (first <= place) & (place < past)
    return (np.where(inside, x, np.asarray(number_of(node, "value", 0), x.dtype)),)


def _define_outside(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, first, past = (given(types, place) for place in range(3))
    axis, value = axis_of(node, x.rank), number_of(node, "value", 0)

    def element(axes: tuple[Axis, ...]) -> Expr:
        place = Position(Index.of(axes[axis]))
        begun = call("ge", place, load_broadcast("x1", first, axes))
        kept = call("and", begun, call("lt", place, load_broadcast("x2", past, axes)))
        return Where(kept, load_broadcast("x0", x, axes), number(value, x.dtype))

    return view_kernel("PadOutside", types, outs[0], element)


def _infer_toeplitz(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    if not x.rank or not x.is_static or x.dims[-1] % 2 == 0:
        raise Unsupported(
            f"{x} has no number for each diagonal of a square", "give 2 n - 1 of them along the last axis"
        )
    n = (x.dims[-1] + 1) // 2
    return (TensorType(x.dtype, (*x.dims[:-1], n, n)),)


def _reference_toeplitz(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    n = (x.shape[-1] + 1) // 2
    return (x[..., np.arange(n) - np.arange(n)[:, None] + n - 1],)


def _define_toeplitz(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)

    def element(axes: tuple[Axis, ...]) -> Expr:
        diagonal = Index.of(axes[-1]) - Index.of(axes[-2]) + axes[-1].extent - 1
        return Load("x0", (*at(axes[:-2]), diagonal), x.dtype)

    return view_kernel("Toeplitz", types, outs[0], element)


OPERATORS: tuple[Operator, ...] = (
    Operator("PadBeyond", _infer, _reference, _define, opsets=NOT_IN_ONNX),
    Operator("PadOutside", _infer_outside, _reference_outside, _define_outside, opsets=NOT_IN_ONNX),
    Operator(
        "Toeplitz", _infer_toeplitz, _reference_toeplitz, _define_toeplitz, opsets=NOT_IN_ONNX, traits=Trait.MOVES
    ),
)
"""`PadBeyond(x, size)` with attributes `axis` and `value`: x at positions below `size`, a scalar i64, else `value`.

`PadOutside(x, first, past)` with the same: x at positions p along `axis` with first <= p < past, else `value`; `first`
and `past`, i64 with one element along `axis`, are broadcast with x.

`Toeplitz(x)`: y[.., i, j] = x[.., j - i + n - 1] for x [.., 2 n - 1] and y [.., n, n].
"""
