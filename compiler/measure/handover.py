"""What it costs one core to hand work to another: it decides how finely a plan may be split."""

from __future__ import annotations

import os
from dataclasses import dataclass

from compiler.measure.spread import Spread
from compiler.measure.timer import Timer

RALLIES = 15
ROUNDS = 400
FAR_NS = 100.0
"""Virtual cores that are neighbours hand a cache line over in well under 100 ns, cores that are far apart in 130 to 190 ns."""


@dataclass(frozen=True)
class Handover:
    """Median nanoseconds from a store on one core to its being seen on another, and whether the cores are `near` or `far`."""

    ns: float
    state: str

    @staticmethod
    def of(ns: float) -> Handover:
        return Handover(ns, "far" if ns >= FAR_NS else "near")


def measure_handover(library: bytes) -> Handover | None:
    """The cost between the first two cores of this process; None where it has only one.

    `library` is TIMER_SOURCE, compiled. Virtual cores move without notice: measure beside each figure that depends on it.
    """
    if cores() < 2:
        return None
    with Timer(library) as timer:
        return Handover.of(Spread.of([timer.handover(ROUNDS) for _ in range(RALLIES)]).median)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
