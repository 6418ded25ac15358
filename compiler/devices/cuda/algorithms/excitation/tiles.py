"""Legal tiles of squeeze and excitation on a GPU (`compiler.devices.cuda.algorithms.excitation.lowering`).

How many blocks share out channels and positions, and whether they are a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as points

from compiler.devices.cuda.algorithms.excitation.geometry import SharedOut, Shares, as_shared_out
from compiler.devices.cuda.codegen.lane_columns import AHEAD, LANE_BYTES
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.model import (
    LARGEST_SPAN,
    MEETING_NS,
    PORT_BYTES,
    STALL,
    TRIP_NS,
    moved_ns,
    seconds,
    share,
    waves,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

THREADS = (128, 256, 512)
CHANNEL_PARTS = (1, 2, 4, 8)
POSITION_PARTS = (1, 2, 4, 7, 8, 16, 32, 64)
CLUSTERS = (1, 2, 4, 8)
MOST_BLOCKS = 128
"""Of an image."""
MOST_ROUNDS = 256
"""Positions of a thread."""

CLUSTER_NS = 400.0
"""A barrier of a cluster, and sums from the shared memory of its other blocks."""
BARRIER_NS = 25.0
SECTOR_BYTES = 32
"""Memory is read by so many bytes."""
ACCESS = 4
"""Instructions of an access beside those of its elements."""
REGISTERS = 64


def cuda_excitation_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Legal tiles, cheapest by the model first; empty for a kernel of another form."""
    form = as_shared_out(workload)
    if form is None or max(buffer.span for buffer in (*workload.inputs, *workload.outputs)) >= LARGEST_SPAN:
        return []
    proposals = [
        Proposal(
            _tile(shares, threads, cluster=cluster),
            _seconds(form, workload, shares, threads, target, cluster=cluster),
            share=share(form.images * shares.blocks, target),
        )
        for shares, threads, cluster in _legal(form, workload, target)
    ]
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _legal(form: SharedOut, workload: Workload, target: CudaTarget) -> Iterator[tuple[Shares, int, bool]]:
    """Parts and threads: every part has something, a thread has a vector, weights and sums fit."""
    for channels, positions, threads in points(CHANNEL_PARTS, POSITION_PARTS, THREADS):
        shares = Shares(channels, positions)
        if shares.blocks > MOST_BLOCKS or positions > form.positions:
            continue
        if positions > 1 and not form.excitation.is_linear:
            continue
        own = form.channels_of(workload, shares)
        if own * (channels - 1) >= form.excitation.channel.extent:
            continue
        groups = threads // (own // form.count)
        each = -(-form.positions // positions)
        if not groups or each * (positions - 1) >= form.positions or each > groups * MOST_ROUNDS:
            continue
        for cluster in (False, True):
            columns = form.excitation.second.column.extent
            idle = -(-columns // shares.blocks) * (shares.blocks - 1) >= columns
            if cluster and (idle or shares.blocks not in CLUSTERS or not target.has_clusters):
                continue
            if _shared_bytes(form, workload, shares, groups, cluster=cluster) <= target.block_shared_bytes:
                yield shares, threads, cluster


def _shared_bytes(form: SharedOut, workload: Workload, shares: Shares, groups: int, *, cluster: bool) -> int:
    own = form.channels_of(workload, shares)
    first, second = _weights(form, workload, shares, cluster=cluster)
    floats = (groups + 1) * own + first.columns + second.depth
    return _nbytes(first) + (_nbytes(second) if cluster else 0) + 4 * floats + 16


def _weights(form: SharedOut, workload: Workload, shares: Shares, *, cluster: bool) -> tuple[BlockPanels, BlockPanels]:
    blocks = shares.blocks if cluster else 1
    return form.first_weights(workload, shares)[1], form.second_weights(workload, blocks)[1]


def _nbytes(panels: BlockPanels) -> int:
    return panels.columns * panels.depth * panels.dtype.bytes


def _tile(shares: Shares, threads: int, *, cluster: bool) -> Tile:
    parts = (("channels", shares.channels), ("positions", shares.positions))
    return Tile("excitation", (Level("cluster" if cluster else "grid", parts), Level("block", (("threads", threads),))))


def _seconds(
    form: SharedOut, workload: Workload, shares: Shares, threads: int, target: CudaTarget, *, cluster: bool
) -> float:
    """Elements at the rate of the blocks that read them, both products, and the meeting between them."""
    own, count = form.channels_of(workload, shares), form.count
    first, second = _weights(form, workload, shares, cluster=cluster)
    width = Slots(workload).buffers[form.load.slot].dtype.bytes
    blocks = form.images * shares.blocks
    groups, positions = threads // (own // count), -(-form.positions // shares.positions)
    rounds = -(-positions // groups)
    stretch = max(own * width, 1)
    nbytes = blocks * (positions * own * width * max(SECTOR_BYTES / stretch, 1.0) + _nbytes(first))
    shared = _shared_bytes(form, workload, shares, groups, cluster=cluster)
    at_once = target.blocks_at_once(threads, REGISTERS, shared)
    warps = min(-(-blocks // target.multiprocessors), at_once) * threads / WARP
    pace = max(warps / (target.fma_per_clock / WARP), STALL) / target.clock_ghz
    squeezed = max(moved_ns(nbytes, blocks, target), rounds * (2 * count + ACCESS) * pace)
    squeezed += TRIP_NS * (-(-rounds // AHEAD) - 1) + (groups * 2 + 40) / target.clock_ghz + 2 * BARRIER_NS
    products = _product_ns(first, threads, pace) + _product_ns(second, threads, pace) + BARRIER_NS
    meeting = 0.0
    if cluster and shares.blocks > 1:
        meeting = CLUSTER_NS + shares.blocks * 4 / target.clock_ghz
    elif not cluster:
        meeting = TRIP_NS + _nbytes(second) / PORT_BYTES / target.clock_ghz
        meeting += MEETING_NS + TRIP_NS * (-(-shares.blocks // AHEAD) - 1) if shares.blocks > 1 else 0.0
    return seconds(waves(blocks, at_once, target) * squeezed + products + meeting, target)


def _product_ns(panels: BlockPanels, threads: int, pace: float) -> float:
    """A row times a block's weights in shared memory: every vector is read, widened, multiplied; lanes then add up."""
    count = LANE_BYTES // panels.dtype.bytes
    vectors = -(-panels.columns * panels.depth // count // threads)
    return (vectors * (3 * count + ACCESS) + 40) * pace
