"""Columns of a matrix in blocks of few bits (`compiler.encodings.quantised`): what has them, and how CPUs read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compiler.encodings.quantised import Quantised, grid_of
from compiler.forms.contraction import Contraction, packing_of
from compiler.ir.buffers import row_major
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

LARGEST_CHUNK = 256
"""Of k: sums of so many numbers of 8 bits times bytes stay within 32 bits, also when they are shifted by 8."""
WORD = 4
"""Bytes that one instruction multiplies and adds in a lane."""
ROUNDED = 16
"""Chunks have a multiple of so many places, which are whole words at every number of bits, and whole vectors."""


def quantised_along_k(view: Contraction, workload: Workload, panel: int) -> Iterator[tuple[int, Panels, Quantised]]:
    """The encodings of a constant B whose blocks lie along k, each with B's input position and its panels.

    None where B is several matrices, or where k is no dimension of the constant.
    """
    found = packing_of(view, workload, panel)
    if found is None or len(found[1].source) != 2 or len(found[1].starts) != 1:
        return
    position, panels = found
    dims = workload.kernel.inputs[position].type.dims
    (depth, stride), _ = panels.source
    for one in workload.encodings[position]:
        if not isinstance(one, Quantised) or dims[one.axis] != depth or row_major(dims)[one.axis] != stride:
            continue
        if one.block % ROUNDED == 0 or one.block == depth:
            yield position, panels, one


def in_codes(
    some: np.ndarray, bits: int, block: int, *, centred: bool, scale: int = 32
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float32[depth, columns] as float32(scale * (code - zero)): codes, scales of so many bits, and zero points.

    int16[blocks, columns, block], float32[blocks, columns], int16[blocks, columns]; past the depth there are numbers 0.
    Raises ValueError where a block's values are on no grid of so many bits, or not centred where they are said to be.
    """
    whole = np.pad(some, ((0, -len(some) % block), (0, 0)))
    blocks = whole.reshape(-1, block, some.shape[1]).transpose(0, 2, 1)
    grid = grid_of(np.ascontiguousarray(blocks).reshape(-1, block), bits, scale)
    if grid is None:
        raise ValueError(f"values that are on no grid of {bits} bits in blocks of {block} with scales of {scale} bits")
    middle = np.full(len(grid.numbers), 1 << (bits - 1), np.int16)
    zeros = middle if centred else -grid.numbers.min(1, initial=0)
    codes = grid.numbers + zeros[:, None]
    if codes.min() < 0 or codes.max() >= 1 << bits:
        raise ValueError(f"numbers that are not centred in {bits} bits")
    return codes.reshape(blocks.shape), grid.scales.reshape(blocks.shape[:2]), zeros.reshape(blocks.shape[:2])


@dataclass(frozen=True)
class QuantisedPanels:
    """B[k, n] as codes of few bits, with a scale and perhaps a zero point for each column of a chunk of k.

    panels   of `lanes` columns times the vectors that are read side by side
    block    of k: neighbours that share a scale; chunks are no longer, nor than LARGEST_CHUNK
    centred  whether a code is its number and half of all codes; else each block has a zero point of 8 bits
    scale    bits of a scale, a float

    For each panel and chunk follow: codes uint8[chunk * bits / 32][vectors][lanes][4], of which byte i of word w holds,
    from its lowest bits on, the codes at k = w * 32 / bits + i, then + 4, and so on; scales [vectors][lanes];
    zero points uint8[vectors][lanes]. Past the depth and the columns there are numbers 0.
    """

    panels: Panels
    lanes: int
    bits: int
    block: int
    centred: bool
    scale: int = 32
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
        return self.code_bytes + self.panels.panel * (self.scale // 8 + (not self.centred))

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
        columns = self.panels.panel
        filled = np.pad(some, ((0, 0), (0, columns - some.shape[1])))
        codes, scales, zeros = in_codes(filled, self.bits, self.block, centred=self.centred, scale=self.scale)
        each = -(-self.block // self.taken)

        def by_chunk(values: np.ndarray) -> np.ndarray:
            """Those of blocks for each of their chunks."""
            return np.repeat(values, each, axis=0)[: self.chunks]

        tail = self._by_chunk(codes.reshape(-1, self.block), zeros.reshape(-1), columns)[: self.chunks]
        parts = [tail, np.ascontiguousarray(by_chunk(scales), f"<f{self.scale // 8}").view(np.uint8)]
        if not self.centred:
            parts.append(by_chunk(zeros).astype(np.uint8))
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
