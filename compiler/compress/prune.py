"""One-shot pruning of one layer's weights.

magnitude  the least |w| become zero; no samples are needed
wanda      the least |w| ||x||, within each result (Sun, Liu, Bair, Kolter, "A Simple and Effective Pruning Approach
           for Large Language Models", ICLR 2024)
obs        the least w^2 / [H^-1]_ii^2, and what remains is moved so that the layer's results change least: the
           update of Optimal Brain Surgeon (Hassibi and Stork 1993), column by column as in SparseGPT (Frantar and
           Alistarh, ICML 2023, algorithm 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np

from compiler.compress.forms import BLOCKS, OF_THE_WHOLE, Form, mask_of

Method = Literal["obs", "wanda", "magnitude"]
DAMPING = 0.01
"""Of the mean of the Gram matrix's diagonal, added to it, as SparseGPT does."""
SPAN = 128
"""Columns whose mask is chosen at once, and whose updates reach the columns behind them together; a multiple of 4."""


class Pruner:
    """Weights [results, products] in float64 and the Gram matrix of what they are multiplied by."""

    def __init__(self, weights: np.ndarray, gram: np.ndarray, method: Method, form: Form) -> None:
        self.weights, self.gram, self.method, self.form = weights, gram, method, form
        self._factor = inverse_factor(gram) if method == "obs" else None

    def at(self, share: float) -> np.ndarray:
        """The weights with about `share` of them zero."""
        if share == 0:
            return self.weights
        if self._factor is not None:
            return _surgeon(self.weights, self._factor, self.form, share)
        if self.method == "magnitude":
            return np.where(mask_of(np.abs(self.weights), self.form, share), self.weights, 0.0)
        scores = np.square(self.weights) * np.diag(self.gram)
        return np.where(_by_result(scores, self.form, share), self.weights, 0.0)

    def error(self, pruned: np.ndarray) -> float:
        """The squared change of the layer's results relative to their squares."""
        return loss(self.weights, self.gram, pruned)


def loss(weights: np.ndarray, gram: np.ndarray, changed: np.ndarray) -> float:
    """The squared change of a layer's results by other weights W + D, relative: tr(D G D^T) / tr(W G W^T)."""
    moved = changed - weights
    whole = float(np.einsum("ij,ij->", weights @ gram, weights))
    return float(np.einsum("ij,ij->", moved @ gram, moved)) / whole if whole > 0 else 0.0


class Change(Protocol):
    """Weights [results, products], and what they become."""

    def at(self, share: float) -> np.ndarray:
        """With about `share` of what may be left out left out."""
        ...


class Matrices:
    """Matrices [results, products] one below the other, each changed by its own Gram matrix."""

    def __init__(
        self, weights: np.ndarray, grams: Sequence[np.ndarray], change: Callable[[np.ndarray, np.ndarray], Change]
    ) -> None:
        self._each = [change(own, gram) for own, gram in zip(np.split(weights, len(grams)), grams, strict=True)]

    def at(self, share: float) -> np.ndarray:
        """All of them at this share."""
        return np.concatenate([one.at(share) for one in self._each])


def damped(gram: np.ndarray) -> np.ndarray:
    """A Gram matrix with DAMPING along its diagonal, and 1 where no sample has anything: positive definite."""
    diagonal = np.diag(gram)
    return gram + np.diag(np.where(diagonal == 0, 1.0, 0.0) + DAMPING * max(float(diagonal.mean()), 1e-30))


def inverse_factor(gram: np.ndarray) -> np.ndarray:
    """The upper triangular U with (G + damping)^-1 = U^T U, whose row i holds what column i moves behind itself."""
    # With J the exchange of order: J G J = L L^T gives G^-1 = (J L^-T J) (J L^-1 J), whose right factor is upper.
    lower = np.linalg.cholesky(damped(gram)[::-1, ::-1])
    inverse = np.linalg.solve(lower, np.eye(len(gram)))
    return np.ascontiguousarray(np.triu(inverse[::-1, ::-1]))


def _by_result(scores: np.ndarray, form: Form, share: float) -> np.ndarray:
    """A mask with the same share in each result, or in each few that have their zeros together."""
    if form == "2:4" or form in OF_THE_WHOLE:
        return mask_of(scores, form, share)
    _, many = BLOCKS[form]
    return np.concatenate([mask_of(scores[at : at + many], form, share) for at in range(0, len(scores), many)])


def _surgeon(weights: np.ndarray, factor: np.ndarray, form: Form, share: float) -> np.ndarray:
    """Zeros are made, and what they were is taken over by the columns behind."""
    whole = mask_of(np.square(weights / np.diag(factor)), form, share) if form in OF_THE_WHOLE else None

    def zeroed(block: np.ndarray, columns: slice) -> Columns:
        if whole is None:
            kept = mask_of(np.square(block / np.diag(factor)[columns]), form, share)
        else:
            kept = whole[:, columns]
        return lambda column, at: np.where(kept[:, at], column, 0.0)

    return taken_over(weights, factor, zeroed)


Columns = Callable[[np.ndarray, int], np.ndarray]
"""What a column of a span becomes, by its number there."""


def taken_over(weights: np.ndarray, factor: np.ndarray, changed: Callable[[np.ndarray, slice], Columns]) -> np.ndarray:
    """Weights of which columns change from the first to the last, what that does being taken over by those behind.

    `factor` is `inverse_factor` of their Gram matrix. `changed` is given the columns of a span as they are when the
    span begins, and which they are.
    """
    left = weights.copy()
    columns = left.shape[1]
    for begin in range(0, columns, SPAN):
        end = min(begin + SPAN, columns)
        upper = factor[begin:end, begin:end]
        block = left[:, begin:end]
        become = changed(block, slice(begin, end))
        moved = np.zeros_like(block)
        for at in range(end - begin):
            column = become(block[:, at], at)
            moved[:, at] = (block[:, at] - column) / upper[at, at]
            block[:, at + 1 :] -= np.outer(moved[:, at], upper[at, at + 1 :])
            block[:, at] = column
        left[:, end:] -= moved @ factor[begin:end, end:]
    return left
