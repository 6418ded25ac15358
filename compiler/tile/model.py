"""What a tile should cost: arithmetic against the vector units, bytes against the caches they come from, at the target's `rates`."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget

CALL_NS = 150.0
"""What a kernel costs beside its work."""


def read_rate(footprint: int, target: CpuTarget) -> float:
    """Bytes per nanosecond at which one core reads, over and over, what takes `footprint` bytes in all: those of the level that holds it."""
    rates = target.rates
    levels = (
        (target.l1_bytes, rates.l1_per_ns),
        (target.l2_bytes, rates.l2_per_ns),
        (target.l3_bytes, rates.l3_per_ns),
    )
    return next((rate for size, rate in levels if footprint <= size), rates.memory_per_ns)


@dataclass(frozen=True)
class Proposal:
    """A legal tile and its modelled seconds on one lane.

    `error` is what an algorithm that reassociates products and sums (Winograd) is expected to lose: its largest error relative to
    the largest value. 0 for all whose rounding errors are those of plain sums. `row_blocks` says into how many blocks of an image's rows tasks
    are cut before anything else; 1 where they are not, or something stands around the rows. `share` is the part of a device of many
    processors that the tile keeps at work; 1 on a lane, and for plain loops, beside which there is no other tile.
    """

    tile: Tile
    seconds: float
    error: float = 0.0
    row_blocks: int = 1
    share: float = 1.0
