"""Earliest start first: list scheduling of kernels that may run side by side, each on as many lanes as suits the moment.

The problem is the resource-constrained one with moldable tasks: a call takes `seconds(call, lanes)`, lanes are the resource, a call begins
after its predecessors, and the makespan is to be least (serial schedule generation; Kolisch, "Serial and parallel resource-constrained project
scheduling methods revisited", EJOR 90, 1996). From the calls whose predecessors are placed, the one that can start first is placed
next; of those that can start at the same time, with `critical_first`, the one with the longest way to the end.

With `fill`, calls share the lanes out among themselves while several are ready: each takes its part of them. Without, each takes as many as make it
end first, as if it were alone. Which pays depends on the graph, so both are candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.schedule.problem import Placed, Seconds, ways_to_the_end


@dataclass(frozen=True)
class Rules:
    """The two switches."""

    critical_first: bool = True
    fill: bool = True


def early_start(
    before: Sequence[Sequence[int]], seconds: Seconds, lanes: int, handover_s: float, rules: Rules
) -> tuple[Placed, ...]:
    """The calls in the order in which they were placed; `before` are each call's predecessors.

    `handover_s` is what a call waits for a result of another lane.
    """
    return _EarlyStart(before, seconds, lanes, handover_s, rules).placed()


class _EarlyStart:
    def __init__(
        self, before: Sequence[Sequence[int]], seconds: Seconds, lanes: int, handover_s: float, rules: Rules
    ) -> None:
        self.before, self.seconds, self.handover_s, self.rules = before, seconds, handover_s, rules
        self.free = [0.0] * lanes
        self.done: dict[int, Placed] = {}
        self.way = ways_to_the_end(before, [self._lengths(call, lanes)[0][1] for call in range(len(before))])

    def placed(self) -> tuple[Placed, ...]:
        after: list[list[int]] = [[] for _ in self.before]
        missing = [len(earlier) for earlier in self.before]
        for call, earlier in enumerate(self.before):
            for one in earlier:
                after[one].append(call)
        ready = [call for call, count in enumerate(missing) if not count]
        while ready:
            call = min(ready, key=self._urgency)
            ready.remove(call)
            self._place(call, len(ready) + 1)
            for follower in after[call]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
        return tuple(self.done.values())

    def _urgency(self, call: int) -> tuple[float, float, int]:
        start = max(self._ready_at(call), min(self.free))
        return (start, -self.way[call] if self.rules.critical_first else 0.0, call)

    def _ready_at(self, call: int) -> float:
        return max((self.done[one].end for one in self.before[call]), default=0.0)

    def _place(self, call: int, ready: int) -> None:
        most = len(self.free)
        wanted = max(most // ready, 1) if self.rules.fill else most
        options = [self._option(call, count, length) for count, length in self._lengths(call, wanted)]
        best = min(options, key=lambda option: (option.end, len(option.lanes)))
        for lane in best.lanes:
            self.free[lane] = best.end
        self.done[call] = best

    def _lengths(self, call: int, most: int) -> list[tuple[int, float]]:
        lengths = [(count, self.seconds(call, count)) for count in range(1, most + 1)]
        return [(count, length) for count, length in lengths if length is not None]

    def _option(self, call: int, count: int, length: float) -> Placed:
        """The call on the `count` lanes that let it begin first; of equal ones those that have its operands."""
        earlier = [self.done[one] for one in self.before[call]]
        own = {lane for one in earlier for lane in one.lanes}

        def begins(lane: int) -> float:
            arrives = (one.end + (0.0 if one.lanes == (lane,) else self.handover_s) for one in earlier)
            return max([self.free[lane], *arrives])

        lanes = sorted(range(len(self.free)), key=lambda lane: (begins(lane), lane not in own, lane))[:count]
        begin = max(map(begins, lanes))
        return Placed(call, tuple(sorted(lanes)), begin, begin + length)
