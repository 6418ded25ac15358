"""Calls on devices so that one inference ends early.

Dynamic programming over ideals (NeurIPS 2020, as in `ideals`) with the device that the results so far are on, its home.
From an ideal one goes on with one more call at home, moves all that crosses to another home, or forks: parts without an
edge between them run at the same time, some at home, the others on other devices, which take over what they read and
hand back what is read later (the stages of IOS, MLSys 2021, with a device for each group).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

from compiler.schedule.solvers.ideals import Division, Stage, ideals
from compiler.schedule.solvers.sets import bits

MOST_IDEALS = 400
MOST_FORKED = 16
"""Calls of a fork."""
MOST_GROUPS = 5
"""Of a fork: every way to give them to devices is tried."""


_Cost = tuple[float, float]
"""Seconds, and those of them in which devices handed over: where pairs differ these decide between equal ends."""


@dataclass(frozen=True)
class _Step:
    """How a state was reached: from which one, by which stages."""

    before: tuple[int, int]
    stages: tuple[Stage, ...]


def placement(division: Division, most_ideals: int = MOST_IDEALS) -> tuple[tuple[Stage, ...], float]:
    """Stages, each after those that it reads from, and the seconds until all have ended.

    Neighbours on different devices without an edge between them run at the same time. Exact for what it can express,
    where there are at most `most_ideals` ideals, forks are small, and a fork ends before anything behind it begins. A
    device with a memory of its own is taken to be brought, and to give back, all that is read later: at most that.
    """
    sets = ideals(division.before, most_ideals)
    homes = range(len(division.seconds))
    differ = bool(division.pairs)
    best: dict[tuple[int, int], _Cost] = {(0, home): (division.entered_s(home, 0), 0.0) for home in homes}
    reached: dict[tuple[int, int], _Step] = {}
    groups: dict[int, tuple[int, ...]] = {}

    def offer(state: tuple[int, int], before: _Cost, seconds: float, handed: float, step: _Step) -> None:
        cost = before[0] + seconds, before[1] + (handed if differ else 0.0)
        if state not in best or cost < best[state]:
            best[state], reached[state] = cost, step

    for at, ideal in enumerate(sets):
        crossing = division.crossing_bytes(ideal)
        known = [(home, best[ideal, home], reached[ideal, home]) for home in homes if (ideal, home) in reached]
        for home, entered_s in [(home, division.entered_s(home, ideal)) for home in homes if known]:
            for other, before, step in known:
                if other != home:
                    moved = division.between(other, home).of(crossing)
                    left = before[0] + division.left_s(other, ideal), before[1]
                    offer((ideal, home), left, moved + entered_s, moved, step)
        for larger in sets[at + 1 :]:
            added = larger & ~ideal
            if ideal & ~larger or added.bit_count() > MOST_FORKED:
                continue
            if added.bit_count() == 1:
                for home in homes:
                    step = _Step((ideal, home), ((home, added),))
                    offer((larger, home), best[ideal, home], division.work_s(home, added), 0.0, step)
                continue
            if added not in groups:
                groups[added] = components(division, added)
            if not 1 < len(groups[added]) <= MOST_GROUPS:
                continue
            forks = Forks(division, ideal, added)
            for stages in _forks(groups[added], len(homes)):
                for home in homes:
                    seconds, handed = forks.cost(home, stages)
                    offer((larger, home), best[ideal, home], seconds, handed, _Step((ideal, home), stages))
    ends = [(best[division.whole, home], division.left_s(home, division.whole), home) for home in homes]
    (seconds, _), left_s, home = min(ends, key=lambda end: (end[0][0] + end[1], end[0][1], end[2]))
    return _merged(_path((division.whole, home), reached)), seconds + left_s


def _path(state: tuple[int, int], reached: Mapping[tuple[int, int], _Step]) -> list[tuple[Stage, ...]]:
    """The stages of all steps that lead to a state, the first one first."""
    steps = list[tuple[Stage, ...]]()
    while state in reached:
        steps.append(reached[state].stages)
        state = reached[state].before
    return steps[::-1]


class Forks:
    """What forks cost that begin where an ideal has ended at home, and end with so many calls more there."""

    def __init__(self, division: Division, ideal: int, added: int) -> None:
        self._division, self._ideal, self._added = division, ideal, added
        self._part_s = cache(division.part_s)
        self._handed_s = cache(self._handed)
        self._again_s = cache(self._again)

    def cost(self, home: int, stages: tuple[Stage, ...]) -> _Cost:
        """Until stages that run at the same time have ended, their results at home."""
        handed = [self._handed_s(home, *stage) for stage in stages]
        ends = [self._part_s(*stage) + own for stage, own in zip(stages, handed, strict=True)]
        return self._again_s(home) + max(ends), sum(handed)

    def _again(self, home: int) -> float:
        """A home with a memory of its own is left before, and entered again after."""
        left_s = self._division.left_s(home, self._ideal)
        return left_s + self._division.entered_s(home, self._ideal | self._added)

    def _handed(self, home: int, device: int, calls: int) -> float:
        """What a stage is lent from home, and home is given back; nothing of a stage at home."""
        if device == home:
            return 0.0
        lent_s = self._division.lent_s(self._ideal, calls, home, device)
        return lent_s + self._division.returned_s(calls, device, home)


def components(division: Division, calls: int) -> tuple[int, ...]:
    """The sets into which calls fall that no edge joins."""
    found: list[int] = []
    for call in bits(calls):
        near = 1 << call | sum(1 << one for one in division.before[call] if calls >> one & 1)
        joined = [one for one in found if one & near]
        found = [one for one in found if not one & near]
        for one in joined:
            near |= one
        found.append(near)
    return tuple(found)


def _forks(groups: tuple[int, ...], devices: int) -> Iterator[tuple[Stage, ...]]:
    """Every way to give groups to at least two devices."""
    for chosen in product(range(devices), repeat=len(groups)):
        if len({*chosen}) > 1:
            yield tuple(
                (device, sum(group for group, on in zip(groups, chosen, strict=True) if on == device))
                for device in sorted({*chosen})
            )


def _merged(steps: list[tuple[Stage, ...]]) -> tuple[Stage, ...]:
    """The stages of steps, with calls that follow each other at one home, between forks, as one."""
    found: list[Stage] = []
    may_join = False
    for stages in filter(None, steps):
        if len(stages) == 1 and may_join and found[-1][0] == stages[0][0]:
            found[-1] = stages[0][0], found[-1][1] | stages[0][1]
        else:
            found += stages
        may_join = len(stages) == 1
    return tuple(found)
