"""Tiles for a window and the pointwise product that reads it: register tiles of both, and blocks of rows that stay in a cache between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import prod

from compiler.ir.machine import Workload
from compiler.ir.separable import Halves, as_halves
from compiler.ir.tile import Level, Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.blocking import even_part, most_rows, parts
from compiler.tile.algorithms.contraction import MOST_VECTORS, STRETCH, tile_ns
from compiler.tile.algorithms.window import blocks_of_channels, holds_groups, window_seconds, window_shapes
from compiler.tile.model import CALL_NS, Proposal, read_rate

FEWEST_PIXELS = 4
"""Of a kernel: with fewer, its rows of A are no matrix worth the name."""
WINDOWS = 6
"""Register tiles of the window that are combined with every one of the product."""
TASKS_PER_LANE = 4


def separable_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Combinations of register tiles and blocks, cheapest by the model first; empty for a kernel that is no separable convolution."""
    halves = as_halves(workload)
    if halves is None or halves.view.points < FEWEST_PIXELS:
        return []
    view = halves.window_view
    if view.channel.extent < target.vector_floats // 2 or not holds_groups(view, target):
        return []
    proposals = {}
    for rows in _block_rows(halves, target, lanes):
        shapes = [shape for shape in window_shapes(view, target) if shape[0] <= rows]
        windows = [
            _window_tile(rows // shape[0] * shape[0], channels, shape, target)
            for shape in shapes
            for channels in blocks_of_channels(view, shape[2], target, 1)
        ]
        cost = {tile: 1e9 * _window_seconds(halves, tile, target) for tile in windows}
        for window in islice(sorted(cost, key=lambda tile: cost[tile]), WINDOWS):
            for product, ns in _products(halves, window.extent("block", "rows"), target):
                tile = _joined(window, product, target)
                seconds = 1e-9 * (CALL_NS + cost[window] + ns)
                proposals[tile] = Proposal(tile, seconds, row_blocks=_row_blocks(halves, tile))
    return sorted(proposals.values(), key=lambda proposal: proposal.seconds)


def _row_blocks(halves: Halves, tile: Tile) -> int:
    """Images are cut before their rows."""
    view = halves.window_view
    images = prod(axis.extent for axis in view.outer)
    return parts(view.rows.output.extent, tile.extent("block", "rows")) if images == 1 else 1


def _block_rows(halves: Halves, target: CpuTarget, lanes: int) -> list[int]:
    """Rows of outputs of a task: as many as a part of a cache holds with a panel of weights, and no more than leave every lane its tasks."""
    view = halves.window_view
    down, images = view.rows.output.extent, prod(axis.extent for axis in view.outer)
    row = 4 * view.columns.output.extent * halves.pitch
    most = max(target.l2_bytes // 2 // row, 1)
    shared = max(down * images // (TASKS_PER_LANE * lanes), 1) if lanes > 1 else down
    sizes = {target.l1_bytes // 2 // row, target.l2_bytes // 8 // row, most, 1, 2, 4, even_part(down, shared)}
    return sorted({min(size, most, down) for size in sizes if size > 0})


def _window_tile(block: int, channels: int, shape: tuple[int, int, int], target: CpuTarget) -> Tile:
    rows, columns, vectors = shape
    sizes = (("rows", rows), ("columns", columns), ("channels", vectors * target.vector_floats))
    return Tile("window", (Level("block", (("rows", block), ("channels", channels))), Level("register", sizes)))


def _window_seconds(halves: Halves, tile: Tile, target: CpuTarget) -> float:
    """The window alone, storing where the first-level cache or the second takes it at once."""
    return window_seconds(halves.window_view, replace(halves.window, outputs=()), tile, target)


def _products(halves: Halves, rows: int, target: CpuTarget) -> Iterator[tuple[tuple[int, int, int], float]]:
    """Register tiles of the product over blocks of so many rows of outputs, as (rows, columns, stretch), with what they should take."""
    view, pixels = halves.product_view, rows * halves.window_view.columns.output.extent
    floats, blocks = target.vector_floats, halves.view.points / pixels
    weights = 4 * view.depth * view.columns
    streamed = weights / read_rate(weights + 4 * pixels * halves.pitch, target)
    for vectors in range(1, MOST_VECTORS + 1):
        if vectors > 1 and vectors * floats - view.columns >= floats:
            break
        m = even_part(pixels, most_rows(vectors, target))
        panels = parts(parts(view.columns, floats), vectors)
        for stretch in (0, STRETCH) if view.depth > STRETCH else (0,):
            one = tile_ns(m, vectors, view.depth, vectors * floats, target, stretch > 0)
            yield (m, vectors * floats, stretch), blocks * (pixels / m * panels * one + streamed)


def _joined(window: Tile, product: tuple[int, int, int], target: CpuTarget) -> Tile:
    m, n, stretch = product
    depth = (("k", stretch),) if stretch else ()
    sizes = tuple((axis, window.extent("register", axis)) for axis in ("rows", "columns", "channels"))
    levels = (
        Level("block", (*((axis, window.extent("block", axis)) for axis in ("rows", "channels")), *depth)),
        Level("register", (*sizes, ("m", m), ("n", n))),
        Level("vector", (("channels", target.vector_floats), ("n", target.vector_floats))),
    )
    return Tile("separable", levels)
