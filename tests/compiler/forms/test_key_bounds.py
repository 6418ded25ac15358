"""Which masks of attention say where keys end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.forms.attention import Attention, as_few_queries
from compiler.forms.key_bounds import KeyBounds, key_bounds
from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Store
from compiler.ir.tensor import DType
from tests.compiler.fuse.few_queries import Form, join_of

LAST, SCORE = Load("last", (), DType.I64), Load("score", (), DType.F32)
LOWEST = Const(-3e38, DType.F32)


def attention() -> Attention:
    """Without a mask."""
    _, join = join_of(Form(mask="none"))
    assert join is not None
    view = as_few_queries(join.call.kernel)
    assert view is not None
    return view


VIEW = attention()
PLACE = Position(Index.of(VIEW.keys))


def bounds_of(value: Expr) -> KeyBounds:
    """Those of attention with one more map."""
    score = VIEW.maps[-1].values[0]
    value = value.transform(lambda part: score if part == SCORE else part)
    return key_bounds(replace(VIEW, maps=(*VIEW.maps, Block((VIEW.keys,), (value,), VIEW.maps[-1].stores))))


def compared(function: str, left: Expr, right: Expr) -> Expr:
    return Where(Apply(function, (left, right)), SCORE, LOWEST)


@pytest.mark.parametrize(
    ("function", "more", "is_end"), [("lt", 0, True), ("le", 1, True), ("gt", 1, False), ("ge", 0, False)]
)
def test_a_comparison_of_places_is_a_bound_from_either_side(function: str, more: int, is_end: bool) -> None:
    swapped = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[function]
    for value in (compared(function, PLACE, LAST), compared(swapped, LAST, PLACE)):
        found = bounds_of(value)
        (bound,) = found.bounds
        assert (bound.limit, bound.more, bound.is_end) == (LAST, more, is_end)
        assert found.kept[-1].values[0] == VIEW.maps[-1].values[0]


def test_keys_are_those_of_a_text_where_data_says_both_ends() -> None:
    first, four = Load("first", (), DType.I64), Const(4, DType.I64)
    begun, ended = (Apply(function, (PLACE, end)) for function, end in (("ge", first), ("lt", LAST)))
    for condition, is_one in (
        (Apply("and", (begun, ended)), True),
        (Apply("and", (Apply("ge", (PLACE, four)), ended)), False),
        (Apply("and", (begun, Apply("lt", (PLACE, four)))), False),
        (ended, False),
    ):
        found = bounds_of(Where(condition, SCORE, LOWEST))
        assert found.bounds
        assert found.are_segments is is_one


def test_a_number_beside_the_place_moves_the_bound() -> None:
    shifted = Position(Index.of(VIEW.keys) + 7)
    assert [bound.more for bound in bounds_of(compared("le", shifted, LAST)).bounds] == [-6]


def test_what_a_condition_asks_besides_stays_a_choice() -> None:
    other = Apply("gt", (Load("given", (Index.of(VIEW.keys),), DType.F32), Const(0.0, DType.F32)))
    found = bounds_of(Where(Apply("and", (other, Apply("le", (PLACE, LAST)))), SCORE, LOWEST))
    assert len(found.bounds) == 1
    assert isinstance(left := found.kept[-1].values[0], Where)
    assert left.condition == other


def test_choices_of_one_number_inside_each_other_are_all_bounds() -> None:
    inner = compared("ge", PLACE, Const(3, DType.I64))
    found = bounds_of(Where(Apply("lt", (PLACE, LAST)), inner, LOWEST))
    assert [bound.is_end for bound in found.bounds] == [True, False]
    assert found.kept[-1].values[0] == VIEW.maps[-1].values[0]


NEVER, ALWAYS = Const(float("-inf"), DType.F32), Const(0.0, DType.F32)


def added(*terms: Expr) -> Expr:
    value: Expr = SCORE
    for term in terms:
        value = Apply("add", (term, value))
    return value


def test_masks_of_infinities_that_are_added_are_bounds_from_either_side() -> None:
    ends = Where(Apply("lt", (PLACE, LAST)), ALWAYS, NEVER)
    begins = Where(Apply("lt", (PLACE, Const(3, DType.I64))), NEVER, ALWAYS)
    found = bounds_of(added(ends, begins))
    assert {(bound.limit, bound.more, bound.is_end) for bound in found.bounds} == {
        (LAST, 0, True),
        (Const(3, DType.I64), 0, False),
    }
    assert found.lowest == float("-inf")
    assert found.kept[-1].values[0] == VIEW.maps[-1].values[0]


def test_what_is_added_beside_such_a_mask_stays() -> None:
    bias = Load(VIEW.kernel.inputs[0].name, (Index.of(0),) * 5, DType.F32)
    found = bounds_of(added(bias, Where(Apply("ge", (LAST, PLACE)), ALWAYS, NEVER)))
    assert [(bound.more, bound.is_end) for bound in found.bounds] == [(1, True)]
    assert found.kept[-1].values[0] == Apply("add", (bias, VIEW.maps[-1].values[0]))


NONE = {
    "the number is not one": Where(Apply("lt", (PLACE, LAST)), SCORE, Load("lowest", (), DType.F32)),
    "the limit depends on the key": compared("lt", PLACE, Load("last", (Index.of(VIEW.keys),), DType.I64)),
    "the place is counted twice": compared("lt", Position(Index.of(VIEW.keys) * 2), LAST),
    "the place is a float": compared("lt", Position(Index.of(VIEW.keys), DType.F32), Load("last", (), DType.F32)),
    "another axis moves the place": compared("lt", Position(Index.of(VIEW.keys) + Axis("other", 3)), LAST),
    "a number that is added": added(Where(Apply("lt", (PLACE, LAST)), ALWAYS, Const(-10000.0, DType.F32))),
    "a mask of which a part is no comparison": added(
        Where(
            Apply("and", (Apply("lt", (PLACE, LAST)), Load("seen", (Index.of(VIEW.keys),), DType.BOOL))), ALWAYS, NEVER
        )
    ),
    "two comparisons of which one must not hold": added(
        Where(Apply("and", (Apply("lt", (PLACE, LAST)), Apply("gt", (PLACE, LAST)))), NEVER, ALWAYS)
    ),
    "no comparison": Where(Load("seen", (Index.of(VIEW.keys),), DType.BOOL), SCORE, LOWEST),
    "places that are equal": compared("eq", PLACE, LAST),
    "a load that the condition keeps inside": Where(
        Apply("lt", (PLACE, LAST)), Load(VIEW.kernel.inputs[0].name, (Index.of(VIEW.keys),) * 5, DType.F32), LOWEST
    ),
}


@pytest.mark.parametrize("reason", NONE)
def test_anything_else_is_no_bound_and_stays_as_it_is(reason: str) -> None:
    found = bounds_of(NONE[reason])
    assert found.bounds == ()
    assert len(found.kept) == len(VIEW.maps) + 1
    assert not key_bounds(replace(VIEW, maps=())).bounds


def test_a_map_that_stores_two_values_is_left() -> None:
    value, store = compared("lt", PLACE, LAST), VIEW.maps[-1].stores[0]
    both = Block((VIEW.keys,), (value, SCORE), (store, Store("other", store.index)))
    assert key_bounds(replace(VIEW, maps=(both,))) == KeyBounds((), 0.0, (both,))
