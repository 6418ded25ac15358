"""Register tiles for windows channel by channel: a few rows and columns of outputs.

The rows of a block stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.products.row_cuts import PER_LANE, busiest, sizes, with_row_cuts
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import ALIAS_BYTES
from compiler.forms.channelwise import ChannelWindow, Side, as_byte_window
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

ROWS = (1, 2, 3, 4, 7)
COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 14)
VECTORS = (1, 2, 4, 8)
EVEN = 4
"""A size that divides a side counts as large from here on."""
MOST_STEPS = 800
"""Steps of a register tile, each of them written out: bounds the code of a kernel and the time it takes to compile."""
FEWEST_PART = 3
"""Tiles with fewer results than this part of the largest leave the units waiting for one another."""
FEW_CHANNELS = 64
"""Of a narrow task: fewer would leave parts of the lines that are fetched together for later."""
TASKS_PER_LANE = 4
TILE_NS = 4.0
"""What a register tile costs beside its steps: addresses, a loop's end."""
OUTPUT_NS = 0.5
"""A vector of results through its epilogue."""
OVERLAP = 0.25
"""Of what is not the bottleneck, the part that is seen nevertheless."""
NARROW = 1.15
"""What reading memory in short stretches, those of a narrow block of channels, costs beside reading it in one."""
L1_PART = 0.7
"""Of the first-level cache that rows may fill which the next rows of outputs want again."""


