"""What a tile should cost: arithmetic against the vector units, bytes against the caches they come from.

Rates are those of one core per nanosecond, stated modestly; only their ratios decide which tiles are worth measuring.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.tile import Tile

FMA_PER_NS = 5.0
"""Vector multiply-adds one core starts per nanosecond."""
LOAD_PER_NS = 6.0
"""Vector loads (or broadcasts) from the first-level cache per nanosecond."""
MEMORY_BYTES_PER_NS = 12.0
"""Bytes streamed from beyond the second-level cache per nanosecond."""
ELEMENT_NS = 0.25
"""One fp32 element through a plain loop with a little arithmetic."""
CALL_NS = 150.0
"""What a kernel costs beside its work."""


@dataclass(frozen=True)
class Proposal:
    """A legal tile and its modelled seconds on one lane."""

    tile: Tile
    seconds: float
