"""Divisions between the most frames and the earliest one: what a frame waits longer for more of them.

A pipeline gives a slower device as much as keeps it busy, and each frame pays for that. With the seconds of slower
devices multiplied by a weight, the least load gives them less: a weighted Chebyshev scalarisation (Miettinen,
"Nonlinear Multiobjective Optimization", 1999, section 3.4), one weight after another.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.schedule.solvers.ideals import Division, Stage
from compiler.schedule.solvers.least_load import least_load
from compiler.schedule.solvers.placement import placement

WEIGHTS = tuple(1.3**step for step in range(9))
"""Of the devices but the fastest. From a weight of 8 on they have next to nothing, unless they are faster at something
than the fastest."""


def tradeoffs(division: Division) -> list[tuple[tuple[Stage, ...], str]]:
    """Stages, each way once, and what found them: pipelines of ever less on slower devices, a placement, one device."""
    alone = [division.part_s(device, division.whole) for device in range(len(division.seconds))]
    fastest, in_flight = alone.index(min(alone)), division.in_flight
    found: dict[tuple[Stage, ...], str] = {}
    for weight in WEIGHTS:
        weighed = [
            own if device == fastest else [weight * seconds for seconds in own]
            for device, own in enumerate(in_flight.seconds)
        ]
        found.setdefault(least_load(replace(in_flight, seconds=weighed))[0], "pipeline")
    found.setdefault(placement(division)[0], "placement")
    found.setdefault(((fastest, division.whole),), "one device")
    return [*found.items()]
