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

KEPT = 1 << 14
"""Values of a tensor that are kept, of all samples together, evenly spread; each stands for those beside it."""
TAILS = 1 << 13
"""Least and greatest values that are kept beside them, each for itself: few of them may hold most of the energy."""
GUESSED = 1 << 12
"""Values by which bounds of those tails are guessed."""
GOLDEN = 5**0.5 / 2 - 0.5
BINS = 2048
STRIDE = 16
"""Bins between two thresholds that are tried."""
SHRINKS = np.linspace(1.0, 0.2, 41)
"""Parts of an end of a range that are tried."""


@dataclass
class Observed:
    """What is known of a tensor: its least and greatest value, and values with how many each stands for."""

    low: float = 0.0
    high: float = 0.0
    pieces: list[np.ndarray] = field(default_factory=list)
    shares: list[np.ndarray] = field(default_factory=list)

    def add(self, array: np.ndarray, samples: int) -> None:
        """Takes in the values of one of so many samples. All are finite."""
        flat = array.ravel().astype(np.float32)
        if not flat.size:
            return
        self.low = min(self.low, float(flat.min()))
        self.high = max(self.high, float(flat.max()))
        tail, kept = max(1, TAILS // (2 * samples)), KEPT // samples
        if flat.size <= 2 * tail + kept:
            self._keep(flat, 1.0)
            return
        least, greatest = _least(flat, tail), -_least(-flat, tail)
        low, high = least.max(), greatest.min()
        tails = np.concatenate([least[least < low], greatest[greatest > high]])
        self._keep(tails, 1.0)
        between = _spread(flat, 2 * kept)
        between = between[(between >= low) & (between <= high)][:kept]
        self._keep(between, (flat.size - tails.size) / max(between.size, 1))

    def _keep(self, values: np.ndarray, share: float) -> None:
        self.pieces.append(values)
        self.shares.append(np.full(values.size, share))

    @property
    def values(self) -> np.ndarray:
        """Those kept."""
        return np.concatenate(self.pieces)

    @property
    def weights(self) -> np.ndarray:
        """How many values each of those stands for."""
        return np.concatenate(self.shares)


def _spread(flat: np.ndarray, count: int) -> np.ndarray:
    """So many values from all over an array, at distances that no row or channel repeats with."""
    places = np.arange(1, count + 1) * GOLDEN % 1 * flat.size
    return np.asarray(flat[places.astype(np.int64)])


def _least(flat: np.ndarray, count: int) -> np.ndarray:
    """The `count` least values: those below a bound that some values suggest are looked through, not all."""
    some = np.sort(_spread(flat, GUESSED))
    bound = some[min(2 * count * GUESSED // flat.size + GUESSED // 64, GUESSED - 1)]
    found = flat[flat <= bound]
    if found.size >= count and bound == flat.min():
        return np.asarray(found[:count])
    return np.asarray(np.partition(found if found.size >= count else flat, count - 1)[:count])


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
    values, weights = observed.values, observed.weights
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    outside = (1 - percentile / 100) * below[-1]
    low = values[order[np.searchsorted(below, outside, side="right")]]
    high = values[order[np.searchsorted(below, below[-1] - outside)]]
    return float(low), float(high)


def _entropy(observed: Observed, percentile: float) -> Range:
    sizes = np.abs(observed.values)
    largest = max(observed.high, -observed.low)
    counts, _ = np.histogram(sizes, bins=BINS, range=(0.0, largest), weights=observed.weights * (sizes > 0))
    levels = LEVELS // 2 if observed.low < 0 < observed.high else LEVELS
    tried = [*range(levels + 1, BINS, STRIDE), BINS]
    threshold = largest * min(tried, key=lambda bins: _divergence(counts, bins, levels)) / BINS
    return max(observed.low, -threshold), min(observed.high, threshold)


def _divergence(counts: np.ndarray, bins: int, levels: int) -> float:
    """Of the distribution cut off behind so many bins, in nats, from what so many levels tell of it."""
    real = counts[:bins].copy()
    begins = np.arange(levels) * bins // levels
    filled = (real > 0).astype(np.float64)
    sums, holders = np.add.reduceat(real, begins), np.add.reduceat(filled, begins)
    widths = np.diff(np.append(begins, bins))
    spread = np.repeat(np.divide(sums, holders, out=np.zeros_like(sums), where=holders > 0), widths) * filled
    real[-1] += counts[bins:].sum()
    if real.sum() == 0 or spread.sum() == 0:
        return float("inf")
    p, q = real / real.sum(), spread / spread.sum()
    if np.any((p > 0) & (q == 0)):
        q = np.where((p > 0) & (q == 0), 1e-12, q)
    at = p > 0
    return float(np.sum(p[at] * np.log(p[at] / q[at])))


def _mse(observed: Observed, percentile: float) -> Range:
    values, weights = observed.values, observed.weights.astype(np.float32)
    low, high = observed.low, observed.high
    rounded = np.empty_like(values)

    def error(ends: Range) -> float:
        """In float32: about 120 ranges of each tensor are compared."""
        scheme = affine(*ends, np.uint8)
        zero = np.float32(scheme.zero)
        np.rint(np.divide(values, scheme.scale, out=rounded), out=rounded)
        np.clip(rounded, -zero, LEVELS - zero, out=rounded)
        np.subtract(np.multiply(rounded, scheme.scale, out=rounded), values, out=rounded)
        return float(np.dot(np.square(rounded, out=rounded), weights))

    best = min(((low * part, high * part) for part in SHRINKS), key=error)
    best = min([best, *((low * part, best[1]) for part in SHRINKS)], key=error) if low < 0 else best
    return min([best, *((best[0], high * part) for part in SHRINKS)], key=error) if high > 0 else best


METHODS: Mapping[str, Callable[[Observed, float], Range]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}
