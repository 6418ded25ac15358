"""When each task of a plan runs, if every call takes the seconds that its cost says; and which tasks decide the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.ir.plan import Plan, Task


@dataclass(frozen=True)
class Span:
    """A task from `begin` to `end`, in seconds. The critical ones are those that the last end depends on.

    after  positions of the tasks of other lanes that it waits for: a hand-over from each
    cause  position of the task without which it would have begun earlier, on its own lane or another
    """

    task: Task
    begin: float
    end: float
    after: tuple[int, ...] = ()
    cause: int | None = None
    critical: bool = False


def simulate(plan: Plan, seconds: Sequence[float], handover_s: float = 0.0) -> tuple[Span, ...]:
    """One Span for each task of the plan, in its order.

    `seconds` is the time of each call from the first of its tasks to the last; on each lane a call takes its share by tiles of the
    lane that has most. A task begins when its lane is free and what it waits for was over `handover_s` ago.
    """
    shares = _shares(plan)
    spans: list[Span] = []
    lanes: list[list[int]] = [[] for _ in range(plan.lanes)]
    for at, task in enumerate(plan.tasks):
        after = tuple(lanes[wait.lane][wait.count - 1] for wait in task.waits if wait.count)
        ready = {own: spans[own].end for own in lanes[task.lane][-1:]}
        ready |= {other: spans[other].end + handover_s for other in after}
        cause = max(ready, key=lambda other: ready[other], default=None)
        begin = ready[cause] if cause is not None else 0.0
        spans.append(Span(task, begin, begin + seconds[task.call] * shares[at], after, cause))
        lanes[task.lane].append(at)
    critical = set()
    at_last = max(range(len(spans)), key=lambda at: spans[at].end, default=None)
    while at_last is not None:
        critical.add(at_last)
        at_last = spans[at_last].cause
    return tuple(replace(span, critical=at in critical) for at, span in enumerate(spans))


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
