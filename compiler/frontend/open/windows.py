"""Rules for windows over open positions: convolutions, pools and resizing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from compiler.frontend.open import resized
from compiler.frontend.open.combine import bounded
from compiler.frontend.open.extent import Extent, Number, greatest, high, least
from compiler.frontend.open.site import OpenSite, iota
from compiler.frontend.open.views import Results, Rule
from compiler.ir.graph import Attr
from compiler.ops import having
from compiler.ops.resize import ratio
from compiler.ops.traits import Trait

NOT_NEGATIVE = having(Trait.NOT_NEGATIVE)

WEIGHTS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Which input the weights of a convolution are."""


def _ints(site: OpenSite, name: str, count: int, default: int) -> list[int]:
    value = site.attrs.get(name) or (default,) * count
    assert isinstance(value, tuple)
    return [int(item) for item in value if isinstance(item, int)]


def window(site: OpenSite) -> Results:
    """Convolutions and the pools: zeros after the end are what padding at the end is."""
    values, shape = site.values, site.shape()
    count = len(shape) - 2
    kernel = _ints(site, "kernel_shape", count, 0)
    weights = WEIGHTS.get(site.op)
    if not any(kernel):
        kernel = [high(dim) for dim in values.shape(site.given(weights or 1))[2:]]
    attrs = dict(site.attrs)
    pads = _explicit_pads(site, kernel)
    attrs["pads"], attrs["auto_pad"] = tuple(pads), "NOTSET"
    positions = _positions(site, kernel, pads)
    attrs["ceil_mode"] = 0
    x = site.first
    if site.op == "MaxPool" and not _is_not_negative(site):
        x = _beyond(site, x, bounded(-math.inf, values.graph.type(x).dtype))
    if site.op in ("ConvInteger", "QLinearConv"):
        x = _filled(site)
    if site.op == "AveragePool" and not site.integer("count_include_pad", 0):
        return [_average(site, kernel, pads, attrs, positions)]
    if site.op in ("MaxPool", "AveragePool", "LpPool"):
        attrs["pads"] = _room(site, kernel, pads, positions)
    else:
        attrs.pop("ceil_mode")
    channels = shape[1] if weights is None else values.shape(site.given(weights))[0]
    found = values.node_of(site.op, (x, *site.ids[1:]), attrs, site.outputs)
    return [values.settled(id, (shape[0], channels, *positions)) for id in found]


def _is_not_negative(site: OpenSite) -> bool:
    """Whether no element of the operand is below zero, so that its zeros beyond sizes change no maximum."""
    graph = site.values.graph
    maker = graph.producer.get(site.first)
    while maker is not None and maker.op == "PadBeyond" and maker.inputs[0] is not None:
        maker = graph.producer.get(maker.inputs[0])
    return maker is not None and maker.op in NOT_NEGATIVE and graph.type(site.first).dtype.is_float


def _beyond(site: OpenSite, id: int, number: float) -> int:
    for axis, dim in enumerate(site.shape()):
        if axis >= 2 and isinstance(dim, Extent):
            id = site.values.beyond(id, axis, dim, number)
    return id


def _filled(site: OpenSite) -> int:
    """Bytes that beyond their sizes are their zero point, which adds nothing: padding is that too."""
    values, x, shape = site.values, site.first, site.shape()
    id = site.ids[2] if len(site.ids) > 2 else None
    if id is None:
        return x
    zero = values.reshape(id, ())
    for axis, dim in enumerate(shape):
        if axis >= 2 and isinstance(dim, Extent):
            real = values.node("Less", (iota(values, high(dim), len(shape), axis), values.scalar(dim)))
            x = values.node("Where", (real, x, zero))
    return x


