"""Legal tiles of separable convolutions on a GPU (`compiler.devices.cuda.algorithms.separable.lowering`).

They are those of a product, each block with a rectangle of pixels. The model is a product's, with what the window adds
to a step: copies of the positions around the rectangle, and the window's own arithmetic. A block that does not have all
columns computes the window again, and so do the positions that rectangles share count for each.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as points
from math import prod

from compiler.devices.cuda.algorithms.contraction.tiles import (
    LATENCY_NS,
    MOST_OFFSET,
    MOST_PROPOSALS,
    MOST_REGISTERS,
    MOST_SPLIT_SUMS,
    PARTS,
    STEP_NS,
    THREAD_TILES,
    WARP,
    WARP_TILES,
    Reading,
    Shape,
    Work,
    product_registers,
    splits,
    steps_of,
)
from compiler.devices.cuda.algorithms.separable.geometry import Staged, as_staged, element_of
from compiler.devices.cuda.model import STALL
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.channelwise import Side
from compiler.forms.normal_form import Slots
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.once import once
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

MORE_WARP_TILES = (
    *((32, 32, 16, 8), (64, 32, 16, 16), (16, 64, 16, 8), (64, 16, 16, 8), (64, 64, 16, 32), (16, 128, 16, 16)),
    *((16, 256, 16, 32), (32, 256, 32, 32), (64, 256, 32, 64), (32, 128, 16, 32)),
)
"""More warps than the product alone has a use for, as the window is computed by all; and all columns of a wide
product."""
STAGES = (3, 4)
COLUMNS = (4, 8, 16, 32)
"""Pixels of a rectangle's row."""
STRIPS = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4))
"""Rows and columns of pixels of a thread."""
LONGEST_STEP = 384
"""Bytes of a row in a step."""
MMA_BYTES = 32
"""Of a row, that one step of mma takes."""
MOST_COPIES = 24
"""Of a thread and step: their places stay in registers."""
MOST_RECTANGLES = 2
"""Of a size that are worth a look: those with the fewest positions."""
MOST_TAPS = 49
"""Of a window, which is written out for every pixel of a strip."""

READ, MAPPED, COPY = 2, 6, 6
"""Instructions of a vector's access to shared memory, of a result's maps, of an asynchronous copy."""
PRODUCTS = {
    "separable": "mma",
    "separable_tf32": "mma_tf32",
    "separable_3xtf32": "mma_3xtf32",
    "separable_ffma": "ffma",
}
"""The algorithm that multiplies in the same way, by separable algorithm."""
EXACT = ("separable_3xtf32", "separable_ffma")
"""Those of fp32."""


