"""Convolutions with constant weights, their padding made explicit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ops.window import Window, windows
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.view import Draft, No, View


@dataclass(frozen=True)
class Geometry:
    """How a window walks over the spatial axes; `before` and `after` are its padding."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, places: tuple[Window, ...]) -> Geometry:
        """The geometry of windows, one for each spatial axis, in the order of the axes."""
        rows = [(w.kernel, w.stride, w.dilation, w.before, w.after) for w in places]
        return cls(*(tuple(column) for column in zip(*rows, strict=True)))

    @property
    def rank(self) -> int:
        """How many spatial axes there are."""
        return len(self.kernel)

    @property
    def is_pointwise(self) -> bool:
        """Whether each output reads one position, and none of the padding."""
        return set(self.kernel) == {1} and not any((*self.before, *self.after))

    @property
    def keeps_positions(self) -> bool:
        """Whether it is pointwise and reads every position."""
        return self.is_pointwise and set(self.strides) == {1}

    @property
    def is_padded(self) -> bool:
        """Whether there is padding on any side."""
        return any((*self.before, *self.after))

    @property
    def attrs(self) -> dict[str, Attr]:
        """All that a Conv needs beside its group."""
        return {
            "auto_pad": "NOTSET",
            "dilations": self.dilations,
            "kernel_shape": self.kernel,
            "pads": (*self.before, *self.after),
            "strides": self.strides,
        }


@dataclass(frozen=True)
class Convolution:
    """y = W x + b: weights [K, C/groups, taps...] and a bias [K] or none."""

    node: Node
    x: int
    weights: np.ndarray
    bias: np.ndarray | None
    groups: int
    geometry: Geometry

    @property
    def filters(self) -> int:
        """K: channels of the output."""
        return int(self.weights.shape[0])

    @property
    def channels(self) -> int:
        """C: channels of the input, those of all groups."""
        return int(self.weights.shape[1]) * self.groups

    @property
    def is_depthwise(self) -> bool:
        """Whether each filter reads one channel, and each channel is read by one filter."""
        return self.groups == self.filters == self.channels and self.groups > 1

    @property
    def wide_bias(self) -> np.ndarray:
        """The bias in float64, zeros where there is none."""
        return np.zeros(self.filters) if self.bias is None else wide(self.bias)


def convolution(view: View, node: Node) -> Convolution | No:
    """A Conv as a record; No where its weights or its bias are not constant."""
    weights, bias_id = view.constant(node.inputs[1]), node.inputs[2] if len(node.inputs) > 2 else None
    bias, groups = view.constant(bias_id), node.attrs.get("group", 1)
    if weights is None or (bias_id is not None and bias is None):
        return No(f"the weights or the bias of {node.op} are not constant")
    assert isinstance(groups, int)
    x = node.used[0]
    places = windows(node, view.dims(x)[2:], weights.shape[2:])
    return Convolution(node, x, weights, bias, groups, Geometry.of(places))


def pool_geometry(view: View, node: Node) -> Geometry:
    """How a pool with a window walks over its input."""
    kernel = node.attrs["kernel_shape"]
    assert isinstance(kernel, tuple)
    return Geometry.of(windows(node, view.dims(node.used[0])[2:], tuple(int(k) for k in kernel if isinstance(k, int))))


def averages_padding(node: Node, geometry: Geometry) -> bool:
    """Whether an AveragePool counts elements that are not there."""
    return bool(node.attrs.get("count_include_pad", 0)) and (geometry.is_padded or bool(node.attrs.get("ceil_mode", 0)))


def write_convolution(
    draft: Draft,
    x: int,
    weights: np.ndarray,
    bias: np.ndarray | None,
    groups: int,
    geometry: Geometry,
    source: str = "",
) -> int | No:
    """A Conv with weights and a bias in float64, rounded to the type of what it replaces; no bias if it is zeros."""
    dtype = draft.view.type(draft.root.outputs[0]).dtype
    constants: list[int] = []
    for array in (weights, bias):
        if array is None or (array is bias and not array.any()):
            continue
        new = rounded(array, dtype)
        if isinstance(new, No):
            return new
        constants.append(draft.constant(new))
    return draft.node("Conv", (x, *constants), {**geometry.attrs, "group": groups}, source)


def with_groups(weights: np.ndarray, groups: int, fewer: int) -> np.ndarray:
    """Weights [K, C/groups, taps...] as weights [K, C/fewer, taps...] of a convolution with fewer groups.

    The blocks of the old groups lie on a diagonal; the other blocks are zero.
    """
    if groups == fewer:
        return weights
    filters, channels = weights.shape[:2]
    joined = groups // fewer
    result = np.zeros((fewer, joined, filters // groups, joined, channels, *weights.shape[2:]), weights.dtype)
    blocks = weights.reshape(fewer, joined, filters // groups, channels, *weights.shape[2:])
    for place in range(joined):
        result[:, place, :, place] = blocks[:, place]
    return result.reshape(filters, joined * channels, *weights.shape[2:])


def embedded(weights: np.ndarray, kernel: tuple[int, ...], at: tuple[int, ...]) -> np.ndarray:
    """Weights in a larger kernel, their first tap at the place `at` of it, zeros elsewhere."""
    result = np.zeros((*weights.shape[:2], *kernel), weights.dtype)
    window = tuple(slice(start, start + extent) for start, extent in zip(at, weights.shape[2:], strict=True))
    result[(slice(None), slice(None), *window)] = weights
    return result


def around(one: Geometry, two: Geometry, extents: tuple[int, ...], outputs: tuple[int, ...]) -> Geometry | No:
    """The smallest window that holds both."""
    if one.strides != two.strides:
        return No("the branches have different strides")
    dilations, before, after, kernel = [], [], [], []
    for axis in range(one.rank):
        spaced = [each.dilations[axis] for each in (one, two) if each.kernel[axis] > 1] or [1]
        begin = max(one.before[axis], two.before[axis])
        ahead = [(begin - each.before[axis], each.kernel[axis]) for each in (one, two)]
        if len(set(spaced)) > 1 or any(taps % spaced[0] for taps, _ in ahead):
            return No("the taps of the branches do not fall on each other")
        taps = max(first // spaced[0] + own for first, own in ahead)
        reach = (taps - 1) * spaced[0] + 1
        kernel.append(taps)
        dilations.append(spaced[0])
        before.append(begin)
        after.append(max((outputs[axis] - 1) * one.strides[axis] + reach - extents[axis] - begin, 0))
    return Geometry(tuple(kernel), one.strides, tuple(dilations), tuple(before), tuple(after))


def stacked(convs: Sequence[Convolution], geometry: Geometry) -> tuple[np.ndarray, np.ndarray | None]:
    """The filters of convolutions of one window, each in its place within it, and their biases.

    There is no bias if none of them has one.
    """
    parts = []
    for conv in convs:
        ahead = zip(geometry.before, conv.geometry.before, geometry.dilations, strict=True)
        at = tuple((most - own) // step for most, own, step in ahead)
        parts.append(embedded(conv.weights, geometry.kernel, at))
    if all(conv.bias is None for conv in convs):
        return np.concatenate(parts), None
    biases = [np.zeros(conv.filters, conv.weights.dtype) if conv.bias is None else conv.bias for conv in convs]
    return np.concatenate(parts), np.concatenate(biases)
