"""What it costs one core to hand work, and the bytes of a result, to another.

It decides how finely a plan may be split.
"""

from __future__ import annotations

import os
from typing import Protocol

from compiler.devices.cpu.measure.timer import Timer
from compiler.ir.lanes import Handover
from compiler.measure.memory import allocate
from compiler.measure.spread import Spread

RALLIES = 15
ROUNDS = 400


PASSED_BYTES = (64 * 1024, 256 * 1024)
"""What is read or written to measure what a byte costs.

As much as a layer hands to the next, and little enough to lie in a second-level cache.
"""
PASS_ROUNDS = 10


def measure_handover(library: bytes) -> Handover | None:
    """The cost between the first two cores of this process; None where it has only one. Takes less than half a second.

    `library` is TIMER_SOURCE, compiled. Virtual cores move without notice: measure beside each figure that depends on
    it.
    """
    if cores() < 2:
        return None
    with Timer(library) as timer:
        ns = Spread.of([timer.handover(ROUNDS) for _ in range(RALLIES)]).median
        return Handover.of(ns, _longer(timer.pass_on), _longer(timer.upgrade))


class _Touch(Protocol):
    """Seconds to touch so many bytes that the same core touched before or, if `apart`, the other one.

    `Timer.pass_on` and `Timer.upgrade` are such.
    """

    def __call__(self, address: int, bytes: int, rounds: int, *, apart: bool) -> float: ...


def _longer(touch: _Touch) -> float:
    """How many seconds longer a byte takes after the other core touched it.

    The mean over PASSED_BYTES, each tried in turn apart and not.
    """
    memory = allocate(max(PASSED_BYTES))
    found = []
    for count in PASSED_BYTES:
        later = [
            touch(memory.ctypes.data, count, PASS_ROUNDS, apart=True)
            - touch(memory.ctypes.data, count, PASS_ROUNDS, apart=False)
            for _ in range(RALLIES)
        ]
        found.append(Spread.of(later).median / count)
    return max(sum(found) / len(found), 0.0)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
