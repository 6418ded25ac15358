"""Panels of floats in 24 bits (`compiler.encodings.int24`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.encodings.int24 import INT24_BYTES
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

BITS = 8 * INT24_BYTES - 1
"""Of an element's magnitude."""


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
        """Bytes of the packed constant."""
        return self.panels.elements // (self.panels.panel * self.panels.depth) * self.panel_bytes

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The constant in panels as integers of 24 bits, each column of a panel after its power of two."""
        depth, panel = self.panels.depth, self.panels.panel
        packed = []
        for floats in self.panels.pack(constant).reshape(-1, depth, panel):
            _, exponent = np.frexp(np.abs(floats).max(0))
            whole = np.rint(np.ldexp(floats.astype(np.float64), BITS - exponent)).clip(-(2**BITS), 2**BITS - 1)
            octets = np.ascontiguousarray(whole.astype("<i4")).view(np.uint8).reshape(depth, panel, 4)
            factors = np.ldexp(np.float32(1), exponent).astype("<f4")
            packed += [octets[:, :, :INT24_BYTES].reshape(-1), factors.view(np.uint8)]
        return np.concatenate(packed)
