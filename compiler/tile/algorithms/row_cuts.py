"""Tiles that cut an image's rows into a block for each lane: lanes that share kernels so mostly read what they wrote themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.tile.model import Proposal

MOST = 2
"""Proposed of a kernel beside what is proposed anyway."""
PER_LANE = 2
"""Blocks of rows for each lane, where a tile's own blocks are larger."""


def with_row_cuts(options: Sequence[Proposal], cuts: Iterable[Proposal], lanes: int) -> list[Proposal]:
    """Options, and of `cuts` the few which have rows for each lane that the model thinks fastest; cheapest first."""
    known = {option.tile for option in options}
    more = {cut.tile: cut for cut in cuts if cut.row_blocks >= lanes > 1 and cut.tile not in known}
    return _cheapest_first([*options, *_cheapest_first(more.values())[:MOST]])


def _cheapest_first(proposals: Iterable[Proposal]) -> list[Proposal]:
    return sorted(proposals, key=lambda proposal: proposal.seconds)
