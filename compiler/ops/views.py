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


def ints(node: Node, name: str) -> tuple[int, ...] | None:
    """An attribute that is a list of ints; None where it is absent."""
    value = node.attrs.get(name)
    if value is None:
        return None
    if isinstance(value, int):
        return (value,)
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value if isinstance(item, int | float))


def axis_of(node: Node, rank: int, name: str = "axis", default: int = 0) -> int:
    """An axis attribute as a non-negative int. Raises Unsupported where it is out of range."""
    value = node.attrs.get(name, default)
    assert isinstance(value, int)
    if not -max(rank, 1) <= value < max(rank, 1):
        raise Unsupported(f"axis {value} is out of range for {rank} dimensions", "export with an axis that exists")
    return value % max(rank, 1)


def axes_of(node: Node, rank: int, name: str = "axes") -> tuple[int, ...] | None:
    """An axes attribute as non-negative ints; None where it is absent."""
    values = ints(node, name)
    if values is None:
        return None
    if any(not -rank <= value < rank for value in values):
        raise Unsupported(f"axes {list(values)} are out of range for {rank} dimensions", "export with axes that exist")
    return tuple(value % rank for value in values)


def _first(types: Types) -> TensorType:
    assert types[0] is not None
    return types[0]


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
    x = _first(types)

    def where(axes: tuple[Axis, ...]) -> Expr:
        flat = flatten(at(axes), outs[0].dims)
        return Load("x0", unflatten(flat, x.dims), x.dtype)

    return view_kernel(node.op, types[:1], outs[0], where)


def _reshaping(name: str, dims: Callable[[Node, Shape], Shape], parameters: tuple[tuple[int, str], ...] = ()) -> Operator:
    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        x = _first(types)
        return (TensorType(x.dtype, dims(node, x.dims)),)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        assert arrays[0] is not None
        return (arrays[0].reshape(dims(node, arrays[0].shape)),)

    return Operator(name, infer, reference, _define_reshape, parameters)


# Transpose


def _perm(node: Node, rank: int) -> tuple[int, ...]:
    perm = ints(node, "perm")
    perm = tuple(reversed(range(rank))) if perm is None else perm
    if sorted(perm) != list(range(rank)):
        raise Unsupported(f"perm {list(perm)} is no permutation of {rank} axes", "export with a permutation")
    return perm


def _infer_transpose(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in _perm(node, x.rank))),)


