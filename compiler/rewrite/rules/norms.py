"""Layer normalisation and softmax that exporters write out, recognised."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.attributes import ints
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def _reduced(view: View, value: int, op: str) -> tuple[Node, tuple[int, ...]] | None:
    """The reduction, of kept rank, that makes a value, and its axes in order."""
    node = view.producer(value, op)
    if node is None or not node.attrs.get("keepdims", 1):
        return None
    rank = view.type(node.used[0]).rank
    axes = ints(node, "axes")
    if not axes:
        return None if node.attrs.get("noop_with_empty_axes", 0) else (node, tuple(range(rank)))
    return node, tuple(sorted({axis % rank for axis in axes}))


def _square(view: View, value: int) -> tuple[int, Node] | None:
    """The d of d * d or d ** 2, and the node that squares it."""
    node = view.producer(value, "Mul", "Pow")
    if node is None:
        return None
    if node.op == "Mul":
        return (node.used[0], node) if node.used[0] == node.used[1] else None
    return (node.used[0], node) if view.scalar(node.inputs[1]) == 2.0 else None


def _deviation(view: View, node: Node) -> tuple[int, int, list[Node]] | None:
    """(d, sqrt's argument, nodes) where the node is d / sqrt(v) or d * (1 / sqrt(v))."""
    if node.op == "Div":
        pairs = [(node.used[0], node.used[1])]
    else:
        pairs = [(node.used[0], node.used[1]), (node.used[1], node.used[0])]
    for moved, divisor in pairs:
        nodes: list[Node] = []
        if node.op == "Mul":
            reciprocal = view.producer(divisor, "Reciprocal")
            if reciprocal is None:
                continue
            nodes.append(reciprocal)
            divisor = reciprocal.used[0]
        root = view.producer(divisor, "Sqrt")
        if root is not None:
            return moved, root.used[0], [*nodes, root]
    return None


def layer_norm_by_moments(view: View, node: Node) -> Rewrite | No | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))**2) + epsilon) = layer_normalization(x, 1), over the last axes."""
    outer = _deviation(view, node)
    if outer is None:
        return None
    moved, under_root, nodes = outer
    sub, add = view.producer(moved, "Sub"), view.producer(under_root, "Add")
    if sub is None or add is None:
        return None
    mean = _reduced(view, sub.used[1], "ReduceMean")
    if mean is None or mean[0].used[0] != sub.used[0]:
        return None
    for value, constant in view.operands(add):
        variance = _reduced(view, value, "ReduceMean")
        square = None if variance is None else _square(view, variance[0].used[0])
        if variance is None or square is None or square[0] != moved or variance[1] != mean[1] or constant.size != 1:
            continue
        return _as_layer_norm(view, node, sub.used[0], mean[1], float(constant.reshape(-1)[0]), [
            *nodes, sub, add, mean[0], variance[0], square[1]
        ])  # fmt: skip
    return None


def _as_layer_norm(
    view: View, node: Node, x: int, axes: tuple[int, ...], epsilon: float, swallowed: list[Node]
) -> Rewrite | No | None:
    type = view.type(x)
    if type != view.type(node.outputs[0]) or not type.dtype.is_float:
        return None
    if axes != tuple(range(axes[0], type.rank)):
        return No(f"it normalises over axes {list(axes)}, which are not the last ones")
    if (refusal := view.enclosed(node, swallowed)) is not None:
        return refusal
    draft = view.draft(node)
    ones = draft.constant(np.ones(type.dims[axes[0] :], type.dtype.numpy))
    draft.node("LayerNormalization", (x, ones), {"axis": axes[0], "epsilon": epsilon, "stash_type": 1})
    return draft.done(f"{len(swallowed) + 1} nodes are a LayerNormalization")


def _affine(view: View, node: Node) -> tuple[Node, np.ndarray, np.ndarray | None, np.ndarray] | No | None:
    """A LayerNormalization, its constant scale and bias in float64, and the constant that the node joins to its result."""
    for value, array in view.operands(node):
        norm = view.producer(value, "LayerNormalization")
        if norm is None or len(norm.outputs) > 1 or norm.used[0] == value:
            continue
        axis = norm.attrs.get("axis", -1)
        assert isinstance(axis, int)
        dims = view.dims(value)
        tail = dims[axis % len(dims) :]
        if array.ndim > len(tail) or np.broadcast_shapes(array.shape, tail) != tail:
            return No(f"a constant of shape {list(array.shape)} varies along axes that are not normalised")
        scale = view.constant(norm.inputs[1])
        bias_id = norm.inputs[2] if len(norm.inputs) > 2 else None
        bias = view.constant(bias_id)
        if scale is None or (bias_id is not None and bias is None):
            return No("the scale or bias of the LayerNormalization is not constant")
        if (refusal := view.enclosed(node, [norm])) is not None:
            return refusal
        spread = np.broadcast_to(wide(array), tail)
        return norm, wide(scale), None if bias is None else wide(bias), spread
    return None


def _with_affine(view: View, node: Node, norm: Node, scale: np.ndarray, bias: np.ndarray | None) -> Rewrite | No:
    dtype = view.type(node.outputs[0]).dtype
    draft = view.draft(node)
    inputs = [norm.used[0]]
    for part in (scale, bias):
        if part is not None:
            constant = rounded(part, dtype)
            if isinstance(constant, No):
                return constant
            inputs.append(draft.constant(constant))
    draft.node("LayerNormalization", tuple(inputs), norm.attrs, norm.source)
    return draft.done(f"{node.op} is folded into the LayerNormalization")


def layer_norm_scale(view: View, node: Node) -> Rewrite | No | None:
    """s * layer_normalization(x, a, b) = layer_normalization(x, s a, s b)."""
    found = _affine(view, node)
    if found is None or isinstance(found, No):
        return found
    norm, scale, bias, factor = found
    return _with_affine(view, node, norm, scale * factor, None if bias is None else bias * factor)


def layer_norm_bias(view: View, node: Node) -> Rewrite | No | None:
    """layer_normalization(x, a, b) + t = layer_normalization(x, a, b + t)."""
    found = _affine(view, node)
    if found is None or isinstance(found, No):
        return found
    norm, scale, bias, shift = found
    return _with_affine(view, node, norm, scale, shift if bias is None else bias + shift)


def softmax_by_exp(view: View, node: Node) -> Rewrite | No | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) = softmax(x), along one axis."""
    exp, total = view.producer(node.used[0], "Exp"), _reduced(view, node.used[1], "ReduceSum")
    sub = None if exp is None else view.producer(exp.used[0], "Sub")
    if exp is None or sub is None or total is None or total[0].used[0] != exp.outputs[0]:
        return None
    largest = _reduced(view, sub.used[1], "ReduceMax")
    if largest is None or largest[0].used[0] != sub.used[0] or view.type(sub.used[0]) != view.type(node.outputs[0]):
        return None
    if len(total[1]) != 1 or largest[1] != total[1]:
        return No(f"it sums over axes {list(total[1])} and takes the largest over {list(largest[1])}")
    swallowed = [exp, sub, total[0], largest[0]]
    if (refusal := view.enclosed(node, swallowed)) is not None:
        return refusal
    draft = view.draft(node)
    draft.node("Softmax", (sub.used[0],), {"axis": total[1][0]})
    return draft.done("5 nodes are a Softmax")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Div", "Mul"), layer_norm_by_moments),
    Rule(REASSOCIATES, ("Mul",), layer_norm_scale),
    Rule(REASSOCIATES, ("Add",), layer_norm_bias),
    Rule(REASSOCIATES, ("Div",), softmax_by_exp),
)
