"""B packed for sparse tensor cores: of each four neighbours along k two elements, and where among the four they are.

Block tile by block tile as `codegen.panels` has them. A tile of `depth` x `columns` is a row of depth / 2 elements for
each column, then the metadata: for 16 columns and 64 of k a word of each lane of a warp. For elements of 16 bits
mma.sp.m16n8k32 takes them from the lanes of its selector 0 for the first 32 of k and of selector 1 for the others, each
16 of k of two columns; for bytes mma.sp.m16n8k64 takes them from all lanes, each 32 of k of one column ("Matrix
Fragments for sparse mma.m16n8k32 with .f16 and .bf16 types" and "mma.m16n8k64 with .u8 / .s8" of the PTX ISA). So no
lane has a word that is not used, and 32 words lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.devices.cuda.codegen.panels import sums_before, swizzled
from compiler.encodings.two_of_four import GROUP, KEPT
from compiler.encodings.zeros import kept
from compiler.ir.packing import Panels, strided
from compiler.ir.tensor import DType

WORD_COLUMNS, WORD_DEPTH = 16, 64
"""Columns and elements of k whose metadata are a word of each lane."""
WORDS_BYTES = 128
"""Of these words."""


@dataclass(frozen=True)
class SparsePanels:
    """B[batch, k, n] as bytes[batch, tiles of n, tiles of k, tile], zero-padded.

    Of each four neighbours along k, counted from 0, at most two are not zero. `matrix` says where B lies in the
    constant (its `panel` means nothing here), `element` what the elements become: a float of 16 bits, or a signed byte.
    `swizzled` exchanges the chunks of each row of elements as wgmma finds them in shared memory.
    """

    matrix: Panels
    columns: int
    depth: int
    element: DType
    swizzled: bool = False
    dtype: DType = DType.U8

    def __post_init__(self) -> None:
        assert self.columns % WORD_COLUMNS == 0 == self.depth % WORD_DEPTH, "metadata are words of whole warps"
        assert self.element.bytes == 2 or self.element is DType.I8, "of two of four elements: 16 bits, or signed bytes"

    @property
    def row_bytes(self) -> int:
        """Of the kept elements of a tile's column."""
        return self.depth // GROUP * KEPT * self.element.bytes

    @property
    def metadata_bytes(self) -> int:
        """Of a tile."""
        return self.columns // WORD_COLUMNS * (self.depth // WORD_DEPTH) * WORDS_BYTES

    @property
    def tile_bytes(self) -> int:
        """Of a tile, its metadata included."""
        return self.columns * self.row_bytes + self.metadata_bytes

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the packed array: batches, tiles of n, tiles of k, bytes of a tile."""
        matrix = self.matrix
        across, down = -(-matrix.columns // self.columns), -(-matrix.depth // self.depth)
        return len(matrix.starts), across, down, self.tile_bytes

    @property
    def elements(self) -> int:
        """Bytes of the packed constant, those that fill the last tiles included."""
        return int(np.prod(self.shape))

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The tiles of the constant, with one axis. Raises ValueError where three of four neighbours are not zero."""
        batches, across, down, _ = self.shape
        plain, matrix = constant.astype(np.float32, copy=False), self.matrix
        packed = np.zeros(self.shape, np.uint8)
        for batch in range(batches):
            whole = np.zeros((across * self.columns, down * self.depth), np.float32)
            dense = strided(plain, matrix.source, matrix.starts[batch]).reshape(matrix.depth, matrix.columns)
            whole[: matrix.columns, : matrix.depth] = dense.T
            tiles = whole.reshape(across, self.columns, down, self.depth).transpose(0, 2, 1, 3)
            packed[batch] = self._packed(tiles)
        return packed.reshape(-1)

    def specimen(self) -> np.ndarray:
        """Tiles that keep two of each four elements, any two."""
        random = np.random.default_rng(self.depth)
        _, across, down, _ = self.shape
        largest = 1 if self.element.is_float else np.iinfo(np.int8).max
        tile = largest * random.uniform(0.1, 1, (1, 1, self.columns, self.depth)).astype(np.float32)
        order = random.random((1, 1, self.columns, self.depth // GROUP, GROUP)).argsort(-1)
        packed = self._packed(np.where((order < KEPT).reshape(tile.shape), tile, 0))
        return np.tile(packed.reshape(-1), len(self.matrix.starts) * across * down)

    def _packed(self, tiles: np.ndarray) -> np.ndarray:
        """uint8[across, down, bytes] of float32[across, down, columns, depth]."""
        groups = tiles.reshape(*tiles.shape[:-1], -1, GROUP)
        mask = kept(groups)
        if (mask.sum(-1) > KEPT).any():
            raise ValueError("more than two of four neighbours along k are not zero")
        places = np.sort(np.argsort(~mask, axis=-1, kind="stable")[..., :KEPT], axis=-1)
        values = np.take_along_axis(groups, places, -1).astype(self.element.numpy)
        values = values.reshape(*tiles.shape[:-1], -1)
        values = swizzled(values) if self.swizzled else values
        octets = [np.ascontiguousarray(part).view(np.uint8) for part in (values, self._metadata(places))]
        return np.concatenate([part.reshape(*tiles.shape[:2], -1) for part in octets], axis=-1)

    def _metadata(self, places: np.ndarray) -> np.ndarray:
        """uint32[across, down, 16 columns, 64 of k, lane / 4, lane % 4] of places [across, down, columns, groups, 2].

        Of the 64 of k a lane has a part: a quarter, of the column lane / 4 and then of the one 8 further, or of bytes
        a half, of one of these, so that neighbouring lanes have the same half.
        """
        first, second = np.moveaxis(places.astype(np.uint32), -1, 0)
        across, down, columns, _ = first.shape
        parts = 2 * self.element.bytes
        shape = (across, down, columns // WORD_COLUMNS, 2, 8, -1, parts, WORD_DEPTH // GROUP // parts)
        upper, row, step, part, group = range(3, 8)
        groups = (first | second << 2).reshape(shape).transpose(0, 1, 2, step, row, part, upper, group)
        lanes = groups.reshape(*groups.shape[:5], 4, 8)
        return np.asarray(np.bitwise_or.reduce(lanes << np.arange(0, 32, 4, dtype=np.uint32), axis=-1).astype("<u4"))


@dataclass(frozen=True)
class SummedSparsePanels(SparsePanels):
    """The same of bytes, and behind all tiles the sums of columns over all of k that comes before a tile.

    int32[batch, tiles of n, tiles of k and 1, columns], as those of `panels.SummedPanels`.
    """

    @property
    def tiles_bytes(self) -> int:
        """Of all tiles: where the sums begin."""
        return super().elements

    @property
    def elements(self) -> int:
        """Bytes of tiles and sums."""
        batches, across, down, _ = self.shape
        return self.tiles_bytes + 4 * batches * across * (down + 1) * self.columns

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """The tiles, then the sums, with one axis. Raises ValueError where three of four neighbours are not zero."""
        return self._with_sums(super().pack(constant))

    def specimen(self) -> np.ndarray:
        """Tiles that keep two of each four elements, any two, and their sums."""
        return self._with_sums(super().specimen())

    def _with_sums(self, tiles: np.ndarray) -> np.ndarray:
        rows = tiles.reshape(self.shape)[..., : self.columns * self.row_bytes].view(np.int8)
        sums = sums_before(rows.reshape(*self.shape[:3], self.columns, self.row_bytes))
        return np.concatenate([tiles, sums.view(np.uint8)])
