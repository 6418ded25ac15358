"""Nodes that change nothing, and nodes for which there is a simpler one."""

from __future__ import annotations

import math

from compiler.ir.graph import Node
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def _same(view: View, node: Node, value: int, why: str) -> Rewrite | No | None:
    """The node's only output equals `value`, if it also has its type."""
    if view.type(value) != view.type(node.outputs[0]):
        return None
    if (
        node.op == "Identity"
        and node.outputs[0] in view.outputs
        and (value in view.outputs or view.producer(value) is None)
    ):
        return No(f"graph output %{node.outputs[0]} equals %{value}, which must keep its own id: one copy stays")
    return view.draft(node).same(value, why=why)


def _neutral(view: View, node: Node, side: int, number: float) -> bool:
    """Whether the input at `side` is constant and every element is `number`, in sign too."""
    array = view.constant(node.inputs[side])
    if array is None or array.dtype.kind == "b" or not array.size or array.reshape(-1)[0] != number:
        return False
    if not bool((array == number).all()):
        return False
    return (
        number != 0
        or not view.type(node.outputs[0]).dtype.is_float
        or all(
            math.copysign(1.0, float(zero)) == math.copysign(1.0, number)
            for zero in {str(z): z for z in array.reshape(-1)}.values()
        )
    )


def identity(view: View, node: Node) -> Rewrite | No | None:
    """Identity(x) = x."""
    return _same(view, node, node.used[0], "it is an Identity")


def add_negative_zero(view: View, node: Node) -> Rewrite | No | None:
    """x + (-0.0) = x."""
    for side in (0, 1):
        if _neutral(view, node, side, -0.0):
            return _same(view, node, node.used[1 - side], "-0.0 is added")
    return None


def add_zero(view: View, node: Node) -> Rewrite | No | None:
    """x + 0.0 = x.

    A negative zero stays negative where the sum would be a positive one.
    """
    for side in (0, 1):
        if _neutral(view, node, side, 0.0):
            return _same(view, node, node.used[1 - side], "0 is added")
    return None


def subtract_zero(view: View, node: Node) -> Rewrite | No | None:
    """x - 0.0 = x."""
    return _same(view, node, node.used[0], "0 is subtracted") if _neutral(view, node, 1, 0.0) else None


def multiply_by_one(view: View, node: Node) -> Rewrite | No | None:
    """x * 1 = x."""
    for side in (0, 1):
        if _neutral(view, node, side, 1.0):
            return _same(view, node, node.used[1 - side], "it is multiplied by 1")
    return None


def divide_by_one(view: View, node: Node) -> Rewrite | No | None:
    """x / 1 = x."""
    return _same(view, node, node.used[0], "it is divided by 1") if _neutral(view, node, 1, 1.0) else None


def power_of_one(view: View, node: Node) -> Rewrite | No | None:
    """x ** 1 = x."""
    return _same(view, node, node.used[0], "its exponent is 1") if _neutral(view, node, 1, 1.0) else None


def negated_twice(view: View, node: Node) -> Rewrite | No | None:
    """-(-x) = x."""
    inner = view.producer(node.used[0], "Neg")
    return _same(view, node, inner.used[0], "it is negated twice") if inner is not None else None


def cast_to_own_type(view: View, node: Node) -> Rewrite | No | None:
    """cast(x: t, t) = x."""
    return _same(view, node, node.used[0], "it has that element type")


def only_operand(view: View, node: Node) -> Rewrite | No | None:
    """sum(x) = max(x) = min(x) = mean(x) = concat(x) = x."""
    return _same(view, node, node.used[0], f"{node.op} has one operand") if len(node.used) == 1 else None


def sum_of_two(view: View, node: Node) -> Rewrite | No | None:
    """sum(x, y) = x + y."""
    if len(node.used) != 2:
        return None
    draft = view.draft(node)
    draft.node("Add", node.inputs)
    return draft.done("it has two operands")


def not_of_not(view: View, node: Node) -> Rewrite | No | None:
    """not not x = x."""
    inner = view.producer(node.used[0], "Not")
    return _same(view, node, inner.used[0], "it is negated twice") if inner is not None else None


