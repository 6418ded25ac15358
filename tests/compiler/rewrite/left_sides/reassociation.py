"""Left sides of the rules of `reassociation`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.graph import Graph
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal
from tests.compiler.rewrite.sketch import Sketch


def _negative(s: Sketch, op: str) -> Graph:
    """op(op(x, a), b), the constants on either side."""
    x = s.x(2, 3)
    for _ in range(2):
        constant = s.positive(*((3,) if s.rng.integers(2) else ()))
        x = s(op, x, constant) if s.rng.integers(2) else s(op, constant, x)
    return s.graph(x)


def _huge(s: Sketch) -> Graph:
    return s.graph(s("Mul", s("Mul", s.x(2), s.c(1e200)), s.c(1e200)))


LEFT: Mapping[str, Drawing] = {
    "subtract_constant": lambda s: s.graph(s("Sub", s.x(2, 3), s.normal(3))),
    "divide_by_power_of_two": lambda s: s.graph(
        s("Div", s.x(2, 4), s.c(2.0 ** s.rng.integers(-20, 20, 4) * s.rng.choice([1, -1], 4)))
    ),
    "divide_by_constant": lambda s: s.graph(s("Div", s.x(2, 3), s.positive(*((3,) if s.rng.integers(2) else ())))),
    "add_constants": lambda s: _negative(s, "Add"),
    "multiply_constants": lambda s: _negative(s, "Mul"),
    "negate_product": lambda s: s.graph(s("Neg", s("Mul", s.x(2, 3), s.normal(3)))),
}

REFUSED: Mapping[str, Refusal] = {
    "subtract_constant": (lambda s: s.graph(s("Sub", s.c(1), s.x(3))), ""),
    "divide_by_power_of_two": (lambda s: s.graph(s("Div", s.x(3), s.c([2.0, 3.0, 4.0]))), ""),
    "divide_by_constant": (lambda s: s.graph(s("Div", s.x(3), s.c(0.0))), "not be finite"),
    "add_constants": (lambda s: s.graph(s("Add", s("Add", s.x(2, 3), s.normal(3)), s.normal(2, 1))), "elements"),
    "multiply_constants": (_huge, "not be finite"),
    "negate_product": (lambda s: s.graph(s("Neg", s("Mul", s.x(3), s.x(3)))), ""),
}
