"""Encodings: how the elements of a constant may be kept in memory, which is for its values to say.

    DENSE   each element in its own dtype
    INT24   fp32 in 24 bits: three quarters of the bytes where reading them is all the work

In INT24 a column of a matrix is kept as whole numbers of 24 bits times a power of two of its own, the least for which
the largest element fits. An element is off by at most 2^-23 of the largest of its column, about what fp32 arithmetic
makes of a sum over the column anyway (its products alone round to 2^-24 of themselves). Elements that came from a half
type stay what they are, unless they are below 2^-12 of the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

INT24_BYTES = 3
"""Of an element."""
BITS = 8 * INT24_BYTES - 1
"""Of an element's magnitude."""
MAX_PEAK = 16.0
"""How far the largest element of a line may exceed the root of their mean square. Beyond it the others would lose
digits."""
MIN_BYTES = 1 << 20
"""Smaller constants stay in a cache, from which whole floats come as fast."""


@dataclass(frozen=True)
class Int24Panels:
    """Panels of 24 bits: for each, uint8[depth, panel, 3], little-endian and signed.

    Then one factor for each column, float32[panel]. A number n of the packed panel stands for n * 256 * 2^-31 times the
    factor of its column.
    """

    panels: Panels
    dtype: DType = DType.U8

    @property
    def panel_bytes(self) -> int:
        """Of one panel with its factors."""
        return self.panels.panel * (INT24_BYTES * self.panels.depth + 4)

    @property
    def elements(self) -> int:
        return self.panels.elements // (self.panels.panel * self.panels.depth) * self.panel_bytes

    def pack(self, constant: np.ndarray) -> np.ndarray:
        depth, panel = self.panels.depth, self.panels.panel
        packed = []
        for floats in self.panels.pack(constant).reshape(-1, depth, panel):
            _, exponent = np.frexp(np.abs(floats).max(0))
            whole = np.rint(np.ldexp(floats.astype(np.float64), BITS - exponent)).clip(-(2**BITS), 2**BITS - 1)
            octets = np.ascontiguousarray(whole.astype("<i4")).view(np.uint8).reshape(depth, panel, 4)
            factors = np.ldexp(np.float32(1), exponent).astype("<f4")
            packed += [octets[:, :, :INT24_BYTES].reshape(-1), factors.view(np.uint8)]
        return np.concatenate(packed)


@dataclass(frozen=True)
class Encoding:
    """One way to keep a constant's elements.

    `word` is what the text of a workload calls a constant that may be kept so.
    """

    name: str
    word: str

    def __str__(self) -> str:
        return self.name


DENSE = Encoding("dense", "")
INT24 = Encoding("int24", "narrow")
ENCODINGS: tuple[Encoding, ...] = (DENSE, INT24)

Encodings = tuple[Encoding, ...]
"""In which a tensor may be kept, in the order of ENCODINGS. DENSE is always among them."""


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
