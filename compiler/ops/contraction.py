"""Matrix products: MatMul, Gemm and the integer forms MatMulInteger and QLinearMatMul.

Each is `sum . mul(a, b)`; alpha, beta, C and requantisation follow in a second block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.expr import Expr, Load
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import Dim, DType, Shape, TensorType, broadcast, static
from compiler.ops.arrays import as_array
from compiler.ops.build import call, cast, number
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.pieces import InPieces, Pieces, regions
from compiler.ops.quantised import requantise, requantised, zeroed
from compiler.ops.slots import (
    accumulator_of,
    arrays_at,
    at_least_f32,
    given,
    input_slots,
    output_slots,
    present,
    slot_names,
)
from compiler.ops.traits import Trait


@dataclass(frozen=True)
class _Product:
    """The nest of a matrix product with batch axes: where a [.., M, K], b [.., K, N] and y are indexed."""

    shared: tuple[Axis, ...]
    k: Axis
    a: tuple[Index, ...]
    b: tuple[Index, ...]
    y: tuple[Index, ...]
    row: Index
    column: Index

    def sum(self, value: Expr, into: str) -> Block:
        return Block((), (value,), (Store(into, self.y),), (self.k,), "sum", value.dtype)

    def then(self, value: Expr) -> Block:
        return Block((), (value,), (Store("y0", self.y),))


def _broadcast(a: Shape, b: Shape) -> Shape:
    found = broadcast(a, b)
    if found is None:
        reason = f"batch dimensions {list(a)} and {list(b)} do not broadcast"
        raise Unsupported(reason, "bind the input dimensions so that they do")
    return found


def _check_depth(a: Shape, b: Shape) -> None:
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        reason = f"shapes {list(a)} and {list(b)} cannot be multiplied"
        raise Unsupported(reason, "bind the input dimensions so that the inner ones agree")


def _matmul_shape(a: Shape, b: Shape) -> Shape:
    """As numpy.matmul: a rank-1 operand is a row on the left and a column on the right, and leaves no axis behind."""
    _check_depth(a, b)
    return (*_broadcast(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _batch_index(axes: tuple[Axis, ...], dims: tuple[int, ...]) -> tuple[Index, ...]:
    """Index of an operand's batch dimensions, aligned at the right; a broadcast one is read at 0."""
    aligned = axes[len(axes) - len(dims) :]
    return tuple(Index.of(axis) if extent > 1 else Index.of(0) for axis, extent in zip(aligned, dims, strict=True))


def _matmul(a: tuple[int, ...], b: tuple[int, ...]) -> _Product:
    batch_dims = static(_broadcast(a[:-2], b[:-2]))
    names = ("b",) if len(batch_dims) == 1 else tuple(f"b{place}" for place in range(len(batch_dims)))
    batch = tuple(Axis(name, extent) for name, extent in zip(names, batch_dims, strict=True))
    k = Axis("k", a[-1])
    rows = (Axis("m", a[-2]),) if len(a) > 1 else ()
    columns = (Axis("n", b[-1]),) if len(b) > 1 else ()
    shared = (*batch, *rows, *columns)
    return _Product(
        shared=shared,
        k=k,
        a=(*_batch_index(batch, a[:-2]), *map(Index.of, rows), Index.of(k)),
        b=(*_batch_index(batch, b[:-2]), Index.of(k), *map(Index.of, columns)),
        y=tuple(map(Index.of, shared)),
        row=Index.of(rows[0] if rows else 0),
        column=Index.of(columns[0] if columns else 0),
    )


def _infer_matmul(node: Node, types: Types) -> tuple[TensorType, ...]:
    a, b = given(types, 0), given(types, 1)
    return (TensorType(a.dtype, _matmul_shape(a.shape, b.shape)),)


