"""Turns on a GPU: the tile that goes through shared memory."""

from __future__ import annotations

from math import prod

from compiler.ir.machine import Workload
from compiler.ir.normal_form import Slots
from compiler.ir.tile import Level, Tile
from compiler.ir.turn import Turn, as_turn
from compiler.targets.cuda import CudaTarget
from compiler.tile.algorithms.cuda.model import moved_ns, seconds, share
from compiler.tile.model import Proposal

SIDES = (16, 32, 64, 128)
MOST_POINTS, LEAST_POINTS = 4096, 256
LEAST_RUN = 16
"""Elements that lie side by side where a turn pays: with fewer, the caches put accesses together as well."""
SHARED_BYTES = 40 * 1024
SECTOR_BYTES = 32
"""What memory moves at least."""


def cuda_transpose_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Tiles of every shape that fits; empty for a kernel that is no turn, or of too short rows."""
    turn = as_turn(workload)
    if (
        turn is None
        or turn.reads.extent < LEAST_RUN
        or turn.writes.extent < 2
        or turn.writes.extent * turn.reads.extent < LEAST_POINTS
    ):
        return []
    slots = Slots(workload)
    octets = sum(slots.buffers[load.slot].dtype.bytes for load in turn.turned)
    return sorted(
        (
            _proposal(turn, workload, reads, writes, target)
            for writes in sorted({min(turn.writes.extent, side) for side in SIDES})
            for reads in SIDES
            if LEAST_POINTS <= reads * writes <= MOST_POINTS and writes * (reads + 4) * octets <= SHARED_BYTES
        ),
        key=lambda proposal: proposal.seconds,
    )


def _proposal(turn: Turn, workload: Workload, reads: int, writes: int, target: CudaTarget) -> Proposal:
    """Bytes in whole sectors, by as many blocks as there are; a tile that hangs over the tensors' ends counts as a whole one."""
    bands = (-(-turn.reads.extent // reads), -(-turn.writes.extent // writes))
    blocks = prod((*bands, *(axis.extent for axis in turn.outer)))
    over = bands[0] * reads * bands[1] * writes / (turn.reads.extent * turn.writes.extent)
    moved = sum(buffer.type.elements * buffer.dtype.bytes for buffer in (*workload.inputs, *workload.outputs))
    narrowest = min(buffer.dtype.bytes for buffer in (*workload.inputs, *workload.outputs))
    run = reads if turn.writes.extent <= writes else min(reads, writes)
    waste = max(1.0, SECTOR_BYTES / (narrowest * run))
    levels = (Level("block", (("reads", reads), ("writes", writes))),)
    found = seconds(moved_ns(moved * over * waste, blocks, target), target)
    return Proposal(Tile("transpose", levels), found, share=share(blocks, target))
