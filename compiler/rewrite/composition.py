"""Two convolutions in a row as one."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

import numpy as np

from compiler.encodings.zeros import Zeros
from compiler.ir.graph import Node
from compiler.rewrite.convolution import Convolution, Geometry, convolution, with_groups, write_convolution
from compiler.rewrite.gain import operations
from compiler.rewrite.rounding import wide
from compiler.rewrite.view import No, Rewrite, View


def composed(view: View, node: Node, most: float, least: float = 0.0) -> Rewrite | No | None:
    """W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2), within limits on the operations.

    It has more than `least` and at most `most` times the operations of the two.
    """
    inner = view.producer(node.used[0], "Conv")
    if inner is None:
        return None
    first, second = convolution(view, inner), convolution(view, node)
    if isinstance(first, No):
        return first
    if isinstance(second, No):
        return second
    geometry = _after(first, second)
    if isinstance(geometry, No):
        return geometry
    groups = gcd(first.groups, second.groups)
    results = view.type(node.outputs[0]).elements
    together = 2 * results * first.channels // groups * prod(geometry.kernel)
    apart = operations(inner, view.type), operations(node, view.type)
    ratio = together / max(sum(apart), 1)
    if ratio > most:
        return No("one convolution in the place of the two would take more operations")
    if ratio <= least:
        return No("one convolution takes no more operations than the two, which is a matter of rules")
    if (refusal := view.enclosed(node, [inner])) is not None:
        return refusal
    weights, bias = _product(first, second, groups)
    if Zeros.of(first.weights) or Zeros.of(second.weights):
        wanted = [_used(conv.weights) * count for conv, count in zip((first, second), apart, strict=True)]
        if _used(weights) * together > sum(wanted):
            return No("the product of sparse weights would have more weights that are not zero")
    draft = view.draft(node)
    written = write_convolution(draft, first.x, weights, bias, groups, geometry)
    return written if isinstance(written, No) else draft.done("two convolutions in a row become one")


def _used(weights: np.ndarray) -> float:
    """The share of weights that are not zero."""
    return float(np.count_nonzero(weights) / max(weights.size, 1))


def _after(first: Convolution, second: Convolution) -> Geometry | No:
    """How the composition walks over the input of the first."""
    one, two = first.geometry, second.geometry
    if two.is_pointwise:
        strides = tuple(a * b for a, b in zip(one.strides, two.strides, strict=True))
        return replace(one, strides=strides)
    if not one.keeps_positions:
        return No("neither kernel is 1x1")
    if two.is_padded and first.bias is not None:
        return No("the second one reads padding, where the bias of the first is missing")
    return two


def _product(first: Convolution, second: Convolution, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of the composition, in float64."""
    inner = wide(with_groups(first.weights, first.groups, groups))
    outer = wide(with_groups(second.weights, second.groups, groups))
    taps = (first if second.geometry.is_pointwise else second).weights.shape[2:]
    one = inner.reshape(groups, -1, inner.shape[1], prod(inner.shape[2:]))
    two = outer.reshape(groups, -1, outer.shape[1], prod(outer.shape[2:]))
    weights = np.einsum("gkmt,gmcu->gkctu", two, one, optimize=True)
    bias = np.einsum("gkmt,gm->gk", two, first.wide_bias.reshape(groups, -1), optimize=True)
    return weights.reshape(second.filters, inner.shape[1], *taps), bias.reshape(-1) + second.wide_bias