def where_of_not(view: View, node: Node) -> Rewrite | No | None:
    """where(not c, x, y) = where(c, y, x)."""
    inner = view.producer(node.used[0], "Not")
    if inner is None:
        return None
    draft = view.draft(node)
    draft.node("Where", (inner.used[0], node.used[2], node.used[1]))
    return draft.done("the operands of the Where change places")


def where_decided(view: View, node: Node) -> Rewrite | No | None:
    """where(true, x, y) = x, where(false, x, y) = y, where(c, x, x) = x."""
    chosen, x, y = node.used
    if x == y:
        return _same(view, node, x, "both operands are the same")
    known = view.constant(chosen)
    if known is None or not known.size or known.all() != known.any():
        return None
    return _same(view, node, x if known.all() else y, "its condition is known")


def logic_decided(view: View, node: Node) -> Rewrite | No | None:
    """x and true = x, x or false = x."""
    for x, known in view.operands(node):
        if known.size and bool((known == (node.op == "And")).all()):
            return _same(view, node, x, "its other operand decides nothing")
    return None


def multiply_by_minus_one(view: View, node: Node) -> Rewrite | No | None:
    """x * (-1) = -x."""
    for side in (0, 1):
        if _neutral(view, node, side, -1.0) and view.type(node.inputs[1 - side] or 0) == view.type(node.outputs[0]):
            draft = view.draft(node)
            draft.node("Neg", (node.inputs[1 - side],))
            return draft.done("it is multiplied by -1")
    return None


def add_negated(view: View, node: Node) -> Rewrite | No | None:
    """x + (-y) = x - y, x - (-y) = x + y."""
    sides = (1, 0) if node.op == "Add" else (1,)
    for side in sides:
        inner = view.producer(node.inputs[side], "Neg")
        if inner is not None:
            draft = view.draft(node)
            draft.node("Sub" if node.op == "Add" else "Add", (node.inputs[1 - side], inner.used[0]))
            return draft.done("the sign moves into the sum")
    return None


def power_by_number(view: View, node: Node) -> Rewrite | No | None:
    """x ** 2 = x * x, x ** 0.5 = sqrt(x), x ** -1 = 1 / x.

    The power of a negative infinity by 0.5 is an infinity; its root is not a number.
    """
    x, exponent = node.used[0], view.scalar(node.inputs[1])
    if view.type(x) != view.type(node.outputs[0]) or not view.type(x).dtype.is_float:
        return None
    draft = view.draft(node)
    if exponent == 2.0:
        draft.node("Mul", (x, x))
    elif exponent in (0.5, -1.0):
        draft.node("Sqrt" if exponent == 0.5 else "Reciprocal", (x,))
    else:
        return None
    return draft.done(f"its exponent is {exponent:g}")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Identity",), identity),
    Rule(EXACT, ("Add",), add_negative_zero),
    Rule(REASSOCIATES, ("Add",), add_zero),
    Rule(EXACT, ("Sub",), subtract_zero),
    Rule(EXACT, ("Mul",), multiply_by_one),
    Rule(EXACT, ("Div",), divide_by_one),
    Rule(EXACT, ("Pow",), power_of_one),
    Rule(EXACT, ("Neg",), negated_twice),
    Rule(EXACT, ("Cast", "CastLike"), cast_to_own_type),
    Rule(EXACT, ("Not",), not_of_not),
    Rule(EXACT, ("Where",), where_of_not),
    Rule(EXACT, ("Where",), where_decided),
    Rule(EXACT, ("And", "Or"), logic_decided),
    Rule(EXACT, ("Mul",), multiply_by_minus_one),
    Rule(EXACT, ("Add", "Sub"), add_negated),
    Rule(REASSOCIATES, ("Pow",), power_by_number),
    Rule(EXACT, ("Sum",), sum_of_two),
    Rule(EXACT, ("Sum", "Max", "Min", "Mean", "Concat"), only_operand),
)