def _define_matmul(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    a, b = given(types, 0), given(types, 1)
    nest = _matmul(a.dims, b.dims)
    wide = accumulator_of(a.dtype)
    value = call("mul", cast(Load("x0", nest.a, a.dtype), wide), cast(Load("x1", nest.b, b.dtype), wide))
    blocks = (nest.sum(value, "y0"),)
    return Kernel("MatMul", input_slots(types), output_slots(outputs), blocks, shared=nest.shared)


def _pieces_matmul(node: Node, arrays: Arrays) -> Pieces:
    """Whole, but for a matrix of fewer bits than its other operand, some columns of which are widened at a time."""
    a, b = arrays_at(arrays, 0, 1)
    a = at_least_f32(a)
    if b.ndim != 2 or b.dtype.itemsize >= a.dtype.itemsize:
        return Pieces.of(as_array(np.matmul(a, at_least_f32(b))))
    rows = tuple(slice(None) for _ in a.shape[:-1])
    columns = (at for (at,) in regions(b.shape[1:], b.shape[0]))
    parts = (((*rows, at), as_array(np.matmul(a, b[:, at].astype(a.dtype)))) for at in columns)
    return Pieces((*a.shape[:-1], b.shape[1]), a.dtype, parts)


def _gemm_dims(node: Node, types: Types) -> tuple[Dim, Dim, Dim]:
    """M, K, N. Raises Unsupported when the operands do not fit."""
    a, b = given(types, 0).shape, given(types, 1).shape
    if len(a) != 2 or len(b) != 2:
        raise Unsupported(f"operands have shapes {list(a)} and {list(b)}", "give two matrices")
    a = a[::-1] if node.attrs.get("transA", 0) else a
    b = b[::-1] if node.attrs.get("transB", 0) else b
    _check_depth(a, b)
    if present(types, 2):
        c = given(types, 2).shape
        if len(c) > 2 or _broadcast(c, (a[0], b[1])) != (a[0], b[1]):
            raise Unsupported(f"C of shape {list(c)} does not broadcast to {[a[0], b[1]]}", "give C a shape that does")
    return a[0], a[1], b[1]


def _infer_gemm(node: Node, types: Types) -> tuple[TensorType, ...]:
    m, _, n = _gemm_dims(node, types)
    return (TensorType(given(types, 0).dtype, (m, n)),)


def _factor(node: Node, name: str) -> float:
    value = node.attrs.get(name, 1.0)
    assert isinstance(value, int | float)
    return float(value)


def _scaled(value: Expr, factor: float) -> Expr:
    if factor == 1:
        return value
    if value.dtype.is_integer and factor != int(factor):
        raise Unsupported(f"integers are multiplied by {factor}", "use integral alpha and beta, or floats")
    return call("mul", value, number(int(factor) if value.dtype.is_integer else factor, value.dtype))


def _define_gemm(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """alpha * A B + beta * C."""
    m, k, n = (Axis(name, extent) for name, extent in zip("mkn", static(_gemm_dims(node, types)), strict=True))
    alpha, beta = _factor(node, "alpha"), _factor(node, "beta")
    a_index, b_index = (Index.of(m), Index.of(k)), (Index.of(k), Index.of(n))
    nest = _Product(
        shared=(m, n),
        k=k,
        a=a_index[::-1] if node.attrs.get("transA", 0) else a_index,
        b=b_index[::-1] if node.attrs.get("transB", 0) else b_index,
        y=(Index.of(m), Index.of(n)),
        row=Index.of(m),
        column=Index.of(n),
    )
    dtype = outputs[0].dtype
    wide = accumulator_of(dtype)
    value = call("mul", cast(Load("x0", nest.a, dtype), wide), cast(Load("x1", nest.b, dtype), wide))
    added = present(types, 2) and beta != 0
    slots, results = input_slots(types), output_slots(outputs)
    if alpha == 1 and not added:
        return Kernel("Gemm", slots, results, (nest.sum(value, "y0"),), shared=nest.shared)
    total = _scaled(Load("t0", nest.y, wide), alpha)
    if added:
        c = given(types, 2)
        index = tuple(
            place if extent > 1 else Index.of(0) for place, extent in zip(nest.y[2 - c.rank :], c.dims, strict=True)
        )
        total = call("add", total, _scaled(cast(Load("x2", index, dtype), wide), beta))
    temps = (Slot("t0", TensorType(wide, outputs[0].shape)),)
    return Kernel("Gemm", slots, results, (nest.sum(value, "t0"), nest.then(cast(total, dtype))), temps, nest.shared)


def _reference_gemm(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    a, b = map(at_least_f32, arrays_at(arrays, 0, 1))
    y = _factor(node, "alpha") * (
        (a.T if node.attrs.get("transA", 0) else a) @ (b.T if node.attrs.get("transB", 0) else b)
    )
    if len(arrays) > 2 and arrays[2] is not None and _factor(node, "beta"):
        y = y + _factor(node, "beta") * arrays[2]
    return (y.astype(a.dtype, copy=False),)


def _along_rows(
    types: Types, names: tuple[str, ...], position: int, operand: TensorType, axis: int, nest: _Product
) -> Expr | None:
    """A scale or zero point of an operand of a matrix product.

    For the whole, for each row of a (axis -2) or column of b (axis -1).
    """
    type = types[position] if position < len(types) else None
    if type is None:
        return None
    if type.elements == 1:
        return Load(names[position], (Index.of(0),) * type.rank, type.dtype)
    extent = operand.dims[axis] if operand.rank > 1 else 1
    if type.dims == (extent,):
        return Load(names[position], (nest.row if axis == -2 else nest.column,), type.dtype)
    kept = tuple(
        1 if place == operand.rank + (-1 if axis == -2 else -2) else dim for place, dim in enumerate(operand.dims)
    )
    if type.dims != kept:
        raise Unsupported(
            f"a scale or zero point of shape {list(type.dims)} does not fit {operand}", "give a scalar or a vector"
        )
    index = nest.a if axis == -2 else nest.b
    return Load(
        names[position], tuple(p if dim > 1 else Index.of(0) for p, dim in zip(index, kept, strict=True)), type.dtype
    )


def _infer_integer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(DType.I32, _matmul_shape(given(types, 0).shape, given(types, 1).shape)),)


def _define_integer(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    a, b, names = given(types, 0), given(types, 1), slot_names(types)
    nest = _matmul(a.dims, b.dims)
    a_zero, b_zero = _along_rows(types, names, 2, a, -2, nest), _along_rows(types, names, 3, b, -1, nest)
    value = call("mul", zeroed(Load("x0", nest.a, a.dtype), a_zero), zeroed(Load("x1", nest.b, b.dtype), b_zero))
    blocks = (nest.sum(value, "y0"),)
    return Kernel("MatMulInteger", input_slots(types), output_slots(outputs), blocks, shared=nest.shared)


def _spread_rows(array: np.ndarray, axis: int) -> np.ndarray:
    """A scale or zero point in float64: a vector runs along rows (axis -2) or columns (axis -1)."""
    wide = array.astype(np.float64)
    if wide.size == 1:
        return wide.reshape(())
    return wide[:, None] if wide.ndim == 1 and axis == -2 else wide


def _integer_sum(
    a: np.ndarray | None, b: np.ndarray | None, a_zero: np.ndarray | None, b_zero: np.ndarray | None
) -> np.ndarray:
    """Exact in float64: products of bytes stay below 2**53."""
    assert a is not None
    assert b is not None
    left, right = a.astype(np.float64), b.astype(np.float64)
    if a_zero is not None:
        left = left - _spread_rows(a_zero, -2 if a.ndim > 1 else -1)
    if b_zero is not None:
        right = right - _spread_rows(b_zero, -1)
    return as_array(np.matmul(left, right))


def _reference_integer(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    zeros = [arrays[position] if position < len(arrays) else None for position in (2, 3)]
    return (_integer_sum(arrays[0], arrays[1], *zeros).astype(np.int32),)


def _infer_quantised(node: Node, types: Types) -> tuple[TensorType, ...]:
    """Inputs: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero."""
    return (TensorType(given(types, 7).dtype, _matmul_shape(given(types, 0).shape, given(types, 3).shape)),)


def _define_quantised(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    a, b, names = given(types, 0), given(types, 3), slot_names(types)
    nest = _matmul(a.dims, b.dims)
    found = [
        _along_rows(types, names, position, operand, axis, nest)
        for position, operand, axis in ((1, a, -2), (2, a, -2), (4, b, -1), (5, b, -1), (6, b, -1), (7, b, -1))
    ]
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = found
    if a_scale is None or b_scale is None or y_scale is None or y_zero is None:
        raise Unsupported("a scale or zero point is absent but required", "export the model again")
    value = call("mul", zeroed(Load("x0", nest.a, a.dtype), a_zero), zeroed(Load(names[3], nest.b, b.dtype), b_zero))
    scaled = requantise(Load("t0", nest.y, DType.I32), a_scale, b_scale, y_scale, y_zero)
    temps = (Slot("t0", TensorType(DType.I32, outputs[0].shape)),)
    blocks = (nest.sum(value, "t0"), nest.then(scaled))
    return Kernel("QLinearMatMul", input_slots(types), output_slots(outputs), blocks, temps, nest.shared)


def _reference_quantised(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    total = _integer_sum(arrays[0], arrays[3], arrays[2], arrays[5])
    a_scale, b_scale, y_scale, zero = arrays_at(arrays, 1, 4, 6, 7)
    scales = _spread_rows(a_scale, -2), _spread_rows(b_scale, -1), _spread_rows(y_scale, -1)
    return (requantised(total, *scales, zero),)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "MatMul", _infer_matmul, InPieces(_pieces_matmul), _define_matmul, traits=Trait.CONTRACTION | Trait.LINEAR
    ),
    Operator("Gemm", _infer_gemm, _reference_gemm, _define_gemm, traits=Trait.CONTRACTION | Trait.LINEAR),
    Operator(
        "MatMulInteger", _infer_integer, _reference_integer, _define_integer, traits=Trait.CONTRACTION | Trait.QUANTISED
    ),
    Operator(
        "QLinearMatMul",
        _infer_quantised,
        _reference_quantised,
        _define_quantised,
        traits=Trait.CONTRACTION | Trait.QUANTISED,
    ),
)
