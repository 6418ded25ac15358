"""A plan carried out as the runtime does: each lane its tasks in order, each task when what it waits for has been seen to be done.

A simulation event by event. A task begins when its lane is free and, for each of its waits, a hand-over after the task that it waits for has ended. While it
runs it takes 1 + suffers · (the sum of what the tasks on other lanes press) times as long (compiler/schedule/solvers/contention.py); rates change when a task
begins or ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.ir.plan import Plan
from compiler.schedule.plans.works import Work

Spans = tuple[tuple[float, float], ...]
"""Begin and end of each task, in the plan's order, in seconds from the beginning of a run."""


def replayed(plan: Plan, works: Sequence[Work], handover_s: float, wake_s: float = 0.0) -> Spans:
    """When the tasks of a plan for CPU lanes run, of `works` in its order, after lanes took `wake_s` to wake. O(tasks · lanes · waits of one)."""
    spans = _Lanes(plan, works, handover_s).run()
    return tuple((wake_s + begin, wake_s + end) for begin, end in spans)


def last_end(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds until the last task has ended."""
    return max((end for _, end in spans), default=0.0)


class _Lanes:
    def __init__(self, plan: Plan, works: Sequence[Work], handover_s: float) -> None:
        self.tasks, self.works, self.handover_s = plan.tasks_of_one_device(), works, handover_s
        self.streams: list[list[int]] = [[] for _ in range(plan.lanes)]
        for at, task in enumerate(self.tasks):
            self.streams[task.lane].append(at)
        self.ended = [[0.0] for _ in range(plan.lanes)]
        """When each lane has finished its first 0, 1, ... tasks."""
        self.begins, self.ends = [0.0] * len(plan.tasks), [0.0] * len(plan.tasks)
        self.left: dict[int, float] = {}
        """Of each task that runs, the seconds that are left if nothing runs beside it."""

    def run(self) -> Spans:
        now = 0.0
        while True:
            begins = {at: self._may_begin(at) for at in self._next()}
            stretched = self._stretched()
            ends = {at: now + left * stretched[at] for at, left in self.left.items()}
            events = begins | ends
            if not events:
                break
            at = min(events, key=lambda one: (events[one], one in begins))
            if events[at] == math.inf:
                raise ValueError("tasks wait for each other")
            for one, stretch in stretched.items():
                self.left[one] = max(0.0, self.left[one] - (events[at] - now) / stretch)
            now = events[at]
            if at in begins:
                self.begins[at], self.left[at] = now, self.works[at].seconds
            else:
                del self.left[at]
                self.ends[at] = now
                self.ended[self.tasks[at].lane].append(now)
        return tuple(zip(self.begins, self.ends, strict=True))

    def _next(self) -> list[int]:
        """Of each lane that is free the task that comes next."""
        following = [
            stream[len(ended) - 1]
            for stream, ended in zip(self.streams, self.ended, strict=True)
            if len(ended) <= len(stream)
        ]
        return [at for at in following if at not in self.left]

    def _may_begin(self, at: int) -> float:
        """Infinite where that cannot be told yet."""
        task = self.tasks[at]
        if any(wait.count >= len(self.ended[wait.lane]) for wait in task.waits):
            return math.inf
        seen = (self.ended[wait.lane][wait.count] + self.handover_s for wait in task.waits)
        return max([self.ended[task.lane][-1], *seen])

    def _stretched(self) -> dict[int, float]:
        """For each task that runs how many times as long it takes beside the others. O(lanes)."""
        running = [(at, self.tasks[at].call, self.works[at]) for at in self.left]
        of_call: dict[int, float] = {}
        for _, call, work in running:
            of_call[call] = of_call.get(call, 0.0) + work.load.presses
        of_all = sum(of_call.values())
        return {
            at: 1.0 + work.load.suffers * (of_all - (of_call[call] if work.measured_beside else work.load.presses))
            for at, call, work in running
        }
