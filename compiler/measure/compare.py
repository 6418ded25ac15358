"""Which of two models is faster, and how sure that is."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from compiler.ir.small import wide
from compiler.measure.npz import SMALL

CONFIDENCE = 0.95
RESOLUTION = 0.005
"""By how much two loadings of one artifact may differ on one machine, through nothing but where its memory came to lie
(Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!", ASPLOS 2009). Intervals are this much
wider on each side."""


@dataclass(frozen=True)
class Comparison:
    """Two models' times as a ratio: that of b over that of a, so that more than 1 means that a is faster.

    `low` and `high` bound the ratio with `confidence`; None where there are too few rounds to say.
    """

    ratio: float
    low: float | None
    high: float | None
    confidence: float = CONFIDENCE

    @property
    def faster(self) -> Literal["a", "b"] | None:
        """None: cannot tell, because the interval includes 1 or does not exist."""
        if self.low is None or self.high is None or self.low <= 1 <= self.high:
            return None
        return "a" if self.low > 1 else "b"

    @property
    def verdict(self) -> str:
        """`a is faster by 1.23x ± 0.02`, or `cannot tell`; what follows ± is the interval's farther end."""
        if self.faster is None:
            return "cannot tell"
        assert self.low is not None
        assert self.high is not None
        by = (self.ratio, self.low, self.high)
        ratio, low, high = by if self.faster == "a" else (1 / self.ratio, 1 / self.high, 1 / self.low)
        margin = max(high - ratio, ratio - low)
        digits = max(2, 1 - math.floor(math.log10(margin)))
        return f"{self.faster} is faster by {ratio:.{digits}f}x ± {margin:.{digits}f}"


def compare(a: Sequence[float], b: Sequence[float], sittings: Sequence[int]) -> Comparison:
    """Compares two models by their seconds in the same rounds, one (median) for each round.

    A round gives the logarithm of b's seconds over a's: what slows the machine for a while slows both and cancels. The
    rounds of one sitting share where memory lies and what else the machine does, so that a sitting counts once, as the
    median of its rounds; `sittings` says how many rounds each had. The ratio is the Hodges-Lehmann estimate over the
    sittings, and its interval the exact one of Wilcoxon's signed ranks (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, sections 3.2 and 3.3). It asks for symmetry and not for a normal distribution, and bears a
    sitting that was disturbed. It is then widened by RESOLUTION. Raises ValueError for rounds that cannot be paired.
    """
    if not len(a) == len(b) == sum(sittings) or not a or 0 in sittings:
        raise ValueError(f"{len(a)} and {len(b)} rounds in sittings of {list(sittings)} cannot be paired")
    logs = [math.log(two / one) for one, two in zip(a, b, strict=True)]
    ends = [0, *itertools.accumulate(sittings)]
    evidence = [statistics.median(logs[first:last]) for first, last in itertools.pairwise(ends)]
    averages = sorted((one + two) / 2 for at, one in enumerate(evidence) for two in evidence[at:])
    ratio = math.exp(statistics.median(averages))
    outer = _outer_averages(len(evidence))
    if outer is None:
        return Comparison(ratio, None, None)
    low, high = averages[outer], averages[-1 - outer]
    return Comparison(ratio, math.exp(low) / (1 + RESOLUTION), math.exp(high) * (1 + RESOLUTION))


def _outer_averages(n: int) -> int | None:
    """How many of the sorted Walsh averages of n values lie outside the interval, on each side; None if all of them.

    That is the largest k for which P(T <= k) is at most half of what the confidence leaves. T is the sum of the ranks
    with a positive sign, of which each is there or not: its distribution is counted.
    """
    ways = [1]
    for rank in range(1, n + 1):
        longer = [*ways, *[0] * rank]
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    tail, allowed = 0, (1 - CONFIDENCE) / 2 * 2**n
    for total, count in enumerate(ways):
        tail += count
        if tail > allowed:
            return total - 1 if total > 0 else None
    raise AssertionError("the whole distribution cannot be in a tail")


def difference(a: np.ndarray, b: np.ndarray) -> tuple[float, int]:
    """The largest difference of two models' outputs over the largest value of `a`, where both are finite.

    Beside it the number of elements of which one is NaN or infinite and the other is not so, too.
    """
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        like = finite | (x == y) | (np.isnan(x) & np.isnan(y))
        largest = float(np.max(np.abs(x - y), initial=0.0, where=finite))
        scale = float(np.max(np.abs(x), initial=0.0, where=finite))
    return largest / scale if scale else largest, int(np.count_nonzero(~like))


def stored_difference(dtype: str, a: np.ndarray, b: np.ndarray) -> dict[str, float | int]:
    """`difference` by name, of elements as they are stored: bf16 as its bits, types of one byte as in the loader."""
    if dtype == "bfloat16":
        a, b = ((one.astype(np.uint32) << 16).view(np.float32) for one in (a, b))
    elif (kind := SMALL.get(dtype)) is not None:
        a, b = (one.view(kind.numpy).astype(wide(kind).numpy) for one in (a, b))
    largest, unlike = difference(a, b)
    return {"max_relative": largest, "unlike": unlike}
