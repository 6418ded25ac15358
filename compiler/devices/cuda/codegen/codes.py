"""Matrices of few bits as GPUs read them: codes, of which threads make floats in registers (`tw_codes.h`).

The codes of a column follow one another along k, from the lowest bits of each word on. Behind all codes lie the scales
of blocks, as fp32, and behind these their zero points, a byte each, where numbers are not centred. Past the depth and
the columns scales are 0.

LaneCodes    column by column, for the lanes that share one (`codegen.lane_columns`)
BlockCodes   block tile by block tile
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from compiler.devices.cuda.codegen.lane_columns import LANE_BYTES, LaneColumns
from compiler.encodings.quantised import Quantised
from compiler.forms.quantised_panels import in_codes
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

HEADER = "tw_codes.h"
"""What kernels that read codes include."""
WORD_BITS = 32
AT_ONCE = 1 << 22
"""Values that are encoded together, about."""


@dataclass(frozen=True)
class Stored:
    """Where the parts of `columns` columns of `depth` codes, with so many blocks each, lie in a packed constant."""

    codes: Quantised
    columns: int
    depth: int
    whole_depth: int

    @property
    def blocks(self) -> int:
        """Of a column, those past the end of k included."""
        return 1 if self.codes.block >= self.whole_depth else -(-self.depth // self.codes.block)

    @property
    def row_bytes(self) -> int:
        """Of the codes of a column."""
        return self.depth * self.codes.bits // 8

    @property
    def scales_at(self) -> int:
        """Byte where the scales begin."""
        return self.columns * self.row_bytes

    @property
    def zeros_at(self) -> int:
        """Byte where the zero points begin, where there are any."""
        return self.scales_at + self.columns * self.blocks * DType.F32.bytes

    @property
    def nbytes(self) -> int:
        """Of all."""
        return self.zeros_at + self.columns * self.blocks * (not self.codes.centred)

    def block_of(self, k: str) -> str:
        """C for the number of the block that holds a place of k, which is an unsigned."""
        return "0" if self.blocks == 1 else f"({k}) / {self.codes.block}"

    def packed(self, panels: Panels, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes uint8[columns, row_bytes], scales float32[columns, blocks] and zero points uint8[columns, blocks]."""
        rows = np.zeros((self.columns, self.row_bytes), np.uint8)
        scales, zeros = (
            np.zeros((self.columns, self.blocks), np.float32),
            np.zeros((self.columns, self.blocks), np.uint8),
        )
        for first, some in _strips(panels, constant):
            codes, scale, zero = in_codes(some, self.codes.bits, self.codes.block, centred=self.codes.centred)
            to = slice(first, first + codes.shape[1])
            along = codes.transpose(1, 0, 2).reshape(codes.shape[1], -1)[:, : self.depth]
            rows[to, : -(-along.shape[1] * self.codes.bits // 8)] = squeezed(along, self.codes.bits)
            scales[to, : len(scale)], zeros[to, : len(zero)] = scale[: self.blocks].T, zero[: self.blocks].T
        return rows, scales, zeros

    def joined(self, rows: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        """These parts, in whatever order, as uint8[nbytes]."""
        parts = [rows, np.ascontiguousarray(scales, "<f4").view(np.uint8), *([] if self.codes.centred else [zeros])]
        return np.concatenate([np.ascontiguousarray(part).reshape(-1) for part in parts])


def _strips(panels: Panels, constant: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Some columns at a time, float32[depth, up to so many], each with the number of its first column."""
    each = max(AT_ONCE // max(panels.depth, 1), 1)
    (start,) = panels.starts
    wide = Panels((start,), panels.depth, panels.columns, each, panels.source)
    yield from ((at * each, some) for at, some in enumerate(wide.each(constant, start)))


def squeezed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [columns, depth] as uint8[columns, depth * bits / 8], the first in the lowest bits; codes 0 fill a byte."""
    each = 8 // bits
    filled = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each))).astype(np.uint8).reshape(len(codes), -1, each)
    return np.asarray(np.bitwise_or.reduce(filled << (bits * np.arange(each, dtype=np.uint8)), axis=2), np.uint8)


@dataclass(frozen=True)
class LaneCodes(LaneColumns):
    """B[k, n] column by column as codes: uint8[columns, steps, lanes, 16 bytes].

    k is dealt out to the `lanes` that share a column: in a step, lane l has the places from l * `per_lane` on.
    """

    codes: Quantised = field(kw_only=True)

    @property
    def per_lane(self) -> int:
        """Codes that a lane loads at once."""
        return LANE_BYTES * 8 // self.codes.bits

    @property
    def runs(self) -> int:
        """Blocks, or parts of one, among them: each has a scale."""
        return max(self.per_lane // self.codes.block, 1) if self.codes.block < self.panels.depth else 1

    @property
    def stored(self) -> Stored:
        """Where codes, scales and zero points lie."""
        return Stored(self.codes, self.columns, self.steps * self.width, self.panels.depth)

    @property
    def elements(self) -> int:
        """Bytes."""
        return self.stored.nbytes

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """Codes, scales, zero points. Raises ValueError where values are on no such grid."""
        return self.stored.joined(*self.stored.packed(self.panels, constant))


@dataclass(frozen=True)
class BlockCodes:
    """B[k, n] as codes in tiles of `depth` of k by `columns` of n: uint8[tiles of n, tiles of k, columns, bytes].

    Scales and zero points are [tiles of n, blocks, columns].
    """

    matrix: Panels
    columns: int
    depth: int
    codes: Quantised
    dtype: DType = DType.U8

    @property
    def across(self) -> int:
        """Tiles of n."""
        return -(-self.matrix.columns // self.columns)

    @property
    def down(self) -> int:
        """Tiles of k."""
        return -(-self.matrix.depth // self.depth)

    @property
    def stored(self) -> Stored:
        """Where codes, scales and zero points lie."""
        return Stored(self.codes, self.across * self.columns, self.down * self.depth, self.matrix.depth)

    @property
    def words(self) -> int:
        """Of a tile."""
        return self.columns * self.depth * self.codes.bits // WORD_BITS

    @property
    def elements(self) -> int:
        """Bytes."""
        return self.stored.nbytes

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """Codes, scales, zero points. Raises ValueError where values are on no such grid."""
        rows, *more = self.stored.packed(self.matrix, constant)
        tiles = rows.reshape(self.across, self.columns, self.down, -1).transpose(0, 2, 1, 3)
        scales, zeros = (one.reshape(self.across, self.columns, -1).transpose(0, 2, 1) for one in more)
        return self.stored.joined(tiles, scales, zeros)
