"""Middle and spread of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Samples in seconds, in the order taken, with their median and tenth and ninetieth percentile."""

    samples: tuple[float, ...]
    median: float
    p10: float
    p90: float

    @staticmethod
    def of(samples: Sequence[float]) -> Spread:
        """Raises ValueError without samples."""
        if not samples:
            raise ValueError("a spread needs at least one sample")
        p10, median, p90 = (float(point) for point in np.percentile(samples, (10, 50, 90)))
        return Spread(tuple(samples), median, p10, p90)
