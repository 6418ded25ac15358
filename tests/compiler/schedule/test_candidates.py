from __future__ import annotations

import pytest

from compiler.ir.plan import ended_before
from compiler.schedule.candidates import best_of_blocks, candidates
from compiler.schedule.problem import Problem, makespan, verify_schedule
from compiler.schedule.tasks import tasks_of
from tests.compiler.schedule.problems import random_problem, shortest

NAMES = {
    "early_start",
    "early_start in order",
    "early_start alone",
    "early_start in order, alone",
    "allotted",
    "stages",
    "blocks",
    "descent",
}


@pytest.mark.parametrize("seed", range(60))
def test_every_candidate_is_a_schedule_and_its_tasks_wait_for_every_predecessor(seed: int) -> None:
    problem = random_problem(seed, most=16)
    found = candidates(problem)
    assert {name for name, _ in found} <= NAMES
    assert [makespan(placed) for _, placed in found] == sorted(makespan(placed) for _, placed in found)
    assert len({placed for _, placed in found}) == len(found)
    for _, placed in found:
        verify_schedule(problem, placed)
        tasks = tasks_of(placed, problem.before, [8] * len(problem.before), problem.lanes)
        ended = ended_before(tasks, problem.lanes, len(problem.before))
        assert all(ended[call] >> one & 1 for call in problem.calls for one in problem.before[call])


def test_equal_problems_have_equal_candidates() -> None:
    assert candidates(random_problem(3, most=25)) == candidates(random_problem(3, most=25))


@pytest.mark.parametrize("seed", range(30))
def test_the_shortest_candidate_is_near_the_optimum(seed: int) -> None:
    """Small random graphs, with lengths that split badly, are harder than networks: half as long again at most."""
    problem = random_problem(seed, most=5, lanes=2)
    least = shortest(problem)
    assert least - 1e-9 <= makespan(candidates(problem)[0][1]) <= 1.5 * least


def test_blocks_take_each_block_from_where_it_ends_first() -> None:
    """Two branches, then a call that can be split, each best in another schedule."""
    problem = Problem(((), (0,), (0,), (1, 2), (3,)), ((1.0,), (4.0, 3.5), (4.0, 3.5), (1.0,), (8.0, 4.0)), lanes=2)
    by_name = dict(candidates(problem))
    assert makespan(best_of_blocks(problem, list(by_name.values()))) == 1.0 + 4.0 + 1.0 + 4.0
