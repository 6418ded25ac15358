from __future__ import annotations

from itertools import pairwise

import pytest

from compiler.ir.plan import Task
from compiler.schedule.candidates import candidates
from compiler.schedule.contention import contended_makespan
from compiler.schedule.expected import expected_beside, expected_in_turn
from compiler.schedule.problem import Placed, Problem
from compiler.schedule.tasks import tasks_of
from tests.compiler.schedule.problems import random_problem, with_loads, with_moves


def made(seed: int) -> Problem:
    return with_loads(with_moves(random_problem(seed), seed), seed)


def tasks(problem: Problem, placed: list[Placed]) -> tuple[Task, ...]:
    return tasks_of(placed, problem.before, [8] * len(problem.before), problem.lanes)


@pytest.mark.parametrize("seed", range(20))
def test_the_last_task_ends_when_the_prediction_says(seed: int) -> None:
    problem = made(seed)
    for one in candidates(problem):
        placed = list(one.placed)
        spans = expected_beside(problem, placed, tasks(problem, placed), 0.25)
        assert max(end for _, end in spans) == pytest.approx(contended_makespan(problem, placed) + 0.25)


@pytest.mark.parametrize("seed", range(20))
def test_no_task_begins_before_the_last_one_of_its_lane_has_ended_or_what_it_waits_for(seed: int) -> None:
    problem = made(seed)
    for one in candidates(problem):
        placed = list(one.placed)
        found = tasks(problem, placed)
        spans = expected_beside(problem, placed, found, 0.0)
        ended: dict[int, list[float]] = {lane: [] for lane in range(problem.lanes)}
        for task, (begin, end) in zip(found, spans, strict=True):
            assert all(begin >= before - 1e-9 for before in ended[task.lane])
            assert all(begin >= ended[wait.lane][wait.count - 1] - 1e-9 for wait in task.waits)
            ended[task.lane].append(end)


@pytest.mark.parametrize("seed", range(20))
def test_calls_in_turn_follow_one_another_each_longer_by_what_it_reads_elsewhere(seed: int) -> None:
    problem = made(seed)
    everything = tuple(range(problem.lanes))
    placed, now = [], 0.0
    for call in problem.calls:
        lanes = everything[: max(count for count, _ in problem.lengths(call))]
        length = problem.length(call, len(lanes))
        assert length is not None
        placed.append(Placed(call, lanes, now, now + length))
        now += length
    done = {one.call: one for one in placed}
    moved = sum(problem.moving(one.call, one.lanes, done) for one in placed)
    spans = expected_in_turn(problem, placed, tasks(problem, placed), 0.5)
    assert min(begin for begin, _ in spans) == 0.5
    assert max(end for _, end in spans) == pytest.approx(0.5 + now + moved)
    order = sorted(set(spans))
    assert all(one[1] == pytest.approx(other[0]) for one, other in pairwise(order))
