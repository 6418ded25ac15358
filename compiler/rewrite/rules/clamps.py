"""Relu and Clip: clamps of clamps are one clamp.

`clamp(x, a, b)` is min(max(x, a), b). A bound that is absent is infinite.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View

Bounds = tuple[np.ndarray | None, np.ndarray | None]


def bounds_of(view: View, node: Node) -> Bounds | No:
    """Lower and upper bound as scalars; None where there is none."""
    if node.op == "Relu":
        return np.zeros((), view.type(node.outputs[0]).dtype.numpy), None
    found: list[np.ndarray | None] = []
    for value in (*node.inputs[1:], None, None)[:2]:
        array = view.constant(value)
        if value is not None and (array is None or array.size != 1):
            return No(f"bound %{value} is no constant")
        found.append(None if array is None else array.reshape(()))
        if array is not None and np.isnan(array.astype(np.float64)).any():
            return No(f"bound %{value} is not a number")
    low, high = found
    if low is not None and high is not None and low > high:
        return No("the lower bound is above the upper one")
    return low, high


def _clamped(
    bound: np.ndarray | None, low: np.ndarray | None, high: np.ndarray | None, open_end: np.ndarray | None
) -> np.ndarray | None:
    """A bound of the inner clamp after the outer clamp; an infinite one becomes the outer clamp's."""
    if bound is None:
        return open_end
    bound = bound if low is None else np.maximum(bound, low)
    return bound if high is None else np.minimum(bound, high)


def clamp_of_clamp(view: View, node: Node) -> Rewrite | No | None:
    """clamp(clamp(x, a, b), c, d) = clamp(x, clamp(a, c, d), clamp(b, c, d)).

    Where a bound becomes 0, the greater of two zeros may be either.
    """
    inner = view.producer(node.used[0], "Relu", "Clip")
    if inner is None:
        return None
    outer_bounds, inner_bounds = bounds_of(view, node), bounds_of(view, inner)
    if isinstance(outer_bounds, No):
        return outer_bounds
    if isinstance(inner_bounds, No):
        return inner_bounds
    if (refusal := view.enclosed(node, [inner])) is not None:
        return refusal
    (low, high), (a, b) = outer_bounds, inner_bounds
    draft = view.draft(node)
    new = [_clamped(a, low, high, low), _clamped(b, low, high, high)]
    draft.node("Clip", (inner.used[0], *(None if bound is None else draft.constant(bound) for bound in new)))
    return draft.done("two clamps become one")


def clamp_that_is_relu(view: View, node: Node) -> Rewrite | No | None:
    """clamp(x, 0, inf) = relu(x)."""
    bounds = bounds_of(view, node)
    if isinstance(bounds, No):
        return bounds
    low, high = bounds
    unbounded = high is None or bool(np.isposinf(high.astype(np.float64)))
    if low is None or low != 0 or np.signbit(low) or not unbounded or not view.type(node.outputs[0]).dtype.is_float:
        return None
    draft = view.draft(node)
    draft.node("Relu", (node.used[0],))
    return draft.done("a clamp from 0 is a Relu")


def clamp_without_bounds(view: View, node: Node) -> Rewrite | No | None:
    """clamp(x, -inf, inf) = x."""
    bounds = bounds_of(view, node)
    if isinstance(bounds, No):
        return bounds
    low, high = (None if bound is None else bound.astype(np.float64) for bound in bounds)
    if (low is None or np.isneginf(low)) and (high is None or np.isposinf(high)):
        return view.draft(node).same(node.used[0], why="it has no bounds")
    return None


def relu_of_relu(view: View, node: Node) -> Rewrite | No | None:
    """relu(relu(x)) = relu(x)."""
    inner = view.producer(node.used[0], "Relu")
    return None if inner is None else view.draft(node).same(inner.outputs[0], why="Relu after Relu")


def clamp_by_extreme(view: View, node: Node) -> Rewrite | No | None:
    """max(x, a) = clamp(x, a, inf), min(x, b) = clamp(x, -inf, b), where a and b are numbers.

    TensorFlow writes a Relu6 as min(relu(x), 6). The greater of two zeros may be either.
    """
    for x, array in view.operands(node):
        if array.size != 1 or view.type(x) != view.type(node.outputs[0]):
            continue
        if np.isnan(array.astype(np.float64)).any():
            return No("the bound is not a number")
        draft = view.draft(node)
        bound = draft.constant(array.reshape(()))
        draft.node("Clip", (x, bound, None) if node.op == "Max" else (x, None, bound))
        return draft.done(f"a {node.op} with a number is a clamp")
    return None


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Relu",), relu_of_relu),
    Rule(REASSOCIATES, ("Max", "Min"), clamp_by_extreme),
    Rule(EXACT, ("Clip",), clamp_without_bounds),
    Rule(EXACT, ("Clip",), clamp_that_is_relu),
    Rule(REASSOCIATES, ("Relu", "Clip"), clamp_of_clamp),
)
