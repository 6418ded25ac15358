"""Latency of a whole model."""

from __future__ import annotations

import time
from collections.abc import Callable

from compiler.measure.spread import Spread

WARM_UPS = 2
LEAST = 5
MOST = 1000


def model_latency(
    run: Callable[[], float | None], seconds_budget: float, *, clock: Callable[[], float] = time.perf_counter
) -> Spread:
    """Seconds of single runs, one after another, for as long as `seconds_budget` lasts; `run` may give its own.

    The first runs fault memory in and wake threads, and are not counted. At least LEAST are, however long they take,
    unless one alone exceeds the budget: then that one is all. At most MOST are.
    """
    end = clock() + seconds_budget
    for _ in range(WARM_UPS):
        run()
        if clock() >= end:
            break
    samples: list[float] = []
    while len(samples) < MOST:
        begin = clock()
        took = run()
        now = clock()
        samples.append(now - begin if took is None else took)
        if now >= end and (len(samples) >= LEAST or samples[0] > seconds_budget):
            break
    return Spread.of(samples)
