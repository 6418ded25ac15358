"""What parts took beside each other, for the next division.

A call is timed by itself. Devices that run at the same time share caches, memory and often the clock of a core, each
model to another degree: how much longer its calls take then is what parts of it, run together, were seen to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.ir.parts import Parts
from compiler.schedule.parts.dividing import seconds_of, stages_of
from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.sets import bits


@dataclass(frozen=True)
class Ran:
    """Parts that ran with many frames in flight, and of each the measured seconds for a frame that it does."""

    parts: Parts
    seconds: Sequence[float]

    @property
    def busiest_s(self) -> float:
        """Of the device with most to do, for a frame."""
        loads = [0.0 for _ in self.parts.devices]
        for part, seconds in zip(self.parts.parts, self.seconds, strict=True):
            loads[part.device] += part.turns.share * seconds
        return max(loads)


def corrected(division: Division, runs: Sequence[Ran]) -> Division:
    """The division with its calls as much slower, or faster, as the parts that had them last were than predicted.

    A call that a device never had is taken to be off by as much as all that the device had; on a device that had
    nothing, by as much as all of the others. `division` is as predicted; without runs it stays that.
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
    seconds = [
        [own * last.get((device, call), of_device[device]) for call, own in enumerate(division.seconds[device])]
        for device in devices
    ]
    return replace(division, seconds=seconds)
