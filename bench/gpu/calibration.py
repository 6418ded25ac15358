"""What the model of costs leaves out of launches, by plans that were run: an additional time for each of a chain, and for each that joins streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAST_PLANS = 3
"""For two unknowns and a remainder."""


@dataclass(frozen=True)
class Calibration:
    """Microseconds by which a plan takes longer than predicted, for each launch of its longest chain and for each of these that joins streams.

    left_us  root mean square of what these two do not explain, over so many `plans`
    """

    launch_us: float
    join_us: float
    left_us: float
    plans: int

    def __str__(self) -> str:
        return (
            f"beside the prediction, by least squares over {self.plans} plans: {self.launch_us:+.2f} µs for each launch of the longest chain, "
            f"{self.join_us:+.2f} µs for each of these that joins streams, {self.left_us:.1f} µs left"
        )


def calibrated(rows: Sequence[Mapping[str, Any]]) -> Calibration | None:
    """From rows of `bench.schedule.row`; None where too few plans were run, or none of them joins streams."""
    run = [row for row in rows if row["ms"] is not None]
    counts = np.array([[row["depth"], row["joins"]] for row in run], float).reshape(len(run), 2)
    if len(run) < LEAST_PLANS or np.linalg.matrix_rank(counts) < counts.shape[1]:
        return None
    longer = np.array([1e3 * (row["ms"] - row["predicted_ms"]) for row in run])
    found, *_ = np.linalg.lstsq(counts, longer, rcond=None)
    left = float(np.sqrt(np.mean((longer - counts @ found) ** 2)))
    return Calibration(float(found[0]), float(found[1]), left, len(run))
