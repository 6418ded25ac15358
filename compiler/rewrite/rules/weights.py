"""Scales and shifts by constants move into the weights of the linear operator beside them.

Every such operator is y = W x + b with one row of W and one element of b for each output channel, so that

    s * (W x + b) + t = (s W) x + (s b + t)        and        W (s x) = (W s) x

with s and t constant along everything but the channel. Padding holds zeros, which a scale leaves zero and a shift does
not: only a scale moves into the weights behind it. New weights are computed in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.linear import LINEAR, Linear, input_channel, linear_of, per_channel, times
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def _scaled(
    view: View, root: Node, linear: Linear, scale: np.ndarray | None, shift: np.ndarray | None, why: str
) -> Rewrite | No:
    """scale * y + shift in the place of `root`, where y is the linear operator's result."""
    if (refusal := view.enclosed(root, [linear.node])) is not None:
        return refusal
    folded = linear.folded(scale, shift, view.type(root.outputs[0]).dtype)
    if isinstance(folded, No):
        return folded
    draft = view.draft(root)
    linear.write(draft, *folded)
    return draft.done(why)


def _into_producer(
    view: View, root: Node, value: int, scale: np.ndarray | None, shift: np.ndarray | None
) -> Rewrite | No | None:
    """`scale` and `shift`, constants as `root` broadcasts them, into the linear operator that makes `value`."""
    producer = view.producer(value, *LINEAR)
    if producer is None or view.type(value) != view.type(root.outputs[0]):
        return None
    if shift is not None and producer.op == "MatMul":
        return None  # an Add after a MatMul is its bias already
    linear = linear_of(view, producer)
    if isinstance(linear, No):
        return linear
    rank = len(view.dims(value))
    parts: list[np.ndarray | None] = []
    for part in (scale, shift):
        spread = None if part is None else per_channel(part, rank, linear.channel, linear.channels)
        if isinstance(spread, No):
            return spread
        parts.append(spread)
    factor, offset = parts
    what = f"{root.op} is folded into the {'weights' if scale is not None else 'bias'} of {producer.op}"
    return _scaled(view, root, linear, factor, offset, what)


def batch_norm_into_weights(view: View, node: Node) -> Rewrite | No | None:
    """batch_norm(W x + b) = (f W) x + (f (b - mean) + bias), where f = scale / sqrt(variance + epsilon)."""
    producer = view.producer(node.used[0], *LINEAR)
    if producer is None:
        return None
    factors = _batch_norm(view, node)
    if isinstance(factors, No):
        return factors
    linear = linear_of(view, producer)
    if isinstance(linear, No):
        return linear
    if linear.channel != 1:
        return No(f"the channels of {producer.op} are on axis {linear.channel}, those of BatchNormalization on axis 1")
    if producer.op == "MatMul":
        return None
    return _scaled(view, node, linear, *factors, f"BatchNormalization is folded into the weights of {producer.op}")


def batch_norm_alone(view: View, node: Node) -> Rewrite | No | None:
    """batch_norm(x) = x * f + (bias - mean * f), where f = scale / sqrt(variance + epsilon)."""
    factors = _batch_norm(view, node)
    if isinstance(factors, No):
        return factors
    type = view.type(node.outputs[0])
    draft, shape = view.draft(node), (-1, *(1,) * (type.rank - 2))
    value = node.used[0]
    for op, factor in zip(("Mul", "Add"), factors, strict=True):
        constant = rounded(factor.reshape(shape), type.dtype)
        if isinstance(constant, No):
            return constant
        value = draft.node(op, (value, draft.constant(constant)))
    return draft.done("BatchNormalization becomes one multiplication and one addition")


def _batch_norm(view: View, node: Node) -> tuple[np.ndarray, np.ndarray] | No:
    """Factor and shift of each channel, in float64."""
    arrays = [view.constant(value) for value in node.inputs[1:5]]
    if len(node.outputs) > 1 or node.attrs.get("training_mode", 0):
        return No("BatchNormalization is in training mode")
    if any(array is None for array in arrays):
        return No("a parameter of BatchNormalization is not constant")
    scale, bias, mean, variance = (wide(array) for array in arrays if array is not None)
    epsilon = node.attrs.get("epsilon", 1e-5)
    assert isinstance(epsilon, int | float)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - mean * factor
    if not bool((np.isfinite(factor) & np.isfinite(shift)).all()):
        return No("a factor of BatchNormalization is not finite")
    return factor, shift


def scale_into_weights(view: View, node: Node) -> Rewrite | No | None:
    """s * (W x + b) = (s W) x + s b."""
    for value, array in view.operands(node):
        if node.op == "Div":
            if value != node.inputs[0]:
                continue
            with np.errstate(all="ignore"):
                array = 1.0 / wide(array)
        if (found := _into_producer(view, node, value, array, None)) is not None:
            return found
    return None


def shift_into_bias(view: View, node: Node) -> Rewrite | No | None:
    """(W x + b) + t = W x + (b + t)."""
    for value, array in view.operands(node):
        if (found := _into_producer(view, node, value, None, array)) is not None:
            return found
    return None


def scale_before_weights(view: View, node: Node) -> Rewrite | No | None:
    """W (s x) = (W s) x."""
    multiply = view.producer(node.used[0], "Mul")
    if multiply is None:
        return None
    for value, array in view.operands(multiply):
        if view.type(value) != view.type(multiply.outputs[0]) or not view.type(value).dtype.is_float:
            return No("the scale makes its operand larger")
        if (weights := view.constant(node.inputs[1])) is None:
            return No(f"the weights %{node.inputs[1]} of {node.op} are not constant")
        if (refusal := view.enclosed(node, [multiply])) is not None:
            return refusal
        linear = Linear(node, weights, None, 0, 0)
        dims = view.dims(value)
        channel = input_channel(node, dims)
        scale = per_channel(array, len(dims), channel, dims[channel])
        if isinstance(scale, No):
            return scale
        new = times(weights, linear.along_columns(scale), view.type(value).dtype)
        if isinstance(new, No):
            return new
        draft = view.draft(node)
        draft.node(node.op, (value, draft.constant(new), *node.inputs[2:]), node.attrs)
        return draft.done(f"the scale before {node.op} is folded into its weights")
    return None


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("BatchNormalization",), batch_norm_into_weights),
    Rule(REASSOCIATES, ("BatchNormalization",), batch_norm_alone),
    Rule(REASSOCIATES, ("Mul", "Div"), scale_into_weights),
    Rule(REASSOCIATES, ("Add",), shift_into_bias),
    Rule(REASSOCIATES, LINEAR, scale_before_weights),
)