def cuda_separable_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no separable convolution of this form."""
    buffers = (*workload.inputs, *workload.outputs)
    staged = as_staged(workload)
    if staged is None or staged.window.taps > MOST_TAPS or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    half = element_of(staged, workload, precision)
    names = ("separable",) if half is not DType.F32 else EXACT if precision == "fp32" else ("separable_tf32",)
    return [*_cheapest(names, _pixels_of(staged, workload), _channels_of(staged), half, target)]


@lru_cache(maxsize=256)
def _cheapest(
    names: tuple[str, ...], pixels: Pixels, channels: tuple[int, int], element: DType, target: CudaTarget
) -> tuple[Proposal, ...]:
    """The most promising tiles of some algorithms, best first.

    `channels`: those that the product sums over, and its columns.
    """
    found = (work for name in names for work in _best(name, len(names), pixels, channels, element, target))
    return tuple(sorted((work.proposal(target) for work in found), key=lambda proposal: proposal.seconds))


def _best(
    name: str, shares: int, pixels: Pixels, channels: tuple[int, int], element: DType, target: CudaTarget
) -> Sequence[SeparableWork]:
    """The cheapest of one algorithm, which has its share of all proposals."""
    works = ((work.ns(target), at, work) for at, work in enumerate(_works(name, pixels, *channels, element, target)))
    return [work for _, _, work in heapq.nsmallest(MOST_PROPOSALS // shares, works)]


def _works(
    name: str, window: Pixels, channels: int, columns: int, element: DType, target: CudaTarget
) -> Iterator[SeparableWork]:
    algorithm = PRODUCTS[name]
    whole = Reading(max(16 // element.bytes, 1), is_copy=True)
    for m, n, part_m, part_n in THREAD_TILES if algorithm == "ffma" else (*WARP_TILES, *MORE_WARP_TILES):
        if (algorithm == "mma_3xtf32" and part_m * part_n > MOST_SPLIT_SUMS) or (n > 8 and n >= 2 * columns):
            continue
        for rows in _rectangles(window, m):
            pixels = window.rectangles(rows, m // rows) * m
            shape = Shape(1, pixels, columns, channels, element, whole, None)
            for depth, steps in _steps(shape):
                threads = m // part_m * (n // part_n) * (1 if algorithm == "ffma" else WARP)
                strips = _strips(rows, m // rows, depth // window.count, threads)
                for parts, cluster in splits(shape, m, n, steps, target):
                    own = -(-steps // parts)
                    for stages, strip in points([count for count in STAGES if count <= own + 1] or (1,), strips):
                        work = SeparableWork(
                            *(algorithm, shape, m, n, part_m, part_n, depth, stages if own > 1 else 1, parts, cluster),
                            *(window, rows, *strip),
                        )
                        if work.fits(target):
                            yield work


def _strips(rows: int, columns: int, vectors: int, threads: int) -> list[tuple[int, int]]:
    """Pixels of a thread: several where all threads have something to do even so."""
    return [
        (down, across)
        for down, across in STRIPS
        if not (rows % down or columns % across)
        and (down * across == 1 or rows * columns // (down * across) * vectors >= threads)
    ]


def _steps(shape: Shape) -> Iterator[tuple[int, int]]:
    """Channels of a step, and how many steps there are.

    Those of products, and such that a part of the channels is one step.
    """
    whole = MMA_BYTES // shape.element.bytes
    parts = (-(-shape.depth // (count * whole)) * whole for count in PARTS)
    long = (depth for depth in parts if depth * shape.element.bytes <= LONGEST_STEP)
    for depth in dict.fromkeys((*(depth for depth, _ in steps_of(shape)), *long)):
        yield depth, -(-shape.depth // depth)


def _rectangles(window: Pixels, m: int) -> list[int]:
    """Rows of rectangles of m pixels, those first that look at the fewest positions in all."""
    sizes = [m // columns for columns in COLUMNS if columns <= m]
    legal = [rows for rows in sizes if rows == 1 or rows < 2 * window.rows.output.extent]
    legal = [rows for rows in legal if m // rows == 4 or m // rows < 2 * window.columns.output.extent]

    def positions(rows: int) -> int:
        return window.positions(rows, m // rows) * window.rectangles(rows, m // rows)

    return sorted(legal, key=lambda rows: (positions(rows), rows))[:MOST_RECTANGLES]


def _span(side: Side, outputs: int) -> int:
    return (outputs - 1) * side.stride + (side.taps - 1) * side.dilation + 1


@dataclass(frozen=True)
class Pixels:
    """What all tiles of a window share, and all that they cost depends on beside the product's extents.

    images    of so many, each rectangle has the pixels of one
    rows, columns  the sides, whatever their axes are called
    count     channels that are copied at once
    operand   of which elements the window reads
    weights   of which elements its weights are; None where it has none
    """

    images: int
    rows: Side
    columns: Side
    count: int
    operand: DType
    weights: DType | None

    @property
    def taps(self) -> int:
        """Weights of a channel's window."""
        return self.rows.taps * self.columns.taps

    def positions(self, rows: int, columns: int) -> int:
        """That the windows of a rectangle look at."""
        return _span(self.rows, rows) * _span(self.columns, columns)

    def rectangles(self, rows: int, columns: int) -> int:
        """How many there are of so many pixels, those that are partly outside too."""
        return self.images * -(-self.rows.output.extent // rows) * -(-self.columns.output.extent // columns)


def _channels_of(staged: Staged) -> tuple[int, int]:
    return staged.separable.channel.extent, staged.separable.column.extent


def _pixels_of(staged: Staged, workload: Workload) -> Pixels:
    images = prod(axis.extent for axis in staged.window.outer)
    operand = Slots(workload).buffers[staged.load.slot].dtype
    weights = staged.weights[1].dtype if staged.weights else None
    rows, columns = map(_nameless, staged.sides)
    return Pixels(images, rows, columns, staged.count, operand, weights)


def _nameless(side: Side) -> Side:
    tap = None if side.tap is None else Axis("tap", side.tap.extent)
    return replace(side, output=Axis("output", side.output.extent), position=Axis("position", 1), tap=tap)


@dataclass(frozen=True)
class SeparableWork(Work):
    """One tile and what it costs.

    `rows` are those of a rectangle, `strip_rows` and `strip_columns` the pixels of a thread.
    """

    window: Pixels
    rows: int
    strip_rows: int
    strip_columns: int

    @property
    def columns(self) -> int:
        """Columns of a block's rectangle of pixels."""
        return self.m // self.rows

    @property
    def tile(self) -> Tile:
        """The product's tile with the rectangle and its strips."""
        plain = super().tile
        block = Level("block", (*_level(plain, "block").extents, ("rows", self.rows)))
        strip = Level("register", (("rows", self.strip_rows), ("columns", self.strip_columns)))
        others = tuple(level for level in plain.levels if level.name != "block")
        name = next(name for name, product in PRODUCTS.items() if product == self.algorithm)
        return Tile(name, (*others, block, strip))

    @once
    def positions(self) -> int:
        """That the windows of a rectangle look at."""
        return self.window.positions(self.rows, self.columns)

    @property
    def _vectors(self) -> int:
        return self.depth // self.window.count

    @once
    def _copied_bytes(self) -> int:
        """Positions, and weights of the window, of a step."""
        weights = self.window.taps * self.window.weights.bytes if self.window.weights else 0
        return self.depth * (self.positions * self.window.operand.bytes + weights)

    @once
    def step_bytes(self) -> int:
        """Bytes that a block copies to shared memory in one step."""
        return self._copied_bytes + self.n * self.depth * self.shape.element.bytes

    @once
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes."""
        pitch = self.depth * self.shape.element.bytes + 16
        stages = self.stages * (self._copied_bytes + 32 + self.n * pitch) + min(self.steps, 2) * self.m * pitch
        return max(stages, self.m * (self.n + 8) * 4)

    @once
    def _copies(self) -> int:
        """Of a thread in a step."""
        return -(-self.positions * self._vectors // self.threads)

    @property
    def _strips(self) -> int:
        return self.m // (self.strip_rows * self.strip_columns) * self._vectors

    @once
    def registers(self) -> int:
        """Registers of a thread, estimated."""
        count = self.window.count
        outputs = self.strip_rows * self.strip_columns * count
        across = self.window.columns.taps * self.strip_rows
        own = product_registers(self.algorithm, self.part_m, self.part_n)
        return own + 40 + self._copies + self._copies // 4 + outputs + across * count // 2 + count

    def fits(self, target: CudaTarget) -> bool:
        """Whether the device has as much shared memory and as many registers."""
        return (
            self._copies <= MOST_COPIES
            and self.registers <= MOST_REGISTERS
            and self.shared_bytes <= target.block_shared_bytes
        )

    def _first_ns(self, together: int, target: CudaTarget) -> float:
        """The first copies, and the first stretch of the window: nothing is multiplied meanwhile."""
        return LATENCY_NS + self._moved_ns(together, target) + self._window_ns(together, target) + STEP_NS

    def _step_ns(self, together: int, target: CudaTarget) -> float:
        """A step's products beside the window of the next one and the copies of one after that."""
        products = together * self._cycles(target) / target.clock_ghz
        if self.steps == 1:
            return products + STEP_NS
        waiting = LATENCY_NS / (self.stages - 2)
        return max(super()._step_ns(together, target), products + self._window_ns(together, target) + STEP_NS, waiting)

    def _window_ns(self, together: int, target: CudaTarget) -> float:
        """A step's window and copies, of so many blocks.

        Instructions of their warps on four schedulers, none of which issues to one warp in every cycle.
        """
        warps = together * self.threads / WARP
        return self._window_instructions * max(warps / (target.fma_per_clock / WARP), STALL) / target.clock_ghz

    @once
    def _window_instructions(self) -> int:
        """Of a thread, in a step."""
        strip = _strip_instructions(self.window, self.strip_rows, self.strip_columns)
        return -(-self._strips // self.threads) * strip + self._copies * COPY


@lru_cache(maxsize=256)
def _strip_instructions(window: Pixels, rows: int, columns: int) -> int:
    """What a thread executes for its window at so many pixels."""
    outputs = rows * columns
    down, across = _positions_and_taps(window.rows, rows), _positions_and_taps(window.columns, columns)
    weights = down[1] * window.columns.taps if window.weights is not None else 0
    reads = down[0] * across[0] + weights
    return reads * (READ + window.count) + outputs * window.count * (window.taps + MAPPED) + outputs * READ


def _positions_and_taps(side: Side, outputs: int) -> tuple[int, int]:
    """How many positions so many neighbours look at along a side, and the taps under which they do."""
    readers = side.readers(outputs).values()
    return len(readers), sum(len({tap for _, tap in one}) for one in readers)


def _level(tile: Tile, name: str) -> Level:
    return next(level for level in tile.levels if level.name == name)
