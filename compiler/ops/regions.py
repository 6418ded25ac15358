"""Regions of an image brought to one size: RoiAlign, and MaxOfRegions and SamplesOfRegions, the compiler's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.expr import Cast, Const, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.kernel import Block, Kernel, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.arrays import as_array, checked_indices
from compiler.ops.attributes import number_of, word_of
from compiler.ops.build import at, call, cast, chain, number
from compiler.ops.indices import selected
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, at_least_f32, given, input_slots, output_slots
from compiler.ops.traits import Trait

LARGEST, SAMPLED = "MaxOfRegions", "SamplesOfRegions"
MOST_SAMPLES = 64
"""Along one side of a bin."""


def _samples(node: Node) -> int:
    """How many samples a bin has along each side; the frontend takes away where the region's size says it (0)."""
    count = int(number_of(node, "sampling_ratio", 0))
    if not 1 <= count <= MOST_SAMPLES:
        raise Unsupported(f"sampling_ratio is {count}", f"export with 0 to {MOST_SAMPLES}, such as 2")
    return count


def _average(node: Node) -> bool:
    return word_of(node, "mode", "avg", "max") == "avg"


def _half_pixel(node: Node) -> bool:
    return word_of(node, "coordinate_transformation_mode", "half_pixel", "output_half_pixel") == "half_pixel"


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    """x [N, C, H, W], regions [R, 4] as (x1, y1, x2, y2), the image of each [R]: gives [R, C, height, width]."""
    x, rois, images = (given(types, position) for position in range(3))
    _samples(node), _average(node), _half_pixel(node)
    out = (int(number_of(node, "output_height", 1)), int(number_of(node, "output_width", 1)))
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or images.shape != rois.shape[:1] or min(out) < 1:
        raise Unsupported(f"regions {rois} with images {images} do not fit {x}", "bind dimensions that fit")
    if min(x.dims) < 1:
        raise Unsupported(f"{x} is empty", "bind larger input dimensions")
    return (TensorType(x.dtype, (rois.shape[0], x.shape[1], *out)),)


def _define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, rois, images = (given(types, position) for position in range(3))
    count, kind = _samples(node), DType.F64 if x.dtype is DType.F64 else DType.F32
    region, channel, *bins = (Axis(name, extent) for name, extent in zip("rcyx", outs[0].dims, strict=True))
    steps = (Axis("iy", count), Axis("ix", count))
    image = selected(Load("x2", (Index.of(region),), images.dtype), x.dims[0])

    def edge(position: int) -> Expr:
        scale = number(number_of(node, "spatial_scale", 1.0), kind)
        scaled = call("mul", cast(Load("x1", (Index.of(region), Index.of(position)), rois.dtype), kind), scale)
        return call("sub", scaled, number(0.5, kind)) if _half_pixel(node) else scaled

    # rows, then columns; a region says its columns first
    coordinates = [_coordinate(node, edge(1 - side), edge(3 - side), bins[side], steps[side]) for side in range(2)]
    average = _average(node)
    extents = [number(extent, kind) for extent in x.dims[2:]]
    value = _sample(x, (image, Index.of(channel)), coordinates, extents, 1 / count**2 if average else None)
    store = Store("y0", tuple(Index.of(axis) for axis in (region, channel, *bins)))
    block = Block((), (value,), (store,), steps, "sum" if average else "max", kind)
    shared = (region, channel, *bins)
    return Kernel("RoiAlign", input_slots(types), output_slots(outs), (block,), shared=shared)


def _sample(
    x: TensorType, plane: tuple[Index, ...], coordinates: Sequence[Expr], extents: Sequence[Expr], share: float | None
) -> Expr:
    """A sample of slot x0 between four elements, 0 outside the image: times a share, or (None) the largest part."""
    kind = coordinates[0].dtype
    taps = [_neighbours(*each) for each in zip(coordinates, extents, x.dims[2:], strict=True)]
    misses: list[Expr] = []
    for coordinate, extent in zip(coordinates, extents, strict=True):
        misses += [call("lt", coordinate, number(-1, kind)), call("gt", coordinate, extent)]
    parts = [
        chain("mul", (row_weight, column_weight, cast(Load("x0", (*plane, row, column), x.dtype), kind)))
        for row, row_weight in taps[0]
        for column, column_weight in taps[1]
    ]
    sample = chain("max" if share is None else "add", parts)
    if share is not None and share != 1:
        sample = call("mul", sample, number(share, kind))
    return Where(chain("or", misses), number(0, kind), sample)


