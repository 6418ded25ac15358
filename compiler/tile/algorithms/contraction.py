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
    """Rows of A per task so that they stay in half the second-level cache, and as many tasks as the lanes need."""
    row_tiles = -(-view.rows // rows)
    fit = max(target.l2_bytes // 2 // 4 // (view.depth * rows), 1)
    blocks = -(-row_tiles // fit)
    if lanes > 1:
        wanted = min(-(-TASKS_PER_LANE * lanes // view.batches), row_tiles)
        blocks = max(blocks, wanted)
        blocks = min(-(-blocks // lanes) * lanes, row_tiles)
    block_m = -(-row_tiles // blocks) * rows
    panels = -(-view.columns // panel)
    tasks = view.batches * -(-view.rows // block_m)
    column_blocks = 1 if tasks >= 2 * lanes else min(-(-2 * lanes // tasks), panels)
    return block_m, -(-panels // column_blocks) * panel


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
