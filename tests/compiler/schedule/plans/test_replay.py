from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from compiler.ir.plans.plan import Plan, Task, Wait
from compiler.schedule.plans.replay import last_end, replayed
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.problem import timed
from compiler.schedule.solvers.candidates import candidates
from tests.compiler.schedule.problems import random_problem
from tests.seeds import each


def plan_of(*tasks: Task, lanes: int = 2) -> Plan:
    return Plan(lanes, tasks, (), {}, 0, "")


def random_plan(random: Random, calls: int = 12) -> Plan:
    """Calls of one task, or of one on each lane, that wait for any tasks of earlier calls."""
    lanes = random.randint(1, 3)
    ended = [0] * lanes
    tasks: list[Task] = []
    for call in range(calls):
        before = [*ended]
        count = random.choice([1, lanes])
        for part, lane in enumerate(sorted(random.sample(range(lanes), count))):
            waits = [Wait(one, random.randint(1, before[one])) for one in range(lanes) if one != lane and before[one]]
            kept = tuple(wait for wait in waits if random.random() < 0.5)
            tasks.append(Task(call, lane, part, part + 1, kept))
            ended[lane] += 1
    return plan_of(*tasks, lanes=lanes)


def random_works(random: Random, plan: Plan) -> list[float]:
    """In whole seconds."""
    return [float(random.randint(0, 9)) for _ in plan.runs]


def waited_for(plan: Plan) -> list[list[int]]:
    """For each task, by position, those before it on its lane and those that it waits for: the last ones."""
    streams: list[list[int]] = [[] for _ in range(plan.lanes)]
    found = []
    for at, task in enumerate(plan.runs):
        found.append([*streams[task.lane][-1:], *(streams[wait.lane][wait.count - 1] for wait in task.waits)])
        streams[task.lane].append(at)
    return found


@each(range(60))
def test_a_task_begins_as_soon_as_its_lane_is_free_and_its_waits_are_over(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    works, handover_s = random_works(random, plan), random.choice([0.0, 0.25])
    spans = replayed(plan, works, handover_s, 2.0)
    for task, work, (begin, end), before in zip(plan.runs, works, spans, waited_for(plan), strict=True):
        arrivals = [spans[one][1] + (handover_s if plan.runs[one].lane != task.lane else 0.0) for one in before]
        assert (begin, end) == (max([2.0, *arrivals]), begin + work)


@each(range(30))
def test_one_lane_takes_the_sum_of_its_tasks(seed: int) -> None:
    random = Random(seed)
    plan = plan_of(*(Task(call, 0, 0, 1) for call in range(random.randint(0, 9))), lanes=1)
    works = random_works(random, plan)
    assert last_end(replayed(plan, works, 7.0)) == sum(works)


@each(range(60))
def test_no_chain_of_waits_and_no_lane_is_ever_beaten(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    works = random_works(random, plan)
    longest: list[float] = []
    for work, before in zip(works, waited_for(plan), strict=True):
        longest.append(work + max((longest[one] for one in before), default=0.0))
    assert last_end(replayed(plan, works, 0.25)) >= max(longest) - 1e-9
    alone = [sum(w for w, t in zip(works, plan.runs, strict=True) if t.lane == lane) for lane in range(3)]
    assert last_end(replayed(plan, works, 0.25)) >= max(alone) - 1e-9


@each(range(60))
def test_dropping_a_wait_delays_no_task(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    works = random_works(random, plan)
    spans = replayed(plan, works, 0.25)
    for at, task in enumerate(plan.runs):
        for wait in task.waits:
            fewer = replace(task, waits=tuple(one for one in task.waits if one != wait))
            again = replayed(plan_of(*plan.runs[:at], fewer, *plan.runs[at + 1 :], lanes=plan.lanes), works, 0.25)
            assert all(new[1] <= old[1] for new, old in zip(again, spans, strict=True))


@each(range(60))
def test_calls_on_one_lane_each_run_as_the_schedulers_simulate_them(seed: int) -> None:
    """Where no call has several tasks, tasks and calls are the same."""
    problem = random_problem(seed)
    narrow = replace(problem, seconds=tuple(every[:1] for every in problem.seconds))
    found = list(candidates(narrow))
    assert found
    for _, placed, *_ in found:
        tasks = tasks_of(placed, narrow.before, [1] * len(narrow.before), narrow.lanes)
        works = [narrow.alone(task.call) for task in tasks]
        plan = plan_of(*tasks, lanes=narrow.lanes)
        spans = replayed(plan, works, narrow.handover_s)
        ends = {one.call: (one.begin, one.end) for one in timed(narrow, placed)}
        assert [pytest.approx(ends[task.call]) for task in tasks] == list(spans)


def test_tasks_that_wait_for_each_other_never_begin() -> None:
    plan = plan_of(Task(0, 0, 0, 1, (Wait(1, 1),)), Task(1, 1, 0, 1, (Wait(0, 1),)))
    with pytest.raises(ValueError, match="wait for each other"):
        replayed(plan, [1.0] * 2, 0.0)
