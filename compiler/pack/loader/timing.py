"""What many runs took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def _latency(seconds: float, run: Callable[[], float]) -> dict[str, Any]:
    """Samples and their percentiles, after a fifth of the time for warming up."""
    end = time.perf_counter() + seconds / 5
    while time.perf_counter() < end:
        run()
    samples: list[float] = []
    end = time.perf_counter() + seconds * 4 / 5
    while len(samples) < 10 or time.perf_counter() < end:
        samples.append(run())
    p10, median, p90, p99 = (float(value) for value in np.percentile(samples, (10, 50, 90, 99)))
    return {
        "median": median,
        "min": min(samples),
        "mean": statistics.fmean(samples),
        "p10": p10,
        "p90": p90,
        "p99": p99,
        "runs": len(samples),
        "samples": samples,
    }


def _medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Of each column, without the first row, which warmed up."""
    return [statistics.median(times) for times in zip(*rows[1:], strict=True)]
