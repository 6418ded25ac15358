"""All ways of placing units on devices, each judged by its timeline, and improved move by move.

Candidates: each device alone, the whole on all equal devices in turn, the dynamic programme with equal factors (one
frame's latency) and with factors raised where there is most to do (the period), parts side by side
(`compiler.schedule.solvers.placement`), and earliest finish first (HEFT, Topcuoglu, Hariri and Wu 2002).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.platforms.exact import MOST_EXACT, Exact, least_latency_s, least_period_s
from compiler.platforms.problem import HOST_INPUT, Problem
from compiler.platforms.shortest import MOST_PAIRS, Shortest, raised
from compiler.platforms.timing import Stage, Timeline, Timing
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.ideals import Tensor as Shared
from compiler.schedule.solvers.placement import placement
from compiler.schedule.solvers.sets import bits

ROUNDS = 10
"""Of raising factors."""
MOST_SIDE_BY_SIDE = 100
"""Units, for parts side by side: every fork is looked at."""
MOST_TRIED = 600
"""Timelines of one improvement."""
MOST_RESTARTED = 12
"""Units, where not only the best is improved."""
IMPROVED = "improved"
MOST_UNITS = 1600
"""Of a granularity: beyond that not even prefixes are few."""

Key = Callable[[Timeline], tuple[float, ...]]


def latency(found: Timeline) -> tuple[float, ...]:
    """Better is what ends a frame earlier, then what has the shorter period."""
    return found.latency_s, found.period_s, len(found.stages)


def throughput(found: Timeline) -> tuple[float, ...]:
    """Better is what has the shorter period, then what ends a frame earlier."""
    return found.period_s, found.latency_s, len(found.stages)


def within(latency_s: float) -> Key:
    """Better is what has the shorter period among what ends a frame in time."""
    return lambda found: (max(found.latency_s - latency_s, 0.0), found.period_s, found.latency_s)


@dataclass(frozen=True)
class Found:
    """A placement, and what found it."""

    timeline: Timeline
    by: str


class Search:
    """The candidates of one problem; `found` keeps those that no other one is better than in both aims."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.timing = problem, Timing(problem)
        self.found: list[Found] = []
        self.made: list[Timeline] = []
        """What was found before anything was improved."""
        self.tried = 0
        self.bound_s = 0.0, 0.0
        """What no latency and no period of these units is below."""

    def run(self, keys: Sequence[Key]) -> None:
        """All candidates, the best under each key improved."""
        for device in range(len(self.problem.devices)):
            self.offer([Stage((device,), self.problem.whole)], "alone")
            if not self.problem.fixed and len(equal := self.problem.equal(device)) > 1 and equal[0] == device:
                self.offer([Stage(equal, self.problem.whole)], "each frame on one of equal devices")
        if len(self.problem.before) > 1:
            self._by_dynamic_programming()
            self.offer(earliest_finish(self.problem), "earliest finish first")
            if len(self.problem.before) <= MOST_SIDE_BY_SIDE:
                self.offer(self._side_by_side(), "parts side by side")
        starts = self.made if len(self.problem.before) <= MOST_RESTARTED else []
        for key in keys:
            if self.found:
                self.improve(key, self.best(key).timeline)
                for start in starts:
                    self.improve(key, start, MOST_TRIED // 4)
        if self.found:
            self._bounded()

    def _bounded(self) -> None:
        """Finds what no placement is better than; of few units the least latency itself, if the search ends."""
        self.bound_s = least_latency_s(self.problem), least_period_s(self.problem)
        if len(self.problem.before) <= MOST_EXACT:
            exact = Exact(self.timing, self.best(latency).timeline.latency_s)
            exact.run()
            self.offer(exact.best, "branch and bound")
            self.bound_s = max(exact.bound, self.bound_s[0]), self.bound_s[1]

    def offer(self, stages: Sequence[Stage] | None, by: str) -> Timeline | None:
        """Keeps a candidate unless another one is as good in both aims."""
        made = self.timing.timeline(stages) if stages else None
        self.tried += 1
        if made is None:
            return None
        if by != IMPROVED:
            self.made.append(made)
        aims = made.latency_s, made.period_s
        if not any(one.timeline.latency_s <= aims[0] and one.timeline.period_s <= aims[1] for one in self.found):
            self.found = [
                one for one in self.found if one.timeline.latency_s < aims[0] or one.timeline.period_s < aims[1]
            ]
            self.found.append(Found(made, by))
        return made

    def best(self, key: Key) -> Found:
        """The best under a key. Raises ValueError where nothing was found."""
        return min(self.found, key=lambda one: key(one.timeline))

    def _by_dynamic_programming(self) -> None:
        search = Shortest(self.problem)
        count = len(self.problem.devices)
        factors = [1.0] * count
        rounds = max(1, min(ROUNDS, 6 * MOST_PAIRS // max(search.pairs, 1)))
        for number in range(rounds + 1):
            made = self.offer(search.stages(factors), "dynamic programming")
            if made is None:
                return
            loads = [seconds for _, seconds in made.busy[:count]]
            factors = raised(factors, loads, 2 / (1 + number / 3))

    def _side_by_side(self) -> list[Stage] | None:
        problem = self.problem
        finite = [one for each in problem.seconds for one in each if one < math.inf]
        never = 1e3 * (sum(finite) + 1)
        seconds = [[min(one, never) for one in each] for each in problem.seconds]
        pairs = [(a, b) for a in range(len(seconds)) for b in range(len(seconds)) if a != b]
        if not pairs:
            return None
        waits = [problem.message_s(a, b, 0.0) for a, b in pairs]
        each = [problem.message_s(a, b, 1e6) - problem.message_s(a, b, 0.0) for a, b in pairs]
        tensors = [
            Shared(one.elements, 1 << one.maker, one.readers)
            for one in problem.tensors
            if one.maker != HOST_INPUT and one.readers
        ]
        stages, _ = placement(
            Division(problem.before, seconds, tensors, sum(waits) / len(pairs), sum(each) / len(pairs) / 1e6), 150
        )
        return [Stage((device,), units) for device, units in stages]

    def improve(self, key: Key, start: Timeline, most: int = MOST_TRIED) -> None:
        """Takes the first move that makes a placement better under a key, while there is one."""
        best = start
        tried = 0
        moved = True
        while moved and tried < most:
            moved = False
            for stages in self._moves(best):
                tried += 1
                made = self.offer(stages, IMPROVED)
                if made is not None and key(made) < key(best):
                    best, moved = made, True
                    break
                if tried >= most:
                    break

    def _moves(self, made: Timeline) -> Iterator[list[Stage]]:
        """A stage elsewhere, all from a stage on, a device's stages on equal ones in turn, units of a stage moved."""
        stages, devices = list(made.stages), range(len(self.problem.devices))
        for at, one in enumerate(stages):
            for device in devices:
                if one.devices != (device,):
                    yield merged([*stages[:at], Stage((device,), one.units), *stages[at + 1 :]])
            equal = self.problem.equal(one.devices[0])
            if len(equal) > len(one.devices) and not one.units & self.problem.fixed:
                yield [*stages[:at], Stage(equal, one.units), *stages[at + 1 :]]
        for device in devices:
            equal = self.problem.equal(device)
            own = [one for one in stages if one.devices == (device,)]
            if own and len(equal) > 1 and not any(one.units & self.problem.fixed for one in own):
                yield [Stage(equal, one.units) if one in own else one for one in stages]
            for other in equal:
                if other != device and own:
                    for at in range(len(stages)):
                        rest = [Stage((other,), one.units) if one.devices == (device,) else one for one in stages[at:]]
                        if rest != stages[at:]:
                            yield merged([*stages[:at], *rest])
        if len(self.problem.before) <= MOST_SIDE_BY_SIDE:
            yield from self._single(stages)
        for at in range(len(stages) - 1):
            yield from self._shifted(stages, at)

    def _shifted(self, stages: list[Stage], at: int) -> Iterator[list[Stage]]:
        """The border between two stages moved by some units, where edges allow it."""
        one, two = stages[at], stages[at + 1]
        for forward in (True, False):
            units = bits(two.units) if forward else bits(one.units)[::-1]
            for count in (1, 2, 4, 8, 16):
                if count < len(units):
                    moved = sum(1 << unit for unit in units[:count])
                    first = one.units | moved if forward else one.units & ~moved
                    pair = [Stage(one.devices, first), Stage(two.devices, (one.units | two.units) & ~first)]
                    yield [*stages[:at], *pair, *stages[at + 2 :]]

    def _single(self, stages: list[Stage]) -> Iterator[list[Stage]]:
        """One unit on another device, every unit a stage of its own where neighbours are elsewhere."""
        singles = [Stage(one.devices, 1 << unit) for one in stages for unit in bits(one.units)]
        for at, one in enumerate(singles):
            for device in range(len(self.problem.devices)):
                if one.devices != (device,):
                    changed = [*singles[:at], Stage((device,), one.units), *singles[at + 1 :]]
                    yield merged(changed)
                    yield changed
            for earlier in range(at - 1, -1, -1):
                if any(singles[earlier].units >> before & 1 for before in self.problem.before[bits(one.units)[0]]):
                    break
                rest = [*singles[:at], *singles[at + 1 :]]
                yield [*rest[:earlier], one, *rest[earlier:]]
        for count in (2, 3):
            for at in range(len(singles) - count + 1):
                for device in range(len(self.problem.devices)):
                    own = [Stage((device,), one.units) for one in singles[at : at + count]]
                    yield [*singles[:at], *own, *singles[at + count :]]


def earliest_finish(problem: Problem) -> list[Stage] | None:
    """Units by the longest way to the end, each where it ends earliest; None where one can run nowhere."""
    count = len(problem.before)
    devices = range(len(problem.devices))
    mean = []
    for unit in range(count):
        own = [each[unit] for each in problem.seconds if each[unit] < math.inf]
        if not own:
            return None
        mean.append(sum(own) / len(own))
    rank = mean.copy()
    for unit in reversed(range(count)):
        for one in problem.before[unit]:
            rank[one] = max(rank[one], mean[one] + rank[unit])
    read: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for tensor in problem.tensors:
        for unit in bits(tensor.readers):
            read[unit].append((tensor.maker, tensor.elements))
    home: dict[int, int] = {}
    end: dict[int, float] = {}
    free = [0.0] * len(problem.devices)
    last: list[int | None] = [None] * len(problem.devices)
    order = sorted(range(count), key=lambda unit: (-rank[unit], unit))
    placed: list[Stage] = []
    waiting = order
    while waiting:
        unit = next(one for one in waiting if all(before in home for before in problem.before[one]))
        waiting = [one for one in waiting if one != unit]
        ends = []
        for device in devices:
            ready = free[device]
            for maker, elements in read[unit]:
                source = problem.host if maker == HOST_INPUT else home[maker]
                ready = max(ready, end.get(maker, 0.0) + problem.message_s(source, device, elements))
            begins = placed and placed[-1].devices == (device,)
            ends.append(ready + problem.seconds[device][unit] + (0.0 if begins else problem.devices[device].call_s))
        device = min(devices, key=lambda one: (ends[one], one))
        home[unit], end[unit], free[device], last[device] = device, ends[device], ends[device], unit
        placed.append(Stage((device,), 1 << unit))
    return merged(placed)


def merged(stages: Sequence[Stage]) -> list[Stage]:
    """Neighbours on the same devices as one stage."""
    found: list[Stage] = []
    for one in stages:
        if found and found[-1].devices == one.devices:
            found[-1] = Stage(one.devices, found[-1].units | one.units)
        else:
            found.append(one)
    return found
