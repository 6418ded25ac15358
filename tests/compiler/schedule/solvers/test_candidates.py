from __future__ import annotations

import pytest

from compiler.ir.plans.plan import ended_before
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.problem import Placed, Problem, makespan, timed, verify_schedule
from compiler.schedule.solvers.candidates import Candidate, best_of_blocks, candidates, named
from compiler.schedule.solvers.stage_schedule import stage_schedule
from tests.compiler.schedule.problems import random_problem, shortest, with_moves
from tests.seeds import each

NAMES = {
    "early_start",
    "early_start in order",
    "early_start alone",
    "early_start in order, alone",
    "early_start beam",
    "allotted",
    "critical path",
    "greedy",
    "stages",
    "blocks",
    "descent",
}


@each(range(30))
@pytest.mark.parametrize("dressed", [False, True], ids=["plain", "with moves"])
def test_every_candidate_is_a_schedule_and_its_tasks_wait_for_every_predecessor(seed: int, dressed: bool) -> None:
    problem = random_problem(seed, most=16)
    problem = with_moves(problem, seed) if dressed else problem
    found = candidates(problem)
    assert {one.name for one in found} <= NAMES
    assert [one.predicted_s for one in found] == sorted(one.predicted_s for one in found)
    assert len({one.placed for one in found}) == len(found)
    for one in found:
        verify_schedule(problem, one.placed)
        assert one.predicted_s == makespan(timed(problem, one.placed))
        assert one.seconds > 0.0
        tasks = tasks_of(one.placed, problem.before, [8] * len(problem.before), problem.lanes)
        ended = ended_before(tasks, problem.lanes, len(problem.before))
        assert all(ended[call] >> before & 1 for call in problem.calls for before in problem.before[call])


def schedules(found: list[Candidate]) -> list[tuple[str, tuple[Placed, ...], float]]:
    return [(one.name, one.placed, one.predicted_s) for one in found]


@pytest.mark.parametrize("dressed", [False, True])
def test_equal_problems_have_equal_candidates(dressed: bool) -> None:
    def problem() -> Problem:
        plain = random_problem(3, most=25)
        return with_moves(plain, 3) if dressed else plain

    assert schedules(candidates(problem())) == schedules(candidates(problem()))


@each(range(20))
@pytest.mark.parametrize("moves", [False, True])
def test_the_shortest_candidate_is_near_the_optimum(seed: int, moves: bool) -> None:
    """Small random graphs, with lengths that split badly, are harder than networks: a quarter as long again at most."""
    problem = random_problem(seed, most=5, lanes=2)
    problem = with_moves(problem, seed) if moves else problem
    least = shortest(problem)
    assert least - 1e-9 <= candidates(problem)[0].predicted_s <= 1.25 * least


def test_one_scheduler_is_asked_for_by_name() -> None:
    problem = random_problem(5, most=20, lanes=2)
    assert {one.name for one in named(problem, "early_start")} == {name for name in NAMES if name[:5] == "early"}
    assert [one.name for one in named(problem, "stages")] == ["stages"]


def test_what_is_made_of_others_took_their_time_too() -> None:
    found = {one.name: one for one in candidates(random_problem(11, most=30, least=25, lanes=3))}
    parts = sum(one.seconds for name, one in found.items() if name not in ("blocks", "descent"))
    assert all(found[name].seconds >= parts for name in ("blocks", "descent") if name in found)


def test_blocks_take_each_block_from_where_it_ends_first() -> None:
    """Two branches, then a call that can be split, each best in another schedule."""
    problem = Problem(((), (0,), (0,), (1, 2), (3,)), ((1.0,), (4.0, 3.5), (4.0, 3.5), (1.0,), (8.0, 4.0)), lanes=2)
    assert makespan(best_of_blocks(problem, [one.placed for one in candidates(problem)])) == 1.0 + 4.0 + 1.0 + 4.0


def test_rules_of_scheduling_are_left_out_by_name() -> None:
    """Of each scheduler those schedules are found that the rest of the rules allows."""
    problem = random_problem(5, most=9, lanes=4)

    def names(*without: str) -> set[str]:
        return {one.name for one in named(problem, "early_start", without=frozenset(without))} - {"early_start beam"}

    assert names() == {"early_start", "early_start in order", "early_start alone", "early_start in order, alone"}
    assert names("critical_first") == {"early_start in order", "early_start in order, alone"}
    assert names("runs_alone") == {"early_start", "early_start in order"}
    assert names("critical_first", "runs_alone") == {"early_start in order"}


def test_without_linear_clusters_stages_are_searched_on_single_calls() -> None:
    def stages(problem: Problem, *without: str) -> tuple[Placed, ...]:
        return named(problem, "stages", without=frozenset(without))[0].placed

    problem = random_problem(5, most=20, lanes=4)
    alone = stages(problem, "linear_clusters")
    verify_schedule(problem, alone)
    assert alone == stage_schedule(problem, lengths=(1,))
    assert alone != stages(problem), "chains of calls are nodes where there are too many endings of calls"
