"""What tiles that nobody has measured may cost, judged by the model and by those that were measured.

The logarithm of a tile's seconds is taken for a Gaussian process around the model's: the model may be off for a kernel
as a whole, for an algorithm on it, and for a region of tiles of like shape. A measured tile says much about those that
differ from it in one extent, and a little about all. What a measurement is worth is its expected improvement (Jones,
Schonlau & Welch, "Efficient global optimization of expensive black-box functions", J. Global Optimization 13, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from compiler.ir.tile import Tile

KERNEL_OFF, ALGORITHM_OFF, SHAPE_OFF = 0.4, 0.2, 0.15
"""Standard deviations of the logarithm.

The model is off by so much for a kernel, an algorithm on it, a shape of tile.
"""
ALIKE = 1.5
"""Tiles whose extents differ by so many doublings in all are alike by exp(-1/2)."""
MOST_SURPRISE = 4.0
"""Times the variance that measurements far from the model may lend the tiles not yet measured."""
NOISE = 0.02
"""Of a measurement."""


class Belief:
    """Means and deviations of log seconds over the tiles of one kernel; `expected` are the model's log seconds."""

    def __init__(self, tiles: Sequence[Tile], expected: Sequence[float]) -> None:
        self._expected = np.asarray(expected, np.float64)
        algorithms = np.array([tile.algorithm for tile in tiles])
        same = algorithms[:, None] == algorithms
        shapes = _shapes(tiles)
        squares = (shapes**2).sum(axis=1)
        apart = np.maximum(squares[:, None] + squares - 2 * shapes @ shapes.T, 0.0)
        shape = SHAPE_OFF**2 * np.exp(-0.5 * apart / ALIKE**2)
        self._covariance = KERNEL_OFF**2 + same * (ALGORITHM_OFF**2 + shape)

    def given(self, seen: Mapping[int, float]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every tile's log seconds once those in `seen`, by position, were measured.

        Where these are further from the model than it was taken to be, it is trusted less about the others too.
        """
        variance = np.diag(self._covariance).copy()
        if not seen:
            return self._expected.copy(), np.sqrt(variance)
        at = sorted(seen)
        off = np.array([seen[one] for one in at]) - self._expected[at]
        between = self._covariance[:, at]
        inside = between[at] + NOISE**2 * np.eye(len(at))
        weights = np.linalg.solve(inside, between.T).T
        left = variance - np.einsum("ij,ij->i", weights, between)
        surprise = min(max(float(off @ np.linalg.solve(inside, off)) / len(at), 1.0), MOST_SURPRISE)
        return self._expected + weights @ off, np.sqrt(np.maximum(left, 0.0) * surprise)


def expected_improvement(best: float, mean: float, deviation: float) -> float:
    """Seconds by which a tile is expected to beat `best` seconds: E[max(0, best - X)].

    The logarithm of its seconds is normal, with this mean and deviation.
    """
    if deviation <= 0:
        return max(0.0, best - math.exp(mean))
    z = (math.log(best) - mean) / deviation
    return best * _below(z) - math.exp(mean + deviation**2 / 2) * _below(z - deviation)


def rank_correlation(expected: Sequence[float], measured: Sequence[float]) -> float:
    """Spearman's, ties sharing their mean rank; 0 where one side is all ties or there are fewer than two.

    1: whatever is dearer in one is dearer in the other.
    """
    a, b = _ranks(expected), _ranks(measured)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else 0.0


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse] if len(values) else np.zeros(1)


def _below(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _shapes(tiles: Sequence[Tile]) -> np.ndarray:
    """A row for each tile: the doublings of its extents, by level and axis, 0 where it has none.

    A scope has a 1 where it holds.
    """
    rows: list[dict[tuple[str, str], float]] = [
        {(level.name, axis): math.log2(max(extent, 1)) for level in tile.levels for axis, extent in level.extents}
        | dict.fromkeys(tile.scopes, 1.0)
        for tile in tiles
    ]
    columns = sorted({key for row in rows for key in row})
    return np.array([[row.get(key, 0.0) for key in columns] for row in rows], np.float64)
