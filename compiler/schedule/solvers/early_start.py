"""Earliest start first: list scheduling of kernels that may run side by side, each on as many lanes as suits the moment.

The problem is the resource-constrained one with moldable tasks: lanes are the resource, a call begins after its predecessors, and the makespan is to be
least (serial schedule generation; Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", EJOR 90,
1996). From the calls whose predecessors are placed, the one that can start first is placed next; of those that can start at the same time, that of
the least `priority`: with `critical_first` the one with the longest way to the end. It goes to the lanes on which it ends first, with what it has to
read from other lanes.

With `fill`, calls share the lanes out among themselves while several are ready: each takes its part of them. Without, each takes as many as make it
end first, as if it were alone. Which pays depends on the graph, so both are candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from compiler.schedule.problem import Placed, Problem, ways_to_the_end
from compiler.schedule.solvers.placing import Options, Placing


@dataclass(frozen=True)
class Rules:
    """The switches."""

    critical_first: bool = True
    fill: bool = True


def early_start(problem: Problem, rules: Rules, most: Sequence[int] | None = None) -> tuple[Placed, ...]:
    """The calls in the order in which they were placed; each on at most `most` lanes, if given."""
    options = [
        tuple(one for one in problem.lengths(call) if most is None or one[0] <= most[call]) for call in problem.calls
    ]
    priority = critical_priority(problem) if rules.critical_first else [0.0] * len(options)
    return ListScheduler(problem).placed(priority, options, rules.fill)


def critical_priority(problem: Problem) -> list[float]:
    """The longest way to the end first, every call on one lane."""
    return [-way for way in ways_to_the_end(problem.before, [problem.alone(call) for call in problem.calls])]


class ListScheduler:
    """Places the calls of one problem one after another, again and again with other priorities and options."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.placing = Placing(problem)
        self.missing = [len(earlier) for earlier in problem.before]
        self.first = [call for call, count in enumerate(self.missing) if not count]

    def placed(
        self, priority: Sequence[float], options: Sequence[Options], fill: bool = False, by_start: bool = True
    ) -> tuple[Placed, ...]:
        """With `by_start` what can start first goes first, and `priority`, the least first, breaks ties; without, it alone decides."""
        problem, missing = self.problem, self.missing[:]
        self.free = [0.0] * problem.lanes
        self.done: dict[int, Placed] = {}
        now = [(priority[call], call) for call in self.first]
        heapify(now)
        later: list[tuple[float, float, int]] = []
        while now or later:
            if not now:
                _, _, call = heappop(later)
            else:
                _, call = heappop(now)
            best = self._best(call, options[call], len(now) + len(later) + 1 if fill else 1)
            self.done[call] = best
            for lane in best.lanes:
                self.free[lane] = best.end
            for follower in problem.after[call]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready = max([self.done[one].end for one in problem.before[follower]]) if by_start else 0.0
                    heappush(later, (ready, priority[follower], follower))
            earliest = min(self.free)
            while later and later[0][0] <= earliest:
                _, rank, ready_now = heappop(later)
                heappush(now, (rank, ready_now))
        return tuple(self.done.values())

    def _best(self, call: int, options: Options, ready: int) -> Placed:
        """Of its options that which ends first; while others are ready it takes no more than its share of the lanes, if it can."""
        wanted = max(self.problem.lanes // ready, options[0][0])
        few = [option for option in options if option[0] <= wanted]
        found = self.placing.each(call, few, self.free, self.done)
        return min(found, key=lambda one: (one.end, len(one.lanes))) if len(found) > 1 else found[0]
