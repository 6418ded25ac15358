from __future__ import annotations

import pytest

from compiler.schedule.descent import descent, with_counts
from compiler.schedule.early_start import Rules, early_start
from compiler.schedule.problem import Placed, Problem, makespan, timed, verify_schedule
from tests.compiler.schedule.problems import random_problem


def first_fit(problem: Problem) -> tuple[Placed, ...]:
    return early_start(problem.before, problem.length, problem.lanes, problem.handover_s, Rules())


@pytest.mark.parametrize("seed", range(60))
def test_it_ends_no_later_than_it_began_where_no_single_change_helps(seed: int) -> None:
    problem = random_problem(seed, most=12)
    start = first_fit(problem)
    found = descent(problem, [start], most_tries=10_000)
    verify_schedule(problem, found)
    assert makespan(found) <= makespan(start)
    again = descent(problem, [found], most_tries=10_000)
    assert makespan(again) <= makespan(found)


def test_each_call_has_the_lanes_it_was_given() -> None:
    problem = Problem(((), (), (0, 1)), ((4.0, 2.0), (4.0, 2.0), (4.0, 2.0)), lanes=2)
    placed = with_counts(problem, [1, 1, 2])
    assert {one.call: len(one.lanes) for one in placed} == {0: 1, 1: 1, 2: 2}
    assert makespan(placed) == 6.0


def test_a_call_that_keeps_others_waiting_gets_more_lanes() -> None:
    """On one lane each 0 takes as long as 1, 2 and 3 together."""
    problem = Problem(((),) * 4, ((8.0, 4.0, 3.0), (1.0,), (1.0,), (1.0,)), lanes=3)
    start = timed(problem, [Placed(call, (min(call, 1),), 0.0, 0.0) for call in range(4)])
    assert makespan(start) == 8.0
    assert makespan(descent(problem, [start])) == 4.0


def test_tries_are_bounded_over_all_starts() -> None:
    problem = random_problem(7, most=30, least=30, lanes=4)
    starts = [first_fit(problem), timed(problem, [Placed(call, (0,), 0.0, 0.0) for call in problem.calls])]
    untried = min(
        starts[0],
        with_counts(problem, [len(one.lanes) for one in sorted(starts[0], key=lambda one: one.call)]),
        key=makespan,
    )
    assert makespan(descent(problem, starts, most_tries=0)) == makespan(untried)
    reached = [makespan(descent(problem, starts, most_tries)) for most_tries in (0, 10, 100, 1000)]
    assert reached == sorted(reached, reverse=True)
    assert reached[0] > reached[-1]
