from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.expr import FUNCTIONS, Apply, Cast, Const, Expr, Load, Position, Where, conjunction, inside
from compiler.ir.index import Axis, Index, Indirect
from compiler.ir.tensor import DType
from tests.parse import parse_expr

ROW, J = Axis("i", 8), Axis("j", 4)
TYPES = {"x": DType.F32, "at": DType.I64}


def expr(text: str) -> Expr:
    return parse_expr(text, (ROW, J), TYPES)


def test_every_form_tells_its_dtype() -> None:
    assert expr("x[i]").dtype is DType.F32
    assert expr("add(x[i], 1.0:f32)").dtype is DType.F32
    assert expr("lt(x[i], 1.0:f32)").dtype is DType.BOOL
    assert expr("cast(x[i]):f16").dtype is DType.F16
    assert expr("where(isnan(x[i]), 0.0:f32, x[i])").dtype is DType.F32
    assert expr("#(i):i32").dtype is DType.I32


def test_constants_are_equal_if_they_are_the_same_number() -> None:
    """What was worked out for one kernel is used again for an equal one: 1 / 0.0 is not 1 / -0.0."""
    zero, negative, nan = (Const(value, DType.F32) for value in (0.0, -0.0, float("nan")))
    assert zero != negative
    assert len({zero, negative, Const(0.0, DType.F64), Const(False, DType.BOOL), Const(0, DType.I64), nan}) == 6
    assert nan == Const(np.float64(np.nan), DType.F32)
    assert hash(nan) == hash(Const(np.float64(np.nan), DType.F32))
    assert Const(np.float64(0.5), DType.F32) == Const(0.5, DType.F32)
    assert expr("max(x[i], 0.0:f32)") != expr("max(x[i], -0.0:f32)")


def test_substitution_replaces_axes_everywhere() -> None:
    before = expr("where(lt(#(i - 1):i64, 3:i64), x[[at[i] in 0..9]], cast(#(i):i64):f32)")
    after = before.substitute({ROW: Index.of(J) * 2 + 1})
    assert after == expr("where(lt(#(2*j):i64, 3:i64), x[[at[2*j + 1] in 0..9]], cast(#(2*j + 1):i64):f32)")
    assert before.axes == {ROW}
    assert after.axes == {J}


def test_substitution_leaves_other_axes_and_constants_alone() -> None:
    before = expr("add(x[j], 2.0:f32)")
    assert before.substitute({ROW: Index.of(0)}) == before


def test_a_rewrite_is_applied_to_children_first_and_inside_loaded_indices() -> None:
    def doubled(part: Expr) -> Expr:
        return Const(part.value * 2, part.type) if isinstance(part, Const) else part

    before = expr("add(x[[add(at[i], 1:i64) in 0..9] + 1], 3.0:f32)")
    assert before.transform(doubled) == expr("add(x[[add(at[i], 2:i64) in 0..9] + 1], 6.0:f32)")

    order: list[str] = []

    def noted(part: Expr) -> Expr:
        order.append(str(part))
        return part

    expr("add(x[[at[i] in 0..9]], neg(x[j]))").transform(noted)
    assert order == ["at[i]", "x[[at[i] in 0..9]]", "x[j]", "neg(x[j])", "add(x[[at[i] in 0..9]], neg(x[j]))"]


def test_a_rewrite_may_replace_a_load_by_what_was_stored() -> None:
    def inlined(part: Expr) -> Expr:
        return Apply("exp", (part,)) if isinstance(part, Load) and part.slot == "x" else part

    assert expr("mul(x[i], x[j])").transform(inlined) == expr("mul(exp(x[i]), exp(x[j]))")


def test_loads_are_listed_with_repetitions_and_those_inside_indices() -> None:
    loads = expr("add(x[[at[i] in 0..9]], add(x[j], x[j]))").loads
    assert [str(load) for load in loads] == ["x[[at[i] in 0..9]]", "at[i]", "x[j]", "x[j]"]