def window_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles of rows x columns of registers, cheapest by the model first.

    Empty unless the kernel is a window channel by channel.
    """
    view = as_byte_window(workload)
    if view is None or view.channel.extent < target.vector_floats // 2 or not holds_groups(view, target):
        return []
    return blocked("window", view, workload, target, lanes, window_shapes(view, target), view.depth * view.group)


def blocked(
    algorithm: str,
    view: ChannelWindow,
    workload: Workload,
    target: CpuTarget,
    lanes: int,
    shapes: Sequence[tuple[int, int, int]],
    steps: float,
) -> list[Proposal]:
    """Tiles of these shapes (rows, columns, vectors), cheapest by the model first.

    At each tap a result takes so many `steps`, vector operations as of fp32.
    """

    def proposed(fewest: int) -> dict[Tile, Proposal]:
        """With so many blocks of rows at least, where there are as many rows."""
        tiles = [
            replace(_tile(view, *shape, channels, target, lanes, fewest), algorithm=algorithm)
            for shape in shapes
            for channels in blocks_of_channels(view, shape[2], target, lanes)
        ]
        return {
            tile: Proposal(
                tile, window_seconds(view, workload, tile, target, steps), row_blocks=_row_blocks(view, tile)
            )
            for tile in tiles
        }

    cuts = [
        (proposal.seconds * busiest(*_blocks(view, tile), lanes), proposal)
        for count in (PER_LANE, 2 * PER_LANE)
        for tile, proposal in proposed(count * lanes).items()
    ]
    return with_row_cuts([*proposed(1).values()], cuts, lanes)


def _blocks(view: ChannelWindow, tile: Tile) -> tuple[list[int], list[int]]:
    """Rows and channels of the blocks of an image."""
    rows, channels = view.rows.output.extent, view.channel.extent
    return sizes(rows, tile.extent("block", "rows")), sizes(channels, tile.extent("block", "channels"))


def _row_blocks(view: ChannelWindow, tile: Tile) -> int:
    """Images are cut before their rows."""
    images = prod(axis.extent for axis in view.outer)
    return -(-view.rows.output.extent // tile.extent("block", "rows")) if images == 1 else 1


def holds_groups(view: ChannelWindow, target: CpuTarget) -> bool:
    """Whether a vector holds several whole groups; a product takes larger ones better."""
    return view.group < target.vector_floats and target.vector_floats % view.group == 0


def window_shapes(view: ChannelWindow, target: CpuTarget) -> list[tuple[int, int, int]]:
    """Rows, columns and vectors of channels that fit the registers and keep the units busy."""
    legal = [
        (rows, columns, vectors)
        for rows in _sizes(view.rows, ROWS)
        for columns in _sizes(view.columns, COLUMNS)
        for vectors in _vectors(view, rows * columns, target)
        if _fits(view, rows, columns, vectors, target)
    ]
    most = max((prod(shape) for shape in legal), default=0)
    return [shape for shape in legal if FEWEST_PART * prod(shape) >= most] or [(1, 1, 1)]


def _sizes(side: Side, sizes: tuple[int, ...]) -> list[int]:
    """Sizes of register tiles along a side.

    Where a size of at least EVEN leaves no remainder, only such sizes: a remainder needs a function of its own.
    """
    legal = [size for size in sizes if size <= side.output.extent]
    even = [size for size in legal if side.output.extent % size == 0]
    return even if max(even) >= EVEN else legal


def _vectors(view: ChannelWindow, outputs: int, target: CpuTarget) -> list[int]:
    """Vectors of channels at a time: several only where there are few outputs to keep the units busy with."""
    most = max(view.channel.extent // target.vector_floats, 1)
    return [vectors for vectors in VECTORS if vectors == 1 or (vectors <= most and outputs * vectors <= max(VECTORS))]


def _fits(view: ChannelWindow, rows: int, columns: int, vectors: int, target: CpuTarget) -> bool:
    """Whether results, a row of weights and a position or two fit the registers, and the code is not too long."""
    outputs = rows * columns * vectors
    weights = min(view.columns.taps, 4) if view.weight is not None else columns
    return outputs + weights + 2 <= target.vector_registers and outputs * view.taps <= max(MOST_STEPS, view.taps)


def blocks_of_channels(view: ChannelWindow, vectors: int, target: CpuTarget, lanes: int) -> list[int]:
    """Channels of a task: all of them, a few vectors, as many as give every lane its tasks."""
    extent, step = view.channel.extent, vectors * target.vector_floats
    few = max(FEW_CHANNELS // step, 1) * step
    even = -(-extent // step // (TASKS_PER_LANE * lanes)) * step
    return sorted({extent, *(block for block in (few, max(even, few)) if block < extent)})


def _tile(
    view: ChannelWindow,
    rows: int,
    columns: int,
    vectors: int,
    channels: int,
    target: CpuTarget,
    lanes: int,
    fewest: int,
) -> Tile:
    """A tile with tasks enough for all lanes and `fewest` blocks of rows, where there are rows enough."""
    others = prod(axis.extent for axis in view.outer) * -(-view.channel.extent // channels)
    down = -(-view.rows.output.extent // rows)
    parts = min(max(-(-TASKS_PER_LANE * lanes // others), fewest), down) if lanes > 1 else 1
    return Tile(
        "window",
        (
            Level("block", (("rows", -(-down // parts) * rows), ("channels", channels))),
            Level("register", (("rows", rows), ("columns", columns), ("channels", vectors * target.vector_floats))),
            Level("vector", (("channels", target.vector_floats),)),
        ),
        in_registers(view.kernel),
    )


def window_seconds(
    view: ChannelWindow, workload: Workload, tile: Tile, target: CpuTarget, depth: float | None = None
) -> float:
    """The slowest of three: the register tiles' arithmetic and loads, the second-level cache, what lies beyond it.

    `depth`: the steps of a result at each tap, where they are not one for each element that it sums.
    """
    depth = view.depth * view.group if depth is None else depth
    rates, width = target.rates, 4 * target.vector_floats
    rows, columns = tile.extent("register", "rows"), tile.extent("register", "columns")
    vectors = tile.extent("register", "channels") // target.vector_floats
    outer = prod(axis.extent for axis in view.outer)
    strips = outer * -(-view.channel.extent // (vectors * target.vector_floats))
    tiles = strips * -(-view.rows.output.extent // rows) * -(-view.columns.output.extent // columns)
    positions = len(view.rows.readers(rows)) * len(view.columns.readers(columns))
    weights = view.taps * (1 if view.columns.taps * view.rows.taps <= 12 else rows) if view.weight is not None else 0
    steps = rows * columns * view.taps if view.weight is not None else positions + rows * columns * view.rows.taps
    work = max(steps / rates.fma_per_ns, (positions + weights) * width / rates.l1_per_ns) * depth
    compute = tiles * (vectors * (work + rows * columns * OUTPUT_NS) + TILE_NS)
    reads = sum(
        one.type.bytes for one, constant in zip(workload.inputs, workload.constant, strict=True) if not constant
    )
    writes = sum(buffer.type.bytes for buffer in workload.outputs)
    again = _read_again(view, rows, tile.extent("block", "channels"), target)
    narrow = NARROW if tile.extent("block", "channels") < view.channel.extent else 1.0
    beyond = narrow * (reads + 2 * writes) / rates.l3_per_ns if reads + writes > target.l2_bytes // 2 else 0.0
    bounds = (compute, (reads * again + writes) / rates.l2_per_ns, beyond)
    return 1e-9 * (CALL_NS + max(bounds) + OVERLAP * (sum(bounds) - max(bounds)))


def _read_again(view: ChannelWindow, rows: int, channels: int, target: CpuTarget) -> float:
    """How often a row of the operand comes from beyond the first-level cache.

    Strides near a power of two use only a part of that cache.
    """
    down = len(view.rows.readers(rows))
    across = view.columns.output.extent * view.columns.stride
    used = (
        1.0 if channels == view.channel.extent else min(1.0, 4 * channels / gcd(4 * view.channel.extent, ALIAS_BYTES))
    )
    fits = down * across * channels * 4 <= L1_PART * used * target.l1_bytes
    return 1.0 if fits else max(down / (rows * view.rows.stride), 1.0)
