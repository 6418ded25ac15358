"""Plans wait for what their tasks touch and for nothing else.

They compute the same in every order that their waits allow.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Accesses
from compiler.ir.plans.plan import Plan, Task, Wait
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.problem import Placed
from tests.compiler.schedule.kernel_graphs import SPLITS, ExactRegions, random_graph, random_order, run, tile_tasks
from tests.seeds import each


def random_plan(seed: int, fine: bool, most: int = 12) -> tuple[KernelGraph, Plan, ExactRegions | None]:
    """A plan of calls in turn or side by side on 1 to 4 lanes."""
    random = Random(seed)
    kernels = random_graph(random, most)
    regions = ExactRegions(kernels) if fine else None
    split = [random.choice(SPLITS) for _ in kernels.calls]
    tiles = [
        (tile, tile_tasks(tile, kernels.buffers[call.outputs[0]].type.dims))
        for tile, call in zip(split, kernels.calls, strict=True)
    ]
    lanes = random.randint(1, 4)
    if random.random() < 0.5:
        counts = [random.choice([1, min(lanes, count), min(lanes, count)]) for _, count in tiles]
        placed = [Placed(call, tuple(range(count)), 0.0, 0.0) for call, count in enumerate(counts)]
        before = [tuple(range(max(call - 1, 0), call)) for call in range(len(tiles))]
    else:
        placed = random_order(random, kernels, lanes, [count for _, count in tiles])
        before = [*predecessors(kernels)]
    return kernels, plan_of(kernels, placed, tiles, lanes, before, "random", regions), regions


def reaches(plan: Plan) -> list[set[int]]:
    """For each task the positions of those that end before it begins, by following lanes and waits."""
    streams = [[at for at, task in enumerate(plan.runs) if task.lane == lane] for lane in range(plan.lanes)]
    found: list[set[int]] = []
    for at, task in enumerate(plan.runs):
        mine = streams[task.lane].index(at)
        direct = {*streams[task.lane][max(mine - 1, 0) : mine]}
        direct |= {streams[wait.lane][wait.count - 1] for wait in task.waits if wait.count}
        found.append(direct.union(*(found[one] for one in direct)))
    return found


def races(kernels: KernelGraph, plan: Plan, regions: ExactRegions | None) -> bool:
    """Whether two tasks that conflict are in no order, or in a wrong one: byte by byte."""
    before = reaches(plan)
    accesses = Accesses(kernels, regions)
    touched = [accesses.of(task.call, plan.tiles[task.call][0], task.first, task.last) for task in plan.runs]
    for after, task in enumerate(plan.runs):
        for earlier, other in enumerate(plan.runs):
            if after == earlier:
                continue
            for one in touched[after]:
                for two in touched[earlier]:
                    if one.storage == two.storage:
                        wrong = (
                            not one.writes and two.writes and other.call < task.call and earlier not in before[after]
                        )
                        if wrong and {*range(one.begin, one.end)} & {*range(two.begin, two.end)}:
                            return True
                        continue
                    places = plan.places[one.storage], plan.places[two.storage]
                    if (
                        not (one.writes or two.writes)
                        or task.call == other.call
                        or {p.space for p in places} != {"arena"}
                    ):
                        continue
                    bytes_of = [range(p.at + a.begin, p.at + a.end) for p, a in zip(places, (one, two), strict=True)]
                    if (
                        {*bytes_of[0]} & {*bytes_of[1]}
                        and earlier not in before[after]
                        and after not in before[earlier]
                    ):
                        return True
    return False


@pytest.mark.parametrize("fine", [False, True])
@each(range(60))
def test_every_order_that_the_waits_allow_computes_what_the_calls_in_turn_compute(seed: int, fine: bool) -> None:
    kernels, plan, _ = random_plan(seed, fine)
    expected = run(kernels, in_turn(kernels, plan), Random(0))
    for order in range(6):
        assert run(kernels, plan, Random(order)) == expected


@pytest.mark.parametrize("fine", [False, True])
def test_without_waits_some_order_computes_something_else(fine: bool) -> None:
    """The orders in which the interpreter runs tasks are wild enough to find what a plan lacks."""
    judged = 0
    for seed in range(40):
        kernels, plan, _ = random_plan(seed, fine)
        if any(task.waits for task in plan.runs):
            judged += 1
            free = replace(plan, tasks=tuple(replace(task, waits=()) for task in plan.runs))
            expected = run(kernels, in_turn(kernels, plan), Random(0))
            assert any(run(kernels, free, Random(order)) != expected for order in range(20))
    assert judged > 10


def in_turn(kernels: KernelGraph, plan: Plan) -> Plan:
    """The calls one after another on one lane, in memory of their own each."""
    tasks = tuple(Task(call, 0, 0, count) for call, (_, count) in enumerate(plan.tiles))
    at, places = 0, {}
    for storage, place in plan.places.items():
        places[storage] = replace(place, at=at) if place.space == "arena" else place
        at += place.bytes if place.space == "arena" else 0
    return Plan(1, tasks, plan.tiles, places, at, "in turn")


@pytest.mark.parametrize("fine", [False, True])
@each(range(40))
def test_a_plan_has_no_races_and_lacks_none_of_its_waits(seed: int, fine: bool) -> None:
    """Every wait is needed.

    No other implies it, and without it the verifier finds a race, as does a search byte by byte.
    """
    kernels, plan, regions = random_plan(100 + seed, fine, most=8)
    assert not races(kernels, plan, regions)
    for at, task in enumerate(plan.runs):
        for wait in task.waits:
            less = replace(task, waits=tuple(other for other in task.waits if other != wait))
            broken = replace(plan, tasks=(*plan.runs[:at], less, *plan.runs[at + 1 :]))
            assert races(kernels, broken, regions)
            with pytest.raises(VerifyError):
                broken.verify(kernels, regions)


@each(range(60))
def test_the_verifier_finds_a_race_exactly_where_there_is_one(seed: int) -> None:
    """Waits taken away, or made for a task before, at random."""
    random = Random(seed)
    kernels, plan, regions = random_plan(200 + seed, fine=True, most=8)
    for _ in range(4):
        tasks = tuple(
            replace(task, waits=tuple(changed for wait in task.waits for changed in weakened(random, wait)))
            for task in plan.runs
        )
        broken = replace(plan, tasks=tasks)
        try:
            broken.verify(kernels, regions)
            refused = False
        except VerifyError:
            refused = True
        assert refused == races(kernels, broken, regions)


def weakened(random: Random, wait: Wait) -> tuple[Wait, ...]:
    chance = random.random()
    if chance < 0.7:
        return (wait,)
    return () if chance < 0.8 else (Wait(wait.lane, wait.count - 1),)


def test_whole_calls_are_waited_for_once() -> None:
    """Call 2 reads calls 0 and 1; what lane 1 learns of lane 2 from lane 0 it does not ask for again."""
    placed = [Placed(0, (2,), 0.0, 0.0), Placed(1, (0,), 0.0, 0.0), Placed(2, (1,), 0.0, 0.0)]
    tasks = tasks_of(placed, [(), (0,), (0, 1)], [4, 4, 4], 3)
    assert [task.waits for task in tasks] == [(), (Wait(2, 1),), (Wait(0, 1),)]
