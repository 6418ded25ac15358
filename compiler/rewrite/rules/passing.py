"""Scales and shifts that pass other operators on their way into weights (see `compiler.rewrite.passage`)."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.attributes import ints
from compiler.rewrite.linear import LINEAR, Linear, input_channel, per_channel, times
from compiler.rewrite.passage import PASSES, POSITIVE_MAPS, Affine, Passage, reshaped, spread
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.rules.padding import pads_of
from compiler.rewrite.view import No, Rewrite, View


def _upwards(view: View, node: Node, value: int, map: Affine) -> Rewrite | No:
    way = Passage(view, node)
    writer = way.into(value, map)
    if isinstance(writer, No):
        return writer
    if (refusal := view.enclosed(node, way.swallowed)) is not None:
        return refusal
    draft = view.draft(node)
    writer(draft)
    ops = ", ".join(dict.fromkeys(other.op for other in reversed(way.swallowed)))
    return draft.done(f"{node.op} is taken in above, by way of {ops}")


def _factor(node: Node, array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray | No:
    """What a Mul by a constant multiplies a value of these dims by, or a Div divides it by, turned over."""
    scale = spread(array, dims)
    if isinstance(scale, No) or node.op == "Mul":
        return scale
    with np.errstate(all="ignore"):
        return np.asarray(1.0 / scale)


def scale_past_operators(view: View, node: Node) -> Rewrite | No | None:
    """s * f(W x + b) = f((s W) x + s b), where f is made of sums, Concats, pools, views and, for s > 0, Relus.

    The normalisation after the Concats of NASNet's reductions, after the Reshapes of PP-OCR, and after another one in DenseNet.
    """
    for value, array in view.operands(node):
        if view.producer(value, *PASSES) is None or not view.type(value).dtype.is_float:
            continue
        if view.type(value) != view.type(node.outputs[0]) or (node.op == "Div" and value != node.inputs[0]):
            continue
        scale = _factor(node, array, view.dims(value))
        return scale if isinstance(scale, No) else _upwards(view, node, value, Affine(scale, None))
    return None


def shift_past_operators(view: View, node: Node) -> Rewrite | No | None:
    """f(W x + b) + t = f(W x + (b + t)), where f is made of sums, Concats, pools and views.

    The other half of a normalisation at such places.
    """
    for value, array in view.operands(node):
        above = view.producer(value, *PASSES)
        if above is None or not view.type(value).dtype.is_float or view.type(value) != view.type(node.outputs[0]):
            continue
        if above.op == "Add" and any(operand in view.constants for operand in above.used):
            return None  # two shifts are added first
        shift = spread(array, view.dims(value))
        return shift if isinstance(shift, No) else _upwards(view, node, value, Affine(None, shift))
    return None


def scale_before_operators(view: View, node: Node) -> Rewrite | No | None:
    """W f(s x) = (W s) f(x), where f is made of pools, views, padding by zeros and, for s > 0, Relus.

    Exports from channels-last frameworks: an image is divided by 255, then transposed for the first convolution.
    """
    chain: list[Node] = []
    while True:
        above = view.producer(chain[-1].used[0] if chain else node.used[0], *DOWNWARDS, "Mul", "Div")
        if above is None or len(chain) > DEPTH:
            return None
        chain.append(above)
        if above.op in ("Mul", "Div"):
            break
    *passed, product = chain
    if not passed or not view.type(product.outputs[0]).dtype.is_float:
        return None
    for value, array in view.operands(product):
        if view.type(value) != view.type(product.outputs[0]) or (product.op == "Div" and value != product.inputs[0]):
            continue
        scale = _factor(product, array, view.dims(value))
        if isinstance(scale, No):
            return scale
        return view.enclosed(node, chain) or _downwards(view, node, passed[::-1], value, scale)
    return None


def _downwards(view: View, node: Node, passed: list[Node], x: int, scale: np.ndarray) -> Rewrite | No:
    """W f(x) with weights scaled as f leaves the scale."""
    for operator in passed:
        moved = _after(view, operator, scale)
        if isinstance(moved, No):
            return moved
        scale = moved
    weights = view.constant(node.inputs[1])
    if weights is None:
        return No(f"the weights %{node.inputs[1]} of {node.op} are not constant")
    dims = view.dims(node.used[0])
    channel = input_channel(node, dims)
    columns = per_channel(scale, len(dims), channel, dims[channel])
    if isinstance(columns, No):
        return columns
    new = times(weights, Linear(node, weights, None, 0, 0).along_columns(columns), view.type(x).dtype)
    if isinstance(new, No):
        return new
    draft = view.draft(node)
    for operator in passed:
        x = draft.node(operator.op, (x, *operator.inputs[1:]), operator.attrs, operator.source)
    draft.node(node.op, (x, draft.constant(new), *node.inputs[2:]), node.attrs)
    return draft.done(f"the scale before {passed[0].op} is folded into the weights of {node.op}")


def _after(view: View, node: Node, scale: np.ndarray) -> np.ndarray | No:
    """The scale of what a node gives, where its input was scaled."""
    before, after = view.dims(node.used[0]), view.dims(node.outputs[0])
    if node.op == "Reshape":
        return reshaped(scale, before, after)
    if node.op == "Transpose":
        return scale.transpose(ints(node, "perm") or tuple(reversed(range(len(before)))))
    if node.op in POSITIVE and not bool((scale > 0).all()):
        return No(f"a scale that is not positive does not pass {node.op}")
    if node.op not in POSITIVE_MAPS and any(extent != 1 for extent in scale.shape[2:]):
        return No(f"it is not the same at all positions of {node.op}")
    if node.op == "Pad" and (node.attrs.get("mode", "constant") != "constant" or node.attrs.get("constant_value")):
        return No("it pads with something else than zeros")
    if node.op == "Pad" and any(
        pair != (0, 0) and extent != 1 for pair, extent in zip(pads_of(node, len(before)), scale.shape, strict=True)
    ):
        return No("it is not the same along what is padded")
    return No("the places of the largest values would change") if len(node.outputs) > 1 else scale


POSITIVE = (*POSITIVE_MAPS, "MaxPool")
"""Operators that only a positive scale passes."""
DOWNWARDS = (*POSITIVE, "AveragePool", "GlobalAveragePool", "Reshape", "Transpose", "Pad")
DEPTH = 8
"""How many operators a scale passes at most."""

RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Mul", "Div"), scale_past_operators),
    Rule(REASSOCIATES, ("Add",), shift_past_operators),
    Rule(REASSOCIATES, LINEAR, scale_before_operators),
)