def _explicit_pads(site: OpenSite, kernel: Sequence[int]) -> list[int]:
    """Pads as numbers, however they are said. Raises Unsupported where they depend on sizes."""
    count, mode = len(kernel), site.attrs.get("auto_pad", "NOTSET")
    strides, dilations = _ints(site, "strides", count, 1), _ints(site, "dilations", count, 1)
    if mode in ("NOTSET", ""):
        return _ints(site, "pads", 2 * count, 0)
    if mode == "VALID":
        return [0] * 2 * count
    begins, ends = [], []
    for at, (taps, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        size = site.shape()[2 + at]
        reach = (taps - 1) * dilation + 1
        if stride == 1:
            total = reach - 1
        elif isinstance(size, int):
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        else:
            raise site.refuse(f"auto_pad {mode} with stride {stride} pads by what an open size leaves")
        least, most = total // 2, total - total // 2
        begins.append(least if mode == "SAME_UPPER" else most)
        ends.append(most if mode == "SAME_UPPER" else least)
    return [*begins, *ends]


def _positions(site: OpenSite, kernel: Sequence[int], pads: Sequence[int]) -> list[Number]:
    """How many places the window has along each axis."""
    count = len(kernel)
    strides, dilations = _ints(site, "strides", count, 1), _ints(site, "dilations", count, 1)
    found: list[Number] = []
    for at, (taps, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        size = site.shape()[2 + at]
        room = size + (pads[at] + pads[at + count] - (taps - 1) * dilation - 1)
        if site.integer("ceil_mode", 0):
            places = (room + (stride - 1)) // stride + 1
            begun = (size + (pads[at] + stride - 1)) // stride  # none begins beyond what is there
            found.append(greatest(least(places, begun), 0))
        else:
            found.append(greatest(room // stride + 1, 0))
    return found


def _room(site: OpenSite, kernel: Sequence[int], pads: Sequence[int], positions: Sequence[Number]) -> tuple[int, ...]:
    """Pads that make place for that many positions at capacity."""
    count = len(kernel)
    strides, dilations = _ints(site, "strides", count, 1), _ints(site, "dilations", count, 1)
    ends = []
    for at, places in enumerate(positions):
        reach = (high(places) - 1) * strides[at] + (kernel[at] - 1) * dilations[at] + 1
        ends.append(max(reach - high(site.shape()[2 + at]) - pads[at], pads[at + count], 0))
    return (*pads[:count], *ends)


def _average(
    site: OpenSite,
    kernel: Sequence[int],
    pads: Sequence[int],
    attrs: Mapping[str, Attr],
    positions: Sequence[Number],
) -> int:
    """The sum over a window, divided by how many real elements it meets."""
    values, shape = site.values, site.shape()
    summed = {**attrs, "pads": _room(site, kernel, pads, positions), "count_include_pad": 1, "ceil_mode": 0}
    whole = (shape[0], shape[1], *positions)
    sums = values.node("AveragePool", (site.first,), summed)
    dtype = values.graph.type(site.first).dtype
    ones = values.graph.constant(np.broadcast_to(np.ones((), dtype.numpy), (1, 1, *map(high, shape[2:]))), "")
    for axis, dim in enumerate(shape):
        if axis >= 2 and isinstance(dim, Extent):
            ones = values.beyond(ones, axis, dim, 0)
    met = values.node("AveragePool", (ones,), summed)
    return values.settled(values.node("Div", (sums, met)), whole)


def transposed(site: OpenSite) -> Results:
    """ConvTranspose: zeros after the end add nothing, and what is beyond the result's end is cut off."""
    values, shape = site.values, site.shape()
    weights = values.shape(site.given(1))
    count = len(shape) - 2
    if site.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "", "VALID") or site.attrs.get("output_shape"):
        raise site.refuse("the pads of a ConvTranspose depend on an open size")
    pads, more = _ints(site, "pads", 2 * count, 0), _ints(site, "output_padding", count, 0)
    strides, dilations = _ints(site, "strides", count, 1), _ints(site, "dilations", count, 1)
    positions = [
        (shape[2 + at] - 1) * strides[at]
        + ((high(weights[2 + at]) - 1) * dilations[at] + 1 + more[at] - pads[at] - pads[at + count])
        for at in range(count)
    ]
    channels = weights[1] * site.integer("group", 1)
    found = values.node(site.op, site.ids, site.attrs)
    return [values.settled(found, (shape[0], channels, *positions))]


def resize(site: OpenSite) -> Results:
    """Resize of open positions by a simple factor; any other by coordinates that are found while running."""
    values, shape = site.values, site.shape()
    axes = site.attrs.get("axes")
    along = [int(axis) % len(shape) for axis in axes] if isinstance(axes, tuple) else list(range(len(shape)))  # type: ignore[arg-type]
    factors = _factors(site, along)
    mode, where = site.attrs.get("mode", "nearest"), site.attrs.get("coordinate_transformation_mode", "half_pixel")
    simple = where in ("half_pixel", "asymmetric", "pytorch_half_pixel") and mode in ("nearest", "linear")
    if factors is None or not simple or site.integer("antialias", 0):
        return resized.resize(site)
    x = site.first
    nearest = site.attrs.get("nearest_mode", "round_prefer_floor")
    # Of the others no coordinate lies nearer to an element past the end than to the last one.
    inside = ("floor",) if where == "asymmetric" else ("floor", "round_prefer_floor")
    reads_past = mode == "linear" or nearest not in inside
    whole, scales = list(shape), [1.0] * len(shape)
    for axis, factor in zip(along, factors, strict=True):
        size = shape[axis]
        scales[axis] = float(factor)
        if isinstance(size, Extent):
            if reads_past and factor != 1:
                last = values.node("Sub", (values.scalar(size), values.scalar(1)))
                places = values.node("Min", (iota(values, high(size)), last))
                x = values.node("Gather", (x, places), {"axis": axis})
            whole[axis] = size * factor.numerator // factor.denominator
        else:
            whole[axis] = int(size * factor)
    attrs = {**site.attrs, "scales": tuple(scales), "axes": None, "sizes": None, "roi": None}
    attrs = {name: value for name, value in attrs.items() if value is not None}
    found = values.node("Resize", (x, None, None, None), attrs)
    return [values.settled(found, tuple(whole))]


def _factors(site: OpenSite, along: Sequence[int]) -> list[Fraction] | None:
    """By what each axis grows; None where that depends on sizes."""
    id = site.ids[2] if len(site.ids) > 2 else None
    if id is not None and site.kind(2).elements:
        scales = site.values.graph.constants.get(id)
        if scales is None:
            return None
        return [ratio(float(item)) for item in scales.reshape(-1)]
    sizes = site.known(3, "sizes") or []
    if site.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    found = []
    for axis, size in zip(along, sizes, strict=True):
        here = site.shape()[axis]
        if isinstance(here, int) and isinstance(size, int):
            found.append(Fraction(size, here))
            continue
        factor = next((Fraction(n, d) for d in (1, 2, 4) for n in range(1, 33) if here * n == size * d), None)
        if factor is None:
            return None
        found.append(factor)
    return found


WINDOWS: Mapping[str, Rule] = {
    "Conv": window,
    "ConvInteger": window,
    "QLinearConv": window,
    "MaxPool": window,
    "AveragePool": window,
    "LpPool": window,
    "ConvTranspose": transposed,
    "Resize": resize,
}
"""Taken where positions are open; an open batch needs no rule."""
