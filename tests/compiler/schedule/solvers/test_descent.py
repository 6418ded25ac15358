from __future__ import annotations

from typing import Any

import pytest

from compiler.schedule.problem import Placed, Problem, makespan, timed, verify_schedule
from compiler.schedule.solvers.descent import MOST_TRIES, PLACEMENTS, Budget, descent, with_counts
from compiler.schedule.solvers.early_start import ListScheduler, Rules, early_start
from tests.compiler.schedule.problems import random_problem, shortest, with_moves
from tests.seeds import each


def first_fit(problem: Problem) -> tuple[Placed, ...]:
    return early_start(problem, Rules())


@each(range(40))
@pytest.mark.parametrize("moves", [False, True])
def test_it_ends_no_later_than_what_it_began_with(seed: int, moves: bool) -> None:
    problem = random_problem(seed, most=12)
    problem = with_moves(problem, seed) if moves else problem
    starts = [first_fit(problem), early_start(problem, Rules(fill=False))]
    found = descent(problem, starts, most_tries=300)
    verify_schedule(problem, found)
    assert makespan(found) <= min(map(makespan, starts))
    assert found == descent(problem, starts, most_tries=300)


@each(range(25))
def test_small_problems_end_at_the_optimum_or_near_it(seed: int) -> None:
    """Of brute force; a list scheduler chooses the lanes, which is not always the best choice."""
    problem = random_problem(seed, most=5, lanes=2)
    assert makespan(descent(problem, [first_fit(problem)], most_tries=400)) <= 1.1 * shortest(problem) + 1e-9


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


def test_tries_are_bounded_over_all_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(7, most=30, least=30, lanes=4)
    starts = [first_fit(problem), timed(problem, [Placed(call, (0,), 0.0, 0.0) for call in problem.calls])]
    placed, tried = ListScheduler.placed, list[int]()

    def counted(self: ListScheduler, *arguments: Any, **named: Any) -> tuple[Placed, ...]:
        tried.append(1)
        return placed(self, *arguments, **named)

    monkeypatch.setattr(ListScheduler, "placed", counted)
    for most_tries in (0, 1, 10, 100, 1000):
        tried.clear()
        found = descent(problem, starts, most_tries)
        assert len(tried) <= most_tries
        assert makespan(found) <= makespan(starts[0])
    assert makespan(found) < makespan(starts[0])


def test_each_block_has_its_part_of_the_tries() -> None:
    small, large = random_problem(0, most=5, least=5), random_problem(0, most=400, least=400)
    assert Budget.of([small]).tries == MOST_TRIES
    assert 5 * Budget.of([small, large]).tries + 400 * Budget.of([small, large]).tries <= PLACEMENTS
