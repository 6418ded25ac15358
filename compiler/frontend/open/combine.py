"""Rules for operators that combine elements along an axis: what lies beyond its size must change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.frontend.open.extent import Extent, Number, high, is_open, least, product
from compiler.frontend.open.site import OpenSite
from compiler.frontend.open.values import OpenValues, measured
from compiler.frontend.open.views import Results, Rule, expanded, limited, reshaped
from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType

NEUTRAL: Mapping[str, float] = {
    "sum": 0.0,
    "prod": 1.0,
    "max": -math.inf,
    "min": math.inf,
    "and": 1.0,
    "or": 0.0,
    "softmax": -math.inf,
    "argmax_first": -math.inf,
    "argmax_last": -math.inf,
    "argmin_first": math.inf,
    "argmin_last": math.inf,
}
"""By monoid: the element that changes no result."""


def neutral_of(site: OpenSite, attrs: Mapping[str, Attr]) -> float:
    """What an element is that changes no result of a call that combines elements: by the first monoid of its kernel."""
    operator = site.values.operators[site.op]
    types = (site.kind(0), *(None for _ in site.ids[1:]))
    node = Node(site.op, (0, *(None for _ in site.ids[1:])), (1,), {**site.attrs, **attrs})
    kernel = operator.define(node, types, operator.infer(node, types)[:1])
    found = [block.monoid for block in kernel.blocks if block.reduction] if isinstance(kernel, Kernel) else []
    if not found:
        raise site.refuse("it has no rule for an open axis")
    return NEUTRAL[found[0]]


def bounded(number: float, dtype: DType) -> float:
    """The number, or the least or greatest one of a type without infinities."""
    if dtype.is_float or math.isfinite(number):
        return number
    if dtype is DType.BOOL:
        return float(number > 0)
    limits = np.iinfo(dtype.numpy)
    return int(limits.max if number > 0 else limits.min)


def _neutral(site: OpenSite, id: int, axes: Sequence[int], number: float) -> int:
    """The value with a number beyond the sizes of these axes."""
    shape = site.values.shape(id)
    for axis in axes:
        if isinstance(shape[axis], Extent) and number:
            id = site.values.beyond(id, axis, shape[axis], bounded(number, site.values.graph.type(id).dtype))
    return id


def _reduced_axes(site: OpenSite, rank: int) -> list[int]:
    axes = site.ints(1, "axes")
    if axes:
        return [axis % rank for axis in axes]
    return [] if site.integer("noop_with_empty_axes", 0) else list(range(rank))


def _after(shape: Sequence[Number], axes: Sequence[int], keeps: int) -> tuple[Number, ...]:
    if keeps:
        return tuple(1 if at in axes else dim for at, dim in enumerate(shape))
    return tuple(dim for at, dim in enumerate(shape) if at not in axes)


def reduction(site: OpenSite) -> Results:
    """Reductions with a neutral element; a mean is a sum divided by the real number of elements."""
    values, shape = site.values, site.shape()
    axes, keeps = _reduced_axes(site, len(shape)), site.integer("keepdims", 1)
    if site.op == "ReduceMean":
        return [mean(values, site.first, axes, bool(keeps))]
    attrs: dict[str, Attr] = {"axes": tuple(axes), "noop_with_empty_axes": 1}
    x = _neutral(site, site.first, axes, neutral_of(site, attrs))
    return [_reduce(values, site.op, x, axes, bool(keeps))]


def _reduce(values: OpenValues, op: str, id: int, axes: Sequence[int], keeps: bool) -> int:
    shape = _after(values.shape(id), axes, keeps)
    attrs: dict[str, Attr] = {"axes": tuple(axes), "keepdims": int(keeps), "noop_with_empty_axes": 1}
    return values.emit(op, (id, None), shape, attrs)


def mean(values: OpenValues, id: int, axes: Sequence[int], keeps: bool) -> int:
    """The mean over axes of the real elements."""
    shape, kind = values.shape(id), values.graph.type(id)
    if not is_open(tuple(shape[axis] for axis in axes)):
        return _reduce(values, "ReduceMean", id, axes, keeps)
    total = _reduce(values, "ReduceSum", id, axes, keeps)
    return _divided_by(values, total, product(tuple(shape[axis] for axis in axes)), kind.dtype)


def _divided_by(values: OpenValues, id: int, count: Number, dtype: DType) -> int:
    amount = values.cast(values.scalar(count), dtype)
    found = values.node("Div", (id, amount))
    return values.settled(found, values.shape(id))


def along_axis(site: OpenSite) -> Results:
    """Softmax and its relatives, which give each element of an axis something of all of them."""
    shape = site.shape()
    axis = site.axis(len(shape), default=-1)
    x = _neutral(site, site.first, [axis], neutral_of(site, {"axis": axis}))
    return [site.values.emit(site.op, (x,), shape, {"axis": axis})]


def extreme_position(site: OpenSite) -> Results:
    """ArgMax and ArgMin."""
    shape = site.shape()
    axis, keeps = site.axis(len(shape)), site.integer("keepdims", 1)
    x = _neutral(site, site.first, [axis], neutral_of(site, {"axis": axis}))
    return [site.values.emit(site.op, (x,), _after(shape, [axis], keeps), {**site.attrs, "axis": axis})]


def running_sum(site: OpenSite) -> Results:
    """CumSum, in both directions: zeros after the end change nothing."""
    shape = site.shape()
    (axis,) = site.ints(1, "axis") or [0]
    return [site.values.emit(site.op, (site.first, None), shape, {**site.attrs, "axis": axis})]


def running_product(site: OpenSite) -> Results:
    """CumProd: factors of one after the end change nothing."""
    shape = site.shape()
    (axis,) = site.ints(1, "axis") or [0]
    x = _neutral(site, site.first, [axis % len(shape)], 1.0)
    return [site.values.emit(site.op, (x, None), shape, {**site.attrs, "axis": axis})]


def of_zeros(site: OpenSite) -> Results:
    """LpNormalization and LRN: powers of zeros, added to a sum, change nothing."""
    return [site.values.emit(site.op, site.ids, site.shape(), site.attrs)]


def top_k(site: OpenSite) -> Results:
    """TopK, of which k may be a size; elements beyond the end are never among the first k of those before it."""
    values, shape = site.values, site.shape()
    axis = site.axis(len(shape), default=-1)
    if values.known(site.given(1)) is None:
        wide = values.cast(values.reshape(site.given(1), ()), DType.I64)
        count = measured(values, limited(values, wide, shape[axis]), 0, high(shape[axis]), "k")
    else:
        (count,) = site.known(1, "k") or [1]
        count = least(count, high(shape[axis]))
    worst = -math.inf if site.integer("largest", 1) else math.inf
    x = _neutral(site, site.first, [axis], worst)
    whole = (*shape[:axis], count, *shape[axis + 1 :])
    found = values.node_of("TopK", (x, None), {**site.attrs, "k": high(count)}, site.outputs)
    return [values.settled(id, whole) for id in found]


def global_pool(site: OpenSite) -> Results:
    """GlobalAveragePool and GlobalMaxPool over positions."""
    rank = len(site.shape())
    axes = list(range(2, rank))
    if site.op == "GlobalAveragePool":
        return [mean(site.values, site.first, axes, True)]
    return [_reduce(site.values, "ReduceMax", _neutral(site, site.first, axes, -math.inf), axes, True)]


def normalisation(site: OpenSite) -> Results:
    """Instance, group and layer normalisation with means and variances over open axes, step by step."""
    values, shape = site.values, site.shape()
    if site.op == "LayerNormalization":
        axes = list(range(site.axis(len(shape), default=-1), len(shape)))
        if site.outputs > 1:
            raise site.refuse("more than the normalised values are asked for")
        scale, bias = site.ids[1], site.ids[2] if len(site.ids) > 2 else None
        return [_affine(values, _standard(site, site.first, axes), scale, bias, len(shape), None)]
    axes, x = list(range(2, len(shape))), site.first
    if site.op == "GroupNormalization":
        groups = site.integer("num_groups", 1)
        channels = shape[1]
        if not isinstance(channels, int):
            raise site.refuse("the number of channels is open")
        x = reshaped(values, x, (shape[0], groups, channels // groups, *shape[2:]))
        axes = list(range(2, len(shape) + 1))
    done = reshaped(values, _standard(site, x, axes), shape)
    return [_affine(values, done, site.ids[1], site.ids[2], len(shape), 1)]


def _standard(site: OpenSite, id: int, axes: Sequence[int]) -> int:
    """Mean 0 and variance 1 over axes."""
    values, shape = site.values, site.values.shape(id)
    dtype = values.graph.type(id).dtype
    centred = values.emit("Sub", (id, mean(values, id, axes, True)), shape)
    variance = mean(values, values.emit("Mul", (centred, centred), shape), axes, True)
    epsilon = site.attrs.get("epsilon", 1e-5)
    small = values.constant(np.array(epsilon, dtype.numpy))
    deviation = values.node("Sqrt", (values.node("Add", (variance, small)),))
    return values.emit("Div", (centred, deviation), shape)


def _affine(values: OpenValues, id: int, scale: int | None, bias: int | None, rank: int, channels: int | None) -> int:
    """scale * x + bias; one number for each channel where `channels` is their axis."""
    shape = values.shape(id)
    for op, factor in (("Mul", scale), ("Add", bias)):
        if factor is None:
            continue
        if channels is not None:
            per = values.shape(factor)[0]
            factor = reshaped(values, factor, (per, *(1,) * (rank - channels - 1)))
        id = values.emit(op, (id, factor), shape)
    return id


def recurrence(site: OpenSite) -> Results:
    """RNN, GRU and LSTM over an open time axis: every sequence that has no length of its own ends at its size."""
    values, shape = site.values, site.shape()
    if site.integer("layout", 0):
        raise site.refuse("the layout of a recurrence is batch first")
    time, batch = shape[0], shape[1]
    ids = [*site.ids, *(None,) * (5 - len(site.ids))]
    if ids[4] is None and isinstance(time, Extent):
        length = values.cast(values.scalar(time), DType.I32)
        ids[4] = expanded(values, length, (batch,))
    directions = 2 if site.attrs.get("direction") == "bidirectional" else 1
    hidden = site.integer("hidden_size", 0) or high(values.shape(site.given(2))[-1])
    shapes = ((time, directions, batch, hidden), *((directions, batch, hidden),) * 2)
    found = values.node_of(site.op, ids, site.attrs, site.outputs)
    return [values.settled(id, one) for id, one in zip(found, shapes, strict=False)]


def dynamic_quantisation(site: OpenSite) -> Results:
    """DynamicQuantizeLinear: the range has 0 in it in any case, so that zeros beyond the sizes do not widen it."""
    found = site.values.node_of(site.op, site.ids, site.attrs, site.outputs)
    return [site.values.settled(found[0], site.shape()), *found[1:]]


COMBINE: Mapping[str, Rule] = {
    "DynamicQuantizeLinear": dynamic_quantisation,
    "Softmax": along_axis,
    "LogSoftmax": along_axis,
    "Hardmax": along_axis,
    "ArgMax": extreme_position,
    "ArgMin": extreme_position,
    "CumProd": running_product,
    "CumSum": running_sum,
    "LRN": of_zeros,
    "LpNormalization": of_zeros,
    "TopK": top_k,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
}
NORMALISE: Mapping[str, Callable[[OpenSite], Results]] = dict.fromkeys(
    ("InstanceNormalization", "GroupNormalization", "LayerNormalization"), normalisation
)
"""Taken where the axes that are normalised are open."""
RECURRENCES: Mapping[str, Rule] = dict.fromkeys(("RNN", "GRU", "LSTM"), recurrence)