@pytest.mark.parametrize(
    ("index", "extent", "condition"),
    [
        (Index.of(ROW), 8, "None"),
        (Index.of(ROW) - 1, 8, "ge(#(i - 1):i64, 0:i64)"),
        (Index.of(ROW) + 1, 8, "lt(#(i + 1):i64, 8:i64)"),
        (Index.of(ROW) * 2 - 1, 8, "and(ge(#(2*i - 1):i64, 0:i64), lt(#(2*i - 1):i64, 8:i64))"),
    ],
)
def test_a_padding_condition_asks_only_what_ranges_do_not_prove(index: Index, extent: int, condition: str) -> None:
    assert str(inside(index, extent)) == condition


def test_a_conjunction_of_nothing_is_no_condition() -> None:
    yes = Const(True, DType.BOOL)
    assert conjunction([]) is None
    assert conjunction([yes]) == yes
    assert conjunction([yes, yes]) == Apply("and", (yes, yes))


def test_every_form_can_be_rebuilt_from_its_parts() -> None:
    forms = [
        Const(1, DType.I64),
        Load("x", (Index.of(ROW),), DType.F32),
        Load("x", (Index.of(Indirect(Load("at", (Index.of(ROW),), DType.I64), 0, 3)),), DType.F32),
        Position(Index.of(ROW)),
        Apply("neg", (Const(1.0, DType.F32),)),
        Cast(Const(1.0, DType.F32), DType.I8, saturate=True),
        Where(Const(True, DType.BOOL), Const(1.0, DType.F32), Const(2.0, DType.F32)),
    ]
    for form in forms:
        assert form.rebuild(form.children, form.indices) == form


def doubled(leaf: Expr, times: int) -> Expr:
    """`leaf` added to itself, that to itself, and so on: a few forms that are held twice each, 2**times paths."""
    for _ in range(times):
        leaf = Apply("add", (leaf, leaf))
    return leaf


def test_what_several_hold_is_substituted_once_and_stays_one() -> None:
    """A tree of 2**100 would never be done with."""
    moved = doubled(Load("x", (Index.of(ROW),), DType.F32), 100).substitute({ROW: Index.of(J) + 1})
    for _ in range(100):
        left, right = moved.children
        assert left is right
        moved = left
    assert str(moved) == "x[j + 1]"


def test_what_several_hold_is_transformed_once_and_stays_one() -> None:
    looked_at: list[Expr] = []

    def renamed(part: Expr) -> Expr:
        looked_at.append(part)
        return Load("z", part.index, part.type) if isinstance(part, Load) else part

    gathered = Load("x", (Index.of(Indirect(Load("at", (Index.of(ROW),), DType.I64), 0, 7)),), DType.F32)
    moved = doubled(gathered, 100).transform(renamed)
    assert len(looked_at) == 102
    for _ in range(100):
        left, right = moved.children
        assert left is right
        moved = left
    assert str(moved) == "z[[z[i] in 0..7]]"


def test_a_walk_meets_parents_before_what_is_inside_their_indices_and_that_before_their_children() -> None:
    at = Load("at", (Index.of(ROW),), DType.I64)
    other = Load("at", (Index.of(ROW) + 1,), DType.I64)
    both = (Index.of(Indirect(at, 0, 7)) // 2 + Index.of(ROW), Index.of(Indirect(other, 0, 7)))
    gathered = Load("x", both, DType.F32)
    whole = Where(expr("lt(x[i], 1.0:f32)"), gathered, Apply("neg", (gathered,)))
    met = [str(part) for part in whole.walk()]
    one = [str(gathered), str(at), str(other)]
    assert met == [str(whole), "lt(x[i], 1.0:f32)", "x[i]", "1.0:f32", *one, f"neg({gathered})", *one]
    assert [str(load) for load in whole.loads] == ["x[i]", *one, *one]


def test_functions_are_listed_under_their_own_name() -> None:
    for name, function in FUNCTIONS.items():
        assert function.name == name
        assert function.arity in (1, 2)
        assert function.returns in ("same", "bool")
