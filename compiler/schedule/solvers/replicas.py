"""Replicas of a stage on several devices: frames are dealt to them in turn, to faster ones more of them."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.plans.parts import Turns
from compiler.schedule.solvers.ideals import Division, Stage

MOST_TURNS = 8
"""Of a round. More would come nearer to unequal speeds, and put off the frames of slow devices further."""
WORTH = 0.99
"""A longer round is taken for a load of at most so much of that of a shorter one."""


def dealt(seconds: Sequence[float]) -> tuple[Turns, ...]:
    """Turns for devices that take so long for a frame, each at least one, so that the busiest has least to do.

    For a round of a given length a turn more for whichever device ends it first is optimal. Within a round the turns
    of each device are spread evenly, by credits that grow with the number of its turns.
    """
    counts = [1] * len(seconds)
    best, least = [*counts], _load(seconds, counts)
    while sum(counts) < MOST_TURNS:
        counts[min(range(len(counts)), key=lambda at: ((counts[at] + 1) * seconds[at], at))] += 1
        if _load(seconds, counts) < WORTH * least:
            best, least = [*counts], _load(seconds, counts)
    every = sum(best)
    own: list[list[int]] = [[] for _ in best]
    credits = [0] * len(best)
    for turn in range(every):
        credits = [credit + count for credit, count in zip(credits, best, strict=True)]
        chosen = credits.index(max(credits))
        credits[chosen] -= every
        own[chosen].append(turn)
    return tuple(Turns(every, tuple(turns)) for turns in own)


def replicated(division: Division) -> list[tuple[Stage, ...]]:
    """The whole model on the two fastest devices, the three fastest and so on: a stage for each, of the same calls."""
    alone = [division.part_s(device, division.whole) for device in range(len(division.seconds))]
    order = sorted(range(len(alone)), key=alone.__getitem__)
    return [tuple((device, division.whole) for device in sorted(order[:used])) for used in range(2, len(order) + 1)]


def _load(seconds: Sequence[float], counts: Sequence[int]) -> float:
    """Seconds for a frame of the device with most to do."""
    return max(count * own for count, own in zip(counts, seconds, strict=True)) / sum(counts)
