"""Columns of a matrix in blocks of few bits (`compiler.encodings.quantised`), as kernels of CPUs read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.encodings.quantised import grid_of
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

LARGEST_CHUNK = 256
"""Of k: sums of so many numbers of 8 bits times bytes stay within 32 bits, also when they are shifted by 8."""
WORD = 4
"""Bytes that one instruction multiplies and adds in a lane."""
ROUNDED = 16
"""Chunks have a multiple of so many places, which are whole words at every number of bits, and whole vectors."""


@dataclass(frozen=True)
class QuantisedPanels:
    """B[k, n] as codes of few bits, with a scale and perhaps a zero point for each column of a chunk of k.

    panels   of `lanes` columns times the vectors that are read side by side
    block    of k: neighbours that share a scale; chunks are no longer, nor than LARGEST_CHUNK
    centred  whether a code is its number and half of all codes; else each block has a zero point of 8 bits

    For each panel and chunk follow: codes uint8[chunk * bits / 32][vectors][lanes][4], of which byte i of word w holds,
    from its lowest bits on, the codes at k = w * 32 / bits + i, then + 4, and so on; scales float32[vectors][lanes];
    zero points uint8[vectors][lanes]. Past the depth and the columns there are numbers 0.
    """

    panels: Panels
    lanes: int
    bits: int
    block: int
    centred: bool
    dtype: DType = DType.U8

    @property
    def taken(self) -> int:
        """Places of k that a chunk has."""
        return min(self.block, LARGEST_CHUNK)

    @property
    def chunk(self) -> int:
        """The same with those that fill the last word."""
        return -(-self.taken // ROUNDED) * ROUNDED

    @property
    def chunks(self) -> int:
        """Of a panel."""
        return -(-self.panels.depth // self.taken)

    @property
    def words(self) -> int:
        """Of a column of a chunk."""
        return self.chunk * self.bits // 8 // WORD

    @property
    def code_bytes(self) -> int:
        """Of a chunk of a panel."""
        return self.panels.panel * self.words * WORD

    @property
    def chunk_bytes(self) -> int:
        """The same with scales and zero points."""
        return self.code_bytes + self.panels.panel * (DType.F32.bytes + (not self.centred))

    @property
    def panel_bytes(self) -> int:
        """All chunks of a panel."""
        return self.chunks * self.chunk_bytes

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return -(-self.panels.columns // self.panels.panel) * self.panel_bytes

    @property
    def centre(self) -> int:
        """The code of number 0 where numbers are centred."""
        return 1 << (self.bits - 1)

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """Codes, scales and zero points as uint8[elements].

        Raises ValueError where a block's values are on no grid of so many bits.
        """
        panels, packed = self.panels, np.empty((self.elements // self.panel_bytes, self.panel_bytes), np.uint8)
        for one, columns in zip(packed, panels.each(constant, panels.starts[0]), strict=True):
            one[:] = self._packed(columns)
        return packed.reshape(-1)

    def _packed(self, some: np.ndarray) -> np.ndarray:
        """A panel of float32[depth, columns], the last of which may be missing."""
        depth, columns = len(some), self.panels.panel
        whole = np.pad(some, ((0, -depth % self.block), (0, columns - some.shape[1])))
        blocks = whole.reshape(-1, self.block, columns).transpose(0, 2, 1)
        grid = grid_of(np.ascontiguousarray(blocks).reshape(-1, self.block), self.bits)
        if grid is None:
            raise ValueError(f"values that are on no grid of {self.bits} bits in blocks of {self.block}")
        zeros = np.full(len(grid.numbers), self.centre) if self.centred else -grid.numbers.min(1, initial=0)
        codes = grid.numbers + zeros[:, None]
        if codes.min() < 0 or codes.max() >= 1 << self.bits:
            raise ValueError(f"numbers that are not centred in {self.bits} bits")
        each = -(-self.block // self.taken)
        spread = (blocks.shape[0] * each, columns)
        tail = self._by_chunk(codes, zeros, columns)[: self.chunks]
        scales = grid.scales.reshape(-1, 1, columns).repeat(each, 1).reshape(spread)[: self.chunks]
        parts = [tail, np.ascontiguousarray(scales, "<f4").view(np.uint8)]
        if not self.centred:
            parts.append(zeros.reshape(-1, 1, columns).repeat(each, 1).reshape(spread)[: self.chunks].astype(np.uint8))
        return np.concatenate(parts, axis=1).reshape(-1)

    def _by_chunk(self, codes: np.ndarray, zeros: np.ndarray, columns: int) -> np.ndarray:
        """Codes uint8[chunks, code_bytes] of [blocks * columns, block]."""
        short = -self.block % self.taken
        filled = np.pad(codes, ((0, 0), (0, short)))
        if short:
            filled[:, self.block :] = zeros[:, None]
        chunks = filled.reshape(-1, columns, filled.shape[1] // self.taken, self.taken).transpose(0, 2, 1, 3)
        chunks = np.pad(chunks.reshape(-1, columns, self.taken), ((0, 0), (0, 0), (0, self.chunk - self.taken)))
        parts = 8 // self.bits
        apart = chunks.astype(np.uint8).reshape(len(chunks), columns, self.words, parts, WORD)
        packed = np.bitwise_or.reduce(apart << (self.bits * np.arange(parts, dtype=np.uint8))[:, None], axis=3)
        return np.ascontiguousarray(packed.transpose(0, 2, 1, 3)).reshape(len(chunks), -1)
