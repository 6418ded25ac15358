"""Critical path list: the call with the longest way to the end goes where it ends first, into gaps too.

Hand-offs and moves count for the way and for the end.

HEFT (Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
IEEE TPDS 13, 2002): upward rank and insertion; for calls that can be split the number of lanes is chosen likewise, by
earliest end (M-HEFT, N'takpé, Suter and Casanova, ISPDC 2007).
"""

from __future__ import annotations

from bisect import bisect_left, insort

from compiler.schedule.problem import Lanes, Placed, Problem, timed


def critical_path_list(problem: Problem) -> tuple[Placed, ...]:
    """The calls by their beginnings. O(calls² · lanes)."""
    return _Gaps(problem).placed()


def upward_ranks(problem: Problem) -> list[float]:
    """For each call the longest way from its beginning to the end, in seconds, each step between two lanes.

    Calls count with their mean length over the numbers of lanes that they may run on.
    """
    means = [sum(length for _, length in every) / len(every) for every in map(problem.lengths, problem.calls)]
    ranks = means[:]
    for call in reversed(problem.calls):
        for at, one in enumerate(problem.before[call]):
            ranks[one] = max(ranks[one], means[one] + problem.edge_s(call, at) + ranks[call])
    return ranks


class _Gaps:
    """For each lane what runs there, by beginning."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(problem.lanes)]
        self.done: dict[int, Placed] = {}

    def placed(self) -> tuple[Placed, ...]:
        ranks = upward_ranks(self.problem)
        for call in sorted(self.problem.calls, key=lambda call: (-ranks[call], call)):
            options = [
                option for count, length in self.problem.lengths(call) for option in self._options(call, count, length)
            ]
            best = min(options, key=lambda one: (one.end, len(one.lanes), one.lanes))
            self.done[call] = best
            for lane in best.lanes:
                insort(self.busy[lane], (best.begin, best.end))
        order = sorted(self.done.values(), key=lambda one: (one.begin, one.end, -ranks[one.call]))
        return timed(self.problem, order)

    def _options(self, call: int, count: int, length: float) -> list[Placed]:
        """The call on each lane, or on the lanes that can take it first."""
        if count == 1:
            return [self._on(call, (lane,), length) for lane in range(self.problem.lanes)]
        alone = [self._on(call, (lane,), length) for lane in range(self.problem.lanes)]
        first = sorted(alone, key=lambda one: (one.begin, one.lanes))[:count]
        sets = {tuple(sorted(one.lanes[0] for one in first))}
        sets |= {self.done[one].lanes for one in self.problem.before[call] if len(self.done[one].lanes) == count}
        return [self._on(call, lanes, length) for lanes in sorted(sets)]

    def _on(self, call: int, lanes: Lanes, length: float) -> Placed:
        """In the first gap of all these lanes that is long enough, after what the call reads has arrived."""
        length += self.problem.moving(call, lanes, self.done)
        begin = 0.0
        for one in self.problem.before[call]:
            same_lane = len(lanes) == 1 and self.done[one].lanes == lanes
            begin = max(begin, self.done[one].end + (0.0 if same_lane else self.problem.handover_s))
        moved = True
        while moved:
            moved = False
            for lane in lanes:
                after = self._after(lane, begin, length)
                moved, begin = moved or after > begin, after
        return Placed(call, lanes, begin, begin + length)

    def _after(self, lane: int, begin: float, length: float) -> float:
        """The first time from `begin` on at which a lane is free for so long."""
        busy = self.busy[lane]
        for busy_from, busy_until in busy[max(bisect_left(busy, (begin, begin)) - 1, 0) :]:
            if busy_from >= begin + length:
                break
            begin = max(begin, busy_until)
        return begin
