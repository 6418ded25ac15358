"""Reading at computed indices: Gather, GatherElements, GatherND and OneHot."""

from __future__ import annotations

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Position, Where
from compiler.ir.graph import Attr, Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Shape, TensorType, at_most, extent
from compiler.ops.arrays import checked_indices
from compiler.ops.build import at, call, cast, view_kernel
from compiler.ops.indices import axis_of, selected
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import Trait


def _infer_gather(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, indices = given(types, 0), given(types, 1)
    axis = axis_of(node, x.rank)
    return (TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _define_gather(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x, indices = given(types, 0), given(types, 1)
    axis = axis_of(node, x.rank)

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = at(axes)
        chosen = Load("x1", index[axis : axis + indices.rank], indices.dtype)
        read = (*index[:axis], selected(chosen, x.dims[axis]), *index[axis + indices.rank :])
        return Load("x0", read, x.dtype)

    return view_kernel("Gather", types, outputs[0], element)


def _reference_gather(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, indices = arrays_at(arrays, 0, 1)
    return (np.take(x, checked_indices(indices, x.shape[axis_of(node, x.ndim)]), axis=axis_of(node, x.ndim)),)


def _infer_elements(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, indices = given(types, 0), given(types, 1)
    axis = axis_of(node, x.rank)
    fits = indices.rank == x.rank and all(
        place == axis or at_most(dim, x.shape[place]) for place, dim in enumerate(indices.shape)
    )
    if not fits:
        raise Unsupported(f"indices of shape {list(indices.shape)} do not fit {x}", "bind dimensions that do")
    return (TensorType(x.dtype, indices.shape),)


def _define_elements(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x, indices = given(types, 0), given(types, 1)
    axis = axis_of(node, x.rank)

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = at(axes)
        chosen = selected(Load("x1", index, indices.dtype), x.dims[axis])
        read = (*index[:axis], chosen, *index[axis + 1 :])
        return Load("x0", read, x.dtype)

    return view_kernel("GatherElements", types, outputs[0], element)


def _reference_elements(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, indices = arrays_at(arrays, 0, 1)
    axis = axis_of(node, x.ndim)
    index = [
        np.broadcast_to(np.arange(n, like=x).reshape(-1, *(1,) * (x.ndim - d - 1)), indices.shape)
        for d, n in enumerate(indices.shape)
    ]
    index[axis] = checked_indices(indices, x.shape[axis])
    return (x[tuple(index)],)


def _nd_parts(node: Node, x: Shape, indices: Shape) -> tuple[int, int]:
    """Batch axes, and the axes that one row of indices selects."""
    batch = node.attrs.get("batch_dims", 0)
    assert isinstance(batch, int)
    depth = extent(indices[-1]) if indices else 0
    if not 0 <= batch < len(indices) or x[:batch] != indices[:batch] or batch + depth > len(x):
        reason = f"indices of shape {list(indices)} with batch_dims {batch} do not fit an input of shape {list(x)}"
        raise Unsupported(reason, "bind dimensions that do")
    return batch, depth


def _infer_nd(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, indices = given(types, 0), given(types, 1)
    batch, depth = _nd_parts(node, x.shape, indices.shape)
    return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch + depth :])),)


def _define_nd(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    x, indices = given(types, 0), given(types, 1)
    batch, depth = _nd_parts(node, x.dims, indices.dims)

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = at(axes)
        rows = index[: indices.rank - 1]
        chosen = (
            selected(Load("x1", (*rows, Index.of(place)), indices.dtype), x.dims[batch + place])
            for place in range(depth)
        )
        return Load("x0", (*index[:batch], *chosen, *index[indices.rank - 1 :]), x.dtype)

    return view_kernel("GatherND", types, outputs[0], element)


def _reference_nd(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, indices = arrays_at(arrays, 0, 1)
    batch, _ = _nd_parts(node, x.shape, indices.shape)
    ranges = [
        np.arange(extent, like=x).reshape(-1, *(1,) * (indices.ndim - 2 - place))
        for place, extent in enumerate(x.shape[:batch])
    ]
    chosen = zip(np.moveaxis(indices, -1, 0), x.shape[batch:], strict=False)
    return (x[(*ranges, *(checked_indices(index, extent) for index, extent in chosen))],)


def _depth(node: Node) -> int:
    depth: Attr = node.attrs.get("depth")
    if isinstance(depth, tuple) and len(depth) == 1:
        depth = depth[0]
    if not isinstance(depth, int | float) or int(depth) < 1:
        raise Unsupported(f"depth is {depth!r}", "give one positive number")
    return int(depth)


def _infer_one_hot(node: Node, types: Types) -> tuple[TensorType, ...]:
    indices, values = given(types, 0), given(types, 2)
    axis = axis_of(node, indices.rank + 1, default=-1)
    if values.shape != (2,):
        raise Unsupported(f"values have shape {list(values.shape)}", "give [off, on]")
    return (TensorType(values.dtype, (*indices.shape[:axis], _depth(node), *indices.shape[axis:])),)


def _define_one_hot(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    indices, values = given(types, 0), given(types, 2)
    axis, depth = axis_of(node, indices.rank + 1, default=-1), _depth(node)

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = at(axes)
        chosen = cast(Load("x0", (*index[:axis], *index[axis + 1 :]), indices.dtype), DType.I64)
        counted = Where(call("lt", chosen, Const(0, DType.I64)), call("add", chosen, Const(depth, DType.I64)), chosen)
        off, on = (Load("x1", (Index.of(place),), values.dtype) for place in (0, 1))
        return Where(call("eq", counted, Position(index[axis])), on, off)

    return view_kernel("OneHot", types, outputs[0], element)


def _reference_one_hot(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    indices, values = arrays_at(arrays, 0, 2)
    axis, depth = axis_of(node, indices.ndim + 1, default=-1), _depth(node)
    whole = indices.astype(np.int64)
    whole = np.where(whole < 0, whole + depth, whole)
    hot = np.expand_dims(whole, axis) == np.arange(depth, like=whole).reshape(-1, *(1,) * (indices.ndim - axis))
    return (np.where(hot, values[1], values[0]),)


OPERATORS: tuple[Operator, ...] = (
    Operator("Gather", _infer_gather, _reference_gather, _define_gather, traits=Trait.MOVES, indices=(1,)),
    Operator(
        "GatherElements", _infer_elements, _reference_elements, _define_elements, traits=Trait.MOVES, indices=(1,)
    ),
    Operator("GatherND", _infer_nd, _reference_nd, _define_nd, traits=Trait.MOVES, indices=(1,)),
    Operator("OneHot", _infer_one_hot, _reference_one_hot, _define_one_hot, ((1, "depth"),), indices=(0,)),
)
