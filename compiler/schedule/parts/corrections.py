"""What parts took beside each other, for the next division.

A call is timed by itself. Devices that run at the same time share caches, memory and often the clock of a core, each
model to another degree: how much longer its calls take then is what parts of it, run together, were seen to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from compiler.ir.parts import Parts
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
    one of them had the others know. The caller takes what it took last. A frame by itself takes what parts took so, and
    is slowed down in flight by what they took more there: neighbours of the machine are in that too. `division` is as
    predicted; without runs it stays that.
    """
    devices = range(len(division.seconds))
    last: dict[tuple[int, int], float] = {}
    measured, predicted = [0.0 for _ in devices], [0.0 for _ in devices]
    for ran in runs:
        stages = stages_of(ran.parts)
        for (device, calls), own, foreseen in zip(stages, ran.seconds, seconds_of(division, stages), strict=True):
            if own <= 0 or foreseen <= 0:
                continue  # it did no frame
            measured[device] += own
            predicted[device] += foreseen
            last.update(((device, call), own / foreseen) for call in bits(calls))
    if not last:
        return division
    of_all = sum(measured) / sum(predicted)
    of_device = [own / foreseen if foreseen else of_all for own, foreseen in zip(measured, predicted, strict=True)]
    for kind in equal_devices(division.in_flight):
        ratios = [of_device[device] for device in kind]
        if max(ratios) < ALIKE * min(ratios):
            for call in bits(division.whole):
                had = [last[device, call] for device in kind if (device, call) in last]
                last.update(((device, call), fmean(had or ratios)) for device in kind)
    seconds = [
        [own * last.get((device, call), of_device[device]) for call, own in enumerate(division.seconds[device])]
        for device in devices
    ]
    caller_s = next((ran.caller_s for ran in reversed(runs) if ran.caller_s is not None), division.caller_s)
    return _by_itself(replace(division, seconds=seconds, caller_s=caller_s), runs)


def _by_itself(division: Division, runs: Sequence[Ran]) -> Division:
    """With calls of a frame by itself as parts took them so in the last run that a core had; in flight as before."""
    slower: dict[int, float] = {}
    for ran in runs:
        own: dict[int, tuple[float, float]] = {}
        for part, in_flight, alone in zip(ran.parts.parts, ran.seconds, ran.alone, strict=False):
            if in_flight > 0 and alone > 0 and part.device not in ran.parts.apart:
                seen = own.get(part.device, (0.0, 0.0))
                own[part.device] = seen[0] + in_flight, seen[1] + alone
        slower.update((device, in_flight / alone) for device, (in_flight, alone) in own.items())
    before = division.slowdown or [1.0] * len(division.seconds)
    for kind in equal_devices(division.in_flight):
        had = [slower[device] for device in kind if device in slower]
        if had and max(had) < ALIKE * min(had):
            slower.update(dict.fromkeys(kind, fmean(had)))
    if not slower:
        return division
    slowdown = [slower.get(device, known) for device, known in enumerate(before)]
    scales = [known / now for known, now in zip(before, slowdown, strict=True)]
    seconds = [[scale * own for own in each] for scale, each in zip(scales, division.seconds, strict=True)]
    return replace(division, seconds=seconds, slowdown=slowdown)
