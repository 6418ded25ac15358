"""Tiles that cut an image's rows into a block for each lane.

Lanes that share kernels so mostly read what they wrote themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from compiler.tuning.proposal import Proposal

MOST = 2
"""Proposed of a kernel beside what is proposed anyway."""
PER_LANE = 2
"""Blocks of rows for each lane, where a tile's own blocks are larger.

Smaller blocks distribute an odd number of rows more evenly; both are proposed.
"""


def with_row_cuts(options: Sequence[Proposal], cuts: Iterable[tuple[float, Proposal]], lanes: int) -> list[Proposal]:
    """Options, and a few of `cuts`, which have rows for each lane; cheapest first.

    `cuts` are pairs: what the slowest lane takes by the model, and the proposal.
    """
    known = {option.tile for option in options}
    able = {cut.tile: (slowest, cut) for slowest, cut in cuts if cut.row_blocks >= lanes > 1 and cut.tile not in known}
    more = [cut for _, cut in sorted(able.values(), key=lambda one: one[0])[:MOST]]
    return sorted([*options, *more], key=lambda proposal: proposal.seconds)


def sizes(total: int, part: int) -> list[int]:
    """How large the parts are into which a total is cut; the last one is what is left."""
    return [min(part, total - at) for at in range(0, total, part)]


def busiest(rows: Sequence[int], columns: Sequence[int], lanes: int) -> float:
    """The part of all work that the lane with most has.

    Tasks are blocks of rows against blocks of columns of these sizes. They are counted row by row and distributed by
    number.
    """
    tasks = [tall * wide for tall in rows for wide in columns]
    ends = [len(tasks) * lane // lanes for lane in range(lanes + 1)]
    return max(sum(tasks[first:last]) for first, last in pairwise(ends)) / sum(tasks)
