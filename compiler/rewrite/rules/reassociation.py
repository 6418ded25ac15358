"""Constants are merged: what is added to or multiplied with one constant after another is added or multiplied once."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def _is_float(view: View, node: Node) -> bool:
    return view.type(node.outputs[0]).dtype.is_float


def subtract_constant(view: View, node: Node) -> Rewrite | No | None:
    """x - c = x + (-c)."""
    array = view.constant(node.inputs[1])
    if array is None or not _is_float(view, node):
        return None
    draft = view.draft(node)
    draft.node("Add", (node.inputs[0], draft.constant(np.negative(array))))
    return draft.done("subtracting a constant adds its negative")


def divide_by_power_of_two(view: View, node: Node) -> Rewrite | No | None:
    """x / 2**n = x * 2**-n, where 2**n and 2**-n are normal numbers."""
    array = view.constant(node.inputs[1])
    if array is None or not _is_float(view, node) or not array.size:
        return None
    mantissa, exponent = np.frexp(wide(array))
    limit = {"float64": 1021, "float16": 13}.get(array.dtype.name, 125)
    if not bool((np.isfinite(wide(array)) & (np.abs(mantissa) == 0.5) & (np.abs(exponent) <= limit)).all()):
        return None
    draft = view.draft(node)
    draft.node("Mul", (node.inputs[0], draft.constant((1.0 / wide(array)).astype(array.dtype))))
    return draft.done("the divisor is a power of two")


def divide_by_constant(view: View, node: Node) -> Rewrite | No | None:
    """x / c = x * (1 / c)."""
    array = view.constant(node.inputs[1])
    if array is None or not _is_float(view, node) or not array.size:
        return None
    with np.errstate(all="ignore"):
        constant = rounded(1.0 / wide(array), view.type(node.inputs[1] or 0).dtype)
    if isinstance(constant, No):
        return constant
    if not _same_zeros(constant, np.ones(()), array):
        return No("the reciprocal of the divisor underflows")
    draft = view.draft(node)
    draft.node("Mul", (node.inputs[0], draft.constant(constant)))
    return draft.done("dividing by a constant multiplies by its reciprocal")


def _joined(view: View, node: Node) -> Rewrite | No | None:
    """The node and its producer, both Add or both Mul with a constant, as one."""
    if not _is_float(view, node):
        return None
    for value, outer in view.operands(node):
        inner = view.producer(value, node.op)
        if inner is None:
            continue
        for x, array in view.operands(inner):
            if (refusal := view.enclosed(node, [inner])) is not None:
                return refusal
            with np.errstate(all="ignore"):
                both = wide(array) + wide(outer) if node.op == "Add" else wide(array) * wide(outer)
            if both.size > max(array.size, outer.size):
                return No(
                    f"constants of {list(array.shape)} and {list(outer.shape)} together would have {both.size} elements"
                )
            constant = rounded(both, view.type(value).dtype)
            if isinstance(constant, No):
                return constant
            if node.op == "Mul" and not _same_zeros(constant, array, outer):
                return No("the product of the constants underflows")
            draft = view.draft(node)
            draft.node(node.op, (x, draft.constant(constant)))
            return draft.done(f"two constants meet in one {node.op}")
    return None


def _same_zeros(product: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    tiny = np.finfo(np.float64).tiny if product.dtype == np.float64 else 2.0**-126
    small = np.abs(wide(product)) < (2.0**-14 if product.dtype == np.float16 else tiny)
    return bool((~small | (wide(a) == 0) | (wide(b) == 0)).all())


def add_constants(view: View, node: Node) -> Rewrite | No | None:
    """(x + a) + b = x + (a + b)."""
    return _joined(view, node)


def multiply_constants(view: View, node: Node) -> Rewrite | No | None:
    """(x * a) * b = x * (a * b)."""
    return _joined(view, node)


def negate_product(view: View, node: Node) -> Rewrite | No | None:
    """-(x * a) = x * (-a)."""
    inner = view.producer(node.used[0], "Mul")
    if inner is None or not _is_float(view, node):
        return None
    for x, array in view.operands(inner):
        if (refusal := view.enclosed(node, [inner])) is not None:
            return refusal
        draft = view.draft(node)
        draft.node("Mul", (x, draft.constant(np.negative(array))))
        return draft.done("the sign moves into the constant")
    return None


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Sub",), subtract_constant),
    Rule(EXACT, ("Div",), divide_by_power_of_two),
    Rule(REASSOCIATES, ("Div",), divide_by_constant),
    Rule(REASSOCIATES, ("Add",), add_constants),
    Rule(REASSOCIATES, ("Mul",), multiply_constants),
    Rule(EXACT, ("Neg",), negate_product),
)
