"""A few rows times a constant matrix on a GPU: lanes to a column, columns to a lane, threads to a block, blocks to a column."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as points
from math import log2

from compiler.ir.contraction import Contraction
from compiler.ir.gemv import as_gemv
from compiler.ir.lane_columns import AHEAD, LANE_BYTES
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.targets.cuda import WARP, CudaTarget
from compiler.tile.algorithms.blocking import in_registers
from compiler.tile.algorithms.cuda.model import (
    LARGEST_SPAN,
    MEETING_NS,
    STALL,
    TRIP_NS,
    moved_ns,
    seconds,
    share,
    waves,
)
from compiler.tile.model import Proposal

LANES = (1, 2, 4, 8, 16, 32)
COLUMNS = (1, 2, 4)
"""Of a group of lanes."""
THREADS = (64, 128, 256)
PARTS = (1, 2, 4, 8, 16)
"""Of k, for blocks."""
MOST_WASTE = 1.3
"""Elements that are read, against those of the matrix."""
SHARED_BYTES = 48 * 1024
"""Of a block: what any kernel may have."""
LARGEST_MATRIX = 2**31
"""Elements of a packed matrix."""
ELEMENTS = (DType.F32, DType.F16, DType.BF16)

SHUFFLE_NS = 15.0
"""One step of adding up what lanes have."""


def cuda_gemv_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Legal tiles, cheapest by the model first; empty for a kernel that is no product of a few rows with a constant matrix."""
    view = as_gemv(workload)
    if view is None or not view.depth:
        return []
    if max(buffer.span for buffer in (*workload.inputs, *workload.outputs)) >= LARGEST_SPAN:
        return []
    matrix = _matrix(view, workload)
    if matrix not in ELEMENTS or view.columns * view.depth * 2 > LARGEST_MATRIX:
        return []
    per_lane = LANE_BYTES // matrix.bytes
    return sorted(_proposals(view, matrix, per_lane, target), key=lambda proposal: proposal.seconds)


def _matrix(view: Contraction, workload: Workload) -> DType:
    """The dtype of the matrix in memory."""
    slot = view.b.loads[0].slot
    return workload.inputs[[one.name for one in workload.kernel.inputs].index(slot)].dtype


def _proposals(view: Contraction, matrix: DType, per_lane: int, target: CudaTarget) -> Iterator[Proposal]:
    for lanes, each, threads, parts in points(LANES, COLUMNS, THREADS, PARTS):
        width = lanes * per_lane
        steps = -(-view.depth // (width * parts))
        columns = threads // lanes * each
        padded = -(-view.columns // columns) * columns
        wasted = steps * width * parts / view.depth
        shared = 4 * view.rows * (steps * width + columns) + 16
        if shared > SHARED_BYTES or (lanes > 1 and wasted > MOST_WASTE) or (parts > 1 and steps * each < AHEAD // 2):
            continue
        if columns > max(2 * view.columns, LANES[-1]):
            continue
        groups = padded // columns
        tile = Tile(
            "gemv",
            (
                *([Level("grid", (("k", parts),))] if parts > 1 else []),
                Level("block", (("threads", threads),)),
                Level("warp", (("lanes", lanes),)),
                Level("thread", (("n", each),)),
            ),
            in_registers(view.kernel),
        )
        nbytes = padded * steps * width * parts * matrix.bytes
        blocks = groups * parts
        yield Proposal(tile, _seconds(view, tile, nbytes, blocks, steps, shared, target), share=share(blocks, target))


def _seconds(
    view: Contraction, tile: Tile, nbytes: int, blocks: int, steps: int, shared: int, target: CudaTarget
) -> float:
    """The matrix at the rate that loads on their way allow, the rows at each block, sums across lanes, parts that meet."""
    threads, lanes, each = (tile.extent(*at) for at in (("block", "threads"), ("warp", "lanes"), ("thread", "n")))
    parts = tile.extent("grid", "k", 1)
    ahead = min(max(AHEAD // each, 1), steps)
    rounds = waves(blocks, target.blocks_at_once(threads, 48 + 8 * ahead * each, shared), target)
    trips = rounds * -(-steps // ahead) - 1
    rows = TRIP_NS * (1 + view.rows * view.depth / parts / threads / 16)
    warps = -(-blocks // target.multiprocessors) * threads / WARP
    per_lane = nbytes / LANE_BYTES / (blocks * threads)
    instructions = per_lane * (8 + 8 * view.rows) + 60
    issue = max(warps / (target.fma_per_clock / WARP), STALL) * instructions / target.clock_ghz
    near = moved_ns(nbytes + blocks * 2 * view.rows * view.depth / parts, blocks, target)
    # Lanes that share a column read a stretch of memory; shorter ones than a sector of 32 bytes are read twice.
    near *= 2.0 if lanes == 1 and steps > 1 else 1.0
    meeting = MEETING_NS + parts * 10 if parts > 1 else 0.0
    shuffles = SHUFFLE_NS * (log2(lanes) + (view.rows * each - 1) * log2(lanes) / 4)
    return seconds(max(near, issue) + TRIP_NS * trips + rows + shuffles + meeting, target)
