"""What a range of a call's tile tasks touches, so that who reads its results need not wait for all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Segment:
    """Bytes [begin, end) of a storage."""

    begin: int
    end: int

    def common(self, other: Segment) -> int:
        """How many bytes they have in common."""
        return max(0, min(self.end, other.end) - max(self.begin, other.begin))


@dataclass(frozen=True)
class Touched:
    """For each operand of a call a segment of its storage that holds all that is read or written.

    Never too little, perhaps too much.
    """

    reads: tuple[Segment, ...]
    writes: tuple[Segment, ...]


class Regions(Protocol):
    """Where the tile tasks of calls work, for one kernel graph on one target."""

    def touched(self, call: int, tile: Tile, first: int, last: int) -> Touched:
        """What tile tasks [first, last) of a call read and write, carried out under a tile."""
        ...
