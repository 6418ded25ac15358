"""Normalisations that exporters write out, recognised.

Only over the last axes: JAX's channels-first layer norm (the first of magika) took four times as long as one kernel of
strided reads. Of the models at hand, PyTorch's decoders write RMS norm out (tiny_llama) and its group norm as an
instance norm between two Reshapes (tiny_unet). Keras writes the layer norm that scales before it subtracts the mean
(g2p_bert), JAX the one with mean(x**2) - mean(x)**2 (magika).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.rounding import near, rounded, wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.rules.moments import (
    Statistic,
    bare,
    deviation,
    inverse_root_of,
    mean,
    reduced,
    root_of,
    shifted,
    squares,
    uniform,
    variance,
)
from compiler.rewrite.view import No, Rewrite, View

STANDARD_EPSILON = 1e-9
"""What MeanVarianceNormalization adds to the standard deviation."""


@dataclass(frozen=True)
class _Norm:
    """(x - mean(x)) / sqrt(variance(x) + epsilon), in the groups of `of`.

    For RMSNormalization it is x / sqrt(mean(x ** 2) + epsilon), times `factor`.
    """

    op: str
    x: int
    of: Statistic
    epsilon: float
    nodes: tuple[Node, ...] = ()
    factor: float = 1.0


def _norm(view: View, moved: int, under: int, nodes: tuple[Node, ...]) -> _Norm | None:
    """What moved / sqrt(under) is."""
    inside, epsilon, added = shifted(view, under)
    spread, from_mean = variance(view, inside), deviation(view, moved)
    sub = view.producer(bare(view, moved)[0], "Sub")
    if spread is not None and from_mean is not None and sub is not None and spread.group == from_mean.group:
        swallowed = (*nodes, *added, *spread.nodes, *from_mean.nodes)
        return _Norm("LayerNormalization", sub.used[0], spread, epsilon, swallowed)
    powers = squares(view, inside)
    if powers is None or powers.axes_in(view, moved) is None or not powers.divisor > 0:
        return None
    # x / sqrt(sum / d + e) = sqrt(d / n) * x / sqrt(sum / n + e d / n)
    share = powers.divisor / powers.count
    share = 1.0 if near(share, 1.0) else share
    swallowed = (*nodes, *added, *powers.nodes)
    return _Norm("RMSNormalization", moved, powers, epsilon * share, swallowed, sqrt(share))


def _divided(view: View, node: Node) -> _Norm | None:
    """d / sqrt(v + epsilon), or x / l2_norm(x)."""
    moved, divisor = node.used[0], node.used[1]
    root = root_of(view, divisor)
    if root is not None:
        found = _norm(view, moved, root[0], root[1])
        return found if found is not None and found.of.beside(view, divisor, found.x) else None
    length = reduced(view, divisor, "ReduceL2")
    if length is None or not length.beside(view, divisor, moved):
        return None
    return _Norm("RMSNormalization", moved, length, 0.0, length.nodes, 1 / sqrt(length.count))


@dataclass(frozen=True)
class _Gate:
    """1 / sqrt(under) * scale; without a scale, `inverse` is the value itself."""

    inverse: int
    under: int
    scale: np.ndarray | None
    nodes: tuple[Node, ...]


def _gate(view: View, value: int) -> _Gate | None:
    node = view.producer(value, "Mul")
    for inner, array in () if node is None else view.operands(node):
        found = inverse_root_of(view, inner)
        if found is not None and node is not None:
            return _Gate(inner, found[0], array, (node, *found[1]))
    found = inverse_root_of(view, value)
    return None if found is None else _Gate(value, found[0], None, found[1])


def _multiplied(view: View, node: Node) -> tuple[_Norm, np.ndarray | None] | None:
    """d * (scale / sqrt(v + epsilon)), and the scale."""
    for moved, other in (node.used, node.used[::-1]):
        gate = _gate(view, other)
        found = None if gate is None else _norm(view, moved, gate.under, gate.nodes)
        if gate is not None and found is not None and found.of.beside(view, gate.inverse, found.x):
            return found, gate.scale
    return None


def _scaled_first(view: View, node: Node) -> tuple[_Norm, np.ndarray | None, np.ndarray | None] | None:
    """x * g + (bias - mean(x) * g), with g = scale / sqrt(v + epsilon)."""
    for first, second in (node.used, node.used[::-1]):
        product, rest = view.producer(first, "Mul"), view.producer(second, "Sub")
        minus = None if rest is None else view.producer(rest.used[1], "Mul")
        bias = None if rest is None else view.constant(rest.used[0])
        if product is None or rest is None or minus is None or bias is None:
            continue
        for x, g in (product.used, product.used[::-1]):
            middles = [value for value in minus.used if value != g]
            gate = _gate(view, g) if len(middles) == 1 else None
            inside, epsilon, added = shifted(view, gate.under) if gate is not None else (g, 0.0, ())
            spread, middle = variance(view, inside), mean(view, middles[0]) if middles else None
            if gate is None or spread is None or middle is None:
                continue
            kept = spread.beside(view, gate.inverse, x) and spread.beside(view, middles[0], x)
            if not kept or spread.group != middle.group:
                continue
            nodes = (product, rest, minus, *gate.nodes, *added, *spread.nodes, *middle.nodes)
            return _Norm("LayerNormalization", x, spread, epsilon, nodes), gate.scale, bias
    return None


def layer_norm_by_moments(view: View, node: Node) -> Rewrite | No | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))**2) + epsilon) * s + b = layer_normalization(x, s, b),
    over the last axes.
    """
    found: tuple[_Norm, np.ndarray | None, np.ndarray | None] | None = None
    if node.op == "Add":
        found = _scaled_first(view, node)
    elif node.op == "Div":
        divided = _divided(view, node)
        found = None if divided is None else (divided, None, None)
    else:
        multiplied = _multiplied(view, node)
        found = None if multiplied is None else (*multiplied, None)
    return _as_norm(view, node, *found) if found is not None and found[0].op == "LayerNormalization" else None


