"""Legal tiles of windows channel by channel on a GPU.

How many outputs and channels a thread has, and who shares a long reduction.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as points
from math import prod

from compiler.devices.cuda.codegen.lane_columns import AHEAD, AHEAD_BYTES
from compiler.devices.cuda.model import (
    LARGEST_SPAN,
    MEETING_NS,
    STALL,
    TRIP_NS,
    moved_ns,
    seconds,
    share,
    waves,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.channelwise import ChannelWindow, Side, as_channel_window
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

CHANNELS = (8, 4, 2, 1)
"""Of a thread: at most as many as 16 bytes hold of the shortest operand."""
ROWS = (1, 2, 4)
COLUMNS = (1, 2, 3, 4, 7)
THREADS = (64, 128, 256)
MOST_TOTALS = 64
"""Sums of a thread: with a row of weights and what is on its way they stay in registers."""
MOST_STEPS = 3200
"""Multiplications of a thread, each of them written out: bounds the code and the time it takes to compile."""
LARGEST_GROUP = 8
"""Channels of a group that one thread takes as a whole; tensor cores take larger ones."""

SPLIT_DEPTH = 16
"""Positions from which threads share out a reduction."""
SPLIT_THREADS = (128, 256, 512)
SPLIT_STRIPS = (1, 2, 4, 8, 16, 32)
"""Of a block."""
SPLIT_BLOCKS = (1, 2, 4, 8, 16, 32, 64)

PORT_BYTES = 128
"""Of the first-level cache, in a cycle."""
ACCESS = 3
"""Instructions of an access to memory: its condition, its place, itself."""
OUTPUT = 4
"""Instructions of a result's maps and its conversion."""
LEAST_BYTES = 4
"""What a lane's access takes of it, however short."""
SET_UP = 80
"""Instructions of a thread beside its steps."""
REGISTERS = 40
"""Of a thread beside sums, weights and what is on its way."""


