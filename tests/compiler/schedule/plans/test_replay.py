from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from compiler.ir.lanes import Beside
from compiler.ir.plan import Plan, Task, Wait
from compiler.schedule.plans.replay import last_end, replayed
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.plans.works import Work
from compiler.schedule.problem import makespan, timed
from compiler.schedule.solvers.candidates import candidates
from compiler.schedule.solvers.contention import contended
from tests.compiler.schedule.problems import random_problem, with_loads


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


def random_works(random: Random, plan: Plan) -> list[Work]:
    """In whole seconds; half of them slow each other."""
    return [
        Work(
            float(random.randint(0, 9)),
            Beside(random.choice([0.0, 0.5, 1.0]), random.choice([0.0, 0.5, 1.0])),
            random.random() < 0.5,
        )
        for _ in plan.runs
    ]


def apart(works: Sequence[Work]) -> list[Work]:
    """The same, if nothing slowed anything."""
    return [Work(one.seconds) for one in works]


def waited_for(plan: Plan) -> list[list[int]]:
    """For each task, by position, those before it on its lane and those that it waits for: the last ones."""
    streams: list[list[int]] = [[] for _ in range(plan.lanes)]
    found = []
    for at, task in enumerate(plan.runs):
        found.append([*streams[task.lane][-1:], *(streams[wait.lane][wait.count - 1] for wait in task.waits)])
        streams[task.lane].append(at)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_without_contention_a_task_begins_as_soon_as_its_lane_is_free_and_its_waits_are_over(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    works, handover_s = apart(random_works(random, plan)), random.choice([0.0, 0.25])
    spans = replayed(plan, works, handover_s, 2.0)
    for task, work, (begin, end), before in zip(plan.runs, works, spans, waited_for(plan), strict=True):
        arrivals = [spans[one][1] + (handover_s if plan.runs[one].lane != task.lane else 0.0) for one in before]
        assert (begin, end) == (max([2.0, *arrivals]), begin + work.seconds)


@pytest.mark.parametrize("seed", range(30))
def test_one_lane_takes_the_sum_of_its_tasks_whatever_they_press(seed: int) -> None:
    random = Random(seed)
    plan = plan_of(*(Task(call, 0, 0, 1) for call in range(random.randint(0, 9))), lanes=1)
    works = random_works(random, plan)
    assert last_end(replayed(plan, works, 7.0)) == sum(work.seconds for work in works)


@pytest.mark.parametrize("seed", range(60))
def test_no_chain_of_waits_and_no_lane_is_ever_beaten(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    works = random_works(random, plan)
    longest: list[float] = []
    for work, before in zip(works, waited_for(plan), strict=True):
        longest.append(work.seconds + max((longest[one] for one in before), default=0.0))
    assert last_end(replayed(plan, works, 0.25)) >= max(longest) - 1e-9
    alone = [sum(w.seconds for w, t in zip(works, plan.runs, strict=True) if t.lane == lane) for lane in range(3)]
    assert last_end(replayed(plan, works, 0.25)) >= max(alone) - 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_without_contention_dropping_a_wait_delays_no_task(seed: int) -> None:
    """With contention it may: a task that begins earlier slows others."""
    random = Random(seed)
    plan = random_plan(random)
    works = apart(random_works(random, plan))
    spans = replayed(plan, works, 0.25)
    for at, task in enumerate(plan.runs):
        for wait in task.waits:
            fewer = replace(task, waits=tuple(one for one in task.waits if one != wait))
            again = replayed(plan_of(*plan.runs[:at], fewer, *plan.runs[at + 1 :], lanes=plan.lanes), works, 0.25)
            assert all(new[1] <= old[1] for new, old in zip(again, spans, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_contention_shortens_no_task_and_delays_none_by_more_than_all_lanes_press(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random)
    works = random_works(random, plan)
    spans = replayed(plan, works, 0.0)
    for work, (begin, end) in zip(works, spans, strict=True):
        most = 1.0 + work.load.suffers * (plan.lanes - 1)
        assert work.seconds - 1e-9 <= end - begin <= most * work.seconds + 1e-9
    assert last_end(spans) >= last_end(replayed(plan, apart(works), 0.0)) - 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_calls_on_one_lane_each_run_as_the_schedulers_simulate_them(seed: int) -> None:
    """Where no call has several tasks, tasks and calls are the same, and so are both simulations of contention."""
    problem = with_loads(random_problem(seed), seed)
    narrow = replace(problem, seconds=tuple(every[:1] for every in problem.seconds))
    for _, placed, *_ in candidates(narrow):
        tasks = tasks_of(placed, narrow.before, [1] * len(narrow.before), narrow.lanes)
        works = [Work(narrow.alone(task.call), narrow.beside[task.call]) for task in tasks]
        plan = plan_of(*tasks, lanes=narrow.lanes)
        assert last_end(replayed(plan, works, narrow.handover_s)) == pytest.approx(makespan(contended(narrow, placed)))
        spans = replayed(plan, apart(works), narrow.handover_s)
        ends = {one.call: (one.begin, one.end) for one in timed(narrow, placed)}
        assert [pytest.approx(ends[task.call]) for task in tasks] == list(spans)


def test_parts_of_a_call_that_were_measured_together_slow_each_other_no_further() -> None:
    plan = plan_of(Task(0, 0, 0, 1), Task(0, 1, 1, 2))
    load = Beside(1.0, 0.5)
    assert last_end(replayed(plan, [Work(2.0, load, True)] * 2, 0.0)) == 2.0
    assert last_end(replayed(plan, [Work(2.0, load)] * 2, 0.0)) == 3.0
    others = plan_of(Task(0, 0, 0, 1), Task(1, 1, 0, 1))
    assert last_end(replayed(others, [Work(2.0, load, True)] * 2, 0.0)) == 3.0


def test_each_task_is_slowed_by_what_all_others_press_but_those_measured_with_it() -> None:
    """Four lanes: two parts of a call that were measured together, beside two calls that press 0.25 and 0.5."""
    plan = plan_of(Task(0, 0, 0, 1), Task(0, 1, 1, 2), Task(1, 2, 0, 1), Task(2, 3, 0, 1), lanes=4)
    loads = [(Beside(1.0, 1.0), True)] * 2 + [(Beside(0.5, 0.25), False), (Beside(0.0, 0.5), False)]
    works = [Work(seconds, *load) for seconds, load in zip((4.0, 4.0, 9.0, 7.0), loads, strict=True)]
    # Parts: 1 + 0.75 times as long until 7; call 1: 1 + 0.5 · 2.5 times until 7, then alone.
    ends = [end for _, end in replayed(plan, works, 0.0)]
    assert ends == [7.0, 7.0, pytest.approx(7.0 + (9.0 - 7.0 / 2.25)), 7.0]


def test_tasks_that_wait_for_each_other_never_begin() -> None:
    plan = plan_of(Task(0, 0, 0, 1, (Wait(1, 1),)), Task(1, 1, 0, 1, (Wait(0, 1),)))
    with pytest.raises(ValueError, match="wait for each other"):
        replayed(plan, [Work(1.0)] * 2, 0.0)
