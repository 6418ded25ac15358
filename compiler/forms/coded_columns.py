"""Columns of a matrix as indices into codebooks (`compiler.encodings.codebook`), as kernels of CPUs read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.encodings.codebook import bits_of, values_of
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

TABLE = 16
"""Values of a table of up to 4 bits in memory, in which shorter codebooks are repeated: higher bits do not matter."""


@dataclass(frozen=True)
class CodedColumns:
    """B[k, n] as indices, each column along k, behind its table or, where one table serves all, behind that.

    panels  of as many columns as a vector has lanes
    bits    of an index

    A table of up to 4 bits is float32[TABLE]. A column follows as uint32[words][lanes], of which word w of lane l holds
    from its lowest bits on the indices at k = w * chunk + l, then + lanes, and so on. Of 8 bits a table is
    uint8[4][256], byte by byte of the values, and each chunk of k has 64 indices, that of 16 * q + 4 * p + e at byte
    16 * p + 4 * q + e: bytes of four vectors that are interleaved give the values in order. What lies past the depth
    and the columns is index 0.
    """

    panels: Panels
    bits: int
    own: bool
    dtype: DType = DType.U8

    @property
    def chunk(self) -> int:
        """Places of k whose indices fill a vector."""
        return self.panels.panel * 32 // self.bits

    @property
    def depth(self) -> int:
        """Of k in whole chunks."""
        return -(-self.panels.depth // self.chunk) * self.chunk

    @property
    def table_bytes(self) -> int:
        """Of one table."""
        return 4 * max(TABLE, 1 << self.bits)

    @property
    def column_bytes(self) -> int:
        """From one column to the next."""
        return self.depth * self.bits // 8 + self.table_bytes * self.own

    @property
    def first(self) -> int:
        """Bytes before the first column."""
        return 0 if self.own else self.table_bytes

    @property
    def elements(self) -> int:
        """Bytes of the packed constant."""
        return self.first + -(-self.panels.columns // self.panels.panel) * self.panels.panel * self.column_bytes

    def pack(self, constant: np.ndarray) -> np.ndarray:
        """Tables and indices as uint8[elements].

        Raises ValueError where there are more values than indices tell apart.
        """
        dense = self.panels.pack(constant)[0].transpose(0, 2, 1).reshape(-1, self.panels.depth)
        bits = bits_of(dense[: self.panels.columns])
        indices = np.zeros((len(dense), self.depth), np.uint8)
        if not self.own:
            table, indices[: len(bits), : self.panels.depth] = self._looked_up(bits)
            return np.concatenate([table, self._packed(indices).reshape(-1)])
        tables = np.zeros((len(dense), self.table_bytes), np.uint8)
        for column, line in enumerate(bits):
            tables[column], indices[column, : self.panels.depth] = self._looked_up(line)
        return np.concatenate([tables, self._packed(indices)], axis=1).reshape(-1)

    def _looked_up(self, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The table of an array's values as bytes, and the places in it."""
        values = values_of(bits.view(np.float32), 1 << self.bits)
        if values is None:
            raise ValueError(f"more values than indices of {self.bits} bits tell apart")
        book = np.zeros(1 << self.bits, "<u4")
        book[: len(values)] = values
        if self.bits == 8:
            table = np.ascontiguousarray(book.view(np.uint8).reshape(-1, 4).T)
        else:
            table = np.resize(book, TABLE).view(np.uint8)
        return table.reshape(-1), np.searchsorted(values, bits)

    def _packed(self, indices: np.ndarray) -> np.ndarray:
        """uint8[columns, depth * bits / 8] of uint8[columns, depth]."""
        columns = len(indices)
        if self.bits == 8:
            return indices.reshape(columns, -1, 4, 4, 4).transpose(0, 1, 3, 2, 4).reshape(columns, -1)
        places = indices.reshape(columns, -1, 32 // self.bits, self.panels.panel).astype("<u4")
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32)[:, None]
        words = np.bitwise_or.reduce(places << shifts, axis=2)
        return np.asarray(words.astype("<u4").view(np.uint8).reshape(columns, -1))
