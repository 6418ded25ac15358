"""Lanes and order found by simulated annealing, with list scheduling as the judge.

One thing is changed at a time, as long as that shortens the schedule.

Simulated annealing (Kirkpatrick, Gelatt and Vecchi, Science 220, 1983) over how many lanes each call gets and which
goes first, with a list scheduler as the judge, as in moldable scheduling generally (Dutot, Mounié and Trystram,
"Scheduling parallel tasks: approximation algorithms", Handbook of Scheduling, 2004, on two-phase algorithms) and in
project scheduling (Kolisch and Hartmann, "Experimental investigation of heuristics for resource-constrained project
scheduling", EJOR 174, 2006). It begins at the best of the given schedules and keeps the shortest that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp
from random import Random

from compiler.schedule.problem import Placed, Problem, lower_bound, makespan
from compiler.schedule.solvers.early_start import ListScheduler, critical_priority

PLACEMENTS = 150_000
"""Calls that may be placed in the tries of all blocks of a problem: a second or two."""
MOST_TRIES = 3000
"""For one block."""
STARTS = 3
"""Schedules that are begun with, each with its part of the tries."""
HEAT = 0.15
"""A schedule that is longer by this part of what a call makes up of the shortest is accepted, at first, in one of e
cases; towards the end never.
"""
HOTTER = 8.0
"""Times as hot is the last quarter of the tries, which leaves where the others were caught."""
ENOUGH = 1.002
"""Times the lower bound: no more is tried."""


@dataclass(frozen=True)
class Budget:
    """How often the blocks of a problem may be tried: each as often, as far as PLACEMENTS go."""

    calls: int

    @staticmethod
    def of(blocks: Iterable[Problem]) -> Budget:
        """The budget of some blocks; one of a single call needs no tries."""
        return Budget(sum(len(block.before) for block in blocks if len(block.before) > 1))

    @property
    def tries(self) -> int:
        """How often each block may be tried: list schedules."""
        return min(MOST_TRIES, PLACEMENTS // max(self.calls, 1))


def with_counts(problem: Problem, counts: Sequence[int]) -> tuple[Placed, ...]:
    """Earliest start first, each call on exactly so many lanes; the shorter of the two orders."""
    judge = _Judge(problem)
    return min((judge.placed(_State([*counts], [*order])) for order in judge.orders), key=makespan)


def descent(problem: Problem, starts: Sequence[Sequence[Placed]], most_tries: int = MOST_TRIES) -> tuple[Placed, ...]:
    """A schedule that is no longer than any of `starts`; the same for the same arguments.

    O(tries · (calls · (lanes + log calls) + edges)).
    """
    return _Search(problem, sorted(map(tuple, starts), key=makespan), most_tries).shortest()


@dataclass
class _State:
    """What a list schedule is made from: the lanes of each call, and which goes first.

    That is the call of the least priority; with `by_start`, the one of those that can start first.
    """

    counts: list[int]
    priority: list[float]
    by_start: bool = True


class _Judge:
    """List schedules of a problem with each call on exactly so many lanes."""

    def __init__(self, problem: Problem) -> None:
        self.scheduler = ListScheduler(problem)
        self.options = [{one[0]: (one,) for one in problem.lengths(call)} for call in problem.calls]
        self.orders = (critical_priority(problem), [float(call) for call in problem.calls])

    def placed(self, state: _State) -> tuple[Placed, ...]:
        options = [every[count] for every, count in zip(self.options, state.counts, strict=True)]
        return self.scheduler.placed(state.priority, options, by_start=state.by_start)


class _Search:
    """The shortest schedule met so far, and the tries that are left."""

    def __init__(self, problem: Problem, starts: Sequence[tuple[Placed, ...]], tries: int) -> None:
        self.starts, self.tries = starts, tries
        self.judge, self.random = _Judge(problem), Random(0)
        self.best, self.least = starts[0], makespan(starts[0])
        self.enough = ENOUGH * lower_bound(problem)

    def shortest(self) -> tuple[Placed, ...]:
        starts = self.starts[:STARTS]
        for number, start in enumerate(starts):
            share = self.tries // (len(starts) - number)
            self._annealed(start, share - share // 4, HEAT)
            self._annealed(start, share // 4, HEAT * HOTTER)
        return self.best

    def _annealed(self, start: tuple[Placed, ...], tries: int, hottest: float) -> None:
        state, now = None, 0.0
        for one in self._readings(start):
            length = self._tried(one) if tries > 0 and self.least > self.enough else None
            tries -= 1
            if length is not None and (state is None or length < now):
                state, now = one, length
        for step in range(tries):
            if state is None or self.least <= self.enough:
                return
            changed = self._changed(state)
            then = self._tried(changed)
            heat = hottest * self.least / len(state.counts) * (1.0 - step / tries)
            if then <= now or self.random.random() < exp((now - then) / heat):
                state, now = changed, then

    def _readings(self, start: tuple[Placed, ...]) -> list[_State]:
        """A schedule as what a list scheduler can begin with: its lanes, in the usual orders and in its own."""
        counts = [len(one.lanes) for one in sorted(start, key=lambda one: one.call)]
        own = [0.0] * len(counts)
        for rank, one in enumerate(sorted(start, key=lambda one: one.begin)):
            own[one.call] = float(rank)
        return [*(_State(counts, order) for order in self.judge.orders), _State(counts, own, by_start=False)]

    def _tried(self, state: _State) -> float:
        """The makespan of a state; the shortest schedule is kept."""
        self.tries -= 1
        placed = self.judge.placed(state)
        length = makespan(placed)
        if length < self.least:
            self.best, self.least = placed, length
        return length

    def _changed(self, state: _State) -> _State:
        """With other lanes for one call, or with one call just before or after another."""
        counts, priority, random = state.counts, state.priority, self.random
        call = random.randrange(len(counts))
        others = [count for count in self.judge.options[call] if count != counts[call]]
        if others and random.random() < 0.5:
            counts = [*counts[:call], random.choice(others), *counts[call + 1 :]]
        else:
            beside = priority[random.randrange(len(counts))] + random.choice((-1e-6, 1e-6)) * max(map(abs, priority))
            priority = [*priority[:call], beside, *priority[call + 1 :]]
        return _State(counts, priority, state.by_start)
