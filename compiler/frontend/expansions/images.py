"""Operators of com.microsoft on images: CropAndResize, the group norms of diffusion models, ConvTranspose.

Source: ONNX Runtime's ContribOperators.md; for CropAndResize, its CPU kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.fused import AGAIN, is_there, number, real
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported


def crop_and_resize(site: Site) -> Expansion:
    """Y [R, C, h, w]: of image X [N, C, H, W] each region brought to one size, by a linear mean or the nearest element.

    A region is [y1, x1, y2, x2], of which 0 and 1 are the centres of the first and last element; what lies outside
    has the value `extrapolation_value`.
    """
    x, rois = site.first, site.given(1)
    sizes = site.known(3, "crop_size")
    mode = site.call.attrs.get("mode", "bilinear")
    if x.rank != 4 or rois.rank != 2 or rois.dims[1] != 4 or site.given(2).dims != rois.dims[:1]:
        raise Unsupported(f"{x} and {rois} are no images and regions of 4 numbers", AGAIN)
    if sizes is None or sizes.size != 2 or (sizes < 1).any() or mode not in ("bilinear", "nearest") or 0 in x.dims:
        raise Unsupported(f"its size is {sizes!s:.40} and its mode {mode!r:.40}", AGAIN)
    count, channels, high, wide = x.dims
    kind = DType.F64 if x.dtype is DType.F64 else DType.F32
    composition = Composition(site)
    call, reshape = composition.call, composition.reshape
    regions = composition.cast("x1", rois.dtype, kind)

    def places(axis: int, extent: int, size: int) -> str:
        """[R, size]: where each row or column of the result lies in the image."""
        begin, end = (
            call("Mul", call("Slice", regions, *map(composition.ints, (at, at + 1, 1))), last)
            for last in (number(composition, extent - 1, kind),)
            for at in (axis, axis + 2)
        )
        if size == 1:
            return call("Mul", call("Add", begin, end), number(composition, 0.5, kind))
        step = call("Div", call("Sub", end, begin), number(composition, size - 1, kind))
        return call("Add", begin, call("Mul", step, composition.constant(np.arange(size).astype(kind.numpy))))

    rows, columns = (int(size) for size in sizes.reshape(-1))
    at = (
        call("Unsqueeze", places(0, high, rows), composition.ints(2)),
        call("Unsqueeze", places(1, wide, columns), composition.ints(1)),
    )
    inside = ""
    for place, extent in zip(at, (high, wide), strict=True):
        begun = call("GreaterOrEqual", place, number(composition, 0, kind))
        found = call("And", begun, call("LessOrEqual", place, number(composition, extent - 1, kind)))
        inside = call("And", inside, found) if inside else found
    pixels = reshape(call("Transpose", "x0", perm=(0, 2, 3, 1)), count * high * wide, channels)
    first = composition.constant(np.array(high * wide, np.int64))
    image = call("Mul", reshape(call("Cast", "x2", to=7), rois.dims[0], 1, 1), first)

    def index(place: str, extent: int) -> str:
        clipped = call("Clip", place, number(composition, 0, kind), number(composition, extent - 1, kind))
        return call("Cast", clipped, to=7)

    def read(row: str, column: str) -> str:
        """[R, h, w, C]: the elements at rows and columns that may lie outside."""
        line = call("Mul", index(row, high), composition.constant(np.array(wide, np.int64)))
        return call("Gather", pixels, call("Add", call("Add", image, line), index(column, wide)), axis=0)

    if mode == "nearest":  # halves away from zero
        half = number(composition, 0.5, kind)
        y = read(*(call("Floor", call("Add", place, half)) for place in at))
    else:
        low, top = zip(*((call("Floor", place), call("Ceil", place)) for place in at), strict=True)
        down, right = (
            composition.cast(call("Unsqueeze", call("Sub", place, begin), composition.ints(3)), kind, x.dtype)
            for place, begin in zip(at, low, strict=True)
        )

        def between(one: str, other: str, share: str) -> str:
            return call("Add", one, call("Mul", call("Sub", other, one), share))

        above, below = (between(read(row, low[1]), read(row, top[1]), right) for row in (low[0], top[0]))
        y = between(above, below, down)
    outside = number(composition, real(site, "extrapolation_value", 0.0), x.dtype)
    y = call("Where", call("Unsqueeze", inside, composition.ints(3)), y, outside)
    return composition.gives(call("Transpose", y, perm=(0, 3, 1, 2)))


def group_norm(adds: bool) -> Callable[[Site], Expansion]:
    """GroupNorm of X [N, H, W, C], gamma and beta [C], and SiLU where `activation` is 1; SkipGroupNorm of a sum.

    The sum is X + skip + bias, for a skip [N, H, W, C], [N, 1, 1, C] or [N, C] and a bias [C]; it is the second output.
    """

    def rule(site: Site) -> Expansion:
        x, groups = site.first, site.integer("groups", 0)
        last = site.integer("channels_last", 1)
        if x.rank != 4 or groups < 1 or site.integer("activation", 0) not in (0, 1):
            raise Unsupported(f"{x} in {groups} groups, or its activation, is not understood", AGAIN)
        composition = Composition(site)
        call = composition.call
        total = "x0"
        if adds:
            skip, wanted = site.given(3), (x.dims[0], 1, 1, x.dims[3])
            if not last:
                raise Unsupported("its channels do not lie last", AGAIN)
            total = call("Add", total, composition.reshape("x3", *wanted) if skip.rank == 2 else "x3")
            total = call("Add", total, "x4") if is_there(site, 4) else total
        image = call("Transpose", total, perm=(0, 3, 1, 2)) if last else total
        gamma, beta = (composition.cast(f"x{at}", site.given(at).dtype, x.dtype) for at in (1, 2))
        epsilon = real(site, "epsilon", 1e-5)
        y = call("GroupNormalization", image, gamma, beta, num_groups=groups, epsilon=epsilon, stash_type=1)
        if site.integer("activation", 0):
            y = call("Mul", y, call("Sigmoid", y))
        return composition.gives(call("Transpose", y, perm=(0, 2, 3, 1)) if last else y, total)

    return rule


def conv_transpose(site: Site) -> Expansion:
    """ConvTranspose whose pads are its third input."""
    pads = site.known(2, "Pads")
    attrs = site.call.attrs if pads is None else {**site.call.attrs, "pads": tuple(map(int, pads.reshape(-1)))}
    composition = Composition(site)
    bias = ("x3",) if is_there(site, 3) else ()
    return composition.gives(composition.call("ConvTranspose", "x0", "x1", *bias, **attrs))


IMAGES: dict[str, Callable[[Site], Expansion]] = {
    "ConvTransposeWithDynamicPads": conv_transpose,
    "CropAndResize": crop_and_resize,
    "GroupNorm": group_norm(adds=False),
    "SkipGroupNorm": group_norm(adds=True),
}
