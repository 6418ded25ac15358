"""The lemmas of functions hold, constants are read as what they stand for, and unequal sums are not found equal."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import z3

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType
from tests.proofs.attempt import Unproved, by_a_condition, equal, followed
from tests.proofs.reduce import Reduce
from tests.proofs.sizes import Path, Poly, Ratio, Size, alike
from tests.proofs.terms import LEMMAS, REALS, exact, product, surd

POINTS = np.concatenate([np.linspace(-9, 9, 25), [1e-9, -1e-9]])


def test_lemmas_hold_at_many_points() -> None:
    """Each fact is judged with the function's own numbers, which the solver is given as they are rounded."""
    functions = {"exp": math.exp, "erf": math.erf}
    judged = 0
    for name, function in functions.items():
        for lemma in LEMMAS[name]:
            for a in POINTS:
                for b in (-a, 2 * a, a / 2, -2 * a, a + 1):
                    judged += _judge(function, lemma, float(a), float(b))
    assert judged > 500


def _judge(function: object, lemma: object, a: float, b: float) -> int:
    assert callable(function)
    assert callable(lemma)
    one, other = z3.Real("a"), z3.Real("b")
    numbers = {"a": a, "b": b}

    def value(term: z3.ExprRef) -> float:
        """A term's value in floats."""
        if z3.is_rational_value(term):
            return float(term.as_fraction())
        args = [value(arg) for arg in term.children()]
        kind = term.decl().kind()
        if kind == z3.Z3_OP_UNINTERPRETED:
            return float(function(args[0])) if args else numbers[str(term)]
        if kind == z3.Z3_OP_UMINUS:
            return -args[0]
        return math.prod(args) if kind == z3.Z3_OP_MUL else sum(args)

    def holds(term: z3.ExprRef) -> bool:
        kind, args = term.decl().kind(), term.children()
        if kind == z3.Z3_OP_IMPLIES:
            return not holds(args[0]) or holds(args[1])
        if z3.is_bool(args[0]):
            return holds(args[0]) == holds(args[1])
        left, right = map(value, args)
        if kind == z3.Z3_OP_EQ:
            return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
        return {z3.Z3_OP_GT: left > right, z3.Z3_OP_GE: left >= right}[kind]

    curve = z3.Function("curve", z3.RealSort(), z3.RealSort())
    facts = lemma(curve, one, [other])
    assert all(holds(fact) for fact in facts), (lemma, a, b)
    return len(facts)


@pytest.mark.parametrize(
    ("value", "stands_for"),
    [(np.float32(1 / 6), Fraction(1, 6)), (0.044715, Fraction(44715, 1000000)), (np.float32(0.1), Fraction(1, 10))],
)
def test_a_constant_stands_for_the_simple_number_that_it_rounds(value: float, stands_for: Fraction) -> None:
    assert exact(float(value)) == stands_for


def test_roots_are_recognised() -> None:
    assert surd(math.sqrt(0.5)) == (Fraction(1, 2), 0)
    assert surd(math.sqrt(2 / math.pi)) == (Fraction(2), -1)
    assert surd(0.3) is None


def _sum(path: Path, *factors: tuple[str, int, int], extent: str = "n") -> Expr:
    """Sum over r < extent of the product of loads at `step * r + shift`."""
    axis = Axis(f"r{extent}{factors}", Size(5, Poly.name(extent), path))
    loads: list[Expr] = [Load(name, (Index.of(axis) * step + shift,), DType.F32) for name, step, shift in factors]
    value = loads[0]
    for load in loads[1:]:
        value = Apply("mul", (value, load))
    return Reduce("sum", (axis,), (value,), 0, DType.F32)


def _path() -> Path:
    path = Path()
    path.size("n", 5, 1)
    path.size("m", 5, 1)
    return path


def test_sums_are_equal_up_to_order_of_factors_and_constants_drawn_into_them() -> None:
    path = _path()
    two = Const(2.0, DType.F32)
    one = Apply("mul", (two, _sum(path, ("x", 1, 0), ("w", 1, 1))))
    other = Apply("mul", (_sum(path, ("w", 1, 1), ("x", 1, 0)), two))
    with followed():
        assert equal(one, other, (), path, exact=False) == REALS


@pytest.mark.parametrize(
    "other",
    [
        lambda path: _sum(path, ("x", 1, 0), ("w", 1, 0)),
        lambda path: _sum(path, ("x", 1, 0), ("w", 1, 1), extent="m"),
        lambda path: _sum(path, ("x", 2, 0), ("w", 1, 1)),
        lambda path: _sum(path, ("x", 1, 0), ("x", 1, 1)),
        lambda path: Apply("neg", (_sum(path, ("x", 1, 0), ("w", 1, 1)),)),
    ],
)
def test_sums_that_differ_are_not_found_equal(other: object) -> None:
    assert callable(other)
    path = _path()
    with followed(), pytest.raises(Unproved):
        equal(_sum(path, ("x", 1, 0), ("w", 1, 1)), other(path), (), path, exact=False)


