"""Gathers and scatters whose indices are known: they are slices and joins, which move whole blocks."""

from __future__ import annotations

from math import prod

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ops.attributes import ints
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.shapes import reshape_to
from compiler.rewrite.rules.slices import slice_of
from compiler.rewrite.view import No, Rewrite, View

LARGEST = 1 << 22
"""Indices that are looked through."""


def _axis(view: View, node: Node) -> int:
    axis = node.attrs.get("axis", 0)
    assert isinstance(axis, int)
    return axis % view.type(node.used[0]).rank


def gather_of_range(view: View, node: Node) -> Rewrite | No | None:
    """gather(x, (a, a + s, a + 2 s, ..)) = reshape(x[a::s])."""
    indices, dims = view.constant(node.used[1]), view.dims(node.used[0])
    if indices is None or not 0 < indices.size <= LARGEST:
        return None
    axis = _axis(view, node)
    places = np.where(indices < 0, indices + dims[axis], indices).reshape(-1).astype(np.int64)
    if places.min() < 0 or places.max() >= dims[axis]:
        return No(f"an index is outside of axis {axis} of {list(dims)}")
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if step == 0 or bool((np.diff(places) != step).any()):
        return No("the indices are no range")
    taken = [(0, 1, extent) for extent in dims]
    taken[axis] = (int(places[0]), step, places.size)
    draft, value, result = view.draft(node), node.used[0], view.dims(node.outputs[0])
    if taken[axis] != (0, 1, dims[axis]):
        value = slice_of(draft, value, tuple(taken))
    elif result == dims:
        return draft.same(value, why="it takes everything in order")
    if indices.ndim != 1:
        reshape_to(draft, value, result)
    return draft.done("its indices are a range")


