"""Left sides of the rules of `identities`, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.rewrite.left_sides.drawing import Drawing, Refusal, shape
from tests.compiler.rewrite.sketch import Sketch


def _around(s: Sketch, op: str, number: float, either: bool = True) -> Graph:
    """op(x, number) or, where sides may be swapped, op(number, x), between two other nodes."""
    x = s("Abs", s.x(*shape(s, 2)))
    operands = (x, s.c(number))
    return s.graph(s("Neg", s(op, *(operands[::-1] if either and s.rng.integers(2) else operands))))


def _flags(s: Sketch) -> int:
    return s.x(2, 3, dtype=DType.BOOL)


def _decided(s: Sketch) -> Graph:
    x, y = s.x(2, 3), s.x(2, 3)
    if s.rng.integers(2):
        return s.graph(s("Abs", s("Where", _flags(s), x, x)))
    known = s.c(np.full((2, 3), bool(s.rng.integers(2))), DType.BOOL)
    return s.graph(s("Abs", s("Where", known, x, y)))


def _logic(s: Sketch) -> Graph:
    op = str(s.rng.choice(["And", "Or"]))
    operands = (_flags(s), s.c(np.full((3,), op == "And"), DType.BOOL))
    return s.graph(s("Not", s(op, *operands[:: int(s.rng.choice([1, -1]))])))


def _negated(s: Sketch) -> Graph:
    x, y = s.x(2, 3), s("Neg", s.x(2, 3))
    if s.rng.integers(2):
        return s.graph(s("Sub", x, y))
    return s.graph(s("Add", y, x) if s.rng.integers(2) else s("Add", x, y))


def _power(s: Sketch) -> Graph:
    exponent = float(s.rng.choice([2.0, 0.5, -1.0]))
    return s.graph(s("Pow", s("Abs", s.x(2, 3)), s.c(exponent)))


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
    "not_of_not": lambda s: s.graph(s("Where", s("Not", s("Not", _flags(s))), s.x(2, 3), s.x(2, 3))),
    "where_of_not": lambda s: s.graph(s("Where", s("Not", _flags(s)), s.x(2, 3), s.x(3))),
    "where_decided": _decided,
    "logic_decided": _logic,
    "multiply_by_minus_one": lambda s: _around(s, "Mul", -1.0),
    "add_negated": _negated,
    "power_by_number": _power,
    "sum_of_two": lambda s: s.graph(s("Sum", s.x(2, 3), s.x(*shape(s, rank=1, low=3)))),
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
    "not_of_not": (lambda s: s.graph(s("Not", s("And", _flags(s), _flags(s)))), ""),
    "where_of_not": (lambda s: s.graph(s("Where", _flags(s), s.x(2, 3), s.x(2, 3))), ""),
    "where_decided": (
        lambda s: s.graph(s("Abs", s("Where", s.c([True, False, True], DType.BOOL), s.x(2, 3), s.x(2, 3)))),
        "",
    ),
    "logic_decided": (lambda s: s.graph(s("Not", s("And", _flags(s), s.c(False, DType.BOOL)))), ""),
    "multiply_by_minus_one": (lambda s: s.graph(s("Mul", s.x(3), s.c([[-1.0], [-1.0]]))), ""),
    "add_negated": (lambda s: s.graph(s("Sub", s("Neg", s.x(3)), s.x(3))), ""),
    "power_by_number": (lambda s: s.graph(s("Pow", s.x(3), s.c(3.0))), ""),
    "sum_of_two": (lambda s: s.graph(s("Sum", s.x(3), s.x(3), s.x(3))), ""),
    "only_operand": (lambda s: s.graph(s("Abs", s("Mean", s.x(3), s.x(3)))), ""),
}