def rms_norm_by_squares(view: View, node: Node) -> Rewrite | No | None:
    """x / sqrt(sum(x**2) / d + epsilon) = sqrt(d / n) * rms_normalization(x, 1, epsilon * d / n),
    over the last axes, of n elements.
    """
    divided = _divided(view, node) if node.op == "Div" else None
    found = (divided, None) if divided is not None else _multiplied(view, node) if node.op == "Mul" else None
    if found is None or found[0].op != "RMSNormalization":
        return None
    return _as_norm(view, node, *found, None)


def _as_norm(
    view: View, node: Node, norm: _Norm, scale: np.ndarray | None, bias: np.ndarray | None
) -> Rewrite | No | None:
    x, axes = norm.x, norm.of.axes_in(view, norm.x)
    type = view.type(x)
    if axes is None or type != view.type(node.outputs[0]) or not type.dtype.is_float:
        return None
    if not _are_last(type.dims, axes):
        return No(f"it normalises over axes {list(axes)}, which are not the last ones")
    if norm.epsilon < 0:
        return No(f"epsilon is {norm.epsilon:g}")
    nodes = {inner.outputs[0]: inner for inner in norm.nodes}
    if (refusal := view.enclosed(node, nodes.values())) is not None:
        return refusal
    factor = np.full((), norm.factor) if scale is None else wide(scale) * norm.factor
    own, outside = _along(factor, type.dims, axes)
    draft = view.draft(node)
    first = min(axes)
    tail = type.dims[first:]
    parts = [np.broadcast_to(own, tail) if own.ndim == 0 else own.reshape(tail)]
    if norm.op == "LayerNormalization" and bias is not None and outside is None:
        folded, left = _along(wide(bias), type.dims, axes)
        if left is None:
            parts.append(np.broadcast_to(folded, tail) if folded.ndim == 0 else folded.reshape(tail))
            bias = None
    inputs = [x]
    for part in parts:
        constant = rounded(part, type.dtype)
        if isinstance(constant, No):
            return constant
        inputs.append(draft.constant(constant))
    last = draft.node(norm.op, tuple(inputs), {"axis": first, "epsilon": norm.epsilon, "stash_type": 1})
    for op, array in (("Mul", outside), ("Add", bias)):
        if array is not None:
            constant = rounded(array, type.dtype)
            if isinstance(constant, No):
                return constant
            last = draft.node(op, (last, draft.constant(constant)))
    return draft.done(f"{len(nodes) + 1} nodes are a {norm.op}")


