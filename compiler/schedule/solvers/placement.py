"""Calls on devices so that one inference ends early.

Dynamic programming over ideals (NeurIPS 2020, as in `ideals`) with the device that the results so far are on, its home.
From an ideal one goes on with one more call at home, moves all that crosses to another home, or forks: parts without an
edge between them run at the same time, some at home, the others on other devices, which take over what they read and
hand back what is read later (the stages of IOS, MLSys 2021, with a device for each group).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from compiler.schedule.solvers.ideals import Division, Stage, ideals
from compiler.schedule.solvers.sets import bits

MOST_IDEALS = 400
MOST_FORKED = 16
"""Calls of a fork."""
MOST_GROUPS = 5
"""Of a fork: every way to give them to devices is tried."""


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
    best: dict[tuple[int, int], float] = {(0, home): division.entered_s(home, 0) for home in homes}
    reached: dict[tuple[int, int], _Step] = {}
    groups: dict[int, tuple[int, ...]] = {}

    def offer(state: tuple[int, int], seconds: float, before: tuple[int, int], stages: tuple[Stage, ...]) -> None:
        if state not in best or seconds < best[state]:
            best[state], reached[state] = seconds, _Step(before, stages)

    for at, ideal in enumerate(sets):
        moved = division.taking_over_s(ideal)
        leaves = [best.get((ideal, home), float("inf")) + division.left_s(home, ideal) for home in homes]
        nearest = min(homes, key=leaves.__getitem__)
        for home in homes:
            offer((ideal, home), leaves[nearest] + moved + division.entered_s(home, ideal), (ideal, nearest), ())
        for larger in sets[at + 1 :]:
            added = larger & ~ideal
            if ideal & ~larger or added.bit_count() > MOST_FORKED:
                continue
            if added.bit_count() == 1:
                for home in homes:
                    seconds = best[ideal, home] + division.work_s(home, added)
                    offer((larger, home), seconds, (ideal, home), ((home, added),))
                continue
            if added not in groups:
                groups[added] = components(division, added)
            if not 1 < len(groups[added]) <= MOST_GROUPS:
                continue
            for stages in _forks(groups[added], len(homes)):
                for home in homes:
                    seconds = best[ideal, home] + forked_s(division, ideal, home, stages)
                    offer((larger, home), seconds, (ideal, home), stages)
    seconds, home = min((best[division.whole, home] + division.left_s(home, division.whole), home) for home in homes)
    state, steps = (division.whole, home), list[tuple[Stage, ...]]()
    while state in reached:
        steps.append(reached[state].stages)
        state = reached[state].before
    return _merged(steps[::-1]), seconds


def forked_s(division: Division, ideal: int, home: int, stages: tuple[Stage, ...]) -> float:
    """From the end of an ideal at home to the end of stages that run at the same time, their results at home.

    A home with a memory of its own is left before, and entered again after.
    """
    again = division.left_s(home, ideal) + division.entered_s(home, ideal | sum(calls for _, calls in stages))
    return again + max(
        division.part_s(device, calls)
        + (0.0 if device == home else division.lent_s(ideal, calls) + division.returned_s(calls))
        for device, calls in stages
    )


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
