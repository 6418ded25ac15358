from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.ir.plan import Plan, Task
from compiler.schedule.candidates import candidates
from compiler.schedule.problem import Placed, Problem, makespan, timed, verify_schedule
from compiler.schedule.replay import replayed
from compiler.schedule.tasks import tasks_of
from tests.compiler.schedule.problems import random_problem


def plan_of(tasks: tuple[Task, ...], lanes: int) -> Plan:
    return Plan(lanes, tasks, (), {}, 0, "")


@pytest.mark.parametrize("seed", range(60))
def test_what_a_scheduler_found_comes_back_from_its_tasks(seed: int) -> None:
    problem = random_problem(seed)
    for _, placed, *_ in candidates(problem):
        tasks = tasks_of(placed, problem.before, [8] * len(problem.before), problem.lanes)
        again = replayed(plan_of(tasks, problem.lanes), problem)
        assert [(one.call, one.lanes) for one in again] == [(one.call, one.lanes) for one in placed]
        assert makespan(again) == pytest.approx(makespan(timed(problem, placed)))
        dear = replace(problem, handover_s=7.0)
        verify_schedule(dear, replayed(plan_of(tasks, problem.lanes), dear))
        assert makespan(replayed(plan_of(tasks, problem.lanes), dear)) >= makespan(again)


def test_calls_without_tasks_take_their_place_between_the_others() -> None:
    """Call 1 has nothing to do, call 2 follows it, and nothing follows call 3, which has nothing to do either."""
    problem = Problem(((), (0,), (1,), (2,)), ((2.0,), (0.0,), (3.0,), (0.0,)), 1)
    again = replayed(plan_of((Task(0, 0, 0, 1), Task(2, 0, 0, 1)), 1), problem)
    assert [(one.call, one.begin, one.end) for one in again] == [(0, 0, 2), (1, 2, 2), (2, 2, 5), (3, 5, 5)]
    assert isinstance(again[0], Placed)
