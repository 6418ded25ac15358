"""Writing at computed indices: ScatterElements, ScatterND and TensorScatter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Position, Where, inside
from compiler.ir.graph import Node
from compiler.ir.index import Index, Indirect
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.tensor import DType, TensorType, at_most, extent
from compiler.ops.arrays import alike, checked_indices, is_numpy
from compiler.ops.attributes import word_of
from compiler.ops.build import at, axes_for, call, cast
from compiler.ops.indices import axis_of, selected
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given, input_slots, output_slots, present

REDUCTIONS = ("add", "mul", "min", "max")


def _combined(node: Node, old: Load, update: Expr) -> Expr:
    reduction = node.attrs.get("reduction", "none")
    if reduction == "none":
        return update
    if reduction not in REDUCTIONS:
        raise Unsupported(f"reduction is {reduction!r}", "use none, add, mul, min or max")
    return call(str(reduction), old, update)


def _infer_elements(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, indices, updates = (given(types, position) for position in range(3))
    axis = axis_of(node, x.rank)
    fits = indices.rank == x.rank and indices.shape == updates.shape
    if not fits or any(place != axis and not at_most(dim, x.shape[place]) for place, dim in enumerate(indices.shape)):
        reason = f"indices {list(indices.shape)} and updates {list(updates.shape)} do not fit {x}"
        raise Unsupported(reason, "bind dimensions that do")
    return (x,)


def _define_elements(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """A copy, then the updates in order along the axis, so that the last of those that meet wins."""
    x, indices = given(types, 0), given(types, 1)
    axis = axis_of(node, x.rank)
    whole, part = axes_for(x.dims), list(axes_for(indices.dims, "u"))
    common = [place for place in range(x.rank) if place != axis and x.dims[place] == indices.dims[place]]
    for place in common:
        part[place] = whole[place]
    shared = tuple(whole[place] for place in common)
    every, along = at(whole), at(part)
    chosen = selected(Load("x1", along, indices.dtype), x.dims[axis])
    target = (*along[:axis], chosen, *along[axis + 1 :])
    value = _combined(node, Load("y0", target, x.dtype), Load("x2", along, x.dtype))
    copy = Block(tuple(a for a in whole if a not in shared), (Load("x0", every, x.dtype),), (Store("y0", every),))
    loops = tuple(a for a in part if a not in shared)
    write = Block(loops, (value,), (Store("y0", target),), sequential=(part[axis],))
    return Kernel("ScatterElements", input_slots(types), output_slots(outputs), (copy, write), shared=shared)


_UFUNCS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def _scatter(node: Node, x: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
    y = x.copy()
    index = tuple(checked_indices(one, extent) for one, extent in zip(index, x.shape, strict=False))
    reduction = str(node.attrs.get("reduction", "none"))
    if reduction == "none":
        if not is_numpy(x):
            raise NotImplementedError("which of several writes to one element is the last is certain in numpy alone")
        y[index] = updates
    else:
        _UFUNCS[reduction](y, index, updates)
    return y


def _reference_elements(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, indices, updates = arrays_at(arrays, 0, 1, 2)
    axes: tuple[np.ndarray, ...] = np.indices(indices.shape, sparse=True)
    index = [alike(one, x) for one in axes]
    axis = axis_of(node, x.ndim)
    index[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    return (_scatter(node, x, tuple(index), updates),)


def _infer_nd(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, indices, updates = (given(types, position) for position in range(3))
    depth = extent(indices.shape[-1]) if indices.rank else x.rank + 1
    if depth > x.rank or updates.shape != (*indices.shape[:-1], *x.shape[depth:]):
        reason = f"indices {list(indices.shape)} and updates {list(updates.shape)} do not fit {x}"
        raise Unsupported(reason, "bind dimensions that do")
    return (x,)


def _define_nd(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """A copy, then the updates in order, so that the last of those that meet wins."""
    x, indices = given(types, 0), given(types, 1)
    depth = indices.dims[-1]
    whole, rows = axes_for(x.dims), axes_for(indices.dims[:-1], "u")
    every, row = at(whole), at(rows)
    chosen = tuple(selected(Load("x1", (*row, Index.of(k)), indices.dtype), x.dims[k]) for k in range(depth))
    target = (*chosen, *every[depth:])
    value = _combined(node, Load("y0", target, x.dtype), Load("x2", (*row, *every[depth:]), x.dtype))
    copy = Block(whole[:depth], (Load("x0", every, x.dtype),), (Store("y0", every),))
    write = Block(rows, (value,), (Store("y0", target),), sequential=rows)
    return Kernel("ScatterND", input_slots(types), output_slots(outputs), (copy, write), shared=whole[depth:])


def _reference_nd(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, indices, updates = arrays_at(arrays, 0, 1, 2)
    return (_scatter(node, x, tuple(np.moveaxis(indices, -1, 0)), updates),)


def _wraps(node: Node) -> bool:
    """Whether an update that reaches over the end of the sequence goes on at its beginning."""
    return word_of(node, "mode", "linear", "circular") == "circular"


def _infer_tensor(node: Node, types: Types) -> tuple[TensorType, ...]:
    """Inputs: past [batch, ..., sequence, ...], update, write_indices [batch].

    `update` has the shape of `past` but for the sequence.
    """
    past, update = given(types, 0), given(types, 1)
    _wraps(node)
    axis = axis_of(node, past.rank, default=-2)
    same = past.rank == update.rank and all(
        place == axis or pair[0] == pair[1] for place, pair in enumerate(zip(past.shape, update.shape, strict=True))
    )
    if axis == 0 or not same or not at_most(update.shape[axis], past.shape[axis]):
        raise Unsupported(f"an update of shape {list(update.shape)} does not fit {past}", "bind dimensions that do")
    return (past,)


def _define_tensor(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """y[i] = update[i - w] where that lies in the update, else past[i]; circular: (i - w) modulo the sequence."""
    past, update = given(types, 0), given(types, 1)
    axis = axis_of(node, past.rank, default=-2)
    axes = axes_for(past.dims)
    every = at(axes)
    steps, extent = update.dims[axis], past.dims[axis]
    offset: Expr = Position(every[axis])
    if present(types, 2):
        offset = call("sub", offset, cast(Load("x2", every[:1], given(types, 2).dtype), DType.I64))
    if _wraps(node):
        offset = call("mod", offset, Const(extent, DType.I64))
    bounds = Index.of(Indirect(offset, -(2**31), 2**31))
    read = (*every[:axis], bounds, *every[axis + 1 :])
    condition = inside(bounds, steps)
    assert condition is not None
    value = Where(condition, Load("x1", read, past.dtype), Load("x0", every, past.dtype))
    block = Block((), (value,), (Store("y0", every),))
    return Kernel("TensorScatter", input_slots(types), output_slots(outputs), (block,), shared=axes)


def _reference_tensor(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    past, update = arrays_at(arrays, 0, 1)
    axis = axis_of(node, past.ndim, default=-2)
    writes = arrays[2] if len(arrays) > 2 and arrays[2] is not None else np.zeros(past.shape[0], np.int64)
    y = past.copy()
    for batch, start in enumerate(writes):
        steps = start + np.arange(update.shape[axis], like=past)
        if _wraps(node):
            steps %= past.shape[axis]
        np.moveaxis(y[batch], axis - 1, 0)[steps] = np.moveaxis(update[batch], axis - 1, 0)
    return (y,)


OPERATORS: tuple[Operator, ...] = (
    Operator("ScatterElements", _infer_elements, _reference_elements, _define_elements, indices=(1,)),
    Operator("ScatterND", _infer_nd, _reference_nd, _define_nd, indices=(1,)),
    Operator("TensorScatter", _infer_tensor, _reference_tensor, _define_tensor, indices=(2,)),
)
