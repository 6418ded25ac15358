"""Terms: what they find, and what they do not."""

from __future__ import annotations

import pytest

from compiler.rewrite.pattern import constant, either, match, number, op, scalar, value
from compiler.rewrite.program import Program
from tests.compiler.rewrite.sketch import Sketch

X = value("x")


def found(s: Sketch, term: object) -> object:
    """The term at the last node of a sketch."""
    program = Program(s.graph())
    return match(program, program.made_by[max(program.made_by)], term)  # type: ignore[arg-type]


def test_a_value_that_stands_twice_must_be_the_same_value() -> None:
    term = op("Mul", X, op("Sigmoid", X))
    s = Sketch()
    x, y = s.x(2), s.x(2)
    s("Mul", x, s("Sigmoid", x))
    assert found(s, term) is not None
    s("Mul", y, s("Sigmoid", x))
    assert found(s, term) is None


@pytest.mark.parametrize("swapped", [False, True])
def test_operands_of_a_commutative_operator_are_tried_in_both_orders(swapped: bool) -> None:
    s = Sketch()
    operands = (s.x(2), s.c(3.0))
    s("Add", *(operands[::-1] if swapped else operands))
    assert found(s, op("Add", X, number(3.0))) is not None


def test_operands_of_other_operators_stay_in_their_places() -> None:
    s = Sketch()
    s("Sub", s.c(3.0), s.x(2))
    assert found(s, op("Sub", X, number(3.0))) is None


def test_an_order_that_fails_further_up_is_given_up_for_the_other() -> None:
    s = Sketch()
    x = s.x(2)
    s("Add", s("Abs", s("Neg", x)), s("Abs", x))
    assert found(s, op("Add", op("Abs", X), op("Abs", op("Neg", X)))) is not None


def test_numbers_are_known_by_name_and_must_agree() -> None:
    s = Sketch()
    s("Mul", s("Add", s.x(2), s.c(2.0)), s.c(2.0))
    term = op("Mul", op("Add", X, scalar("a")), scalar("a"))
    one = found(s, term)
    assert one is not None
    assert one.scalars == {"a": 2.0}  # type: ignore[attr-defined]
    s("Mul", s("Add", s.x(2), s.c(2.0)), s.c(3.0))
    assert found(s, term) is None


def test_a_constant_is_no_other_value() -> None:
    s = Sketch()
    s("Div", s.x(2), s.normal(2))
    assert found(s, op("Div", X, constant("c"))) is not None
    assert found(s, op("Div", constant("c"), X)) is None


def test_alternatives_are_tried_in_their_order() -> None:
    s = Sketch()
    s("Abs", s("Neg", s.x(2)))
    one = found(s, op("Abs", either(op("Relu", X), op("Neg", X), X)))
    assert one is not None
    assert one["x"] == 0  # type: ignore[index]


def test_the_nodes_found_leave_out_the_root_and_count_a_shared_one_once() -> None:
    s = Sketch()
    moved = s("Neg", s.x(2))
    s("Mul", s("Abs", moved), s("Exp", moved))
    one = found(s, op("Mul", op("Abs", op("Neg", X)), op("Exp", op("Neg", X))))
    assert [node.op for node in one.nodes] == ["Abs", "Neg", "Exp"]  # type: ignore[attr-defined]
