"""Register tiles for matrix products: as many accumulators as the vector file holds, blocks that fit the caches."""

from __future__ import annotations

from compiler.ir.contraction import Contraction, as_contraction, direct_access, packing_of
from compiler.ir.machine import Workload
from compiler.ir.normal_form import Slots
from compiler.ir.tile import Level, Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.model import CALL_NS, FMA_PER_NS, LOAD_PER_NS, MEMORY_BYTES_PER_NS, Proposal

MAX_VECTORS = 4
TASKS_PER_LANE = 4
"""Into how many tasks per lane the rows may be cut."""
PACK_NS = 0.12
"""One element of A gathered into packed rows."""


def contraction_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no matrix product."""
    view = as_contraction(workload)
    if view is None:
        return []
    proposals = []
    for vectors in range(1, MAX_VECTORS + 1):
        panel = vectors * target.vector_floats
        if vectors > 1 and panel - view.columns >= target.vector_floats:
            break
        most = max(
            (target.vector_registers - vectors) // vectors if vectors < 4 else target.vector_registers // vectors - 1, 1
        )
        rows = _even_part(view.rows, most)
        proposals.append(_proposal(workload, view, rows, panel, target, lanes))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _even_part(total: int, most: int) -> int:
    """The part that splits `total` into as few parts as `most` allows, as evenly as possible."""
    return -(-total // -(-total // most))


def _proposal(workload: Workload, view: Contraction, rows: int, panel: int, target: CpuTarget, lanes: int) -> Proposal:
    direct = direct_access(view, Slots(workload)) is not None
    block_m, block_n = _block(view, rows, panel, direct, target, lanes)
    tile = Tile(
        "contraction",
        (
            Level("block", (("m", block_m), ("n", block_n))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("n", target.vector_floats),)),
        ),
        tuple((temp.name, "register") for temp in view.kernel.temps),
    )
    return Proposal(tile, _seconds(workload, view, rows, panel, block_n, direct, target))


def _block(view: Contraction, rows: int, panel: int, direct: bool, target: CpuTarget, lanes: int) -> tuple[int, int]:
    """Rows and columns of a task: the split after which the busiest lane has least to compute, to pack and to stream.

    Rows of a task stay in half the second-level cache. Where B exceeds it too, lanes that share columns stream all of B each.
    """
    row_tiles, panels = -(-view.rows // rows), -(-view.columns // panel)
    fit = max(target.l2_bytes // 2 // 4 // (view.depth * rows), 1)
    most = -(-row_tiles // min(fit, row_tiles))
    row_parts = {-(-row_tiles // parts) for parts in range(most, max(most, TASKS_PER_LANE * lanes) + 1)}
    column_parts = [parts for parts in (1, lanes, 2 * lanes) if parts <= panels]
    splits = [(tiles, -(-panels // parts)) for tiles in sorted(row_parts, reverse=True) for parts in column_parts]
    tiles, width = min(splits, key=lambda split: _busiest(view, split, rows, panel, direct, target, lanes))
    return tiles * rows, width * panel


def _busiest(
    view: Contraction, split: tuple[int, int], rows: int, panel: int, direct: bool, target: CpuTarget, lanes: int
) -> float:
    """Nanoseconds of the lane with most tasks of `split` (register tiles down, panels across)."""
    tiles, width = split
    row_tiles, panels = -(-view.rows // rows), -(-view.columns // panel)
    row_blocks, column_blocks = -(-row_tiles // tiles), -(-panels // width)
    tasks = -(-view.batches * row_blocks * column_blocks // lanes)
    step = rows * panel / target.vector_floats / FMA_PER_NS * view.depth
    packed = 0.0 if direct else -(-tasks // column_blocks) * tiles * rows * view.depth * PACK_NS
    bytes_of_b = view.depth * min(width * panel, view.columns) * 4
    streams = tasks * bytes_of_b / MEMORY_BYTES_PER_NS if bytes_of_b > target.l2_bytes // 2 else 0.0
    return tasks * tiles * width * step + packed + streams


def _seconds(
    workload: Workload, view: Contraction, rows: int, panel: int, block_n: int, direct: bool, target: CpuTarget
) -> float:
    """Register tiles bound by arithmetic or loads, plus packing, plus what the weights cost to stream."""
    vectors = panel // target.vector_floats
    tiles = view.batches * -(-view.rows // rows) * -(-view.columns // panel)
    step = max(rows * vectors / FMA_PER_NS, (rows + vectors) / LOAD_PER_NS)
    compute = tiles * (view.depth * step + rows * vectors)
    column_blocks = -(-view.columns // block_n)
    packed = 0.0 if direct else view.batches * view.rows * view.depth * PACK_NS * column_blocks
    if packing_of(view, workload, panel) is None:
        packed += view.batches * view.depth * view.columns * PACK_NS
    stream = view.depth * view.columns * 4 / MEMORY_BYTES_PER_NS
    return 1e-9 * (CALL_NS + max(compute, stream) + packed)
