"""The range of an activation, chosen from its values.

minmax      all of them
percentile  all but the outermost, on each side by itself
entropy     |x| up to the threshold at which the quantised distribution is nearest to the real one by Kullback and
            Leibler (Migacz, "8-bit inference with TensorRT", GTC 2017)
mse         the ends at which the mean squared error is least
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.quantize.scheme import LEVELS, affine

KEPT = 1 << 16
"""Values of a tensor that are kept, of all samples together."""
SEARCHED = 1 << 14
"""Of these, how many a search looks at."""
BINS = 2048
STRIDE = 16
"""Bins between two thresholds that are tried."""
SHRINKS = np.linspace(1.0, 0.2, 41)
"""Parts of an end of a range that are tried."""


@dataclass
class Observed:
    """What is known of a tensor: its least and greatest value, and values evenly spread over the samples."""

    low: float = 0.0
    high: float = 0.0
    pieces: list[np.ndarray] = field(default_factory=list)

    def add(self, array: np.ndarray, samples: int) -> None:
        """Takes in the values of one of so many samples. All are finite."""
        self.low = min(self.low, float(array.min(initial=0.0)))
        self.high = max(self.high, float(array.max(initial=0.0)))
        share = max(1, KEPT // samples)
        flat = array.ravel()
        self.pieces.append(flat[:: max(1, -(-flat.size // share))].astype(np.float32))

    @property
    def values(self) -> np.ndarray:
        """Those kept."""
        return np.concatenate(self.pieces)


Range = tuple[float, float]


def range_of(observed: Observed, method: str, percentile: float) -> Range:
    """The range by the method of this name; it holds 0."""
    if observed.high - observed.low <= 0:
        return 0.0, 0.0
    low, high = METHODS[method](observed, percentile)
    return min(low, 0.0), max(high, 0.0)


def _minmax(observed: Observed, percentile: float) -> Range:
    return observed.low, observed.high


def _percentile(observed: Observed, percentile: float) -> Range:
    low, high = np.percentile(observed.values, (100 - percentile, percentile))
    return float(low), float(high)


def _entropy(observed: Observed, percentile: float) -> Range:
    sizes = np.abs(observed.values)
    largest = max(observed.high, -observed.low)
    counts, _ = np.histogram(sizes[sizes > 0], bins=BINS, range=(0.0, largest))
    levels = LEVELS // 2 if observed.low < 0 < observed.high else LEVELS
    tried = range(levels + 1, BINS + 1, STRIDE)
    best = min(tried, key=lambda bins: _divergence(counts, bins, levels))
    threshold = (
        largest * best / BINS if _divergence(counts, best, levels) < _divergence(counts, BINS, levels) else largest
    )
    return max(observed.low, -threshold), min(observed.high, threshold)


def _divergence(counts: np.ndarray, bins: int, levels: int) -> float:
    """Of the distribution cut off behind so many bins, in nats, from what so many levels tell of it."""
    real = counts[:bins].astype(np.float64)
    begins = np.arange(levels) * bins // levels
    filled = (real > 0).astype(np.float64)
    sums, holders = np.add.reduceat(real, begins), np.add.reduceat(filled, begins)
    widths = np.diff(np.append(begins, bins))
    told = np.repeat(np.divide(sums, holders, out=np.zeros_like(sums), where=holders > 0), widths) * filled
    real[-1] += counts[bins:].sum()
    if real.sum() == 0 or told.sum() == 0:
        return float("inf")
    p, q = real / real.sum(), told / told.sum()
    if np.any((p > 0) & (q == 0)):
        q = np.where((p > 0) & (q == 0), 1e-12, q)
    at = p > 0
    return float(np.sum(p[at] * np.log(p[at] / q[at])))


def _mse(observed: Observed, percentile: float) -> Range:
    values = observed.values
    values = values[:: max(1, -(-values.size // SEARCHED))]
    low, high = observed.low, observed.high

    def error(ends: Range) -> float:
        return float(np.square(affine(*ends, np.uint8).rounded(values) - values).mean())

    best = min(((low * part, high * part) for part in SHRINKS), key=error)
    best = min([best, *((low * part, best[1]) for part in SHRINKS)], key=error) if low < 0 else best
    return min([best, *((best[0], high * part) for part in SHRINKS)], key=error) if high > 0 else best


METHODS: Mapping[str, Callable[[Observed, float], Range]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}
