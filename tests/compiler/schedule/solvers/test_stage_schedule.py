from __future__ import annotations

import pytest

from compiler.schedule.problem import Problem, makespan, verify_schedule
from compiler.schedule.solvers import stage_schedule as module
from compiler.schedule.solvers.stage_schedule import blocks, greedy_schedule, shared_lanes, stage_schedule, staged
from compiler.schedule.solvers.stages import Latency
from tests.compiler.schedule.problems import random_problem, shortest, with_moves
from tests.seeds import each


@each(range(50))
def test_stages_make_a_schedule(seed: int) -> None:
    problem = random_problem(seed, most=18)
    verify_schedule(problem, stage_schedule(problem))


def test_a_graph_too_wide_for_the_search_is_cut_until_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENDINGS", 30)
    monkeypatch.setattr(module, "MOST_CALLS", 20)
    for seed in range(20):
        problem = random_problem(seed, most=40, least=15)
        assert max(map(len, blocks(problem))) <= 20
        verify_schedule(problem, stage_schedule(problem))


def repeated(times: int, lengths: tuple[float, ...]) -> Problem:
    """Blocks of one call, three beside each other, and one; the middle ones have these lengths."""
    before: list[tuple[int, ...]] = []
    for _ in range(times):
        first = len(before)
        before += [(first - 1,) if first else (), (first,), (first,), (first,), (first + 1, first + 2, first + 3)]
    seconds = tuple((length,) for length in (1.0, *lengths, 1.0) * times)
    return Problem(tuple(before), seconds, lanes=2)


def test_equal_blocks_are_solved_once() -> None:
    problem = repeated(7, (2.0, 1.0, 1.0))
    asked: list[Problem] = []

    def latencies(block: Problem) -> Latency:
        asked.append(block)
        return shared_lanes(block)

    found = staged(problem, latencies)
    assert sorted(call for stage in found for group in stage for call in group) == list(problem.calls)
    assert len(asked) == len(set(asked)) == 2  # a single call, three side by side
    assert makespan(stage_schedule(problem)) == 7 * (1.0 + 2.0 + 1.0)


def test_blocks_of_other_durations_are_not_equal() -> None:
    slow = repeated(1, (4.0, 1.0, 1.0))
    quick = repeated(1, (1.0, 1.0, 4.0))
    assert slow.part((1, 2, 3)) != quick.part((1, 2, 3))


@each(range(30))
def test_it_is_never_shorter_than_the_optimum_and_optimal_on_one_lane(seed: int) -> None:
    problem = random_problem(seed, most=5, lanes=2)
    assert makespan(stage_schedule(problem)) >= shortest(problem) - 1e-9
    alone = random_problem(seed, most=15, lanes=1)
    assert makespan(stage_schedule(alone)) == pytest.approx(sum(map(alone.alone, alone.calls)))


def test_measured_latencies_are_what_counts() -> None:
    """Two calls that the times of the calls alone would put side by side, measured to be slower so."""
    problem = Problem(((), ()), ((1.0,), (1.0,)), lanes=2)
    assert staged(problem) == [((0,), (1,))]
    slow_together = staged(problem, lambda block: lambda stage: 5.0 if len(stage) > 1 else 1.0)
    assert len(slow_together) == 2


def test_greedy_takes_everything_that_is_ready() -> None:
    problem = Problem(((), (0,), (0,), (), (1, 2)), ((1.0,), (2.0,), (2.0,), (3.0,), (1.0,)), lanes=2)
    placed = {one.call: one for one in greedy_schedule(problem)}
    verify_schedule(problem, list(placed.values()))
    assert placed[0].lanes != placed[3].lanes
    assert {placed[1].lanes, placed[2].lanes} == {(0,), (1,)}


@each(range(30))
def test_greedy_makes_a_schedule(seed: int) -> None:
    problem = with_moves(random_problem(seed, most=25), seed)
    verify_schedule(problem, greedy_schedule(problem))
