from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Position, Where
from compiler.ir.index import Axis, Index
from compiler.ir.interval import Limits, decided, interval, range_of, settle
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType

ROW, COLUMN = Axis("i", 9), Axis("j", 5)
I64 = DType.I64


def number(value: int) -> Const:
    return Const(value, I64)


@st.composite
def indices(draw: st.DrawFn) -> Index:
    index = (
        Index.of(ROW) * draw(st.integers(-3, 3))
        + Index.of(COLUMN) * draw(st.integers(-2, 2))
        + draw(st.integers(-9, 9))
    )
    kind, divisor = draw(st.sampled_from(["plain", "plain", "div", "mod"])), draw(st.integers(2, 4))
    return index // divisor if kind == "div" else index % divisor if kind == "mod" else index


@st.composite
def integers(draw: st.DrawFn, depth: int = 2) -> Expr:
    if depth == 0 or draw(st.booleans()):
        return Position(draw(indices())) if draw(st.booleans()) else number(draw(st.integers(-9, 9)))
    function = draw(st.sampled_from(["add", "sub", "min", "max", "mul"]))
    return Apply(function, (draw(integers(depth - 1)), draw(integers(depth - 1))))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Expr:
    if depth == 0 or draw(st.booleans()):
        function = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
        return Apply(function, (draw(integers(1)), draw(integers(1))))
    return Apply(draw(st.sampled_from(["and", "or"])), (draw(conditions(depth - 1)), draw(conditions(depth - 1))))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    found = {}
    for axis in (ROW, COLUMN):
        low = draw(st.integers(0, axis.extent - 1))
        found[axis] = (low, draw(st.integers(low, axis.extent - 1)))
    return found


def values(expr: Expr, limits: Limits) -> np.ndarray:
    """The expression at every point within the limits."""
    axes = (ROW, COLUMN)
    slot = Slot("y", TensorType(expr.dtype, tuple(axis.extent for axis in axes)))
    block = Block((), (expr,), (Store("y", tuple(map(Index.of, axes))),))
    (whole,) = evaluate(Kernel("Map", (), (slot,), (block,), shared=axes), ())
    return whole[tuple(slice(low, high + 1) for low, high in (limits[axis] for axis in axes))]


@given(indices(), limits())
def test_an_index_stays_within_its_range(index: Index, limits: Limits) -> None:
    low, high = range_of(index, limits)
    found = values(Position(index), limits)
    assert low <= found.min()
    assert found.max() <= high


@given(integers(), limits())
def test_an_expression_stays_within_its_interval(expr: Expr, limits: Limits) -> None:
    bounds = interval(expr, limits)
    if bounds is not None:
        found = values(expr, limits)
        assert bounds[0] <= found.min()
        assert found.max() <= bounds[1]


@given(integers(), conditions(), integers(), limits())
def test_settling_changes_no_value_within_the_limits(one: Expr, condition: Expr, two: Expr, limits: Limits) -> None:
    for expr in (one, Where(condition, one, two), Cast(one, DType.F32)):
        np.testing.assert_array_equal(values(settle(expr, limits), limits), values(expr, limits))


@given(conditions(), limits())
def test_what_is_decided_holds_everywhere_or_nowhere(condition: Expr, limits: Limits) -> None:
    answer = decided(condition, limits)
    if answer is not None:
        assert (values(condition, limits) == answer).all()


@pytest.mark.parametrize(
    ("expr", "settled"),
    [
        (Apply("max", (Position(Index.of(ROW) - 2), number(0))), Position(Index.of(ROW) - 2)),
        (Apply("sub", (Apply("min", (Position(Index.of(ROW)), number(2))), number(1))), number(1)),
        (Apply("ge", (Position(Index.of(ROW) - 2), number(0))), Const(True, DType.BOOL)),
        (Apply("lt", (Position(Index.of(ROW)), number(2))), Const(False, DType.BOOL)),
        (Apply("lt", (Position(Index.of(ROW)), number(4))), Apply("lt", (Position(Index.of(ROW)), number(4)))),
        (Where(Const(False, DType.BOOL), number(1), number(2)), number(2)),
        (Cast(number(3), DType.F32), Const(3.0, DType.F32)),
    ],
)
def test_from_two_to_six(expr: Expr, settled: Expr) -> None:
    assert settle(expr, {ROW: (2, 6)}) == settled


def test_data_decides_nothing() -> None:
    condition = Apply("lt", (Load("x", (Index.of(ROW),), I64), number(4)))
    assert decided(condition, {ROW: (2, 6)}) is None
