"""Floats in 24 bits: three quarters of the bytes where reading them is all the work.

A column of a matrix is kept as whole numbers of 24 bits times a power of two of its own, the least for which the
largest element fits. An element is off by at most 2^-23 of the largest of its column, about what fp32 arithmetic makes
of a sum over the column anyway (its products alone round to 2^-24 of themselves). Elements that came from a half type
stay what they are, unless they are below 2^-12 of the largest.
"""

from __future__ import annotations

import numpy as np

from compiler.encodings.encoding import Encoding, Use

INT24_BYTES = 3
"""Of an element."""
MAX_PEAK = 16.0
"""How far the largest element of a line may exceed the root of their mean square. Beyond it the others would lose
digits."""
MIN_BYTES = 1 << 20
"""Smaller constants stay in a cache, from which whole floats come as fast."""


class Int24(Encoding):
    """Whole numbers of 24 bits, with a power of two for each column."""

    begins = "narrow"

    @classmethod
    def find(cls, constant: np.ndarray, use: Use) -> tuple[Int24, ...]:
        """What takes fewer bytes where each element is read once."""
        return (INT24,) if use is Use.ONCE and _fits(constant) else ()

    @classmethod
    def read(cls, word: str) -> Int24:
        """The only one."""
        if word != INT24.word:
            raise ValueError(f"`{word}` is no encoding in 24 bits")
        return INT24


INT24 = Int24("int24", Int24.begins)


def _fits(constant: np.ndarray) -> bool:
    """A large matrix of fp32, or a few of them, no line of which, along any axis, has a lonely peak."""
    constant = constant.squeeze()
    if constant.dtype != np.float32 or constant.ndim not in (2, 3) or constant.nbytes < MIN_BYTES:
        return False
    if not bool(np.isfinite(constant).all()):
        return False
    squares = np.square(constant, dtype=np.float64)
    return all(bool(np.all(squares.max(axis) <= MAX_PEAK**2 * squares.mean(axis))) for axis in range(constant.ndim))
