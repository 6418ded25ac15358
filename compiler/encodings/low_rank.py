"""Matrices of low rank: W = U V with fewer elements in both factors than in the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.encodings.encoding import Use
from compiler.encodings.finding import Finding
from compiler.encodings.zeros import LEAST_ELEMENTS

MOST = 0.5
"""The share of the matrix's elements that both factors may have."""
CLOSE = 3e-6
"""||W - U V|| may be so much of ||W||: about what fp32 arithmetic makes of the products."""
TESTED = 8
"""Rows and columns beyond the greatest rank of a part of the matrix that is looked at first."""
FLAT = 1e-4
"""Columns are independent of those before them where R's diagonal has more than so much of its greatest element."""
MOST_ELEMENTS = 1 << 24
"""Larger matrices are not looked at."""


@dataclass(frozen=True)
class Factors(Finding):
    """U [m, rank] and V [rank, n] in float64."""

    key = "low_rank"

    u: np.ndarray
    v: np.ndarray

    @classmethod
    def of(cls, constant: np.ndarray, use: Use = Use.PRODUCT) -> Factors | None:
        """Of a matrix that is worth it."""
        return factors_of(constant) if constant.size >= LEAST_ELEMENTS else None

    def to_json(self) -> dict[str, Any]:
        """The rank."""
        return {"rank": self.rank}

    @property
    def rank(self) -> int:
        """Of the product."""
        return int(self.u.shape[1])

    @property
    def elements(self) -> int:
        """Of both."""
        return self.u.size + self.v.size


def most_rank(rows: int, columns: int) -> int:
    """The greatest rank whose factors have at most MOST of the matrix's elements."""
    return int(MOST * rows * columns / (rows + columns))


def factors_of(matrix: np.ndarray) -> Factors | None:
    """A matrix of floats as a product of two that have at most half as many elements together.

    A row of which much is left, and the column of its largest element, are taken one after another (adaptive cross
    approximation, Bebendorf 2000), until so little is left that the whole is compared. None where the rank is too high,
    or nothing but zeros is there; a part of the matrix tells that in milliseconds.
    """
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or not 0 < matrix.size <= MOST_ELEMENTS:
        return None
    most = most_rank(*matrix.shape)
    if most < 1 or not np.isfinite(matrix).all() or not _may_be_low(matrix, most):
        return None
    wide = matrix.astype(np.float64)
    u, v = _crosses(wide, most)
    close = float(np.linalg.norm(wide - u @ v)) <= CLOSE * float(np.linalg.norm(wide))
    return Factors(u, v) if len(v) and close else None


def _crosses(matrix: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and rows of a matrix whose product is near to it, unless there would have to be more than `most`."""
    u, v = np.zeros((len(matrix), most)), np.zeros((most, matrix.shape[1]))
    enough = CLOSE / 2 * float(np.linalg.norm(matrix))
    mixture = np.random.default_rng(0).normal(size=matrix.shape[1])
    left = matrix @ mixture  # of each row, what crosses have not yet taken away: zero where they are all of it
    for rank in range(most):
        at = int(np.abs(left).argmax())
        row = matrix[at] - u[at, :rank] @ v[:rank]
        to = int(np.abs(row).argmax())
        if not row[to]:
            return u[:, :rank], v[:rank]
        column = (matrix[:, to] - u[:, :rank] @ v[:rank, to]) / row[to]
        if float(np.linalg.norm(column) * np.linalg.norm(row)) <= enough:
            return u[:, :rank], v[:rank]
        u[:, rank], v[rank] = column, row
        left -= column * (row @ mixture)
    return u, v


def _may_be_low(matrix: np.ndarray, most: int) -> bool:
    """Whether a square part, somewhat larger than the greatest rank, is singular to about the precision of fp32."""
    size = most + TESTED
    if size > min(matrix.shape):
        return True
    rows, columns = (np.linspace(0, dim - 1, size).astype(int) for dim in matrix.shape)
    diagonal = np.abs(np.diag(np.linalg.qr(matrix[np.ix_(rows, columns)].astype(np.float64), mode="r")))
    return int(np.count_nonzero(diagonal > FLAT * diagonal.max())) <= most
