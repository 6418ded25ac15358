"""Tiles for attention: the register tiles of both products, and the block of queries whose scores stay in a cache."""

from __future__ import annotations

from compiler.ir.attention import Attention, as_attention
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.blocking import even_part, parts
from compiler.tile.model import CALL_NS, Proposal

QUERIES = 28
"""Of a block: they reuse what they read of the keys and values often enough to hide where it lies."""
KEYS = 1024
"""Of a block: more have their softmax taken online."""
TASKS_PER_LANE = 4
MAX_VECTORS = 4
PACK_NS = 0.05
"""One element of the keys or values packed."""
EXP_NS = 3.0
"""One vector of scores through the maps, the largest value and the exponential."""


def attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of the scores' panels, cheapest by the model first; empty for a kernel that is no attention."""
    view = as_attention(workload.kernel)
    if view is None:
        return []
    proposals = []
    for vectors in range(1, MAX_VECTORS + 1):
        if vectors > 1 and (vectors - 1) * target.vector_floats >= view.keys.extent:
            break
        proposals.append(_proposal(view, vectors, target, lanes))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _most_rows(vectors: int, target: CpuTarget) -> int:
    """Rows of a register tile of so many vectors: sums and a row of B fill the registers; elements of A are broadcast from memory."""
    return max(target.vector_registers // vectors - 1, 1)


def _proposal(view: Attention, vectors: int, target: CpuTarget, lanes: int) -> Proposal:
    panel, floats = vectors * target.vector_floats, target.vector_floats
    tasks = 1 if view.batches % lanes == 0 or view.batches >= TASKS_PER_LANE * lanes else lanes
    task = parts(view.queries, tasks)
    most = _most_rows(vectors, target)
    block = even_part(task, max(QUERIES // most, 1) * most)
    rows = even_part(block, most)
    keys = view.keys.extent
    if keys > KEYS:
        keys = parts(even_part(keys, KEYS), panel) * panel
    wide = _column_vectors(view, floats)
    mixed = even_part(block, _most_rows(wide, target))
    tile = Tile(
        "attention",
        (
            Level("lane", (("m", task),)),
            Level("block", (("m", block), ("n", keys))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("m", mixed), ("n", wide * floats))),
        ),
    )
    return Proposal(tile, _seconds(view, (rows, vectors), (mixed, wide), target))


def _column_vectors(view: Attention, floats: int) -> int:
    """Vectors of a panel of values: the width that pads least, the widest of those."""
    needed = parts(view.columns.extent, floats)
    return min(range(1, MAX_VECTORS + 1), key=lambda vectors: (parts(needed, vectors) * vectors, -vectors))


def _seconds(view: Attention, scores: tuple[int, int], mixed: tuple[int, int], target: CpuTarget) -> float:
    """Both products under register tiles of (rows, vectors), bound by arithmetic or loads, the exponentials, and packing."""
    floats = target.vector_floats
    loads_per_ns = target.rates.l1_per_ns / (4 * floats)

    def product(shape: tuple[int, int], columns: int, depth: int) -> float:
        rows, vectors = shape
        panels = parts(parts(columns, floats), vectors)
        step = max(rows * vectors / target.rates.fma_per_ns, (rows + vectors) / loads_per_ns)
        return parts(view.queries, rows) * panels * (depth * step + rows * vectors)

    keys, columns = view.keys.extent, view.columns.extent
    both = product(scores, keys, view.deep) + product(mixed, columns, keys)
    powers = view.queries * parts(keys, floats) * EXP_NS
    packed = keys * (view.deep + columns) * PACK_NS
    return 1e-9 * (CALL_NS + view.batches * (both + powers + packed))
