"""What a search found as menus: the tiles of a kernel that may be the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from compiler.ir.machine import Workload
from compiler.ir.target import Target
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.tuning.frugal import frugal
from compiler.tuning.proposal import Proposal
from compiler.tuning.search import ROWS_WORTH, Contest
from compiler.tuning.shared import divided

MOST_FRUGAL = 3
"""Frugal tiles of a kernel that `choose` is offered."""
CountTiles = Callable[[Workload, Tile], int]
SourceOf = Callable[[Workload, Tile], str]
"""The digest of the code that a kernel has under a tile."""
LegalTiles = Callable[[Workload, int, str], list[Proposal]]
"""The legal tiles of a workload for a plan of so many lanes, in a precision."""
Choose = Callable[[Sequence[tuple[Workload, Sequence[Tile]]]], Sequence[int]]
"""Of each workload of which nothing was measured, the position of the tile to take.

Its tiles come best by the model first.
"""


def no_source(workload: Workload, tile: Tile) -> str:
    """The `SourceOf` of who generates none: records of the present compiler alone count."""
    return ""


def best_by_model(options: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
    """The `Choose` that believes the model."""
    return [0] * len(options)


@dataclass(frozen=True)
class Tiler:
    """What a kind of device answers of tiles.

    It tells which are legal, into how many tile tasks one cuts a kernel, which is taken unmeasured, and of which source
    a kernel is under one. Where there are `resident` tiles, those that resident blocks may carry out, a menu has one
    if one was measured.
    """

    target: Target
    legal_tiles: LegalTiles
    count_tiles: CountTiles
    choose: Choose = best_by_model
    source_of: SourceOf = no_source
    resident: Callable[[Tile], bool] | None = None


def unmeasured(contests: Sequence[Contest], choose: Choose) -> Mapping[str, tuple[tuple[Tile, Cost], ...]]:
    """Of workloads of which nothing is known, the one tile that is taken, with the model's seconds."""
    orders = [contest.order() for contest in contests]
    asked = [
        (contest.workload, [contest.options[at].tile for at in order])
        for contest, order in zip(contests, orders, strict=True)
    ]
    taken = [order[at] for order, at in zip(orders, choose(asked), strict=True)]
    return {
        contest.key: ((contest.options[at].tile, Cost(contest.options[at].seconds, "model")),)
        for contest, at in zip(contests, taken, strict=True)
    }


def tried_of(contest: Contest, fresh: set[tuple[str, Tile]]) -> tuple[tuple[Tile, Cost], ...]:
    """What was measured, by time."""
    order = sorted(contest.costs, key=lambda at: (contest.costs[at], at))
    tiles = [contest.options[at].tile for at in order]
    sources = ["measured" if (contest.key, tile) in fresh else "record" for tile in tiles]
    return tuple(
        (tile, Cost(contest.costs[at], source)) for at, tile, source in zip(order, tiles, sources, strict=True)
    )


def frugal_of(
    contests: Sequence[Contest], tried: Mapping[str, Sequence[tuple[Tile, Cost]]], choose: Choose
) -> Mapping[str, tuple[Tile, Cost]]:
    """By workload key a `frugal` tile of those that were measured.

    Where none was, it is the model's one that `choose` takes before the best.
    """
    found: dict[str, tuple[Tile, Cost]] = {}
    asked: list[tuple[Contest, list[int]]] = []
    for contest in contests:
        place = {option.tile: at for at, option in enumerate(contest.options)}
        fast = place[tried[contest.key][0][0]]
        known = contest.costs or {at: option.seconds for at, option in enumerate(contest.options)}
        best = frugal(contest.options, known, fast)[:MOST_FRUGAL]
        if best and contest.costs:
            found[contest.key] = next(one for one in tried[contest.key] if place[one[0]] == best[0])
        elif best:
            asked.append((contest, [*best, fast]))
    offers = [(contest.workload, [contest.options[at].tile for at in order]) for contest, order in asked]
    for (contest, order), taken in zip(asked, choose(offers) if offers else (), strict=True):
        if taken < len(order) - 1:
            option = contest.options[order[taken]]
            found[contest.key] = option.tile, Cost(option.seconds, "model")
    return found


def menu_of(
    contest: Contest,
    tried: Sequence[tuple[Tile, Cost]],
    lanes: int,
    tiler: Tiler,
    beside: tuple[Tile, Cost] | None,
) -> Menu:
    """The tiles that may be the best on one lane or on more.

    None of them, shared evenly, takes as long as one before it in whole tile tasks. Where none has rows for each lane,
    the fastest that has comes after them, if it takes little longer. Last come the one that is best `beside` other
    kernels, and the fastest `resident` one where there is none yet.
    """
    count_tiles, resident = tiler.count_tiles, tiler.resident
    row_blocks = {option.tile: option.row_blocks for option in contest.options}
    variants: list[Variant] = []
    least = math.inf
    for tile, cost in tried:
        if cost.seconds >= lanes * least:
            break
        variants.append(Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile]))
        least = min(least, divided(variants[-1], lanes))
    if lanes > 1 and not any(_cuts_rows(variant, lanes, least) for variant in variants):
        others = (
            Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile])
            for tile, cost in tried[len(variants) :]
            if row_blocks[tile] >= lanes
        )
        cuts = [variant for variant in others if _cuts_rows(variant, lanes, least)]
        variants += sorted(cuts, key=lambda variant: divided(variant, lanes))[:1]
    if beside and beside[0] not in [variant.tile for variant in variants]:
        tile, cost = beside
        variants.append(Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile]))
    if resident and not any(resident(variant.tile) for variant in variants):
        others = (
            Variant(tile, count_tiles(contest.workload, tile), 1, cost, row_blocks[tile])
            for tile, cost in tried
            if resident(tile)
        )
        variants += islice(others, 1)
    return Menu(contest.key, tuple(variants))


def _cuts_rows(variant: Variant, lanes: int, least: float) -> bool:
    """Whether each lane has rows of its own, and takes little longer than `least`."""
    return variant.row_blocks >= lanes and divided(variant, lanes) <= ROWS_WORTH * least
