"""One-shot factorisation of one layer's weights: W becomes U V of a low rank, so that its results change least.

With X what the weights are multiplied by, ||(W - U V) X|| is least where U spans the first left singular vectors of W X
and V = U^T W (the data-aware truncation of SVD-LLM, ICLR 2025, and of DRONE, NeurIPS 2021, which take an inverse of the
inputs' factor where this takes a projection). `wanda` knows of X only the sizes of inputs, as ASVD (2023) does, and
`magnitude` nothing, which is the truncated singular value decomposition.
"""

from __future__ import annotations

import numpy as np

from compiler.compress.prune import Method, damped, loss
from compiler.encodings.low_rank import Factors


class Factorer:
    """Weights [results, products] in float64 and the Gram matrix of what they are multiplied by."""

    def __init__(self, weights: np.ndarray, gram: np.ndarray, method: Method) -> None:
        self.weights, self.gram = weights, gram
        self._first = _left_vectors(weights, gram, method)

    def at(self, rank: int) -> Factors:
        """U [results, rank], with orthonormal columns, and V [rank, products]."""
        u = self._first[:, :rank]
        return Factors(u, u.T @ self.weights)

    def error(self, factors: Factors) -> float:
        """The squared change of the layer's results relative to their squares."""
        return loss(self.weights, self.gram, factors.u @ factors.v)


def rank_of(rows: int, columns: int, share: float) -> int:
    """The greatest rank whose factors have at most 1 - `share` of a matrix's elements; 0 where not even 1 has."""
    return int((1 - share) * rows * columns / (rows + columns) + 1e-9)


def _left_vectors(weights: np.ndarray, gram: np.ndarray, method: Method) -> np.ndarray:
    """Left singular vectors of W X, the most important first: float64[results, min(results, products)].

    Of the smaller of two matrices: W X X^T W^T, or W times a factor of X X^T.
    """
    rows, columns = weights.shape
    if method == "magnitude":
        inputs = np.eye(columns)
    else:
        inputs = damped(gram if method == "obs" else np.diag(np.diag(gram)))
    if rows <= columns:
        return np.asarray(np.linalg.eigh(weights @ inputs @ weights.T)[1][:, ::-1])
    return np.asarray(np.linalg.svd(weights @ np.linalg.cholesky(inputs), full_matrices=False)[0])
