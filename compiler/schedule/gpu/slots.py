"""Launches on the block slots of a GPU: what a graph of them takes, and when each begins if room is allotted.

Resource-constrained project scheduling with one renewable resource of capacity 1. In the *relaxed* form (`simulated`)
every launch begins as soon as what it depends on has ended, as those of a CUDA graph do, and launches at work together
that want more than the device take so many times longer. In the *strict* form (`early_slots`) launches that run
together need no more block slots than there are, so that none is made longer. In both a launch that waits for others
than the one before it on its stream begins later (`LaunchLoad.gap_after`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.streams import Before, elsewhere, reduced, streams
from compiler.schedule.problem import ROUNDING, ways_to_the_end


@dataclass(frozen=True)
class Span:
    """From when a launch could begin, all it depends on having ended, to its end; seconds."""

    ready: float
    end: float


def simulated(loads: Sequence[LaunchLoad], before: Before) -> tuple[Span, ...]:
    """The relaxed form: every launch a gap after the last that it depends on, on `streams`.

    `before` are positions of earlier launches. Launches at work share the multiprocessors: where their shares exceed
    the device, all are slowed by the same factor (processor sharing). O(launches · those at work at a time), and what
    `streams` takes.
    """
    before = reduced(before)
    waits = elsewhere(before, streams(before))
    until_work = [load.gap_after(count) + load.start_s for load, count in zip(loads, waits, strict=True)]
    left, after = [len(earlier) for earlier in before], _after(before)
    ready, end = [0.0] * len(loads), [0.0] * len(loads)
    begins = [(until_work[at], at) for at, count in enumerate(left) if not count]
    heapq.heapify(begins)
    at_work: dict[int, float] = {}
    now = 0.0
    while begins or at_work:
        slower = max(1.0, sum(loads[at].share for at in at_work))
        ends = now + min(at_work.values(), default=0.0) * slower if at_work else float("inf")
        then = min(ends, begins[0][0]) if begins else ends
        least = min(at_work.values(), default=0.0)
        done = [at for at, work in at_work.items() if then == ends and work == least]
        at_work = {at: work - (then - now) / slower for at, work in at_work.items() if at not in done}
        now = then
        if begins and begins[0][0] <= now:
            _, one = heapq.heappop(begins)
            at_work[one] = loads[one].work_s
        for at in done:
            end[at] = now
            for follower in after[at]:
                left[follower] -= 1
                if not left[follower]:
                    ready[follower] = now
                    heapq.heappush(begins, (now + until_work[follower], follower))
    return tuple(map(Span, ready, end))


def makespan(loads: Sequence[LaunchLoad], before: Before) -> float:
    """Seconds until the last launch has ended, in the relaxed form."""
    return max((span.end for span in simulated(loads, before)), default=0.0)


def depth(before: Before) -> int:
    """Launches on the longest path, on which each depends on the one before."""
    return round(max(ways_to_the_end(before, [1.0] * len(before)), default=0.0))


Need = Literal["slots", "share", "nothing"]
Tie = Literal["critical", "smallest", "order"]
NEEDS: tuple[Need, ...] = ("slots", "share", "nothing")
TIES: tuple[Tie, ...] = ("critical", "smallest", "order")


@dataclass(frozen=True)
class SlotRules:
    """The switches of `early_slots`.

    need  what a launch takes of the device: the block slots that it fills, the multiprocessors that it keeps at work,
          or nothing: it waits for no room
    tie   which of the calls that can begin at the same time goes first: that with the longest way to the end, that
          which needs least (Opara: Chen et al., "Opara: Exploiting operator parallelism for expediting DNN inference on
          GPUs", 2023), or the first in the graph
    """

    need: Need = "slots"
    tie: Tie = "critical"


@dataclass(frozen=True)
class Slotted:
    """A call under one of its options, from when it is launched to its end; its blocks take room from `runs` on.

    `held` are calls whose room it waited for.
    """

    call: int
    option: int
    begin: float
    runs: float
    end: float
    held: tuple[int, ...] = ()


def early_slots(options: Sequence[Sequence[LaunchLoad]], before: Before, rules: SlotRules) -> tuple[Slotted, ...]:
    """The strict form: serial schedule generation (Kolisch, EJOR 90, 1996), earliest start first.

    Calls come in the order in which they were placed. `options` are each call's modes, of which it takes the one that
    ends first, of such the one that takes up least. A call that fills the device runs alone.
    """
    return _EarlySlots(options, before, rules).placed()


@dataclass(frozen=True)
class _Taken:
    """Room that a call takes from `begin` to `end`."""

    call: int
    begin: float
    end: float
    need: float


class _EarlySlots:
    def __init__(self, options: Sequence[Sequence[LaunchLoad]], before: Before, rules: SlotRules) -> None:
        self.options, self.before, self.rules = options, reduced(before), rules
        fastest = [min(load.seconds for load in loads) for loads in options]
        self.way = ways_to_the_end(before, fastest)
        self.done: dict[int, Slotted] = {}
        self.followed: set[int] = set()
        """Calls after which another comes on their stream."""
        self.taken: list[_Taken] = []

    def placed(self) -> tuple[Slotted, ...]:
        left, after = [len({*earlier}) for earlier in self.before], _after(self.before)
        ready = [call for call, count in enumerate(left) if not count]
        while ready:
            best = min((self._best(call) for call in ready), key=self._urgency)
            ready.remove(best.call)
            self._place(best)
            for follower in after[best.call]:
                left[follower] -= 1
                if not left[follower]:
                    ready.append(follower)
            earliest = min((self._ready_at(call) for call in ready), default=0.0)
            self.taken = [one for one in self.taken if one.end > earliest]
        return tuple(self.done.values())

    def _urgency(self, one: Slotted) -> tuple[float, float, int]:
        ties = {
            "critical": -self.way[one.call],
            "smallest": self._need(one.call, one.option),
            "order": 0.0,
        }
        return one.begin, ties[self.rules.tie], one.call

    def _ready_at(self, call: int) -> float:
        return max((self.done[one].end for one in self.before[call]), default=0.0)

    def _need(self, call: int, option: int) -> float:
        load = self.options[call][option]
        return min({"slots": load.slots, "share": load.share, "nothing": 0.0}[self.rules.need], 1.0)

    def _best(self, call: int) -> Slotted:
        found = [self._under(call, option) for option in range(len(self.options[call]))]
        return min(found, key=lambda one: (one.end, self._need(call, one.option), one.option))

    def _under(self, call: int, option: int) -> Slotted:
        """The call as early as its predecessors and the room allow."""
        load, need = self.options[call][option], self._need(call, option)
        gap = load.gap_after(len(self.before[call]) - any(one not in self.followed for one in self.before[call]))
        first = self._ready_at(call) + gap
        for begin in sorted({first, *(one.end for one in self.taken if one.end > first)}):
            if self._fits(begin, begin + load.run_s, need):
                held = tuple(one.call for one in self.taken if one.end == begin) if begin > first else ()
                return Slotted(call, option, begin - gap, begin, begin + load.run_s, held)
        raise AssertionError("after the end of all calls there is room for each")

    def _fits(self, begin: float, end: float, need: float) -> bool:
        """Whether there is so much room all the time; what is taken changes only where a call begins."""
        if not need:
            return True
        beside = [one for one in self.taken if one.begin < end and one.end > begin]
        times = [begin, *(one.begin for one in beside if one.begin > begin)]
        return all(
            need + sum(one.need for one in beside if one.begin <= time < one.end) <= 1.0 + ROUNDING for time in times
        )

    def _place(self, one: Slotted) -> None:
        self.done[one.call] = one
        self.followed.update([earlier for earlier in self.before[one.call] if earlier not in self.followed][:1])
        self.taken.append(_Taken(one.call, one.runs, one.end, self._need(one.call, one.option)))


def _after(before: Before) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in before]
    for at, earlier in enumerate(before):
        for one in {*earlier}:
            after[one].append(at)
    return after