def _are_last(dims: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether axes are the last ones, up to dimensions of extent 1: other groups would be read with large strides."""
    return all(dims[at] == 1 for at in range(min(axes), len(dims)) if at not in axes)


def _along(array: np.ndarray, dims: tuple[int, ...], axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    """A factor or summand as two: what varies along `axes` only, a number or with their dimensions, and the rest.

    The rest does not vary along `axes`.
    """
    if array.size == 1:
        return array.reshape(()), None
    spread = array.reshape((1,) * (len(dims) - array.ndim) + array.shape)
    if any(n > 1 and at not in axes for at, n in enumerate(spread.shape)):
        return np.ones(()), array
    return np.broadcast_to(spread, [n if at in axes else 1 for at, n in enumerate(dims)]), None


def standardised_by_moments(view: View, node: Node) -> Rewrite | No | None:
    """(x - mean(x)) / (sqrt(variance(x)) + 1e-9) = mean_variance_normalization(x), the body that ONNX gives for it."""
    add = view.producer(node.used[1], "Add")
    inside, epsilon, added = (0, 0.0, ()) if add is None else shifted(view, node.used[1])
    root = root_of(view, inside) if added else None
    moved, spread = deviation(view, node.used[0]), None if root is None else variance(view, root[0])
    sub = view.producer(node.used[0], "Sub")
    if root is None or moved is None or spread is None or sub is None or moved.group != spread.group:
        return None
    axes = spread.axes_in(view, sub.used[0])
    if axes is None or not _are_last(view.dims(sub.used[0]), axes):
        return None
    if not near(epsilon, STANDARD_EPSILON) or not spread.beside(view, node.used[1], sub.used[0]):
        return None
    if view.type(sub.used[0]) != view.type(node.outputs[0]):
        return None
    swallowed = {one.outputs[0]: one for one in (*added, *root[1], *moved.nodes, *spread.nodes)}
    if (refusal := view.enclosed(node, swallowed.values())) is not None:
        return refusal
    draft = view.draft(node)
    draft.node("MeanVarianceNormalization", (sub.used[0],), {"axes": axes})
    return draft.done(f"{len(swallowed) + 1} nodes are a MeanVarianceNormalization")


def group_norm_by_reshape(view: View, node: Node) -> Rewrite | No | None:
    """reshape(normalise(reshape(x, [N, G, ...])), x.shape) = group_normalization(x, groups=G),
    normalised over all that lies in a group.
    """
    inner = view.producer(node.used[0], "InstanceNormalization", "LayerNormalization")
    before = None if inner is None else view.producer(inner.used[0], "Reshape")
    if inner is None or before is None or len(inner.outputs) > 1:
        return None
    x, dims = before.used[0], view.dims(before.used[0])
    if view.type(x) != view.type(node.outputs[0]) or len(dims) < 3 or not prod(dims):
        return None
    groups = _groups(view, inner, dims)
    if groups is None:
        return None
    channels = []
    for position, empty in ((1, 1.0), (2, 0.0)):
        given = inner.inputs[position] if position < len(inner.inputs) else None
        array = np.full(groups, empty) if given is None else view.constant(given)
        alike = None if given is None or inner.op == "InstanceNormalization" else uniform(view, given)
        if array is None or (given is not None and inner.op == "LayerNormalization" and alike is None):
            return No("its scale or bias is no number for each group")
        per_group = np.full(groups, alike) if alike is not None else wide(array)
        channels.append(rounded(np.repeat(per_group, dims[1] // groups), view.type(x).dtype))
    if (refusal := view.enclosed(node, [inner, before])) is not None:
        return refusal
    draft = view.draft(node)
    constants = []
    for channel in channels:
        if isinstance(channel, No):
            return channel
        constants.append(draft.constant(channel))
    epsilon = inner.attrs.get("epsilon", 1e-5)
    if groups == dims[1]:
        draft.node("InstanceNormalization", (x, *constants), {"epsilon": epsilon}, inner.source)
    else:
        attrs = {"epsilon": epsilon, "num_groups": groups, "stash_type": 1}
        draft.node("GroupNormalization", (x, *constants), attrs, inner.source)
    return draft.done(f"{groups} groups of channels are normalised")


def _groups(view: View, inner: Node, dims: tuple[int, ...]) -> int | None:
    """How many groups of channels a norm of x in other dimensions normalises; None if it is no whole number."""
    seen = view.dims(inner.used[0])
    axis = 2 if inner.op == "InstanceNormalization" else inner.attrs.get("axis", -1)
    assert isinstance(axis, int)
    lists = prod(seen[: axis % len(seen) if axis < 0 else axis])
    groups = lists // dims[0]
    if groups == 0 or lists % dims[0] or dims[1] % groups:
        return None
    return None if inner.op == "InstanceNormalization" and seen[0] != dims[0] else groups


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Div", "Mul", "Add"), layer_norm_by_moments),
    Rule(REASSOCIATES, ("Div", "Mul"), rms_norm_by_squares),
    Rule(REASSOCIATES, ("Div",), standardised_by_moments),
    Rule(REASSOCIATES, ("Reshape",), group_norm_by_reshape),
)
