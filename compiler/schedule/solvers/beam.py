"""List scheduling that looks ahead: of many schedules begun, those of the earliest estimated end are continued.

Beam search (Ow and Morton, "Filtered beam search in scheduling", International Journal of Production Research 26, 1988)
over the steps of list scheduling: which call begins next, and on how many lanes. Calls are placed by their beginnings,
so each schedule is generated once, idle time of lanes counts as work, and schedules begun with equally many calls can
be compared. Only a call that begins before another could have ended is tried (Giffler and Thompson, "Algorithms for
solving production-scheduling problems", Operations Research 8, 1960): to wait longer would waste a lane.

The estimated end of a schedule begun is the later of two: by the longest path that is left, and by the work that is
left, distributed over the lanes. Both follow from how many lanes the calls to come will get, of which there are three
estimates: the best of either, which no schedule goes below, what critical path and area give each, and the mean. None
is best on all graphs, so all are tried. List scheduling without looking ahead is tried too, so no block takes longer
than by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate, product
from typing import NamedTuple

from compiler.schedule.problem import Placed, Problem, lower_bound, makespan, timed, ways_to_the_end
from compiler.schedule.solvers.allotment import allotment
from compiler.schedule.solvers.early_start import Rules, early_start
from compiler.schedule.solvers.placing import Placing

BEGUN = 12_000
"""Schedules begun that are continued in all blocks of a problem, for each estimate: a second or two."""
MOST_BEGUN = 500
"""In one block: after each step of it as many as there are steps for."""
MOST_TRIED = 64
"""Placements of calls that are tried after each schedule begun (the filter of Ow and Morton): else many ready calls
times many lanes would take minutes.
"""
BOTH = 0.1
"""Of two of the same estimated end, that is better whose path and work are shorter together; a tenth of this sum
counts beside the end.
"""


def beam(problem: Problem, begun: int = MOST_BEGUN) -> tuple[Placed, ...]:
    """A schedule no longer than those of list scheduling with and without `critical_first` and `fill`.

    O((begun + calls) · (MOST_TRIED · lanes · edges of a call + calls)).
    """
    switches = [Rules(*every) for every in product((True, False), repeat=2)]
    best = min((early_start(problem, rules) for rules in switches), key=makespan)
    width = max(1, begun // max(len(problem.before), 1))
    least = lower_bound(problem)
    for estimate in estimates(problem):
        if makespan(best) > least:
            best = min(best, _Beam(problem, estimate, width).shortest(), key=makespan)
    return best


@dataclass(frozen=True)
class Estimate:
    """For each call how long it is thought to take, and the work that it will be: lanes times seconds."""

    seconds: Sequence[float]
    work: Sequence[float]


def estimates(problem: Problem) -> tuple[Estimate, ...]:
    """At best; as critical path and area allot the lanes; between the two."""
    found = at_best(problem), as_allotted(problem)
    return *found, Estimate(_means(*(one.seconds for one in found)), _means(*(one.work for one in found)))


def at_best(problem: Problem) -> Estimate:
    """Every call at its fastest, and its least work, although no number of lanes may give both."""
    options = [problem.lengths(call) for call in problem.calls]
    return Estimate(
        [min(length for _, length in every) for every in options],
        [min(count * length for count, length in every) for every in options],
    )


def as_allotted(problem: Problem) -> Estimate:
    """Every call on as many lanes as critical path and area give it."""
    counts = allotment(problem)
    seconds = [dict(problem.lengths(call))[count] for call, count in enumerate(counts)]
    return Estimate(seconds, [count * length for count, length in zip(counts, seconds, strict=True)])


def _means(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [(one + other) / 2 for one, other in zip(some, others, strict=True)]


class _Begun(NamedTuple):
    """Some calls placed, the last of which begins at `now`.

    `free` says when each lane is free, `ready` which calls can follow, `work` what work is left, in lanes times
    seconds.
    """

    now: float
    free: tuple[float, ...]
    done: dict[int, Placed]
    ready: tuple[int, ...]
    work: float


class _Ready(NamedTuple):
    """A call that can follow: when the last of its operands is there, and the longest path from it on."""

    call: int
    operands: float
    way: float

    @property
    def estimated_end(self) -> float:
        return self.operands + self.way


class _Step(NamedTuple):
    """One more call placed, and what follows by estimate: an end in seconds, and the work per lane."""

    estimated_end: float
    work: float
    begun: _Begun
    placed: Placed


class _Beam:
    def __init__(self, problem: Problem, estimate: Estimate, width: int) -> None:
        self.problem, self.estimate, self.width = problem, estimate, width
        self.placing = Placing(problem)
        self.ways = ways_to_the_end(problem.before, estimate.seconds)

    def shortest(self) -> tuple[Placed, ...]:
        first = tuple(call for call in self.problem.calls if not self.problem.before[call])
        kept = [_Begun(0.0, (0.0,) * self.problem.lanes, {}, first, sum(self.estimate.work))]
        for _ in self.problem.calls:
            steps = sorted([step for begun in kept for step in self._steps(begun)], key=lambda one: one[:2])
            kept = list(self._different(steps))
        return min((timed(self.problem, begun.done.values()) for begun in kept), key=makespan)

    def _steps(self, begun: _Begun) -> list[_Step]:
        free = [max(one, begun.now) for one in begun.free]
        ready = [_Ready(call, self._operands(call, begun), self.ways[call]) for call in begun.ready]
        options = [(call, self.problem.lengths(call)) for call in self._tried(ready, min(free))]
        found = [one for call, every in options for one in self.placing.each(call, every, free, begun.done)]
        first_end = min([one.end for one in found])
        last = (*nlargest(2, ready, key=lambda one: one.estimated_end), *nlargest(2, ready, key=lambda one: one.way))
        return [self._step(begun, one, last) for one in found if one.begin <= first_end]

    def _tried(self, ready: Sequence[_Ready], soonest: float) -> list[int]:
        """The calls that are tried: as many as MOST_TRIED allows, one at least.

        Those come first that can begin first, of these those with the longest way.
        """
        counts = {one.call: len(self.problem.lengths(one.call)) for one in ready}
        if sum(counts.values()) <= MOST_TRIED:
            return [*counts]
        order = [one.call for one in sorted(ready, key=lambda one: (max(one.operands, soonest), -one.way))]
        tried = accumulate(counts[call] for call in order)
        return [call for call, many in zip(order, tried, strict=True) if many <= MOST_TRIED] or order[:1]

    def _operands(self, call: int, begun: _Begun) -> float:
        """When the last of them is there."""
        return max([begun.done[one].end for one in self.problem.before[call]], default=0.0)

    def _step(self, begun: _Begun, placed: Placed, last: Sequence[_Ready]) -> _Step:
        """`last` are the ready calls of which one ends last, whichever is placed."""
        call, now, end = placed.call, placed.begin, placed.end
        free = [max(one, now) for one in begun.free]
        for lane in placed.lanes:
            free[lane] = end
        soonest = min(free)
        chain = end + self.ways[call] - self.estimate.seconds[call]
        for other, operands, way in last:
            if other != call:
                chain = max(chain, (operands if operands > soonest else soonest) + way)
        work = (sum(free) + begun.work - self.estimate.work[call]) / self.problem.lanes
        return _Step(max(chain, work) + BOTH * (chain + work), work, begun, placed)

    def _different(self, steps: Sequence[_Step]) -> Iterator[_Begun]:
        """The first `width` that differ.

        Of those that have placed the same calls and leave the lanes free at the same times, one is kept.
        """
        seen = set()
        for step in steps:
            begun, placed = step.begun, step.placed
            free = tuple([placed.end if lane in placed.lanes else one for lane, one in enumerate(begun.free)])
            alike = (frozenset([*begun.done, placed.call]), tuple(sorted(free)))
            if alike in seen:
                continue
            seen.add(alike)
            done = {**begun.done, placed.call: placed}
            freed = [one for one in self.problem.after[placed.call] if all(e in done for e in self.problem.before[one])]
            ready = (*(one for one in begun.ready if one != placed.call), *freed)
            yield _Begun(placed.begin, free, done, ready, begun.work - self.estimate.work[placed.call])
            if len(seen) == self.width:
                return