def _reference_transpose(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    assert arrays[0] is not None
    return (arrays[0].transpose(_perm(node, arrays[0].ndim)),)


def _define_transpose(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
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
    x = _first(types)
    return (TensorType(x.dtype, tuple(count for _, _, count in _windows(node, x.dims))),)


def _reference_slice(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    assert x is not None
    for axis, (start, step, count) in enumerate(_windows(node, x.shape)):
        x = np.take(x, start + step * np.arange(count), axis)
    return (x,)


def _define_slice(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
    windows = _windows(node, x.dims)

    def where(axes: tuple[Axis, ...]) -> Expr:
        index = tuple(Index.of(axis) * step + start for axis, (start, step, _) in zip(axes, windows, strict=True))
        return Load("x0", index, x.dtype)

    return view_kernel("Slice", types[:1], outs[0], where)


# Concat and Split


def _infer_concat(node: Node, types: Types) -> tuple[TensorType, ...]:
    first = _first(types)
    axis = axis_of(node, first.rank)
    there = [type for type in types if type is not None]
    for type in there:
        if type.rank != first.rank or any(a != b for d, (a, b) in enumerate(zip(type.dims, first.dims, strict=True)) if d != axis):
            raise Unsupported(f"shapes {[list(t.dims) for t in there]} do not join along axis {axis}", "bind shapes that agree")
    total = sum(type.dims[axis] for type in there)
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _reference_concat(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    there = [array for array in arrays if array is not None]
    return (np.concatenate(there, axis_of(node, there[0].ndim)),)


def _define_concat(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """One block per operand, each with the loops of its own slice."""
    there = [type for type in types if type is not None]
    axis = axis_of(node, there[0].rank)
    slots, blocks, begin = [], [], 0
    for position, type in enumerate(there):
        axes = axes_for(type.dims, f"p{position}_")
        index = list(at(axes))
        value = Load(f"x{position}", tuple(index), type.dtype)
        index[axis] = index[axis] + begin
        begin += type.dims[axis]
        slots.append(Slot(f"x{position}", type))
        if type.elements:
            blocks.append(Block(axes, (value,), (Store("y0", tuple(index)),)))
    return Kernel("Concat", tuple(slots), (Slot("y0", outs[0]),), tuple(blocks))


def _split_sizes(node: Node, extent: int, count: int) -> tuple[int, ...]:
    sizes = ints(node, "split")
    if sizes is None:
        part = -(-extent // count)
        sizes = (*([part] * (count - 1)), extent - part * (count - 1))
    if sum(sizes) != extent or len(sizes) != count or any(size < 0 for size in sizes):
        raise Unsupported(f"an extent of {extent} does not split into {list(sizes)}", "export with sizes that add up")
    return sizes


def _infer_split(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    axis = axis_of(node, x.rank)
    sizes = _split_sizes(node, x.dims[axis], len(node.outputs))
    return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)


def _reference_split(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    assert x is not None
    axis = axis_of(node, x.ndim)
    sizes = _split_sizes(node, x.shape[axis], len(node.outputs))
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _define_split(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    """One block per output."""
    x = _first(types)
    axis, begin, blocks = axis_of(node, x.rank), 0, []
    for position, type in enumerate(outs):
        axes = axes_for(type.dims, f"p{position}_")
        index = list(at(axes))
        index[axis] = index[axis] + begin
        begin += type.dims[axis]
        blocks.append(Block(axes, (Load("x0", tuple(index), x.dtype),), (Store(f"y{position}", at(axes)),)))
    slots = tuple(Slot(f"y{position}", type) for position, type in enumerate(outs))
    return Kernel("Split", (Slot("x0", x),), slots, tuple(blocks))


# Expand, Tile


def _infer_expand(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    try:
        dims = np.broadcast_shapes(x.dims, ints(node, "shape") or ())
    except ValueError:
        raise Unsupported(f"{list(x.dims)} does not broadcast to {list(ints(node, 'shape') or ())}", "bind shapes that agree") from None
    return (TensorType(x.dtype, tuple(int(dim) for dim in dims)),)


def _reference_expand(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    assert x is not None
    return (np.broadcast_to(x, np.broadcast_shapes(x.shape, ints(node, "shape") or ())),)


def _define_expand(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)

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
    x = _first(types)
    return (TensorType(x.dtype, tuple(dim * count for dim, count in zip(x.dims, _repeats(node, x.dims), strict=True))),)


def _reference_tile(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    assert arrays[0] is not None
    return (np.tile(arrays[0], _repeats(node, arrays[0].shape)),)


def _define_tile(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)

    def where(axes: tuple[Axis, ...]) -> Expr:
        return Load("x0", tuple(Index.of(axis) % max(extent, 1) for axis, extent in zip(axes, x.dims, strict=True)), x.dtype)

    return view_kernel("Tile", types[:1], outs[0], where)


# Pad


def _pads(node: Node, rank: int) -> tuple[tuple[int, int], ...]:
    pads = ints(node, "pads") or ()
    axes = axes_of(node, rank) or tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} pads do not fit {len(axes)} axes", "give a begin and an end for each axis")
    found = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        found[axis] = (pads[position], pads[position + len(axes)])
    return tuple(found)


def _infer_pad(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = _first(types)
    if node.attrs.get("mode", "constant") not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {node.attrs['mode']!r} is unknown", "use constant, reflect, edge or wrap")
    dims = tuple(dim + sum(pad) for dim, pad in zip(x.dims, _pads(node, x.rank), strict=True))
    if any(dim < 0 for dim in dims):
        raise Unsupported(f"pads cut more than there is of {list(x.dims)}", "export with smaller negative pads")
    return (TensorType(x.dtype, dims),)


def _pad_value(node: Node) -> float:
    value = node.attrs.get("constant_value", 0)
    value = value[0] if isinstance(value, tuple) else value
    return value if isinstance(value, int | float | bool) else 0


def _reference_pad(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x = arrays[0]
    assert x is not None
    pads = _pads(node, x.ndim)
    cut = tuple(slice(max(-begin, 0), extent - max(-end, 0)) for (begin, end), extent in zip(pads, x.shape, strict=True))
    grow = [(max(begin, 0), max(end, 0)) for begin, end in pads]
    mode = node.attrs.get("mode", "constant")
    if mode == "constant":
        return (np.pad(x[cut], grow, constant_values=_pad_value(node)),)
    return (np.pad(x[cut], grow, mode=str(mode)),)  # type: ignore[call-overload]


def _define_pad(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, mode = _first(types), node.attrs.get("mode", "constant")
    pads = _pads(node, x.rank)

    def where(axes: tuple[Axis, ...]) -> Expr:
        if mode == "constant":
            index = tuple(Index.of(axis) - begin for axis, (begin, _) in zip(axes, pads, strict=True))
            tests = [test for i, extent in zip(index, x.dims, strict=True) if (test := inside(i, extent)) is not None]
            condition, load = conjunction(tests), Load("x0", index, x.dtype)
            return load if condition is None else Where(condition, load, number(_pad_value(node), x.dtype))
        return _mirrored(axes, pads, x, str(mode))

    return view_kernel("Pad", types[:1], outs[0], where)


def _mirrored(axes: tuple[Axis, ...], pads: tuple[tuple[int, int], ...], x: TensorType, mode: str) -> Expr:
    """Axis by axis: before the tensor, in it, or after it, each with an affine index."""

    def choose(axis: int, index: tuple[Index, ...]) -> Expr:
        if axis == x.rank:
            return Load("x0", index, x.dtype)
        extent, (begin, end) = x.dims[axis], pads[axis]
        if max(begin, end) > (extent - 1 if mode == "reflect" else extent) and mode != "edge":
            raise Unsupported(f"pads of {max(begin, end)} are wider than the extent {extent}", "pad in several steps")
        here = Index.of(axes[axis]) - begin
        low, high = here.range
        middle = choose(axis + 1, (*index, here))
        before = {"reflect": here * -1, "edge": Index.of(0), "wrap": here + extent}[mode]
        after = {"reflect": here * -1 + 2 * (extent - 1), "edge": Index.of(extent - 1), "wrap": here - extent}[mode]
        if high >= extent and (test := inside(here - low, extent - low)) is not None:
            middle = Where(test, middle, choose(axis + 1, (*index, after)))
        if low < 0 and (test := inside(here, high + 1)) is not None:
            middle = Where(test, middle, choose(axis + 1, (*index, before)))
        return middle

    return choose(0, ())


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
    x, block = _first(types), _block(node)
    if x.rank != 4 or x.dims[1] % block**2:
        raise Unsupported(f"shape {list(x.dims)} does not fit blocks of {block}", "use a channel count that the block divides")
    n, c, h, w = x.dims
    return (TensorType(x.dtype, (n, c // block**2, h * block, w * block)),)


def _reference_depth_to_space(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, block = arrays[0], _block(node)
    assert x is not None
    n, c, h, w = x.shape
    if node.attrs.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (parts.reshape(n, c // block**2, h * block, w * block),)


def _define_depth_to_space(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x = _first(types)
    return view_kernel("DepthToSpace", types, outs[0], lambda axes: Load("x0", _depth_to_space_index(node, x, axes), x.dtype))


def _infer_space_to_depth(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, block = _first(types), _block(node)
    if x.rank != 4 or x.dims[2] % block or x.dims[3] % block:
        raise Unsupported(f"shape {list(x.dims)} does not fit blocks of {block}", "use a height and width that the block divides")
    n, c, h, w = x.dims
    return (TensorType(x.dtype, (n, c * block**2, h // block, w // block)),)


def _reference_space_to_depth(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, block = arrays[0], _block(node)
    assert x is not None
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    return (parts.reshape(n, c * block**2, h // block, w // block),)


def _define_space_to_depth(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, block = _first(types), _block(node)

    def where(axes: tuple[Axis, ...]) -> Expr:
        n, c, h, w = at(axes)
        place, channel = c // x.dims[1], c % x.dims[1]
        return Load("x0", (n, channel, h * block + place // block, w * block + place % block), x.dtype)

    return view_kernel("SpaceToDepth", types, outs[0], where)


# Trilu


def _diagonal(node: Node) -> int:
    value = node.attrs.get("k", 0)
    value = value[0] if isinstance(value, tuple) else value
    return int(value) if isinstance(value, int | float) else 0


def _define_trilu(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, k = _first(types), _diagonal(node)

    def where(axes: tuple[Axis, ...]) -> Expr:
        from compiler.ir.expr import Apply, Position
        from compiler.ir.tensor import DType

        distance = Position(Index.of(axes[-1]) - Index.of(axes[-2]))
        kept = Apply("ge" if node.attrs.get("upper", 1) else "le", (distance, Const(k, DType.I64)))
        return Where(kept, Load("x0", at(axes), x.dtype), number(0, x.dtype))

    return view_kernel("Trilu", types[:1], outs[0], where)


def _reference_trilu(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    assert arrays[0] is not None
    return ((np.triu if node.attrs.get("upper", 1) else np.tril)(arrays[0], _diagonal(node)),)


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
    Operator("Trilu", lambda node, types: (_first(types),), _reference_trilu, _define_trilu, ((1, "k"),)),
)