def _coordinate(node: Node, first: Expr, last: Expr, place: Axis, step: Axis) -> Expr:
    """Where a sample of a bin lies, in elements of the image."""
    kind = first.dtype
    size = call("sub", last, first)
    if not _half_pixel(node):
        size = call("max", size, number(1, kind))
    each = call("div", size, number(place.extent, kind))
    begin = call("add", first, call("mul", Cast(Position(Index.of(place)), kind), each))
    inside = call("add", Cast(Position(Index.of(step)), kind), number(0.5, kind))
    return call("add", begin, call("div", call("mul", inside, each), number(step.extent, kind)))


def _neighbours(coordinate: Expr, extent: Expr, most: int) -> list[tuple[Index, Expr]]:
    """The two elements beside a coordinate, which is moved into the image first, with their weights.

    most  elements that there are in memory
    """
    kind = coordinate.dtype
    last: Expr = number(most - 1, kind)
    if not isinstance(extent, Const):
        last = call("min", call("max", call("sub", extent, number(1, kind)), number(0, kind)), last)
    moved = call("min", call("max", coordinate, number(0, kind)), last)
    low = call("floor", moved)
    part = call("sub", moved, low)
    found = []
    for offset, weight in ((0, call("sub", number(1, kind), part)), (1, part)):
        place = call("min", call("add", low, number(offset, kind)), last)
        found.append((Index.of(Indirect(Cast(place, DType.I64, saturate=True), 0, most - 1)), weight))
    return found


def _reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, rois, images = arrays_at(arrays, 0, 1, 2)
    x, rois = at_least_f32(x), at_least_f32(rois)
    count = _samples(node)
    out = [int(number_of(node, name, 1)) for name in ("output_height", "output_width")]
    scaled = rois * number_of(node, "spatial_scale", 1.0) - (0.5 if _half_pixel(node) else 0.0)
    sides = []
    for place, extent in enumerate(x.shape[2:]):
        first, last = scaled[:, 1 - place], scaled[:, 3 - place]
        size = last - first if _half_pixel(node) else np.maximum(last - first, 1)
        middles = (np.arange(out[place] * count, like=x) + 0.5) / (out[place] * count)
        at = first[:, None] + size[:, None] * middles
        near = np.clip(at, 0, extent - 1)
        low = np.floor(near).astype(np.int64)
        sides.append((low, np.minimum(low + 1, extent - 1), near - low, (at >= -1) & (at <= extent)))
    (top, bottom, down, hit_y), (left, right, across, hit_x) = sides
    checked_indices(images, x.shape[0])
    image = x[np.where(images < 0, images + x.shape[0], images)]
    regions = np.arange(len(rois), like=x)[:, None, None]

    def corner(rows: np.ndarray, columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
        picked = image.transpose(0, 2, 3, 1)[regions, rows[:, :, None], columns[:, None, :]]
        return as_array(picked * weight[..., None])

    corners = [
        corner(top, left, (1 - down)[:, :, None] * (1 - across)[:, None, :]),
        corner(top, right, (1 - down)[:, :, None] * across[:, None, :]),
        corner(bottom, left, down[:, :, None] * (1 - across)[:, None, :]),
        corner(bottom, right, down[:, :, None] * across[:, None, :]),
    ]
    average = _average(node)
    samples = (np.sum if average else np.max)(np.stack(corners), axis=0)
    samples = np.where((hit_y[:, :, None] & hit_x[:, None, :])[..., None], samples, 0)
    tiled = samples.reshape(len(rois), out[0], count, out[1], count, x.shape[1])
    pooled = tiled.mean(axis=(2, 4)) if average else tiled.max(axis=(2, 4))
    return (pooled.transpose(0, 3, 1, 2),)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "RoiAlign",
        _infer,
        _reference,
        _define,
        opsets=(10, 28),
        traits=Trait.RESAMPLE | Trait.POSITIVE_HOMOGENEOUS,
        indices=(2,),
    ),
)


