"""Operators that only move elements: each is a map whose one load has a computed index."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from compiler.ir.expr import Expr, Load
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, flatten, unflatten
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import Dim, Shape, TensorType, broadcast, extent, static
from compiler.ops import joining, padding, positions
from compiler.ops.attributes import axes_of, ints, word_of
from compiler.ops.build import at, load_broadcast, view_kernel
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import Trait

# Reshapes: the same elements in the same order


def _shape(node: Node) -> tuple[int, ...]:
    return ints(node, "shape") or ()


def _reshape_dims(node: Node, x: Shape) -> Shape:
    """-1 is what is left over; 0 is the input's dimension at that place.

    With `allowzero` 0 is none at all.
    """
    dims, wanted = static(x), list(_shape(node))
    if not node.attrs.get("allowzero", 0):
        wanted = [dims[position] if dim == 0 and position < len(x) else dim for position, dim in enumerate(wanted)]
    total = math.prod(dims)
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        if not rest:
            reason = (
                f"{list(x)} is reshaped to {list(_shape(node))}, where -1 is not determined beside a dimension of 0"
            )
            raise Unsupported(reason, "give every dimension as a number")
        wanted[wanted.index(-1)] = total // rest
    if math.prod(wanted) != total or any(dim < 0 for dim in wanted):
        raise Unsupported(f"{list(x)} cannot be reshaped to {list(_shape(node))}", "bind shapes that agree")
    return tuple(wanted)


def _product(dims: Shape) -> Dim:
    """How many elements dimensions make; a symbol may stand beside ones alone."""
    longer = tuple(dim for dim in dims if dim != 1)
    return longer[0] if len(longer) == 1 else math.prod(static(longer))


def _flatten_dims(node: Node, x: Shape) -> Shape:
    """`axis` is a place between dimensions, from 0 to the rank."""
    axis = node.attrs.get("axis", 1)
    if not isinstance(axis, int) or not -len(x) <= axis <= len(x):
        raise Unsupported(f"axis is {axis!r}, the tensor has rank {len(x)}", "export with an axis of the tensor")
    axis = axis + len(x) if axis < 0 else axis
    return (_product(x[:axis]), _product(x[axis:]))


def _squeeze_dims(node: Node, x: Shape) -> Shape:
    axes = axes_of(node, len(x))
    if axes is None:
        return tuple(dim for dim in static(x) if dim != 1)
    if any(extent(x[axis]) != 1 for axis in axes):
        raise Unsupported(f"axes {list(axes)} of {list(x)} are not all of extent 1", "squeeze other axes")
    return tuple(dim for axis, dim in enumerate(x) if axis not in axes)


def _unsqueeze_dims(node: Node, x: Shape) -> Shape:
    rank = len(x) + len(ints(node, "axes") or ())
    axes = axes_of(node, rank) or ()
    rest = iter(x)
    return tuple(1 if axis in axes else next(rest) for axis in range(rank))


def _define_reshape(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)

    def element(axes: tuple[Axis, ...]) -> Expr:
        flat = flatten(at(axes), outs[0].dims)
        return Load("x0", unflatten(flat, x.dims), x.dtype)

    return view_kernel(node.op, types[:1], outs[0], element)


def _reshaping(
    name: str, dims: Callable[[Node, Shape], Shape], parameters: tuple[tuple[int, str], ...] = ()
) -> Operator:
    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        x = given(types, 0)
        return (TensorType(x.dtype, dims(node, x.shape)),)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        return (x.reshape(static(dims(node, x.shape))),)

    traits = Trait.MOVES | Trait.VIEW | Trait.RESHAPE
    return Operator(name, infer, reference, _define_reshape, parameters, traits=traits)


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

    def element(axes: tuple[Axis, ...]) -> Expr:
        return Load("x0", tuple(Index.of(axes[perm.index(axis)]) for axis in range(x.rank)), x.dtype)

    return view_kernel("Transpose", types, outs[0], element)


# Slice


def _windows(node: Node, x: Shape) -> tuple[tuple[int, int, Dim], ...]:
    """(start, step, count) on each axis."""
    starts, ends = ints(node, "starts") or (), ints(node, "ends") or ()
    axes, steps = axes_of(node, len(x)), ints(node, "steps")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(axes) > len(x) or 0 in steps:
        raise Unsupported("starts, ends, axes and steps do not fit each other", "export the model again")
    windows: list[tuple[int, int, Dim]] = [(0, 1, dim) for dim in x]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        begin, past = _bounds(start, end, step, extent(x[axis]))
        windows[axis] = (begin, step, len(range(begin, past, step)))
    return tuple(windows)


def _bounds(start: int, end: int, step: int, extent: int) -> tuple[int, int]:
    """Counted from 0 and limited as ONNX says.

    Unlike Python's, a backward start before the first element is the first one.
    """
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return min(max(start, 0), extent), min(max(end, 0), extent)
    return min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)


def _infer_slice(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    return (TensorType(x.dtype, tuple(count for _, _, count in _windows(node, x.shape))),)


def _reference_slice(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    for axis, (start, step, count) in enumerate(_windows(node, x.shape)):
        x = x.take(start + step * np.arange(extent(count), like=x), axis)
    return (x,)


def _define_slice(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    windows = _windows(node, x.dims)

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = tuple(Index.of(axis) * step + start for axis, (start, step, _) in zip(axes, windows, strict=True))
        return Load("x0", index, x.dtype)

    return view_kernel("Slice", types[:1], outs[0], element)


# Expand, Tile


def _infer_expand(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    shape = broadcast(x.shape, _shape(node))
    if shape is None or min(_shape(node), default=0) < 0:
        reason = f"{list(x.shape)} does not broadcast to {list(_shape(node))}"
        raise Unsupported(reason, "bind shapes that agree")
    return (TensorType(x.dtype, shape),)


def _reference_expand(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (np.broadcast_to(x, np.broadcast_shapes(x.shape, _shape(node))),)


def _define_expand(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)
    return view_kernel("Expand", types[:1], outs[0], lambda axes: load_broadcast("x0", x, axes))


def _repeats(node: Node, x: Shape) -> tuple[int, ...]:
    repeats = ints(node, "repeats") or ()
    if len(repeats) != len(x) or any(count < 0 for count in repeats):
        raise Unsupported(f"repeats {list(repeats)} do not fit shape {list(x)}", "give one repeat per axis")
    return repeats


def _infer_tile(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    counts = zip(x.shape, _repeats(node, x.shape), strict=True)
    return (TensorType(x.dtype, tuple(dim if count == 1 else extent(dim) * count for dim, count in counts)),)


def _reference_tile(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (np.tile(x, _repeats(node, x.shape)),)


def _define_tile(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = given(types, 0)

    def element(axes: tuple[Axis, ...]) -> Expr:
        return Load(
            "x0", tuple(Index.of(axis) % max(extent, 1) for axis, extent in zip(axes, x.dims, strict=True)), x.dtype
        )

    return view_kernel("Tile", types[:1], outs[0], element)


# Depth and space: blocks of `blocksize` x `blocksize` pixels become channels, and channels become blocks


def _block(node: Node) -> int:
    block = node.attrs.get("blocksize")
    if not isinstance(block, int) or block < 1:
        raise Unsupported(f"blocksize is {block!r}", "export with a positive one")
    return block


def _depth_first(node: Node) -> bool:
    """Whether the place in the block is the slower part of a channel (DCR), not the channel itself (CRD)."""
    return word_of(node, "mode", "DCR", "CRD") == "DCR"


def _planes(types: Types) -> tuple[int, int, int, int]:
    x = given(types, 0)
    if x.rank != 4:
        raise Unsupported(f"{x} is no batch of images", "export with a tensor of rank 4")
    n, c, h, w = x.dims
    return n, c, h, w


def _infer_depth_to_space(node: Node, types: Types) -> tuple[TensorType, ...]:
    (n, c, h, w), block = _planes(types), _block(node)
    if c % block**2:
        raise Unsupported(f"{c} channels do not make blocks of {block} x {block}", "use a multiple of its square")
    return (TensorType(given(types, 0).dtype, (n, c // block**2, h * block, w * block)),)


def _reference_depth_to_space(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,), block = arrays_at(arrays, 0), _block(node)
    n, c, h, w = x.shape
    if _depth_first(node):
        parts = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (parts.reshape(n, c // block**2, h * block, w * block),)


def _define_depth_to_space(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, block = given(types, 0), _block(node)

    def element(axes: tuple[Axis, ...]) -> Expr:
        n, c, h, w = at(axes)
        place = h % block * block + w % block
        channel = place * outs[0].dims[1] + c if _depth_first(node) else c * block**2 + place
        return Load("x0", (n, channel, h // block, w // block), x.dtype)

    return view_kernel("DepthToSpace", types, outs[0], element)


def _infer_space_to_depth(node: Node, types: Types) -> tuple[TensorType, ...]:
    (n, c, h, w), block = _planes(types), _block(node)
    if h % block or w % block:
        raise Unsupported(f"{h} x {w} pixels do not split into blocks of {block} x {block}", "bind multiples of it")
    return (TensorType(given(types, 0).dtype, (n, c * block**2, h // block, w // block)),)


def _reference_space_to_depth(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,), block = arrays_at(arrays, 0), _block(node)
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block)
    parts = parts.transpose((0, 3, 5, 1, 2, 4) if _depth_first(node) else (0, 1, 3, 5, 2, 4))
    return (parts.reshape(n, c * block**2, h // block, w // block),)


def _define_space_to_depth(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, block = given(types, 0), _block(node)

    def element(axes: tuple[Axis, ...]) -> Expr:
        n, c, h, w = at(axes)
        if _depth_first(node):
            place, channel = c // x.dims[1], c % x.dims[1]
        else:
            place, channel = c % block**2, c // block**2
        return Load("x0", (n, channel, h * block + place // block, w * block + place % block), x.dtype)

    return view_kernel("SpaceToDepth", types, outs[0], element)


OPERATORS: tuple[Operator, ...] = (
    _reshaping("Reshape", _reshape_dims, ((1, "shape"),)),
    _reshaping("Flatten", _flatten_dims),
    _reshaping("Squeeze", _squeeze_dims, ((1, "axes"),)),
    _reshaping("Unsqueeze", _unsqueeze_dims, ((1, "axes"),)),
    Operator("Transpose", _infer_transpose, _reference_transpose, _define_transpose, traits=Trait.MOVES | Trait.VIEW),
    Operator(
        "Slice",
        _infer_slice,
        _reference_slice,
        _define_slice,
        ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")),
        traits=Trait.MOVES | Trait.VIEW,
    ),
    Operator(
        "Expand", _infer_expand, _reference_expand, _define_expand, ((1, "shape"),), traits=Trait.MOVES | Trait.VIEW
    ),
    Operator("Tile", _infer_tile, _reference_tile, _define_tile, ((1, "repeats"),), traits=Trait.MOVES),
    Operator(
        "DepthToSpace",
        _infer_depth_to_space,
        _reference_depth_to_space,
        _define_depth_to_space,
        traits=Trait.MOVES | Trait.CHANNELS,
    ),
    Operator(
        "SpaceToDepth",
        _infer_space_to_depth,
        _reference_space_to_depth,
        _define_space_to_depth,
        traits=Trait.MOVES | Trait.CHANNELS,
    ),
    *joining.OPERATORS,
    *padding.OPERATORS,
    *positions.OPERATORS,
)
