"""How queries, keys and columns are cut into tasks, blocks and register tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.blocking import TASKS_PER_LANE, even_part, parts
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, Heads
from compiler.forms.key_bounds import key_bounds
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

QUERIES = 28
"""Of a block: they reuse what they read of the keys and values often enough to hide where it lies."""
KEYS = 1024
"""Of a block: more have their softmax taken online."""
PLACED_KEYS = 256
"""Of a block where keys end by their places: a block of queries reads no more than it must from its first one on."""
TEXT = 32
"""Keys of a query where data says where they begin and end: as many as the tokens of a usual text."""
TEXT_QUERIES = 16
"""Of a block there: a larger one reads the keys of more texts for all its queries."""
MAX_VECTORS = 4


@dataclass(frozen=True)
class QueryCuts:
    """How `queries` are cut into tasks, these into blocks, and blocks into register tiles."""

    queries: int
    task: int
    block: int

    def counts(self, rows: int) -> list[int]:
        """Rows of the register tiles that blocks, whole or the last of a task, are cut into, `rows` at most."""
        tasks = {self.task, self.queries - (parts(self.queries, self.task) - 1) * self.task}
        sizes = {size for task in tasks for size in (min(self.block, task), task % self.block) if size}
        return sorted({part for size in sizes for part in (min(rows, size), size % rows) if part})

    def write(self, writer: Writer, rows: int, call: Callable[[int], None]) -> None:
        """Register tiles of `rows` queries from `row` on, then what is left of the block's `count`."""
        counts = self.counts(rows)
        writer.line("long row = 0;")
        if rows in counts:
            with writer.block(f"for (; row + {rows} <= count; row += {rows})"):
                call(rows)
        for rest in (count for count in counts if count != rows):
            with writer.block(f"if (count - row == {rest})"):
                call(rest)


def by_width(view: Heads, target: CpuTarget, proposal: Callable[[int], Proposal]) -> list[Proposal]:
    """A proposal for each number of vectors in a panel of scores, none of them beyond the last key; cheapest first."""
    widths = range(1, MAX_VECTORS + 1)
    kept = [vectors for vectors in widths if vectors == 1 or (vectors - 1) * target.vector_floats < view.keys.extent]
    return sorted(map(proposal, kept), key=lambda one: one.seconds)


def keys_read(view: Attention, tile: Tile) -> int:
    """Keys that a block of queries reads, as far as it is known before running."""
    if not key_bounds(view).are_segments:
        return view.keys.extent
    return min(tile.extent("block", "m") + TEXT + tile.extent("register", "n") - 2, view.keys.extent)


def task_of(view: Heads, lanes: int) -> int:
    """The queries of a task: all of a head, unless there are so few heads that lanes share them."""
    tasks = 1 if view.batches % lanes == 0 or view.batches >= TASKS_PER_LANE * lanes else lanes
    return parts(view.queries, tasks)


def column_vectors(view: Heads, floats: int) -> int:
    """Vectors of a panel of values: the width that pads least, the widest of those."""
    needed = parts(view.columns.extent, floats)
    return min(range(1, MAX_VECTORS + 1), key=lambda vectors: (parts(needed, vectors) * vectors, -vectors))


def tile_of(
    name: str,
    view: Heads,
    vectors: int,
    most_rows: Callable[[int], int],
    floats: int,
    lanes: int,
    most: int | None = None,
) -> Tile:
    """The tile of an algorithm whose panels of scores have so many vectors.

    `most_rows` are those of a register tile of so many vectors; `most` the queries of a block where all keys are one.
    """
    panel, wide, keys = vectors * floats, column_vectors(view, floats), view.keys.extent
    bounds = key_bounds(view) if isinstance(view, Attention) else None
    task, rows, queries = task_of(view, lanes), most_rows(vectors), QUERIES
    if bounds and bounds.are_segments:
        rows, queries = min(rows, TEXT_QUERIES), TEXT_QUERIES
    block = even_part(task, max((queries if most is None else most) // rows, 1) * rows)
    most_keys = PLACED_KEYS if bounds and bounds.bounds else KEYS
    if keys > most_keys:
        keys = parts(even_part(keys, most_keys), panel) * panel
    return Tile(
        name,
        (
            Level("lane", (("m", task),)),
            Level("block", (("m", block), *((("n", keys),) if most is None else ()))),
            Level("register", (("m", even_part(block, rows)), ("n", panel))),
            Level("vector", (("m", even_part(block, most_rows(wide))), ("n", wide * floats))),
        ),
    )
