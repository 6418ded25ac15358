"""What a schedule takes when calls that run at the same time slow each other: a simulation event by event.

Memory bandwidth is a resource over whose capacity durations stretch (algorithms of fluid resource sharing; Drozdowski, "Scheduling for Parallel
Processing", 2009, chapter 6). While it runs, a call takes 1 + suffers · (the sum of what the calls beside it press) times as long; its rate changes when a
neighbour begins or ends. A call on several lanes presses as one, and what its own parts do to each other is in its length.

No call is ever faster for it, and the order on each lane stays, so no call begins earlier than without: bounds that leave contention out stay bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from compiler.schedule.problem import Placed, Problem, arrivals, makespan, timed


def contended(problem: Problem, placed: Sequence[Placed]) -> tuple[Placed, ...]:
    """The same calls on the same lanes in the same order, as they begin and end beside each other. O(calls · (log calls + lanes) + edges)."""
    if not (any(load.suffers for load in problem.beside) and any(load.presses for load in problem.beside)):
        return timed(problem, placed)
    return _Simulation(problem, placed).run()


def contended_makespan(problem: Problem, placed: Sequence[Placed]) -> float:
    """Seconds until the last call has ended, with contention."""
    return makespan(contended(problem, placed))


class _Simulation:
    def __init__(self, problem: Problem, placed: Sequence[Placed]) -> None:
        self.problem, self.placed = problem, placed
        self.on = {one.call: one for one in placed}
        self.missing = {one.call: len(problem.before[one.call]) for one in placed}
        self.next_on_lanes: dict[int, list[int]] = {one.call: [] for one in placed}
        last: dict[int, int] = {}
        for one in placed:
            for earlier in {last[lane] for lane in one.lanes if lane in last}:
                self.next_on_lanes[earlier].append(one.call)
                self.missing[one.call] += 1
            last |= dict.fromkeys(one.lanes, one.call)
        self.free = [0.0] * problem.lanes
        self.done: dict[int, Placed] = {}
        self.running: dict[int, tuple[float, float]] = {}
        """When a call began, and the seconds of it that are left if it were alone."""
        self.waiting: list[tuple[float, int]] = []
        """When calls may begin that wait for nothing but the time."""

    def run(self) -> tuple[Placed, ...]:
        now = 0.0
        for call, count in self.missing.items():
            if not count:
                heappush(self.waiting, (0.0, call))
        while self.waiting or self.running:
            ends = {call: now + left * self._stretch(call) for call, (_, left) in self.running.items()}
            first = min(ends, key=ends.__getitem__, default=None)
            if first is None or (self.waiting and self.waiting[0][0] < ends[first]):
                self._advance(now, max(now, self.waiting[0][0]))
                now = max(now, self.waiting[0][0])
                call = heappop(self.waiting)[1]
                self.running[call] = (now, self._length(call))
            else:
                self._advance(now, ends[first])
                now = ends[first]
                self._end(first, now)
        return tuple(self.done[one.call] for one in self.placed)

    def _stretch(self, call: int) -> float:
        beside = self.problem.beside
        return 1.0 + beside[call].suffers * sum([beside[other].presses for other in self.running if other != call])

    def _advance(self, now: float, then: float) -> None:
        stretched = {call: self._stretch(call) for call in self.running}
        for call, (begin, left) in self.running.items():
            self.running[call] = (begin, max(0.0, left - (then - now) / stretched[call]))

    def _length(self, call: int) -> float:
        lanes = self.on[call].lanes
        length = self.problem.length(call, len(lanes))
        assert length is not None, "no call is placed on lanes it cannot be split over"
        return length + self.problem.moving(call, lanes, self.done)

    def _end(self, call: int, now: float) -> None:
        begin, _ = self.running.pop(call)
        one = self.on[call]
        self.done[call] = Placed(call, one.lanes, begin, now)
        for lane in one.lanes:
            self.free[lane] = now
        for follower in (*self.problem.after[call], *self.next_on_lanes[call]):
            self.missing[follower] -= 1
            if not self.missing[follower]:
                at = self.on[follower]
                begins = max([*(self.free[lane] for lane in at.lanes), *arrivals(self.problem, self.done, at)])
                heappush(self.waiting, (begins, follower))
