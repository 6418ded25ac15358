"""Legal tiles of separable convolutions on a GPU (`compiler.devices.cuda.algorithms.separable.lowering`).

They are those of a product, each block with a rectangle of pixels. The model is a product's, with what the window adds
to a step: copies of the positions around the rectangle, and the window's own arithmetic. A block that does not have all
columns computes the window again, and so do the positions that rectangles share count for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from compiler.devices.cuda.algorithms.separable.geometry import Staged, as_staged, element_of
from compiler.devices.cuda.products.costs import (
    LATENCY_NS,
    OTHER_REGISTERS,
    STEP_NS,
    Block,
    Issue,
    Stage,
    cheapest,
    multiplied,
    product_registers,
    threads_of,
)
from compiler.devices.cuda.products.tiles import (
    MOST_OFFSET,
    MOST_PROPOSALS,
    PARTS,
    Shape,
    Sizes,
    block_tiles,
    depths_of,
    inner_of,
    splits,
    whole,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.channelwise import Side
from compiler.forms.normal_form import Slots
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
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
    """The most promising tiles of some algorithms, best first; each has its share of them.

    `channels`: those that the product sums over, and its columns.
    """
    most = MOST_PROPOSALS // len(names)
    found = (one for name in names for one in _best(name, most, pixels, channels, element, target))
    return tuple(sorted(found, key=lambda proposal: proposal.seconds))


def _best(
    name: str, most: int, pixels: Pixels, channels: tuple[int, int], element: DType, target: CudaTarget
) -> list[Proposal]:
    algorithm = PRODUCTS[name]

    def tile(strip: Strip) -> Tile:
        own = Level("register", (("rows", strip.down), ("columns", strip.across)))
        return Tile(name, (*strip.sizes.levels(inner_of(algorithm), rows=strip.rows), own))

    blocks = (
        (strip, _block(algorithm, pixels, shape, strip, target))
        for shape, strip in _tiles(algorithm, pixels, *channels, element, target)
    )
    return cheapest(blocks, most, target, tile)


def _tiles(
    algorithm: str, window: Pixels, channels: int, columns: int, element: DType, target: CudaTarget
) -> Iterator[tuple[Shape, Strip]]:
    """Each with the shape of the product of whole rectangles."""
    for m, n, part_m, part_n in block_tiles(algorithm, MORE_WARP_TILES, columns=columns):
        for rows in _rectangles(window, m):
            pixels = window.rectangles(rows, m // rows) * m
            shape = Shape(1, pixels, columns, channels, element, whole(element), None)
            for depth, steps in _steps(shape):
                for parts, cluster in splits(shape, m, n, steps, target):
                    own = -(-steps // parts)
                    for stages in [count for count in STAGES if count <= own + 1] or (1,):
                        sizes = Sizes(m, n, part_m, part_n, depth, stages if own > 1 else 1, parts, cluster)
                        for strip in _strips(rows, m // rows, depth // window.count, threads_of(algorithm, sizes)):
                            yield shape, Strip(sizes, rows, *strip)


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
    link = MMA_BYTES // shape.element.bytes
    parts = (-(-shape.depth // (count * link)) * link for count in PARTS)
    long = (depth for depth in parts if depth * shape.element.bytes <= LONGEST_STEP)
    for depth in dict.fromkeys((*depths_of(shape.element), *long)):
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
class Strip:
    """A tile whose blocks have rectangles of so many `rows`, and whose threads `down` x `across` pixels each."""

    sizes: Sizes
    rows: int
    down: int
    across: int


def _block(algorithm: str, window: Pixels, shape: Shape, strip: Strip, target: CudaTarget) -> Block | None:
    """A product's, beside whose products the window of the next step is computed, and the one after that copied.

    None where a thread would copy too much.
    """
    sizes, count, size = strip.sizes, window.count, shape.element.bytes
    threads = threads_of(algorithm, sizes)
    positions, vectors = window.positions(strip.rows, sizes.m // strip.rows), sizes.depth // count
    copies = -(-positions * vectors // threads)
    if copies > MOST_COPIES:
        return None
    weights = window.taps * window.weights.bytes if window.weights else 0
    copied_bytes = sizes.depth * (positions * window.operand.bytes + weights)
    step_bytes = copied_bytes + sizes.n * sizes.depth * size
    steps, pitch = shape.steps(sizes), sizes.depth * size + 16
    stages_bytes = sizes.stages * (copied_bytes + 32 + sizes.n * pitch) + min(steps, 2) * sizes.m * pitch
    strips = sizes.m // (strip.down * strip.across) * vectors
    instructions = -(-strips // threads) * _strip_instructions(window, strip.down, strip.across) + copies * COPY
    issue = Issue(instructions, threads / WARP, target.fma_per_clock / WARP)
    cycles, chain_ns = multiplied(algorithm, sizes, size, target)
    step = Stage(cycles=cycles, beside_ns=STEP_NS)
    if steps > 1:
        step = Stage(step_bytes, cycles, issue, STEP_NS, max(chain_ns + STEP_NS, LATENCY_NS / (sizes.stages - 2)))
    return Block(
        sizes,
        shape.blocks(sizes),
        threads,
        product_registers(algorithm, sizes) + _window_registers(window, strip, copies),
        max(stages_bytes, sizes.sums_bytes),
        Stage(step_bytes, issue=issue, beside_ns=STEP_NS, least_ns=LATENCY_NS),
        step,
        steps,
    )


def _window_registers(window: Pixels, strip: Strip, copies: int) -> int:
    """Of a thread: places of copies, results, a row of positions."""
    count, across = window.count, window.columns.taps * strip.down
    results = strip.down * strip.across * count
    return OTHER_REGISTERS + copies + copies // 4 + results + across * count // 2 + count


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
