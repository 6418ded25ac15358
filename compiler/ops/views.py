"""Operators that only move elements: each is a map whose one load has a computed index."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Where, conjunction, inside
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, flatten, unflatten
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import TensorType
from compiler.ops.build import at, axes_for, number, view_kernel
from compiler.ops.operator import Arrays, Operator, Types, Unsupported

Shape = tuple[int, ...]


# Reshapes: the same elements in the same order


def _reshape_dims(node: Node, x: Shape) -> Shape:
    wanted = list(ints(node, "shape") or ())
    if not node.attrs.get("allowzero", 0):
        wanted = [x[position] if dim == 0 and position < len(x) else dim for position, dim in enumerate(wanted)]
    total = math.prod(x)
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = total // rest if rest else 0
    if math.prod(wanted) != total or any(dim < 0 for dim in wanted):
        raise Unsupported(f"{list(x)} cannot be reshaped to {list(ints(node, 'shape') or ())}", "bind shapes that agree")
    return tuple(wanted)


def _flatten_dims(node: Node, x: Shape) -> Shape:
    value = node.attrs.get("axis", 1)
    assert isinstance(value, int)
    axis = value + len(x) if value < 0 else value
    return (math.prod(x[:axis]), math.prod(x[axis:]))


def _squeeze_dims(node: Node, x: Shape) -> Shape:
    axes = axes_of(node, len(x))
    if axes is None:
        return tuple(dim for dim in x if dim != 1)
    if any(x[axis] != 1 for axis in axes):
        raise Unsupported(f"axes {list(axes)} of {list(x)} are not all of extent 1", "squeeze other axes")
    return tuple(dim for axis, dim in enumerate(x) if axis not in axes)


def _unsqueeze_dims(node: Node, x: Shape) -> Shape:
    count = len(ints(node, "axes") or ())
    axes = axes_of(node, len(x) + count) or ()
    rest = iter(x)
    return tuple(1 if axis in axes else next(rest) for axis in range(len(x) + count))


def _define_reshape(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)

    def where(axes: tuple[Axis, ...]) -> Expr:
        flat = flatten(at(axes), outs[0].dims)
        return Load("x0", unflatten(flat, x.dims), x.dtype)

    return view_kernel(node.op, types[:1], outs[0], where)


def _reshaping(name: str, dims: Callable[[Node, Shape], Shape], parameters: tuple[tuple[int, str], ...] = ()) -> Operator:
    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        x = given(types, 0)
        return (TensorType(x.dtype, dims(node, x.dims)),)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        return (x.reshape(dims(node, x.shape)),)

    return Operator(name, infer, reference, _define_reshape, parameters)


# Transpose


def _perm(node: Node, rank: int) -> tuple[int, ...]:
    perm = ints(node, "perm")
    perm = tuple(reversed(range(rank))) if perm is None else perm
    if sorted(perm) != list(range(rank)):
        raise Unsupported(f"perm {list(perm)} is no permutation of {rank} axes", "export with a permutation")
    return perm


def _infer_transpose(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in _perm(node, x.rank))),)


def _reference_transpose(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (x.transpose(_perm(node, x.ndim)),)


def _define_transpose(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    perm = _perm(node, x.rank)

    def where(axes: tuple[Axis, ...]) -> Expr:
        return Load("x0", tuple(Index.of(axes[perm.index(axis)]) for axis in range(x.rank)), x.dtype)

    return view_kernel("Transpose", types, outs[0], where)


# Slice


def _windows(node: Node, x: Shape) -> tuple[tuple[int, int, int], ...]:
    """(start, step, count) on each axis."""
    starts, ends = ints(node, "starts") or (), ints(node, "ends") or ()
    axes = axes_of(node, len(x)) or tuple(range(len(starts)))
    steps = ints(node, "steps") or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise Unsupported("starts, ends, axes and steps do not fit each other", "export the model again")
    windows = [(0, 1, extent) for extent in x]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        begin, past, stride = slice(start, _end(end, step), step).indices(x[axis])
        windows[axis] = (begin, stride, len(range(begin, past, stride)))
    return tuple(windows)


def _end(end: int, step: int) -> int | None:
    """ONNX writes "to the very first element" of a backward slice as a huge negative end."""
    return None if step < 0 and end < -(2**30) else end


def _infer_slice(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    return (TensorType(x.dtype, tuple(count for _, _, count in _windows(node, x.dims))),)


def _reference_slice(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    for axis, (start, step, count) in enumerate(_windows(node, x.shape)):
        x = np.take(x, start + step * np.arange(count), axis)
    return (x,)


def _define_slice(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    windows = _windows(node, x.dims)

    def where(axes: tuple[Axis, ...]) -> Expr:
        index = tuple(Index.of(axis) * step + start for axis, (start, step, _) in zip(axes, windows, strict=True))
        return Load("x0", index, x.dtype)

    return view_kernel("Slice", types[:1], outs[0], where)


# Expand, Tile


def _infer_expand(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    try:
        dims = np.broadcast_shapes(x.dims, ints(node, "shape") or ())
    except ValueError:
        raise Unsupported(f"{list(x.dims)} does not broadcast to {list(ints(node, 'shape') or ())}", "bind shapes that agree") from None
    return (TensorType(x.dtype, tuple(int(dim) for dim in dims)),)


def _reference_expand(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (np.broadcast_to(x, np.broadcast_shapes(x.shape, ints(node, "shape") or ())),)


def _define_expand(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)

    def where(axes: tuple[Axis, ...]) -> Expr:
        own = axes[len(axes) - x.rank :]
        return Load("x0", tuple(Index.of(a if extent != 1 else 0) for a, extent in zip(own, x.dims, strict=True)), x.dtype)

    return view_kernel("Expand", types[:1], outs[0], where)


def _repeats(node: Node, x: Shape) -> tuple[int, ...]:
    repeats = ints(node, "repeats") or ()
    if len(repeats) != len(x) or any(count < 0 for count in repeats):
        raise Unsupported(f"repeats {list(repeats)} do not fit shape {list(x)}", "give one repeat per axis")
    return repeats


def _infer_tile(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    return (TensorType(x.dtype, tuple(dim * count for dim, count in zip(x.dims, _repeats(node, x.dims), strict=True))),)


def _reference_tile(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (np.tile(x, _repeats(node, x.shape)),)


def _define_tile(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)

    def where(axes: tuple[Axis, ...]) -> Expr:
        return Load("x0", tuple(Index.of(axis) % max(extent, 1) for axis, extent in zip(axes, x.dims, strict=True)), x.dtype)

    return view_kernel("Tile", types[:1], outs[0], where)


# Depth and space


def _depth_to_space_index(node: Node, x: TensorType, axes: tuple[Axis, ...]) -> tuple[Index, ...]:
    block = _block(node)
    n, c, h, w = at(axes)
    depth = x.dims[1] // block**2
    if node.attrs.get("mode", "DCR") == "DCR":
        channel = ((h % block) * block + w % block) * depth + c
    else:
        channel = c * block**2 + (h % block) * block + w % block
    return (n, channel, h // block, w // block)


def _block(node: Node) -> int:
    block = node.attrs["blocksize"]
    assert isinstance(block, int)
    return block


def _infer_depth_to_space(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, block = given(types, 0), _block(node)
    if x.rank != 4 or x.dims[1] % block**2:
        raise Unsupported(f"shape {list(x.dims)} does not fit blocks of {block}", "use a channel count that the block divides")
    n, c, h, w = x.dims
    return (TensorType(x.dtype, (n, c // block**2, h * block, w * block)),)


def _reference_depth_to_space(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,), block = arrays_at(arrays, 0), _block(node)
    n, c, h, w = x.shape
    if node.attrs.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (parts.reshape(n, c // block**2, h * block, w * block),)


def _define_depth_to_space(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    return view_kernel("DepthToSpace", types, outs[0], lambda axes: Load("x0", _depth_to_space_index(node, x, axes), x.dtype))


def _infer_space_to_depth(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, block = given(types, 0), _block(node)
    if x.rank != 4 or x.dims[2] % block or x.dims[3] % block:
        raise Unsupported(f"shape {list(x.dims)} does not fit blocks of {block}", "use a height and width that the block divides")
    n, c, h, w = x.dims
    return (TensorType(x.dtype, (n, c * block**2, h // block, w // block)),)


def _reference_space_to_depth(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,), block = arrays_at(arrays, 0), _block(node)
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    return (parts.reshape(n, c * block**2, h // block, w // block),)


def _define_space_to_depth(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, block = given(types, 0), _block(node)

    def where(axes: tuple[Axis, ...]) -> Expr:
        n, c, h, w = at(axes)
        place, channel = c // x.dims[1], c % x.dims[1]
        return Load("x0", (n, channel, h * block + place // block, w * block + place % block), x.dtype)

    return view_kernel("SpaceToDepth", types, outs[0], where)


OPERATORS: tuple[Operator, ...] = (
    _reshaping("Reshape", _reshape_dims, ((1, "shape"),)),
    _reshaping("Flatten", _flatten_dims),
    _reshaping("Squeeze", _squeeze_dims, ((1, "axes"),)),
    _reshaping("Unsqueeze", _unsqueeze_dims, ((1, "axes"),)),
    Operator("Transpose", _infer_transpose, _reference_transpose, _define_transpose),
    Operator(
        "Slice", _infer_slice, _reference_slice, _define_slice, ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))
    ),
    Operator("Concat", _infer_concat, _reference_concat, _define_concat),
    Operator("Split", _infer_split, _reference_split, _define_split, ((1, "split"),)),
    Operator("Expand", _infer_expand, _reference_expand, _define_expand, ((1, "shape"),)),
    Operator("Tile", _infer_tile, _reference_tile, _define_tile, ((1, "repeats"),)),
    Operator("Pad", _infer_pad, _reference_pad, _define_pad, ((1, "pads"), (2, "constant_value"), (3, "axes"))),
    Operator("DepthToSpace", _infer_depth_to_space, _reference_depth_to_space, _define_depth_to_space),
    Operator("SpaceToDepth", _infer_space_to_depth, _reference_space_to_depth, _define_space_to_depth),
    Operator("Trilu", lambda node, types: (given(types, 0),), _reference_trilu, _define_trilu, ((1, "k"),)),
)
