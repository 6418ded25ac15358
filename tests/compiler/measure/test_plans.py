from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from compiler.measure import plans
from compiler.measure.benchmark import LEAST_ROUNDS, Run, interleave
from compiler.measure.plans import (
    ALONE_RUNS,
    ALONE_SITTINGS,
    LEAST_S,
    MOST_S,
    SECONDS,
    TRACES,
    Raced,
    expected_seconds,
    expected_seconds_alone,
    fitting_seconds,
    race_plans,
    time_alone,
    traces_of,
)


def steady(seconds: float, wobble: Sequence[float] = (1.0,)) -> Run:
    """A plan whose runs say that they took so long, without taking it."""
    factors: Iterator[float] = itertools.cycle(wobble)
    return lambda: seconds * next(factors)


def raced(
    *runs: Run, stop_requested: Callable[[], bool] = lambda: False, left: Callable[[], float] | None = None
) -> list[Raced] | None:
    return race_plans(lambda: runs, seed=0, stop_requested=stop_requested, settle=lambda: None, left=left)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "disturbances", lambda during: [])


def test_each_plan_is_compared_with_the_first() -> None:
    found = raced(steady(0.02), steady(0.01), steady(0.03))
    assert found is not None
    assert [one.spread.median for one in found] == pytest.approx([0.02, 0.01, 0.03])
    assert [one.ratio.ratio for one in found] == pytest.approx([1.0, 0.5, 1.5])
    assert [one.ratio.faster for one in found] == [None, "b", "a"]


def test_equal_plans_that_wobble_cannot_be_told_apart() -> None:
    found = raced(steady(0.01, (1.0, 1.1, 0.9)), steady(0.01, (1.1, 0.9, 1.0)))
    assert found is not None
    assert [one.ratio.faster for one in found] == [None, None]


def test_a_race_is_called_off_between_rounds() -> None:
    calls = itertools.count()
    assert raced(steady(0.01), steady(0.01), stop_requested=lambda: next(calls) > 3) is None
    assert raced(steady(0.01), steady(0.01), stop_requested=lambda: True) is None


@pytest.mark.parametrize(("during_s", "races"), [(1.0, 2), (100.0, 1)])
def test_a_short_race_that_was_disturbed_is_held_once_more(
    during_s: float, races: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def interleaved(*given: Any, **named: Any) -> Any:
        held.append(given)
        return interleave(*given, **named)

    monkeypatch.setattr(plans, "interleave", interleaved)
    monkeypatch.setattr(plans, "disturbances", lambda during: ["other processes used the cores"])
    monkeypatch.setattr(plans, "between", lambda before, after: {"seconds": during_s})
    assert raced(steady(0.01), steady(0.02)) is not None
    assert len(held) == races


def test_a_slow_plan_is_expected_to_take_as_many_runs_as_a_verdict_needs() -> None:
    assert SECONDS < expected_seconds(1e-5) < 2 * SECONDS + 0.1
    assert expected_seconds(1e-5, LEAST_S) < expected_seconds(1e-5)
    assert expected_seconds(1.0) >= 2 * LEAST_ROUNDS


@pytest.mark.parametrize("seconds", [0.001, 0.01, 10.0])
def test_a_plan_alone_is_opened_anew_and_run_at_least_so_often_however_slow_it_is(seconds: float) -> None:
    opened = []

    def fresh() -> list[Run]:
        first = itertools.chain([100.0], itertools.repeat(seconds))
        opened.append(first)
        return [lambda: next(first)]

    alone = time_alone(fresh)
    assert alone is not None
    (found,) = alone
    assert len(opened) == ALONE_SITTINGS
    assert set(found.spread.samples) == {seconds}, "the first run of a sitting is not counted"
    assert len(found.spread.samples) >= ALONE_SITTINGS * ALONE_RUNS
    assert (found.ratio.ratio, found.spans) == (1.0, ())


def test_timing_a_plan_alone_is_called_off_between_sittings() -> None:
    calls = itertools.count()
    assert time_alone(lambda: [steady(0.1)], lambda: next(calls) > 1) is None


def test_a_plan_alone_takes_less_than_a_second_unless_its_runs_are_long() -> None:
    assert expected_seconds_alone(1e-5) < 1
    assert expected_seconds_alone(0.05) < 1
    assert expected_seconds_alone(1.0) > 3


@pytest.mark.parametrize(("seconds", "runs"), [(1e-5, TRACES[1]), (0.0, TRACES[1]), (1.0, TRACES[0])])
def test_a_fast_plan_is_traced_more_often_than_a_slow_one(seconds: float, runs: int) -> None:
    assert traces_of(seconds) == runs


@pytest.mark.parametrize("each", [[1e-3, 1e-3], [1e-3] * 5, [0.05, 0.02]])
def test_plans_are_timed_for_as_long_as_there_is_time(each: list[float]) -> None:
    for left in (4.0, 6.0, 9.0):
        timed_s = fitting_seconds(each, left)
        assert sum(expected_seconds(one, timed_s) for one in each) <= left or timed_s == LEAST_S
        assert timed_s == MOST_S or sum(expected_seconds(one, timed_s + 0.11) for one in each) > left
    assert fitting_seconds(each, 0.0) == LEAST_S
    assert fitting_seconds(each, 1e9) == MOST_S


def test_a_race_ends_with_its_time_once_it_has_as_many_rounds_as_a_verdict_needs() -> None:
    """A clock on which each run takes ten times what it says, as on cores that others use."""
    now = [0.0]

    def run() -> float:
        now[0] += 0.1
        return 0.01

    found = raced(run, run, left=lambda: 10.0 - now[0])
    assert found is not None
    assert len(found[0].spread.samples) >= LEAST_ROUNDS
    assert 10.0 <= now[0] < 16.0
    runs = now[0] / 0.1
    now[0] = 0.0
    found = raced(run, run, left=lambda: 1e3 - now[0])
    assert found is not None
    assert now[0] / 0.1 > 2 * runs


@pytest.mark.parametrize(("left_s", "races"), [(1.2, 1), (60.0, 2)])
def test_a_race_that_was_disturbed_is_not_repeated_where_there_is_no_time(
    left_s: float, races: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def interleaved(*given: Any, **named: Any) -> Any:
        held.append(given)
        return interleave(*given, **named)

    monkeypatch.setattr(plans, "interleave", interleaved)
    monkeypatch.setattr(plans, "disturbances", lambda during: ["other processes used the cores"])
    monkeypatch.setattr(plans, "between", lambda before, after: {"seconds": 1.5})
    assert raced(steady(0.01), steady(0.02), left=lambda: left_s) is not None
    assert len(held) == races
