"""When each task of a plan runs, if every call takes the seconds that its cost says; and which tasks decide the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.ir.plan import Plan, Task


@dataclass(frozen=True)
class Span:
    """A task from `begin` to `end`, in seconds. The critical ones are those that the last end depends on."""

    task: Task
    begin: float
    end: float
    critical: bool = False


def simulate(plan: Plan, seconds: Sequence[float]) -> tuple[Span, ...]:
    """One Span for each task of the plan, in its order.

    `seconds` is the time of each call from the first of its tasks to the last; on each lane a call takes its share by tiles of the
    lane that has most. A task begins when its lane is free and its waits are over.
    """
    shares = _shares(plan)
    spans: list[Span] = []
    causes: list[int | None] = []
    lanes: list[list[int]] = [[] for _ in range(plan.lanes)]
    for at, task in enumerate(plan.tasks):
        before = [lanes[wait.lane][wait.count - 1] for wait in task.waits if wait.count]
        before += lanes[task.lane][-1:]
        cause = max(before, key=lambda other: spans[other].end, default=None)
        begin = spans[cause].end if cause is not None else 0.0
        spans.append(Span(task, begin, begin + seconds[task.call] * shares[at]))
        causes.append(cause)
        lanes[task.lane].append(at)
    critical = set()
    at_last = max(range(len(spans)), key=lambda at: spans[at].end, default=None)
    while at_last is not None:
        critical.add(at_last)
        at_last = causes[at_last]
    return tuple(Span(span.task, span.begin, span.end, at in critical) for at, span in enumerate(spans))


def predicted(spans: Sequence[Span]) -> float:
    """Seconds of one inference: the last end."""
    return max((span.end for span in spans), default=0.0)


def _shares(plan: Plan) -> list[float]:
    """For each task, its part of its call's time: its tiles over those of the lane that has most of them."""
    tiles: dict[tuple[int, int], int] = {}
    for task in plan.tasks:
        key = (task.call, task.lane)
        tiles[key] = tiles.get(key, 0) + task.last - task.first
    most: dict[int, int] = {}
    for (call, _), count in tiles.items():
        most[call] = max(most.get(call, 0), count)
    return [(task.last - task.first) / max(most[task.call], 1) for task in plan.tasks]
