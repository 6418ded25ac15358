"""Proposal: a legal tile with what the model thinks of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from compiler.ir.kernel import Kernel
from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Proposal:
    """A legal tile and its modelled seconds on one lane.

    `error` is what an algorithm that reassociates products and sums (Winograd) is expected to lose: its largest error
    relative to the largest value. It is 0 for all whose rounding errors are those of plain sums.

    `row_blocks` says into how many blocks of an image's rows tasks are cut before anything else; 1 where they are not,
    or something stands around the rows.

    `share` is the part of a device of many processors that the tile keeps at work; 1 on a lane, and for plain loops,
    beside which there is no other tile.
    """

    tile: Tile
    seconds: float
    error: float = 0.0
    row_blocks: int = 1
    share: float = 1.0


def in_registers(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """The scopes of a tile that keeps every temporary in registers."""
    return tuple((temp.name, "register") for temp in kernel.temps)


def without_dense(proposed: Sequence[Proposal], of_codes: Collection[str], worth: float) -> list[Proposal]:
    """Proposals without those that make a constant dense which others read as codes.

    Algorithms `of_codes` read them; what is dense stays where its seconds are below `worth` of those of the best that
    is exact.
    """
    as_codes = [one.seconds for one in proposed if one.tile.algorithm in of_codes and not one.error]
    most = worth * min(as_codes, default=math.inf)
    return [one for one in proposed if one.tile.algorithm in of_codes or one.seconds < most]
