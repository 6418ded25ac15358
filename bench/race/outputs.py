"""How far apart two engines' outputs are."""

from __future__ import annotations

import numpy as np

from bench.engines.driver import Arrays


def largest_difference(ours: Arrays, theirs: Arrays) -> float:
    """Over all outputs, relative to the largest value of each of `theirs`.

    Infinite where one is not finite and the other is.
    """
    worst = 0.0
    for name, expected in theirs.items():
        a, b = ours[name].astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        if finite.any():
            largest = np.abs(b[finite]).max() or 1.0
            worst = max(worst, float(np.abs(a[finite] - b[finite]).max() / largest))
    return worst
