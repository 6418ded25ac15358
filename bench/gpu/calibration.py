"""How far the model of costs is off for launches, by plans that were run.

For each launch of a chain, each that waits for another stream, and each further stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.schedule import PERSISTENT

LEAST_PLANS = 4
"""For three unknowns and a remainder."""


@dataclass(frozen=True)
class Calibration:
    """Microseconds by which a plan takes longer than predicted.

    launch_us  for each launch of its longest chain
    join_us    for each of these that waits for another stream
    fan_in_us  for each stream beyond one for which one of these waits
    left_us    root mean square of what these three do not explain, over so many `plans`
    """

    launch_us: float
    join_us: float
    fan_in_us: float
    left_us: float
    plans: int

    def __str__(self) -> str:
        return (
            f"beside the prediction, by least squares over {self.plans} plans: "
            f"{self.launch_us:+.2f} µs for each launch of the longest chain, "
            f"{self.join_us:+.2f} µs for each of these that waits for another stream, "
            f"{self.fan_in_us:+.2f} µs for each further stream, "
            f"{self.left_us:.1f} µs left"
        )


def calibrated(rows: Sequence[Mapping[str, Any]]) -> Calibration | None:
    """From rows of `bench.schedule.row`, but for those of resident blocks, which are launched once.

    None where too few plans were run, or they differ too little in what their launches wait for.
    """
    run = [row for row in rows if row["ms"] is not None and row["scheduler"] != PERSISTENT]
    counts = np.array([[row["depth"], row["joins"], row["fan_in"]] for row in run], float).reshape(len(run), 3)
    if len(run) < LEAST_PLANS or np.linalg.matrix_rank(counts) < counts.shape[1]:
        return None
    longer = np.array([1e3 * (row["ms"] - row["predicted_ms"]) for row in run])
    found, *_ = np.linalg.lstsq(counts, longer, rcond=None)
    left = float(np.sqrt(np.mean((longer - counts @ found) ** 2)))
    launch_us, join_us, fan_in_us = map(float, found)
    return Calibration(launch_us, join_us, fan_in_us, left, len(run))
