"""When each task of a plan is expected to run, and which tasks decide the whole.

Also the same as its picture needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.contract import kinds
from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.pack.chart.schedule import Call, Schedule, Span, Task, Timeline
from compiler.pack.facts import Facts


def expected(plan: Plan, facts: Facts) -> Timeline:
    """As the scheduler expects it, if it says so; else as the costs of the calls make it.

    Raises VerifyError for spans of another plan.
    """
    spans = facts.predicted or simulate(plan, task_seconds(plan, facts.seconds), facts.handover_s)
    return _timeline(plan, spans, facts)


def measured(plan: Plan, facts: Facts) -> Timeline | None:
    """As it was traced; None where it was not. Raises VerifyError for spans of another plan."""
    return _timeline(plan, facts.measured, facts) if facts.measured else None


def predicted_seconds(plan: Plan, facts: Facts) -> float:
    """What the scheduler says that an inference takes; the last expected end where it says nothing."""
    return plan.predicted_s or expected(plan, facts).seconds


def schedule_of(kernels: KernelGraph, plan: Plan, facts: Facts) -> Schedule:
    """What the picture of a plan needs."""
    calls = [
        Call(call.kernel.family, str(tile), tile.algorithm, tiles, *facts.time_of(position))
        for position, (call, (tile, tiles)) in enumerate(zip(kernels.calls, plan.tiles, strict=True))
    ]
    timeline = expected(plan, facts)
    return Schedule(
        plan.scheduler,
        plan.lanes,
        lane_name(facts.target),
        tuple(calls),
        timeline.tasks,
        predicted_seconds(plan, facts),
        timeline,
        measured(plan, facts),
    )


def lane_name(target: str) -> str:
    """What the lanes of a target's plans are called."""
    kind = kinds.find(target)
    return kind.lane if kind else "lane"


def simulate(plan: Plan, seconds: Sequence[float], handover_s: float = 0.0) -> tuple[Span, ...]:
    """Begin and end of each task, in the plan's order, if each takes so many `seconds`.

    A task begins when its lane is free and what it waits for was over `handover_s` ago; those that share a launch begin
    together.
    """
    spans: list[Span] = []
    ended = [[0.0] for _ in range(plan.lanes)]  # when a lane has finished its first 0, 1, ... tasks
    launched = [0.0] * plan.lanes
    for task, spent in zip(plan.tasks_of_one_device(), seconds, strict=True):
        if not task.beside:
            arrivals = [ended[wait.lane][wait.count] + handover_s for wait in task.waits if wait.count]
            launched[task.lane] = max([ended[task.lane][-1], *arrivals])
        begin = launched[task.lane]
        spans.append((begin, begin + spent))
        ended[task.lane].append(max(ended[task.lane][-1], begin + spent))
    return tuple(spans)


def task_seconds(plan: Plan, seconds: Sequence[float]) -> list[float]:
    """What each task takes, of calls that take so many seconds as the plan carries them out, on all of their lanes.

    The lane with most of a call's tiles takes the call's time, others less by as much as they have fewer; a lane's
    share is shared among its tasks by tiles.
    """
    tiles: dict[tuple[int, int], int] = {}
    for task in plan.tasks_of_one_device():
        key = (task.call, task.lane)
        tiles[key] = tiles.get(key, 0) + task.last - task.first
    most: dict[int, int] = {}
    for (call, _), count in tiles.items():
        most[call] = max(most.get(call, 0), count)
    return [
        seconds[task.call] * (task.last - task.first) / max(most[task.call], 1) for task in plan.tasks_of_one_device()
    ]


def _timeline(plan: Plan, spans: Sequence[Span], facts: Facts) -> Timeline:
    if len(spans) != len(plan.tasks):
        raise VerifyError(f"{len(spans)} spans for {len(plan.tasks)} tasks")
    tasks = [
        Task(
            task.call,
            task.lane,
            task.first,
            task.last,
            tuple((wait.lane, wait.count) for wait in task.waits),
            task.beside,
        )
        for task in plan.tasks_of_one_device()
    ]
    return Timeline.of(tasks, spans, facts.handover_s)
