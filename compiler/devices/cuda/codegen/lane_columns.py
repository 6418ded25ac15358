"""Constants packed for the lanes of a GPU's warps, in the float in which they lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

LANE_BYTES = 16
"""What one lane loads at once."""
AHEAD = 8
"""Loads of LANE_BYTES that one lane has on their way."""
AHEAD_BYTES = 192
"""Bytes that one lane has on their way where it knows early which."""
QUAD = 4
"""Elements of k that follow one another in a lane: 16 bytes of the fp32 rows that they are multiplied with."""


@dataclass(frozen=True)
class RoundedPanels:
    """Panels whose elements are rounded to a shorter float: dtype[batch, panels, depth, panel]."""

    panels: Panels
    dtype: DType

    @property
    def elements(self) -> int:
        """Elements of the packed constant."""
        return self.panels.elements

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The panels rounded to `dtype`, with one axis."""
        return self.panels.pack(constant).astype(self.dtype.numpy).reshape(-1)


@dataclass(frozen=True)
class LaneColumns:
    """B[k, n] column by column, k dealt out to the `lanes` that share a column.

    dtype[columns, steps, lanes, 16 bytes], zero-padded. In a step, lane l holds of every stretch of 4 * `lanes`
    elements of k those from 4 l on; so the lanes read what they multiply with, rows in shared memory, side by side.
    `panels` are those of B with one column each; `columns` are rounded up to `whole` of them, k to steps that `parts`
    have in equal numbers.
    """

    panels: Panels
    dtype: DType
    lanes: int
    whole: int = 1
    parts: int = 1

    @property
    def per_lane(self) -> int:
        """Elements that a lane loads at once."""
        return LANE_BYTES // self.dtype.bytes

    @property
    def width(self) -> int:
        """Elements of k in a step."""
        return self.lanes * self.per_lane

    @property
    def steps(self) -> int:
        """Of all parts together."""
        return -(-self.panels.depth // (self.width * self.parts)) * self.parts

    @property
    def columns(self) -> int:
        """Columns with those that fill the last group."""
        return -(-self.panels.columns // self.whole) * self.whole

    @property
    def elements(self) -> int:
        """Elements of the packed constant, those that fill groups and steps included."""
        return self.columns * self.steps * self.width

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The columns as the class describes them, with one axis."""
        columns, depth = self.panels.columns, self.panels.depth
        wide = np.zeros((self.columns, self.steps * self.width), self.dtype.numpy)
        wide[:columns, :depth] = self.panels.pack(constant).reshape(columns, depth).astype(self.dtype.numpy)
        stretches = wide.reshape(self.columns, self.steps, -1, self.lanes, QUAD)
        return np.ascontiguousarray(stretches.transpose(0, 1, 3, 2, 4)).reshape(-1)
