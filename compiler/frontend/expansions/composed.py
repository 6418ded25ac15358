"""Operators of ai.onnx that have no body in ONNX's tables and are made of others all the same."""

from __future__ import annotations

import math

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Expansion
from compiler.frontend.reading.tensors import CODES
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

AGAIN = "export the model again"
OWN_REGIONS, OWN_SAMPLES = "tilewright::MaxOfRegions", "tilewright::SamplesOfRegions"
"""What the compiler's own definitions call them; no model may."""
LARGEST_DET = 3
"""Rows of a matrix whose determinant is written out."""


def ints_or(site: Site, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute of so many ints, or as many defaults. Raises Unsupported for another number of them."""
    found = site.ints(name) or (default,) * count
    if len(found) != count:
        raise Unsupported(f"attribute {name!r} has {len(found)} numbers where {count} are wanted", AGAIN)
    return found


def roi_align(site: Site) -> Expansion | None:
    """RoiAlign that takes as many samples of a bin as it has elements along each side; None for a number of samples.

    A sample outside the image is 0, so only those near it are visited: half an element apart or more, they are as many
    at most as `most_samples` says, however large the region is.
    """
    if site.integer("sampling_ratio", 0):
        return None
    x, rois, attrs = site.first, site.given(1), site.call.attrs
    composition = Composition(site)
    call, ints, cast = composition.call, composition.ints, composition.cast
    kind = DType.F64 if x.dtype is DType.F64 else DType.F32
    scale, half = attrs.get("spatial_scale", 1.0), attrs.get("coordinate_transformation_mode", "half_pixel")
    average = attrs.get("mode", "avg") == "avg"

    def real(*values: float) -> str:
        return composition.constant(np.array(values, kind.numpy))

    ends = call("Mul", cast("x1", rois.dtype, kind), real(float(scale) if isinstance(scale, int | float) else 1.0))
    ends = call("Sub", ends, real(0.5 if half == "half_pixel" else 0.0))

    def along(side: int) -> tuple[str, str, str, str]:
        """Of rows or columns: samples near the image [R, bins], their places [R, bins, 3], all [R, 1], any missed."""
        bins = site.integer(("output_height", "output_width")[side], 1)
        first, last = (call("Gather", ends, ints(position - side), axis=1) for position in (1, 3))
        size = call("Sub", last, first)
        size = size if half == "half_pixel" else call("Max", size, real(1))
        each = call("Div", size, real(bins))
        samples = call("Max", call("Ceil", each), real(0))
        apart = call(
            "Where", call("Greater", samples, real(0)), call("Div", each, call("Max", samples, real(1))), real(1)
        )
        begin = call("Add", first, call("Mul", each, real(*range(bins))))
        extent = call("Cast", call("Gather", call("Shape", "x0"), ints(2 + side), axis=0), to=CODES[kind])

        def sample_at(edge: str) -> str:
            return call("Sub", call("Div", call("Sub", edge, begin), apart), real(0.5))

        low = call("Sub", call("Ceil", sample_at(real(-1))), real(1))
        low = call("Min", call("Max", low, real(0)), samples)
        past = call("Add", call("Floor", sample_at(extent)), real(2))
        count = call("Sub", call("Min", call("Max", past, low), samples), low)
        where = call("Add", begin, call("Mul", call("Add", low, real(0.5)), apart))
        all_alike = (call("Expand", one, call("Shape", where)) for one in (apart, extent))
        places = call("Concat", *(call("Unsqueeze", one, ints(2)) for one in (where, *all_alike)), axis=2)
        missed = call("Less", count, call("Max", samples, real(1)))
        return call("Cast", count, to=CODES[DType.I64]), places, samples, missed

    (rows, tops, down, over), (columns, lefts, across, beside) = along(0), along(1)
    image = cast("x2", site.given(2).dtype, DType.I64)
    mode = "avg" if average else "max"
    found = call(OWN_SAMPLES, cast("x0", x.dtype, kind), image, rows, columns, tops, lefts, mode=mode)
    if average:
        count = call("Unsqueeze", call("Max", call("Mul", down, across), real(1)), ints(2, 3))
        found = call("Div", found, count)
    else:  # a sample that is not visited is 0
        missed = call("Or", call("Unsqueeze", over, ints(2)), call("Unsqueeze", beside, ints(1)))
        found = call("Where", call("Unsqueeze", missed, ints(1)), call("Max", found, real(0)), found)
    return composition.gives(cast(found, kind, x.dtype))


def max_roi_pool(site: Site) -> Expansion:
    """Regions of images, each cut into bins, of which the largest elements are taken; 0 where a bin lies outside.

    Inputs: x [N, C, H, W] and regions [R, 5] as (image, x1, y1, x2, y2), both ends included: gives [R, C, ph, pw]. The
    rows and columns of a bin are computed in whole numbers. Source: Girshick, Fast R-CNN, 2015, section 2.1.
    """
    x, rois = site.first, site.given(1)
    bins, scale = ints_or(site, "pooled_shape", 2, 0), site.call.attrs.get("spatial_scale", 1.0)
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 5 or min(bins) < 1 or not isinstance(scale, int | float):
        raise Unsupported(f"regions {rois} in bins {list(bins)} do not fit {x}", AGAIN)
    composition = Composition(site)
    call, ints = composition.call, composition.ints
    zero, one = (composition.constant(np.array(value, np.int64)) for value in (0, 1))
    half = composition.constant(np.array(0.5, rois.dtype.numpy))

    def column(position: int) -> str:
        return call("Gather", "x1", ints(position), axis=1)  # [R, 1]

    def place(position: int) -> str:
        """A coordinate in whole elements of the image: halves away from 0."""
        scaled = call("Mul", column(position), composition.constant(np.array(scale, rois.dtype.numpy)))
        size = call("Abs", scaled)
        whole = call("Floor", size)
        up = call("Cast", call("GreaterOrEqual", call("Sub", size, whole), half), to=CODES[rois.dtype])
        return call("Cast", call("Mul", call("Sign", scaled), call("Add", whole, up)), to=CODES[DType.I64])

    def ends(side: int) -> tuple[str, str]:
        """Of rows or columns: where each bin begins and ends [R, bins, 2], and whether it has none [R, bins]."""
        first, last, count = place(2 - side), place(4 - side), bins[side]
        extent = call("Gather", call("Shape", "x0"), ints(2 + side), axis=0)
        size = call("Max", call("Add", call("Sub", last, first), one), one)
        begins = call("Div", call("Mul", size, ints(*range(count))), ints(count))
        past = call("Add", call("Mul", size, ints(*range(1, count + 1))), ints(count - 1))
        begins, past = (
            call("Min", call("Max", call("Add", found, first), zero), extent)
            for found in (begins, call("Div", past, ints(count)))
        )
        both = call("Concat", *(call("Unsqueeze", found, ints(2)) for found in (begins, past)), axis=2)
        return both, call("GreaterOrEqual", begins, past)

    (rows, no_rows), (columns, no_columns) = ends(0), ends(1)
    image = call("Cast", call("Squeeze", column(0), ints(1)), to=CODES[DType.I64])
    largest = call(OWN_REGIONS, "x0", image, rows, columns)
    empty = call("Or", call("Unsqueeze", no_rows, ints(2)), call("Unsqueeze", no_columns, ints(1)))
    nothing = composition.constant(np.array(0, x.dtype.numpy))
    return composition.gives(call("Where", call("Unsqueeze", empty, ints(1)), nothing, largest))


def max_unpool(site: Site) -> Expansion:
    """Zeros, and each element of x at its index among them; a larger `output_shape` is filled up with zeros."""
    x, indices = site.first, site.given(1)
    axes = x.rank - 2
    kernel = ints_or(site, "kernel_shape", axes, 1)
    strides, pads = ints_or(site, "strides", axes, 1), ints_or(site, "pads", 2 * axes, 0)
    dims = [
        (extent - 1) * stride - before - after + taps
        for extent, stride, before, after, taps in zip(
            x.dims[2:], strides, pads[:axes], pads[axes:], kernel, strict=True
        )
    ]
    shape = (*x.dims[:2], *dims)
    wanted = site.known(2, "output_shape")
    whole = shape if wanted is None else tuple(int(dim) for dim in wanted.reshape(-1))
    fits = len(whole) == x.rank and all(large >= small > 0 for large, small in zip(whole, shape, strict=True))
    if axes < 1 or indices.dims != x.dims or not fits:
        raise Unsupported(f"{x} with indices {indices} cannot be spread over {list(whole)}", AGAIN)
    composition = Composition(site)
    zeros = composition.constant(np.broadcast_to(np.zeros((), x.dtype.numpy), math.prod(shape)))
    flat = [composition.reshape(name, x.elements) for name in ("x1", "x0")]
    spread = composition.reshape(composition.call("ScatterElements", zeros, *flat, axis=0, reduction="none"), *shape)
    if whole != shape:
        more = [large - small for large, small in zip(whole, shape, strict=True)]
        spread = composition.call("Pad", spread, composition.ints(*[0] * x.rank, *more), mode="constant")
    return composition.gives(spread)


def det(site: Site) -> Expansion:
    """Determinants of matrices of up to 3 rows, by their first row."""
    x = site.first
    rows = x.dims[-1] if x.rank >= 2 else 0
    if x.rank < 2 or x.dims[-2] != rows or not 1 <= rows <= LARGEST_DET:
        raise Unsupported(f"{x} holds no square matrices of at most {LARGEST_DET} rows", "compute it on the host")
    composition = Composition(site)
    flat = composition.reshape("x0", *x.dims[:-2], rows * rows)

    def element(row: int, column: int) -> str:
        place = composition.constant(np.array(row * rows + column, np.int64))
        return composition.call("Gather", flat, place, axis=x.rank - 2)

    def minor(row: int, columns: tuple[int, ...]) -> str:
        if len(columns) == 1:
            return element(row, columns[0])
        total = ""
        for at, column in enumerate(columns):
            rest = minor(row + 1, columns[:at] + columns[at + 1 :])
            part = composition.call("Mul", element(row, column), rest)
            total = composition.call("Sub" if at % 2 else "Add", total, part) if total else part
        return total

    return composition.gives(minor(0, tuple(range(rows))))


def batch_norm_of_batch(site: Site) -> Expansion:
    """BatchNormalization by the batch's statistics, and the running ones: old * momentum + new * (1 - momentum)."""
    x = site.first
    if x.rank < 2:
        raise Unsupported(f"{x} has no channels", AGAIN)
    composition = Composition(site)
    call = composition.call
    axes = composition.ints(0, *range(2, x.rank))
    column = (x.dims[1], *(1,) * (x.rank - 2))
    kind = DType.F64 if x.dtype is DType.F64 else DType.F32
    wide = composition.cast("x0", x.dtype, kind)
    mean = call("ReduceMean", wide, axes, keepdims=1)
    centred = call("Sub", wide, mean)
    variance = call("ReduceMean", call("Mul", centred, centred), axes, keepdims=1)
    epsilon = composition.constant(np.array(site.call.attrs.get("epsilon", 1e-5), kind.numpy))
    momentum = site.call.attrs.get("momentum", 0.9)
    if not isinstance(momentum, int | float):
        raise Unsupported("its momentum is no number", AGAIN)
    normal = call("Div", centred, call("Sqrt", call("Add", variance, epsilon)))
    scale, bias = (
        composition.reshape(composition.cast(f"x{at}", site.given(at).dtype, kind), *column) for at in (1, 2)
    )
    y = composition.cast(call("Add", call("Mul", normal, scale), bias), kind, x.dtype)

    def running(position: int, new: str) -> str:
        own = site.given(position).dtype
        old, share = f"x{position}", composition.constant(np.array(momentum, own.numpy))
        rest = composition.constant(np.array(1 - momentum, own.numpy))
        flat = composition.cast(composition.reshape(new, x.dims[1]), kind, own)
        return call("Add", call("Mul", old, share), call("Mul", flat, rest))

    return composition.gives(y, running(3, mean), running(4, variance))


def deform_conv(site: Site) -> Expansion:
    """A convolution of elements read beside their places, as far as `offset` says: sampled, then multiplied.

    Inputs: x [N, C, H, W], w [M, C / group, kh, kw], offset [N, G kh kw 2, oh, ow], bias [M] and mask [N, G kh kw, oh,
    ow], both optional; G is `offset_group`. Source: Zhu et al., Deformable ConvNets v2, 2019.
    """
    x, w, offset = site.first, site.given(1), site.given(2)
    if x.rank != 4 or w.rank != 4 or offset.rank != 4:
        raise Unsupported(f"{x} has {x.rank - 2} spatial axes", "use two spatial axes")
    batch, channels, high, wide = x.dims
    filters, _, kh, kw = w.dims
    oh, ow = offset.dims[2:]
    groups, parts = site.integer("group", 1), site.integer("offset_group", 1)
    strides, dilations = ints_or(site, "strides", 2, 1), ints_or(site, "dilations", 2, 1)
    pads = ints_or(site, "pads", 4, 0)
    placed = all(
        out == (extent + before + after - (taps - 1) * dilation - 1) // stride + 1
        for out, extent, before, after, taps, dilation, stride in zip(
            (oh, ow), (high, wide), pads[:2], pads[2:], (kh, kw), dilations, strides, strict=True
        )
    )
    divides = groups > 0 and parts > 0 and not channels % groups and not channels % parts and not filters % groups
    fits = divides and w.dims[1] * groups == channels and offset.dims[:2] == (batch, parts * kh * kw * 2)
    if not placed or not fits or not x.elements or not offset.elements:
        raise Unsupported(f"{x}, {w} and {offset} do not fit together", AGAIN)
    composition = Composition(site)
    call, reshape = composition.call, composition.reshape
    taps, places = kh * kw, oh * ow
    base = _tap_positions((oh, ow), (kh, kw), strides, dilations, pads)
    moves = reshape("x2", batch * parts, taps, 2, oh, ow)
    at = call("Add", moves, composition.constant(base.astype(offset.dtype.numpy)))
    # GridSample counts from -1 to 1 between the outer sides of the first and last element, x before y.
    factor = np.array([2 / high, 2 / wide]).reshape(2, 1, 1).astype(offset.dtype.numpy)
    least = np.array([1 / high - 1, 1 / wide - 1]).reshape(2, 1, 1).astype(offset.dtype.numpy)
    at = call("Add", call("Mul", at, composition.constant(factor)), composition.constant(least))
    at = call("Gather", call("Transpose", at, perm=(0, 1, 3, 4, 2)), composition.ints(1, 0), axis=4)
    grid = reshape(at, batch * parts, taps * oh, ow, 2)
    mode: dict[str, AttrValue] = {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}
    image = reshape("x0", batch * parts, channels // parts, high, wide)
    read = reshape(call("GridSample", image, grid, **mode), batch, parts, channels // parts, taps, places)
    if len(site.types) > 4 and site.types[4] is not None:
        read = call("Mul", read, reshape("x4", batch, parts, 1, taps, places))
    columns = reshape(read, batch, groups, channels // groups * taps, places)
    weights = reshape("x1", groups, filters // groups, channels // groups * taps)
    y = reshape(call("MatMul", weights, columns), batch, filters, oh, ow)
    if len(site.types) > 3 and site.types[3] is not None:
        y = call("Add", y, reshape("x3", filters, 1, 1))
    return composition.gives(y)


def _tap_positions(
    outputs: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> np.ndarray:
    """[taps, 2, oh, ow]: the row and column that each tap of each output reads where nothing is moved."""
    ranges = [
        np.arange(out)[None, :] * stride + np.arange(taps)[:, None] * dilation - before
        for out, taps, stride, dilation, before in zip(outputs, kernel, strides, dilations, pads[:2], strict=True)
    ]
    shape = (kernel[0], kernel[1], *outputs)
    rows = np.broadcast_to(ranges[0][:, None, :, None], shape)
    columns = np.broadcast_to(ranges[1][None, :, None, :], shape)
    return np.stack([rows, columns], axis=2).reshape(kernel[0] * kernel[1], 2, *outputs)
