"""One-shot clustering of one layer's weights: each becomes one of few values, of the layer or of each result.

Values are found by k-means of the weights (Deep Compression, ICLR 2016, section 3), each of which counts as much as
what it is multiplied by where samples say that (SqueezeLLM, ICML 2024, section 4.1). Under `obs` weights are then moved
to values column by column, and what that changes is taken over by the columns behind (GPTQ, ICLR 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compiler.compress.forms import CLUSTERED
from compiler.compress.prune import Method, inverse_factor, loss, taken_over

ROUNDS = 30
"""Of k-means, at most."""


@dataclass(frozen=True)
class Level:
    """How many bits tell a weight's value apart, and whether each result has values of its own."""

    bits: int
    own: bool


LEVELS: Mapping[float, Level] = dict(
    zip(CLUSTERED, (Level(8, own=False), Level(4, own=True), Level(2, own=True)), strict=True)
)
"""By the share of fp32's bits that indices save. Codebooks of a result's own have at most 16 values: larger ones take
what they save."""


class Clusterer:
    """Weights [results, products] in float64 and the Gram matrix of what they are multiplied by."""

    def __init__(self, weights: np.ndarray, gram: np.ndarray, method: Method) -> None:
        self.weights, self.gram = weights, gram
        self._factor = inverse_factor(gram) if method == "obs" else None
        sizes = np.diag(gram) if method != "magnitude" else np.ones(len(gram))
        self._counts = np.maximum(sizes, 1e-6 * max(float(sizes.mean()), 1e-30))

    def at(self, share: float) -> np.ndarray:
        """The weights by values that save about `share` of their bits, one of LEVELS; 0: as they are."""
        if share == 0:
            return self.weights
        level = LEVELS[share]
        lines = self.weights if level.own else self.weights.reshape(1, -1)
        counts = np.broadcast_to(self._counts, self.weights.shape).reshape(lines.shape)
        books = np.stack([means(*line, 1 << level.bits) for line in zip(lines, counts, strict=True)])
        if self._factor is None:
            return nearest(lines, books).reshape(self.weights.shape)
        return taken_over(
            self.weights, self._factor, lambda *_: lambda column, _: nearest(column[:, None], books)[:, 0]
        )

    def error(self, clustered: np.ndarray) -> float:
        """The squared change of the layer's results relative to their squares."""
        return loss(self.weights, self.gram, clustered)


def means(weights: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """At most so many values in ascending order, repeated where there are fewer, near to numbers that count so much.

    They begin at quantiles. Numbers of few values keep these.
    """
    distinct = np.unique(weights)
    if len(distinct) <= most:
        return np.resize(distinct, most)[np.argsort(np.arange(most) % len(distinct), kind="stable")]
    order = np.argsort(weights, kind="stable")
    ordered = weights[order]
    whole = np.concatenate([[0.0], np.cumsum(counts[order])])
    moments = np.concatenate([[0.0], np.cumsum(counts[order] * ordered)])
    values = np.quantile(ordered, (np.arange(most) + 0.5) / most)
    for _ in range(ROUNDS):
        ends = np.searchsorted(ordered, (values[1:] + values[:-1]) / 2)
        ends = np.concatenate([[0], ends, [len(ordered)]])
        held = np.diff(whole[ends])
        found = np.where(held > 0, np.diff(moments[ends]) / np.where(held > 0, held, 1.0), values)
        if np.array_equal(found, values):
            break
        values = np.sort(found)
    return np.asarray(values)


def nearest(lines: np.ndarray, books: np.ndarray) -> np.ndarray:
    """Each number of a line by the nearest value of the line's book; one book serves all lines where there is one."""
    if len(books) == 1:
        return np.asarray(books[0][_places(lines, books[0])])
    return np.stack([book[_places(line, book)] for line, book in zip(lines, books, strict=True)])


def _places(numbers: np.ndarray, book: np.ndarray) -> np.ndarray:
    return np.asarray(np.searchsorted((book[1:] + book[:-1]) / 2, numbers))