def cuda_window_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """Legal strips, cheapest by the model first; empty for a kernel that is no window channel by channel."""
    view = as_channel_window(workload)
    if view is None or view.group > LARGEST_GROUP or not all(slot.type.elements for slot in workload.kernel.outputs):
        return []
    if max(buffer.span for buffer in (*workload.inputs, *workload.outputs)) >= LARGEST_SPAN:
        return []
    width, moved = _bytes(view, workload)[0], _moved(view, workload)
    proposals = [
        Proposal(
            _tile(view, rows, columns, channels, threads),
            _seconds(view, width, moved, rows, columns, channels, threads, target),
            share=share(_blocks(view, rows, columns, channels, threads), target),
        )
        for channels in _channels(view, workload)
        for rows, columns in _outputs(view, channels)
        for threads in THREADS
    ]
    if view.depth >= SPLIT_DEPTH and view.taps == view.group == 1:
        proposals += _split_tiles(view, workload, target)
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _channels(view: ChannelWindow, workload: Workload) -> list[int]:
    """Channels per thread: whole groups, all of them side by side."""
    most = max(16 // min(_bytes(view, workload)), view.group)
    legal = [count for count in CHANNELS if count <= most and view.channel.extent % count == 0]
    return [count for count in legal if count % view.group == 0] or [view.group]


def _bytes(view: ChannelWindow, workload: Workload) -> list[int]:
    """Bytes of an element of what is reduced and of the results."""
    slots = {slot.name: buffer for slot, buffer in zip(workload.kernel.inputs, workload.inputs, strict=True)}
    loads = [slots[load.slot] for load in view.value.loads if load.slot in slots]
    return [buffer.dtype.bytes for buffer in (*loads, *workload.outputs)]


def _outputs(view: ChannelWindow, channels: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of a strip."""
    for rows, columns in points(_sizes(view.rows, ROWS), _sizes(view.columns, COLUMNS)):
        outputs = rows * columns
        few = outputs * channels <= MOST_TOTALS and outputs * channels * view.taps * view.group <= MOST_STEPS
        if outputs == 1 or few:
            yield rows, columns


def _sizes(side: Side, sizes: tuple[int, ...]) -> list[int]:
    """Outputs along a side.

    More than one only where windows overlap or weights are used again, with little waste at the end.
    """
    extent = side.output.extent
    return [size for size in sizes if size == 1 or (size <= extent and -(-extent // size) * size <= 1.15 * extent)]


def _tile(view: ChannelWindow, rows: int, columns: int, channels: int, threads: int) -> Tile:
    return Tile(
        "window",
        (
            Level("block", (("threads", threads),)),
            Level("thread", (("rows", rows), ("columns", columns), ("channels", channels))),
        ),
        in_registers(view.kernel),
    )


def _moved(view: ChannelWindow, workload: Workload) -> int:
    """Bytes that are read or written once."""
    return sum(buffer.bytes for buffer in (*workload.inputs, *workload.outputs))


def _blocks(view: ChannelWindow, rows: int, columns: int, channels: int, threads: int) -> int:
    strips = prod(axis.extent for axis in view.outer) * -(-view.channel.extent // channels)
    strips *= -(-view.rows.output.extent // rows) * -(-view.columns.output.extent // columns)
    return -(-strips // threads)


def _seconds(
    view: ChannelWindow,
    width: int,
    moved: int,
    rows: int,
    columns: int,
    channels: int,
    threads: int,
    target: CudaTarget,
) -> float:
    """The slowest of both levels of cache and the instructions of the busiest multiprocessor, and trips to memory.

    An element has `width` bytes; `moved` bytes are read or written once.
    """
    blocks = _blocks(view, rows, columns, channels, threads)
    lines, across = len(view.rows.readers(rows)), len(view.columns.readers(columns))
    outputs = rows * columns
    positions = lines * across * view.depth
    weights = view.taps * view.depth * view.group if view.weight is not None else 0
    if rows > 1 and view.columns.taps * view.rows.taps > 9:
        weights *= rows
    steps = outputs * view.taps * view.depth * view.group * channels
    accesses = max(channels * width // 16, 1)
    fetched = positions + weights
    instructions = SET_UP + steps + fetched * (channels + ACCESS * accesses) + outputs * (OUTPUT * channels + ACCESS)
    warps = -(-blocks // target.multiprocessors) * threads / WARP
    issue = max(warps / (target.fma_per_clock / WARP), STALL) * instructions / target.clock_ghz
    near = warps * WARP * fetched * max(channels * width, LEAST_BYTES) / PORT_BYTES / target.clock_ghz
    row_bytes = across * channels * width
    trips = -(-lines * row_bytes // max(AHEAD_BYTES, row_bytes)) * -(-view.depth // (AHEAD if view.taps == 1 else 1))
    registers = REGISTERS + outputs * channels + min(lines * row_bytes, AHEAD_BYTES) // 4
    registers += (view.taps if view.taps <= 9 else view.columns.taps) * channels if view.weight is not None else 0
    rounds = waves(blocks, target.blocks_at_once(threads, min(registers, 255), 0), target)
    waiting = TRIP_NS * (rounds * trips - 1)
    return seconds(max(moved_ns(moved, blocks, target), near, issue) + waiting, target)


def _split_tiles(view: ChannelWindow, workload: Workload, target: CudaTarget) -> Iterator[Proposal]:
    """Threads of a block, and blocks, that share out each strip's reduction."""
    for channels in _channels(view, workload):
        vectors = prod(axis.extent for axis in (*view.outer, view.rows.output, view.columns.output)) * (
            view.channel.extent // channels
        )
        for threads, strips, blocks in points(SPLIT_THREADS, SPLIT_STRIPS, SPLIT_BLOCKS):
            parts = threads // strips
            groups = -(-vectors // strips)
            if parts * blocks > view.depth or (strips > 1 and strips >= 2 * vectors) or groups * blocks > 4096:
                continue
            tile = Tile(
                "window",
                (
                    *([Level("grid", (("parts", blocks),))] if blocks > 1 else []),
                    Level("block", (("parts", parts), ("threads", threads))),
                    Level("thread", (("rows", 1), ("columns", 1), ("channels", channels))),
                ),
                in_registers(view.kernel),
            )
            found = _split_seconds(view, workload, groups, parts, blocks, channels, strips, target)
            yield Proposal(tile, found, share=share(groups * blocks, target))


def _split_seconds(
    view: ChannelWindow,
    workload: Workload,
    groups: int,
    parts: int,
    blocks: int,
    channels: int,
    strips: int,
    target: CudaTarget,
) -> float:
    """Bytes, trips to memory for each thread's share, and partial results.

    These go through shared memory and, between blocks, through the second-level cache.
    """
    width = _bytes(view, workload)[0]
    stretch = strips * channels * width  # bytes side by side; the memory is read by sectors of 32
    moved = _moved(view, workload) * max(32 / stretch, 1.0)
    own = -(-view.depth // (parts * blocks))
    trips = -(-own // AHEAD)
    warps = -(-groups * blocks // target.multiprocessors) * parts * strips / WARP
    issue = max(warps / (target.fma_per_clock / WARP), STALL) * (SET_UP + own * channels * 3) / target.clock_ghz
    combine = (parts if parts < 4 * channels else channels + parts // channels) * 4 / target.clock_ghz
    meeting = MEETING_NS + blocks * 4 / target.clock_ghz if blocks > 1 else 0.0
    work = max(moved_ns(moved, groups * blocks, target), issue)
    return seconds(work + TRIP_NS * (trips - 1) + combine + meeting, target)
