"""What parts took beside each other, for the next division.

A call is timed by itself. Devices that run at the same time share caches, memory and often the clock of a core, each
model to another degree: how much longer its calls take then is what parts of it, run together, were seen to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from compiler.ir.plans.parts import Parts
from compiler.schedule.parts.dividing import busiest_s, seconds_of, stages_of
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.least_load import equal_devices
from compiler.schedule.solvers.sets import bits

ALIKE = 1.1
"""Devices that differ by less count as equally fast.

Runs of one core differ by as much; and only equal devices share stages, and few states do for them in solvers.
"""


@dataclass(frozen=True)
class Ran:
    """Parts that ran with many frames in flight, and of each the measured seconds for a frame that it does.

    `caller_s` are those of the caller's thread, where it had no core of its own. `alone` are seconds of each part in a
    frame by itself; empty where that is not known.
    """

    parts: Parts
    seconds: Sequence[float]
    caller_s: float | None = None
    alone: Sequence[float] = ()

    @property
    def loads(self) -> list[float]:
        """Of each device, for a frame."""
        loads = [0.0 for _ in self.parts.devices]
        for part, seconds in zip(self.parts.parts, self.seconds, strict=True):
            loads[part.device] += part.turns.share * seconds
        return loads

    @property
    def busiest_s(self) -> float:
        """Of the device with most to do, for a frame."""
        loads = self.loads
        return busiest_s(loads, self.caller_s, [at for at in range(len(loads)) if at not in self.parts.apart])


def corrected(division: Division, runs: Sequence[Ran]) -> Division:
    """The division with its calls as much slower, or faster, as the parts that had them last were than predicted.

    A call that a device never had is taken to be off by as much as all that the device had; on a device that had
    nothing, by as much as all of the others. Equal devices stay equal unless their parts differ by ALIKE or more: what
    one of them had the others know. The caller takes what it took last. A frame by itself takes on each core what its
    parts took so, where all runs say it: neighbours slow down parts in flight, and hardly a frame by itself.
    `division` is as predicted; without runs it stays that.
    """
    in_flight = _seconds(division, [(ran, ran.seconds, seconds_of(division, stages_of(ran.parts))) for ran in runs])
    if in_flight is None:
        return division
    caller_s = next((ran.caller_s for ran in reversed(runs) if ran.caller_s is not None), division.caller_s)
    found = replace(division, seconds=in_flight, caller_s=caller_s)
    if not all(ran.alone and not ran.parts.apart for ran in runs):
        return found
    alone = _seconds(
        division,
        [(ran, ran.alone, seconds_of(division, stages_of(ran.parts), by_itself=True)) for ran in runs],
    )
    if alone is None:
        return found
    before = division.slowdown or [1.0] * len(division.seconds)
    scales = [sum(one) / sum(other) for one, other in zip(alone, in_flight, strict=True)]
    return replace(
        found,
        seconds=[[scale * own for own in each] for scale, each in zip(scales, in_flight, strict=True)],
        slowdown=[known / scale for known, scale in zip(before, scales, strict=True)],
    )


def _seconds(
    division: Division, runs: Sequence[tuple[Ran, Sequence[float], Sequence[float]]]
) -> list[list[float]] | None:
    """Of each call on each device, by runs with what their parts took and what was foreseen; None if they did nothing.

    They are scaled by the ratio of the two, whatever the division says that parts are slowed down by.
    """
    devices = range(len(division.seconds))
    last: dict[tuple[int, int], float] = {}
    measured, predicted = [0.0 for _ in devices], [0.0 for _ in devices]
    for ran, took, was_foreseen in runs:
        for (device, calls), own, foreseen in zip(stages_of(ran.parts), took, was_foreseen, strict=True):
            if own <= 0 or foreseen <= 0:
                continue  # it did no frame
            measured[device] += own
            predicted[device] += foreseen
            last.update(((device, call), own / foreseen) for call in bits(calls))
    if not last:
        return None
    of_all = sum(measured) / sum(predicted)
    of_device = [own / foreseen if foreseen else of_all for own, foreseen in zip(measured, predicted, strict=True)]
    for kind in equal_devices(division.in_flight):
        ratios = [of_device[device] for device in kind]
        if max(ratios) < ALIKE * min(ratios):
            for call in bits(division.whole):
                had = [last[device, call] for device in kind if (device, call) in last]
                last.update(((device, call), fmean(had or ratios)) for device in kind)
    return [
        [own * last.get((device, call), of_device[device]) for call, own in enumerate(division.seconds[device])]
        for device in devices
    ]
