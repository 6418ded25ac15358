"""What is reported of many values: their middle and spread, and the ratio of two engines with its confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Spread:
    """Median, tenth and ninetieth percentile of `samples` values."""

    median: float
    p10: float
    p90: float
    samples: int

    @staticmethod
    def of(values: Sequence[float], scale: float = 1.0) -> Spread:
        """Of at least one value, each multiplied by `scale`."""
        p10, median, p90 = (float(point) * scale for point in np.percentile(values, (10, 50, 90)))
        return Spread(median, p10, p90, len(values))


@dataclass(frozen=True)
class Ratio:
    """Our time over a peer's, below 1 where ours is faster, and the interval that holds it with CONFIDENCE."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Ratio:
        """From the times of the same rounds, one of each: the median of the rounds' ratios.

        What slows the machine for a round slows both, and cancels. The interval is the percentile bootstrap over rounds
        (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13).
        """
        rounds = np.array([one / two for one, two in zip(ours, theirs, strict=True)])
        drawn = np.random.default_rng(seed).integers(0, len(rounds), (RESAMPLES, len(rounds)))
        tail = 50 * (1 - CONFIDENCE)
        low, high = np.percentile(np.median(rounds[drawn], axis=1), (tail, 100 - tail))
        return Ratio(float(np.median(rounds)), float(low), float(high))


def geometric_mean(values: Sequence[float]) -> float:
    """Of at least one positive value."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))
