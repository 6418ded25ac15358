"""B packed for a GPU: block tile by block tile, each in the order in which a block copies it to shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.packing import Panels, strided
from compiler.ir.tensor import DType

CHUNK_BYTES = 16
"""What a swizzle exchanges within a row, and what one thread copies at once."""
SWIZZLED_BYTES = 128
"""After so many bytes of rows, side by side, the swizzle moves on."""
TF32_HALF, TF32_MASK = np.uint32(0x1000), np.uint32(0xFFFFE000)
"""Half a unit of tf32's last digit, and the digits that it has."""


@dataclass(frozen=True)
class BlockPanels:
    """B[batch, k, n] as tiles of `depth` of k by `columns` of n, zero-padded.

    dtype[batch, tiles of n, tiles of k, columns, depth]. `matrix` says where B lies in the constant (its `panel` means
    nothing here). `as_tf32` rounds fp32 elements to tf32: to nearest, ties away from zero, as cvt.rna does. `swizzled`
    exchanges the 16-byte chunks of each row as wgmma finds them in shared memory.
    """

    matrix: Panels
    columns: int
    depth: int
    dtype: DType
    as_tf32: bool = False
    swizzled: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Of the packed array."""
        matrix = self.matrix
        across, down = -(-matrix.columns // self.columns), -(-matrix.depth // self.depth)
        return (len(matrix.starts), across, down, self.columns, self.depth)

    @property
    def tile_bytes(self) -> int:
        """Of a tile."""
        return self.columns * self.depth * self.dtype.bytes

    @property
    def elements(self) -> int:
        """Elements of the packed constant, those that fill the last blocks included."""
        return int(np.prod(self.shape))

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The matrix in blocks of columns and depth, in the order in which blocks read them; one axis."""
        _, across, down, columns, depth = self.shape
        packed = np.zeros(self.shape, self.dtype.numpy)
        plain = constant.astype(np.float32, copy=False)
        for into, start in zip(packed, self.matrix.starts, strict=True):
            matrix = strided(plain, self.matrix.source, start).reshape(self.matrix.depth, self.matrix.columns)
            whole = np.zeros((down * depth, across * columns), np.float32)
            whole[: self.matrix.depth, : self.matrix.columns] = matrix
            into[:] = (
                (rounded_to_tf32(whole) if self.as_tf32 else whole)
                .reshape(down, depth, across, columns)
                .transpose(2, 0, 3, 1)
            )
        return swizzled(packed).reshape(-1) if self.swizzled else packed.reshape(-1)


@dataclass(frozen=True)
class SummedPanels(BlockPanels):
    """The same of bytes, and behind them the sums of columns over all of k that comes before a tile.

    int32[batch, tiles of n, tiles of k and 1, columns], so that a part of k has the difference of two.
    """

    @property
    def tiles_bytes(self) -> int:
        """Of all tiles: where the sums begin."""
        return super().elements

    @property
    def elements(self) -> int:
        """Bytes of tiles and sums."""
        batches, across, down, columns, _ = self.shape
        return self.tiles_bytes + 4 * batches * across * (down + 1) * columns

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The tiles, then the sums; one axis."""
        tiles = super().pack(constant)
        return np.concatenate([tiles, sums_before(tiles.reshape(self.shape)).view(tiles.dtype)])


def sums_before(tiles: np.ndarray) -> np.ndarray:
    """The sums of each column over all tiles before one, and over all: of int8[batch, across, down, columns, elements].

    int32[batch, across, down + 1, columns] with one axis.
    """
    batches, across, down, columns, _ = tiles.shape
    sums = np.zeros((batches, across, down + 1, columns), "<i4")
    sums[:, :, 1:] = tiles.sum(-1, dtype=np.int32).cumsum(2, dtype=np.int32)
    return sums.reshape(-1)


def chunk_order(row_bytes: int) -> tuple[int, int]:
    """How the chunks of rows are exchanged: (rows, chunks).

    So many rows in the same way, each of so many chunks; chunk c of row r is at c ^ (r / rows) % chunks.
    """
    return SWIZZLED_BYTES // row_bytes, row_bytes // CHUNK_BYTES


def swizzled(tiles: np.ndarray) -> np.ndarray:
    """Tiles of rows along their last axis, of at most 128 bytes, with the chunks of each row exchanged."""
    *_, rows, depth = tiles.shape
    together, count = chunk_order(depth * tiles.itemsize)
    chunks = tiles.reshape(*tiles.shape[:-1], count, -1)
    order = np.arange(count)[None, :] ^ (np.arange(rows) // together % count)[:, None]
    order = order.reshape((1,) * (tiles.ndim - 2) + (rows, count, 1))
    return np.take_along_axis(chunks, order, axis=-2).reshape(tiles.shape)


def rounded_to_tf32(values: np.ndarray) -> np.ndarray:
    """float32 values with 10 bits of mantissa, rounded to nearest, ties away from zero; infinities and NaN stay."""
    bits = values.view(np.uint32)
    rounded = ((bits + TF32_HALF) & TF32_MASK).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)
