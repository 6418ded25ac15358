"""A plan simulated as the runtime runs it.

Each lane runs its tasks in order, and each task when what it waits for has been seen to be done.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.plans.plan import Plan

Spans = tuple[tuple[float, float], ...]
"""Begin and end of each task, in the plan's order, in seconds from the beginning of a run."""


def replayed(plan: Plan, works: Sequence[float], handover_s: float, wake_s: float = 0.0) -> Spans:
    """When the tasks of a plan for CPU lanes run, after lanes took `wake_s` seconds to wake. O(tasks · waits of one).

    `works` are the seconds of each task by itself, in the plan's order. A task begins when its lane is free and, for
    each of its waits, a hand-off after the task that it waits for has ended. Raises ValueError where tasks wait for
    each other.
    """
    streams: list[list[int]] = [[] for _ in range(plan.lanes)]
    tasks = plan.tasks_of_one_device()
    for at, task in enumerate(tasks):
        streams[task.lane].append(at)
    ended = [[0.0] for _ in range(plan.lanes)]
    """When each lane has finished its first 0, 1, ... tasks."""
    spans = [(0.0, 0.0)] * len(tasks)
    left = len(spans)
    while left:
        before = left
        for stream, mine in zip(streams, ended, strict=True):
            while len(mine) <= len(stream):
                at = stream[len(mine) - 1]
                waits = tasks[at].waits
                if any(wait.count >= len(ended[wait.lane]) for wait in waits):
                    break
                begin = max([mine[-1], *(ended[wait.lane][wait.count] + handover_s for wait in waits)])
                spans[at] = begin, begin + works[at]
                mine.append(spans[at][1])
                left -= 1
        if left == before:
            raise ValueError("tasks wait for each other")
    return tuple((wake_s + begin, wake_s + end) for begin, end in spans)


def last_end(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds until the last task has ended."""
    return max((end for _, end in spans), default=0.0)
