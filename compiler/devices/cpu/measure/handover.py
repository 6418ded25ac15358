"""What it costs one core to hand work, and the bytes of a result, to another.

It decides how finely a plan may be split.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from compiler.devices.cpu.measure.timer import Timer
from compiler.ir.plans.lanes import Handover
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
        return Handover.of(_rally_ns(timer), _longer(timer.pass_on), _longer(timer.upgrade))


def measure_pair(library: bytes, pair: tuple[int, int]) -> Handover | None:
    """As `measure_handover`, between two cores, the lower first, by position among those of this process.

    The calling thread is bound to the two meanwhile. None where one is missing, or the system binds no threads.
    """
    with _bound_to(pair) as is_bound:
        return measure_handover(library) if is_bound else None


def state_of_pair(library: bytes, pair: tuple[int, int]) -> str:
    """Whether the two cores are `near` or `far`, as `measure_pair` would say, or empty; takes some milliseconds."""
    with _bound_to(pair) as is_bound, Timer(library) as timer:
        return Handover.of(_rally_ns(timer)).state if is_bound else ""


@contextmanager
def _bound_to(pair: tuple[int, int]) -> Iterator[bool]:
    """Binds the calling thread to two cores, by position among those of this process; False where it cannot be."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    found = [core for at, core in enumerate(sorted(before)) if at in pair]
    if len(found) < 2:
        yield False
        return
    os.sched_setaffinity(0, found)
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)


def _rally_ns(timer: Timer) -> float:
    return Spread.of([timer.handover(ROUNDS) for _ in range(RALLIES)]).median


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