def _block(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The first place and the extents of a block whose places rows of indices name in row-major order."""
    rows = indices.reshape(-1, indices.shape[-1])
    first, extents = rows.min(axis=0), np.ptp(rows, axis=0) + 1
    if rows.min() < 0 or prod(map(int, extents)) != len(rows):
        return None
    grid = np.indices(tuple(extents)).reshape(len(extents), -1).T + first
    return (first, extents) if bool((grid == rows).all()) else None


def scatter_of_block(view: View, node: Node) -> Rewrite | No | None:
    """scatter_nd(x, block, u) = concat(x[:a], u, x[b:]), where the block covers every axis but one.

    PyTorch writes `x[:, a:b] = u` in this way: caches of streaming models.
    """
    indices, dims = view.constant(node.used[1]), view.dims(node.used[0])
    if indices is None or not 0 < indices.size <= LARGEST:
        return None
    if node.attrs.get("reduction", "none") != "none":
        return No("it combines old and new values")
    found = _block(indices)
    if found is None:
        return No("the indices are no block in order")
    first, extents = ([int(number) for number in numbers] for numbers in found)
    cut = [axis for axis in range(len(first)) if extents[axis] != dims[axis]]
    if len(cut) > 1:
        return No(f"the block covers parts of axes {cut}")
    draft, update = view.draft(node), node.used[2]
    shape = (*extents, *dims[len(extents) :])
    if not cut and view.dims(update) == dims:
        return draft.same(update, why="it writes everything")
    if view.dims(update) != shape:
        update = reshape_to(draft, update, shape)
    if cut:
        (axis,) = cut
        end = first[axis] + extents[axis]
        parts = []
        for begin, past in ((0, first[axis]), (end, dims[axis])):
            taken = tuple((begin, 1, past - begin) if at == axis else (0, 1, n) for at, n in enumerate(dims))
            parts.append([slice_of(draft, node.used[0], taken)] if past > begin else [])
        draft.node("Concat", (*parts[0], update, *parts[1]), {"axis": axis})
    return draft.done("it writes a block")


def gather_between_reshapes(view: View, node: Node) -> Rewrite | No | None:
    """reshape(gather(reshape(x), i)) = reshape(gather(x, i)),
    where the inner reshape leaves the axis that is gathered along.

    PyTorch's unfold, whose first Gather takes the one row that there is.
    """
    gather = view.producer(node.used[0], "Gather")
    inner = None if gather is None else view.producer(gather.used[0], "Reshape")
    if gather is None or inner is None:
        return None
    if (refusal := view.enclosed(node, [gather, inner])) is not None:
        return refusal
    dims, between, axis = view.dims(inner.used[0]), view.dims(gather.used[0]), _axis(view, gather)
    for place, extent in enumerate(dims):
        if extent == between[axis] and prod(dims[:place]) == prod(between[:axis]):
            draft = view.draft(node)
            taken = draft.node("Gather", (inner.used[0], gather.used[1]), {"axis": place}, gather.source)
            reshape_to(draft, taken, view.dims(node.outputs[0]))
            return draft.done("the Gather does not need the Reshape before it")
    return No("the Reshape splits or joins the axis that is gathered along")


def _strides(indices: np.ndarray) -> tuple[int, int, int] | None:
    """(first, dilation, stride) of indices first + dilation * tap + stride * place."""
    taps, places = indices.shape
    first = int(indices[0, 0])
    dilation = int(indices[1, 0]) - first if taps > 1 else 1
    stride = int(indices[0, 1]) - first if places > 1 else 1
    wanted = first + dilation * np.arange(taps)[:, None] + stride * np.arange(places)
    return (first, dilation, stride) if first >= 0 and min(dilation, stride) > 0 and (indices == wanted).all() else None


def unfold_into_conv(view: View, node: Node) -> Rewrite | No | None:
    """conv(reshape(gather(x, first + d * tap + s * place)), w: o (c tap) 1) = conv(x[first:], w: o c tap, dilation d,
    stride s).

    PyTorch's unfold of one axis before a 1 x 1 convolution: its taps become the convolution's.
    """
    reshape = view.producer(node.used[0], "Reshape")
    gather = None if reshape is None else view.producer(reshape.used[0], "Gather")
    indices, weights = (None if gather is None else view.constant(gather.used[1])), view.constant(node.used[1])
    if reshape is None or gather is None or indices is None or indices.ndim != 2 or not 1 < indices.size <= LARGEST:
        return None
    if weights is None or prod(weights.shape[2:]) != 1 or node.attrs.get("group", 1) != 1:
        return No("the convolution is not 1 x 1, or its weights are not constant")
    if any(step != 1 for step in ints(node, "strides") or ()) or any(ints(node, "pads") or ()):
        return No("the convolution has strides or pads of its own")
    x, (batch, channels, *space) = view.dims(gather.used[0]), view.dims(reshape.outputs[0])
    taps, places = indices.shape
    found = _strides(indices)
    deep = channels // taps
    if found is None or _axis(view, gather) != len(x) - 1:
        return No("the indices are no windows of the last axis")
    if channels % taps or prod(x[:-1]) != batch * deep or tuple(space) != (*(1,) * (len(space) - 1), places):
        return No("the windows are not one axis of an image of one row")
    if (refusal := view.enclosed(node, [reshape, gather])) is not None:
        return refusal
    first, dilation, stride = found
    extent = dilation * (taps - 1) + stride * (places - 1) + 1
    draft, value, rows = view.draft(node), gather.used[0], (1,) * (len(space) - 1)
    if (first, extent) != (0, x[-1]):
        value = slice_of(draft, value, (*((0, 1, n) for n in x[:-1]), (first, 1, extent)))
    if (wanted := (batch, deep, *rows, extent)) != (*x[:-1], extent):
        value = reshape_to(draft, value, wanted)
    kernel = draft.constant(weights.reshape(-1, deep, *rows, taps))
    attrs: dict[str, Attr] = {
        **node.attrs,
        "auto_pad": "NOTSET",
        "pads": (0,) * (2 * len(space)),
        "kernel_shape": (*rows, taps),
        "strides": (*rows, stride),
        "dilations": (*rows, dilation),
    }
    draft.node("Conv", (value, kernel, *node.inputs[2:]), attrs)
    return draft.done(f"its {taps} taps are those of the convolution")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Gather",), gather_of_range),
    Rule(EXACT, ("ScatterND",), scatter_of_block),
    Rule(EXACT, ("Reshape",), gather_between_reshapes),
    Rule(REASSOCIATES, ("Conv",), unfold_into_conv),
)
