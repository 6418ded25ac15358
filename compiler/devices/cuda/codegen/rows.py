"""How the rows of a block tile lie in shared memory.

Eight rows that are read at once at the same place are in different banks.

Padded     `row_bytes` and 16 more from one row to the next: what ldmatrix, and lanes, read
Swizzled   rows of 64 or 128 bytes side by side, the 16-byte chunks of each exchanged: what wgmma reads through its
           descriptors, and what constants are packed as (`compiler.devices.cuda.codegen.panels`). "Shared Memory Matrix
           Layout" of the PTX ISA, swizzling modes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compiler.devices.cuda.codegen.panels import CHUNK_BYTES, chunk_order

PAD_BYTES = 16
"""Behind each padded row."""
ATOM_ROWS = 8
"""Rows after which the swizzle repeats."""


class Rows(Protocol):
    """Rows of `row_bytes` bytes."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row without padding."""
        ...

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        ...

    def place(self, row: str, byte: str) -> str:
        """C for the offset of a byte of a row.

        What lies within 16 aligned bytes of a row stays side by side. Operands are terms that * may follow.
        """
        ...


@dataclass(frozen=True)
class Padded:
    """Rows with PAD_BYTES behind each."""

    row_bytes: int

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next, padding included."""
        return self.row_bytes + PAD_BYTES

    def place(self, row: str, byte: str) -> str:
        """The offset in bytes, as an expression, of a byte of a row."""
        return f"{row} * {self.pitch} + {byte}"


@dataclass(frozen=True)
class Swizzled:
    """A tile that is aligned to 8 rows, the chunks of each exchanged.

    Chunk c of row r is at chunk c ^ r % 8 of rows of 128 bytes, c ^ r / 2 % 4 of 64.
    """

    row_bytes: int

    def __post_init__(self) -> None:
        assert self.row_bytes in (64, 128), "wgmma knows no other swizzles of rows that hold two steps"

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next: there is no padding."""
        return self.row_bytes

    @property
    def mode(self) -> int:
        """As `tw_wgmma_descriptor` takes it."""
        return {128: 1, 64: 2}[self.row_bytes]

    @property
    def atom_bytes(self) -> int:
        """Bytes of the rows after which the pattern repeats."""
        return ATOM_ROWS * self.row_bytes

    def place(self, row: str, byte: str) -> str:
        """The offset in bytes, as an expression, of a byte of a row, whose chunks are exchanged by its number."""
        together, chunks = chunk_order(self.row_bytes)
        exchanged = f"{row}{f' / {together}' if together > 1 else ''} % {chunks}"
        return f"{row} * {self.row_bytes} + ({byte} ^ {exchanged} * {CHUNK_BYTES})"
