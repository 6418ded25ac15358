"""Floats in 24 bits: three quarters of the bytes where reading them is all the work.

A column of a matrix is kept as whole numbers of 24 bits times a power of two of its own, the least for which the
largest element fits. An element is off by at most 2^-23 of the largest of its column, about what fp32 arithmetic makes
of a sum over the column anyway (its products alone round to 2^-24 of themselves). Elements that came from a half type
stay what they are, unless they are below 2^-12 of the largest.
"""

from __future__ import annotations

import numpy as np

from compiler.encodings.encoding import DENSE, Encoding, Encodings

INT24_BYTES = 3
"""Of an element."""
MAX_PEAK = 16.0
"""How far the largest element of a line may exceed the root of their mean square. Beyond it the others would lose
digits."""
MIN_BYTES = 1 << 20
"""Smaller constants stay in a cache, from which whole floats come as fast."""
INT24 = Encoding("int24", "narrow")
ENCODINGS: tuple[Encoding, ...] = (DENSE, INT24)
"""Those that a constant has or has not. Sparse encodings, which follow them, differ by how sparse a constant is."""


def encodings_of(constant: np.ndarray) -> Encodings:
    """All in which a constant may be kept, by its dtype, size and values."""
    return (DENSE, INT24) if _fits_int24(constant) else (DENSE,)


def _fits_int24(constant: np.ndarray) -> bool:
    """A large matrix of fp32, or a few of them, no line of which, along any axis, has a lonely peak."""
    constant = constant.squeeze()
    if constant.dtype != np.float32 or constant.ndim not in (2, 3) or constant.nbytes < MIN_BYTES:
        return False
    if not bool(np.isfinite(constant).all()):
        return False
    squares = np.square(constant, dtype=np.float64)
    return all(bool(np.all(squares.max(axis) <= MAX_PEAK**2 * squares.mean(axis))) for axis in range(constant.ndim))
