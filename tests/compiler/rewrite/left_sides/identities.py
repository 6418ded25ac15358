"""Left sides of the rules of `identities`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, shape
from tests.compiler.rewrite.sketch import Sketch


def _around(s: Sketch, op: str, number: float, either: bool = True) -> Graph:
    """op(x, number) or, where sides may be swapped, op(number, x), between two other nodes."""
    x = s("Abs", s.x(*shape(s, 2)))
    operands = (x, s.c(number))
    return s.graph(s("Neg", s(op, *(operands[::-1] if either and s.rng.integers(2) else operands))))


LEFT: Mapping[str, Drawing] = {
    "identity": lambda s: s.graph(s("Abs", s("Identity", s.x(*shape(s))))),
    "add_negative_zero": lambda s: _around(s, "Add", -0.0),
    "add_zero": lambda s: _around(s, "Add", 0.0),
    "subtract_zero": lambda s: _around(s, "Sub", 0.0, either=False),
    "multiply_by_one": lambda s: _around(s, "Mul", 1.0),
    "divide_by_one": lambda s: _around(s, "Div", 1.0, either=False),
    "power_of_one": lambda s: _around(s, "Pow", 1.0, either=False),
    "negated_twice": lambda s: s.graph(s("Abs", s("Neg", s("Neg", s.x(*shape(s)))))),
    "cast_to_own_type": lambda s: s.graph(s("Abs", s("Cast", s.x(3, dtype=DType.F32), to=1))),
    "only_operand": lambda s: s.graph(s("Abs", s(str(s.rng.choice(["Sum", "Max", "Min", "Mean"])), s.x(*shape(s))))),
}

REFUSED: Mapping[str, Refusal] = {
    "identity": (lambda s: s.graph(s("Identity", s.x(2))), "must keep its own id"),
    "add_negative_zero": (lambda s: _around(s, "Add", 0.0), ""),
    "add_zero": (lambda s: s.graph(s("Abs", s("Add", s.x(3), s.c([[0], [0]])))), ""),
    "subtract_zero": (lambda s: _around(s, "Sub", -0.0, either=False), ""),
    "multiply_by_one": (lambda s: _around(s, "Mul", 0.0), ""),
    "divide_by_one": (lambda s: s.graph(s("Abs", s("Div", s.c(1), s.x(3)))), ""),
    "power_of_one": (lambda s: s.graph(s("Abs", s("Pow", s.c(1), s.x(3)))), ""),
    "negated_twice": (lambda s: s.graph(s("Neg", s("Abs", s("Neg", s.x(3))))), ""),
    "cast_to_own_type": (lambda s: s.graph(s("Abs", s("Cast", s.x(3), to=1))), ""),
    "only_operand": (lambda s: s.graph(s("Abs", s("Mean", s.x(3), s.x(3)))), ""),
}
