"""Ordering: TopK, and Unique, which gives as many results as the data ask for."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import Dim, DType, TensorType, at_most
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given, input_slots, output_slots


def _count(node: Node, extent: Dim) -> int:
    k: Attr = node.attrs.get("k")
    if isinstance(k, tuple) and len(k) == 1:
        k = k[0]
    if not isinstance(k, int) or k < 0 or not at_most(k, extent):
        raise Unsupported(f"k is {k!r} for an axis of {extent}", "give a k from 0 to the extent of the axis")
    return k


def _infer_top(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    axis = axis_of(node, x.rank, default=-1)
    shape = (*x.shape[:axis], _count(node, x.shape[axis]), *x.shape[axis + 1 :])
    return (TensorType(x.dtype, shape), TensorType(DType.I64, shape))[: len(node.outputs)]


def _define_top(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Routine:
    """Routine `topk`: the k greatest (least) elements along `axis`, in falling (rising) order.

    The lower index is first among equals.
    """
    x = given(types, 0)
    axis = axis_of(node, x.rank, default=-1)
    params: dict[str, Attr] = {
        "axis": axis,
        "k": _count(node, x.dims[axis]),
        "largest": bool(node.attrs.get("largest", 1)),
    }
    return Routine("TopK", "topk", input_slots(types), output_slots(outputs), params)


def _reference_top(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    axis = axis_of(node, x.ndim, default=-1)
    k = _count(node, x.shape[axis])
    # numpy's own sorting does not know which bit patterns of bf16 are NaN.
    keys = x.astype(np.float32) if DType.of(x.dtype) is DType.BF16 else x
    if node.attrs.get("largest", 1):
        # A stable sort of the reversed axis, read backwards, keeps the lower index first among equals.
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis=axis, kind="stable")
    best = np.take(order, np.arange(k, like=x), axis=axis)
    return (np.take_along_axis(x, best, axis=axis), best.astype(np.int64))[: len(node.outputs)]


def _refuse(node: Node, types: Types) -> tuple[TensorType, ...]:
    raise Unsupported("the size of its output depends on data", "end the model before this node and run it on the host")


def _refuse_definition(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    raise Unsupported("the size of its output depends on data", "end the model before this node and run it on the host")


def _reference_unique(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    axis = axis_of(node, x.ndim) if "axis" in node.attrs else None
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.attrs.get("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values, first, inverse, counts = np.take(values, order, axis or 0), first[order], place[inverse], counts[order]
    indices = (np.asarray(array, np.int64) for array in (first, inverse, counts))
    return (values, *indices)[: len(node.outputs)]


OPERATORS: tuple[Operator, ...] = (
    Operator("TopK", _infer_top, _reference_top, _define_top, ((1, "k"),)),
    Operator("Unique", _refuse, _reference_unique, _refuse_definition),
)