def test_a_division_of_polynomials_gives_a_quotient_and_a_remainder() -> None:
    rng = np.random.default_rng(5)
    names: list[tuple[str, ...]] = [(), ("n",), ("m",), ("m", "n"), ("n", "n")]
    for _ in range(60):
        one, two = (Poly.of({key: int(rng.integers(-4, 5)) for key in names[:count]}) for count in (5, 3))
        if two.terms:
            quotient, rest = one.divided(two)
            assert quotient * two + rest == one


def test_a_quotient_that_is_the_same_for_all_sizes_has_no_name() -> None:
    path = _path()
    n, m = path.size("n", 6, 1), path.size("m", 4, 1)
    assert [str(each) for each in ((n - 1) // n, (n * m + n - 1) // n, -1 // n, (m - 1) // n)] == [
        "0",
        "m",
        "-1",
        "(m - 1)//(n)",
    ]


def test_quotients_of_sizes_are_alike_where_they_are_for_all_sizes() -> None:
    path = _path()
    n, m = path.size("n", 4, 1), path.size("m", 4, 1)
    assert Ratio.of(n * m, m) * Ratio.of(1, n) == 1.0
    assert [alike(1 / n, 1 / n), alike(1 / n, 1 / m), alike(1 / (1 / n), n), alike(0.25, 0.25)] == [
        True,
        False,
        True,
        None,
    ]


def test_signs_and_ones_of_products_of_floats_are_taken_out_as_ieee_does() -> None:
    sort = z3.FPSort(3, 4)
    a, b, one = z3.FP("a", sort), z3.FP("b", sort), z3.FPVal(1.0, sort)
    for left, right in ((-a, b), (a, -b), (-a, -b), (b, -one), (one, a), (-one, -one), (a, b)):
        solver = z3.Solver()
        solver.add(product(left, right) != z3.fpMul(z3.RNE(), left, right))
        assert solver.check() == z3.unsat
    solver = z3.Solver()
    solver.add(z3.fpDiv(z3.RNE(), a, one) != a)
    assert solver.check() == z3.unsat


def _greatest(path: Path, value: Callable[[Expr], Expr]) -> Expr:
    axis = Axis("r9", Size(5, Poly.name("n"), path))
    place = Position(Index.of(axis))
    return Reduce("argmax_first", (axis,), (value(Load("x", (Index.of(axis),), DType.F32)), place), 1, DType.I64)


def test_the_place_of_the_greatest_is_kept_by_increasing_functions_alone() -> None:
    path = _path()
    two, plain = Const(2.0, DType.F32), _greatest(path, lambda x: x)
    with followed():
        more = _greatest(path, lambda x: Apply("sub", (Apply("mul", (Apply("exp", (x,)), two)), two)))
        assert equal(more, plain, (), path, exact=False) == REALS
        for other in (Apply("neg", (two,)), Load("y", (), DType.F32)):
            less = _greatest(path, lambda x, other=other: Apply("mul", (x, other)))  # type: ignore[misc]
            with pytest.raises(Unproved):
                equal(less, plain, (), path, exact=False)


def test_a_sum_over_a_merged_range_is_one_over_both() -> None:
    path = _path()
    n, m = path.size("n", 6, 1), path.size("m", 4, 1)
    whole, outer, inner = Axis("r0", n * m), Axis("r1", n), Axis("r2", m)

    def load(*index: Index) -> Expr:
        return Load("x", index, DType.F32)

    one = Reduce("sum", (whole,), (load(Index.of(whole) // m, Index.of(whole) % m),), 0, DType.F32)
    two = Reduce("sum", (outer, inner), (load(Index.of(outer), Index.of(inner)),), 0, DType.F32)
    wrong = Reduce("sum", (outer, inner), (load(Index.of(inner), Index.of(outer)),), 0, DType.F32)
    with followed():
        assert equal(one, two, (), path, exact=False) == REALS
        with pytest.raises(Unproved):
            equal(one, wrong, (), path, exact=False)


def test_a_case_is_made_of_a_condition_only_if_nothing_else_reads_what_it_rests_on() -> None:
    x, size = Load("x", (), DType.F32), Load("n", (), DType.I64)
    zero = Const(0.0, DType.F32)
    of_x, of_size = Apply("lt", (x, zero)), Apply("lt", (Const(1, DType.I64), size))
    assert by_a_condition(Where(of_x, x, zero), x, ()) is None
    assert by_a_condition(Where(of_size, x, zero), x, ()) == [(x, x, ()), (zero, x, ())]


def test_sizes_say_how_they_were_made_and_what_was_asked_of_them() -> None:
    path = _path()
    n = path.size("n", 6, 1)
    half = n // 2
    assert str(n * 3 + 1) == "(3*n + 1)"
    assert half == 3
    assert (str(half), path.quotients["(n)//(2)"]) == ("(n)//(2)", (Poly.name("n"), Poly.number(2)))
    assert (n * n) // n == n
    assert n != 1
    assert n >= 1
    assert [f"{poly} {relation}" for poly, relation in path.conditions] == ["(n)//(2) - 3 ==", "n - 1 !="]