def _infer_largest(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, images, rows, columns = (given(types, position) for position in range(4))
    ends = [end for end in (rows, columns) if end.rank == 3 and end.shape[::2] == (*images.shape, 2)]
    kinds = {one.dtype for one in (images, rows, columns)}
    if x.rank != 4 or not x.dtype.is_float or images.rank != 1 or len(ends) != 2 or kinds != {DType.I64}:
        raise Unsupported(f"{rows} and {columns} of images {images} do not fit {x}", "give ends that do, in i64")
    if min(x.dims) < 1:
        raise Unsupported(f"{x} is empty", "bind larger input dimensions")
    return (TensorType(x.dtype, (images.shape[0], x.shape[1], rows.shape[1], columns.shape[1])),)


def _define_largest(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, images = given(types, 0), given(types, 1)
    region, channel, *bins = (Axis(name, extent) for name, extent in zip("rcpq", outs[0].dims, strict=True))
    places = tuple(Axis(name, extent) for name, extent in zip("yx", x.dims[2:], strict=True))
    inside = []
    for slot, bin, place in zip(("x2", "x3"), bins, places, strict=True):
        first, past = (Load(slot, (*at((region, bin)), Index.of(end)), DType.I64) for end in (0, 1))
        here = Position(Index.of(place))
        inside += [call("ge", here, first), call("lt", here, past)]
    image = selected(Load("x1", (Index.of(region),), images.dtype), x.dims[0])
    value = Where(chain("and", inside), Load("x0", (image, *at((channel, *places))), x.dtype), number(-np.inf, x.dtype))
    shared = (region, channel, *bins)
    block = Block((), (value,), (Store("y0", at(shared)),), places, "max", x.dtype)
    return Kernel(LARGEST, input_slots(types), output_slots(outs), (block,), shared=shared)


def _reference_largest(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, images, rows, columns = arrays_at(arrays, 0, 1, 2, 3)
    checked_indices(images, x.shape[0])
    found = np.full((len(images), x.shape[1], rows.shape[1], columns.shape[1]), -np.inf, x.dtype)
    for region, i, j in np.ndindex(len(images), *found.shape[2:]):
        (top, bottom), (left, right) = np.maximum((rows[region, i], columns[region, j]), 0)
        bin = x[images[region], :, top:bottom, left:right]
        found[region, :, i, j] = bin.max(axis=(1, 2), initial=-np.inf)
    return (found,)


def most_samples(extent: int) -> int:
    """Of a bin along rows or columns of an image, that lie in it, or beside one of that kind.

    They lie at least half an element apart, where a bin has more than one.
    """
    return 2 * extent + 5


def _infer_sampled(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, images, rows, columns, *places = (given(types, position) for position in range(6))
    _average(node)
    fits = all(
        count.rank == 2 and count.shape[0] == images.shape[0] and place.shape == (*count.shape, 3)
        for count, place in zip((rows, columns), places, strict=True)
    )
    kinds = [one.dtype for one in (images, rows, columns)], [one.dtype for one in places]
    if x.rank != 4 or images.rank != 1 or not fits or kinds != ([DType.I64] * 3, [x.dtype] * 2):
        raise Unsupported(f"samples {rows} and {columns} of images {images} do not fit {x}", "give such as do, in i64")
    if x.dtype not in (DType.F32, DType.F64) or min(x.dims) < 1:
        raise Unsupported(f"{x} is empty or of few bits", "bind larger input dimensions, and give f32 or f64")
    return (TensorType(x.dtype, (images.shape[0], x.shape[1], rows.shape[1], columns.shape[1])),)


def _define_sampled(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
    x, images = given(types, 0), given(types, 1)
    region, channel, *bins = (Axis(name, extent) for name, extent in zip("rcpq", outs[0].dims, strict=True))
    steps = [Axis(name, most_samples(extent)) for name, extent in zip("yx", x.dims[2:], strict=True)]
    coordinates, extents, inside = [], [], []
    for bin, step, count, place in zip(bins, steps, ("x2", "x3"), ("x4", "x5"), strict=True):
        first, each, extent = (Load(place, (*at((region, bin)), Index.of(part)), x.dtype) for part in range(3))
        extents.append(extent)
        here = Position(Index.of(step))
        coordinates.append(call("add", first, call("mul", cast(here, x.dtype), each)))
        inside.append(call("lt", here, Load(count, at((region, bin)), DType.I64)))
    image = selected(Load("x1", (Index.of(region),), images.dtype), x.dims[0])
    average = _average(node)
    sample = _sample(x, (image, Index.of(channel)), coordinates, extents, 1 if average else None)
    value = Where(chain("and", inside), sample, number(0 if average else -np.inf, x.dtype))
    shared = (region, channel, *bins)
    monoid = "sum" if average else "max"
    block = Block((), (value,), (Store("y0", at(shared)),), tuple(steps), monoid, x.dtype)
    return Kernel(SAMPLED, input_slots(types), output_slots(outs), (block,), shared=shared)


def _reference_sampled(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    x, images, rows, columns, tops, lefts = arrays_at(arrays, 0, 1, 2, 3, 4, 5)
    x, tops, lefts = at_least_f32(x), at_least_f32(tops), at_least_f32(lefts)
    checked_indices(images, x.shape[0])
    average = _average(node)
    nothing = 0 if average else -np.inf
    found = np.full((len(images), x.shape[1], rows.shape[1], columns.shape[1]), nothing, x.dtype)
    for region, i, j in np.ndindex(len(images), *found.shape[2:]):
        weights = []
        for count, place, extent in ((rows[region, i], tops[region, i], x.shape[2]),
                                     (columns[region, j], lefts[region, j], x.shape[3])):  # fmt: skip
            where = place[0] + np.arange(min(int(count), most_samples(extent)), like=x) * place[1]
            near = np.clip(where, 0, place[2] - 1)
            low = np.floor(near).astype(np.int64)
            pair = np.zeros((len(where), 2, extent), x.dtype)
            pair[np.arange(len(where)), 0, low] = 1 - (near - low)
            pair[np.arange(len(where)), 1, np.minimum(low + 1, int(place[2]) - 1)] += near - low
            weights.append(pair * ((where >= -1) & (where <= place[2]))[:, None, None])
        if len(weights[0]) and len(weights[1]):
            parts = np.einsum("yah,xbw,chw->cyxab", *weights, x[images[region]], optimize=True)
            parts = parts.reshape(*parts.shape[:3], 4)
            found[region, :, i, j] = parts.sum((1, 2, 3)) if average else parts.max((1, 2, 3))
    return (found,)


OWN: tuple[Operator, ...] = (
    Operator(SAMPLED, _infer_sampled, _reference_sampled, _define_sampled, opsets=NOT_IN_ONNX, indices=(1,)),
    Operator(LARGEST, _infer_largest, _reference_largest, _define_largest, opsets=NOT_IN_ONNX, indices=(1,)),
)
"""`MaxOfRegions(x, images, rows, columns)`: the largest elements of rectangles, -inf of those that are empty.

x [N, C, H, W], images [R], rows [R, P, 2] and columns [R, Q, 2], each a first place and the one past the last, give
y[r, c, p, q] = max of x[images[r], c, rows[r, p, 0] : rows[r, p, 1], columns[r, q, 0] : columns[r, q, 1]], a place
outside the image being none. A kernel's loops end where the rectangle does.

`SamplesOfRegions(x, images, rows, columns, tops, lefts)`, `mode` avg or max: the sum of samples, or the largest part of
one. Of x in f32 or f64, with rows [R, P] and columns [R, Q] samples of a bin in i64, `most_samples` at most. tops
[R, P, 3] and lefts [R, Q, 3] say where the first lies, how far they are apart, and how many rows or columns an image
has, beyond which a sample is 0."""
