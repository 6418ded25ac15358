"""The `separable` algorithm: a window channel by channel and the pointwise product that reads it.

The rows between the two stay in a cache. A task takes some rows of output positions. It computes the window at all of
their channels into the lane's scratch, pixel after pixel, as the `window` algorithm does. Those are the rows of A, in
place, of a product by the `contraction` algorithm, whose micro-kernels and epilogue follow. What lies between the two
is never stored, and nothing is computed twice: tasks divide pixels, not columns.

Depthwise before pointwise is the pair of which fusion by tiles is said to pay most (Welder, OSDI 2023).

A tile says which register tiles window and product have, and the blocks of rows that stay in a cache between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import prod

from compiler.codegen.expressions import Emitter
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.blocking import even_part, most_rows, parts
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.model import CALL_NS, read_rate
from compiler.devices.cpu.products.contraction.lowering import BlockedProduct
from compiler.devices.cpu.products.contraction.tiles import MOST_VECTORS, STRETCH, tile_ns
from compiler.devices.cpu.products.window.lowering import BlockedWindow
from compiler.devices.cpu.products.window.tiles import blocks_of_channels, holds_groups, window_seconds, window_shapes
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import whole_lines
from compiler.forms.contraction import axes_of
from compiler.forms.separable import Halves, as_halves
from compiler.ir.index import Axis, row_major
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

FEWEST_PIXELS = 4
"""Of a kernel: with fewer, its rows of A are no matrix worth the name."""
WINDOWS = 6
"""Register tiles of the window that are combined with every one of the product."""
TASKS_PER_LANE = 4


def separable_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Combinations of register tiles and blocks, cheapest by the model first.

    Empty unless the kernel is a separable convolution.
    """
    halves = as_halves(workload)
    if halves is None or halves.view.points < FEWEST_PIXELS:
        return []
    view = halves.window_view
    if view.channel.extent < target.vector_floats // 2 or not holds_groups(view, target):
        return []
    proposals = {}
    for rows in _block_rows(halves, target, lanes):
        shapes = [shape for shape in window_shapes(view, target) if shape[0] <= rows]
        windows = [
            _window_tile(rows // shape[0] * shape[0], channels, shape, target)
            for shape in shapes
            for channels in blocks_of_channels(view, shape[2], target, 1)
        ]
        cost = {tile: 1e9 * _window_seconds(halves, tile, target) for tile in windows}
        for window in islice(sorted(cost, key=lambda tile: cost[tile]), WINDOWS):
            for product, ns in _products(halves, window.extent("block", "rows"), target):
                tile = _joined(window, product, target)
                seconds = 1e-9 * (CALL_NS + cost[window] + ns)
                proposals[tile] = Proposal(tile, seconds, row_blocks=_row_blocks(halves, tile))
    return sorted(proposals.values(), key=lambda proposal: proposal.seconds)


def _row_blocks(halves: Halves, tile: Tile) -> int:
    """Images are cut before their rows."""
    view = halves.window_view
    images = prod(axis.extent for axis in view.outer)
    return parts(view.rows.output.extent, tile.extent("block", "rows")) if images == 1 else 1


def _block_rows(halves: Halves, target: CpuTarget, lanes: int) -> list[int]:
    """Rows of outputs of a task.

    As many as a part of a cache holds with a panel of weights, and no more than leave every lane its tasks.
    """
    view = halves.window_view
    down, images = view.rows.output.extent, prod(axis.extent for axis in view.outer)
    row = 4 * view.columns.output.extent * halves.pitch
    most = max(target.l2_bytes // 2 // row, 1)
    shared = max(down * images // (TASKS_PER_LANE * lanes), 1) if lanes > 1 else down
    sizes = {target.l1_bytes // 2 // row, target.l2_bytes // 8 // row, most, 1, 2, 4, even_part(down, shared)}
    return sorted({min(size, most, down) for size in sizes if size > 0})


def _window_tile(block: int, channels: int, shape: tuple[int, int, int], target: CpuTarget) -> Tile:
    rows, columns, vectors = shape
    sizes = (("rows", rows), ("columns", columns), ("channels", vectors * target.vector_floats))
    return Tile("window", (Level("block", (("rows", block), ("channels", channels))), Level("register", sizes)))


def _window_seconds(halves: Halves, tile: Tile, target: CpuTarget) -> float:
    """The window alone, storing where the first-level cache or the second takes it at once."""
    return window_seconds(halves.window_view, replace(halves.window, outputs=()), tile, target)


def _products(halves: Halves, rows: int, target: CpuTarget) -> Iterator[tuple[tuple[int, int, int], float]]:
    """Register tiles of the product over blocks of so many rows of outputs, with what they should take.

    Tiles are given as (rows, columns, segment of k).
    """
    view, pixels = halves.product_view, rows * halves.window_view.columns.output.extent
    floats, blocks = target.vector_floats, halves.view.points / pixels
    weights = 4 * view.depth * view.columns
    streamed = weights / read_rate(weights + 4 * pixels * halves.pitch, target)
    for vectors in range(1, MOST_VECTORS + 1):
        if vectors > 1 and vectors * floats - view.columns >= floats:
            break
        m = even_part(pixels, most_rows(vectors, target))
        panels = parts(parts(view.columns, floats), vectors)
        for stretch in (0, STRETCH) if view.depth > STRETCH else (0,):
            one = tile_ns(m, vectors, view.depth, vectors * floats, target, stretch > 0)
            yield (m, vectors * floats, stretch), blocks * (pixels / m * panels * one + streamed)


def _joined(window: Tile, product: tuple[int, int, int], target: CpuTarget) -> Tile:
    m, n, stretch = product
    depth = (("k", stretch),) if stretch else ()
    sizes = tuple((axis, window.extent("register", axis)) for axis in ("rows", "columns", "channels"))
    levels = (
        Level("block", (*((axis, window.extent("block", axis)) for axis in ("rows", "channels")), *depth)),
        Level("register", (*sizes, ("m", m), ("n", n))),
        Level("vector", (("channels", target.vector_floats), ("n", target.vector_floats))),
    )
    return Tile("separable", levels)


def separable(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_halves` accepts.

    Levels: `block` rows, the rows of output positions of a task, and channels, how many of them the window takes at a
    time; `register` rows, columns and channels, the register tile of the window, m and n, that of the product, whose
    rows are pixels. `block` k, if given, cuts the product's sums as it does those of `contraction`.
    """
    halves = as_halves(workload)
    assert halves is not None, "the tile stage offers `separable` only to kernels of that form"
    return _Separable(name, workload, halves, tile, target)


class _Separable(Lowering):
    """One lowering. `across` are the pixels of a row of outputs, `down` the rows of an image."""

    def __init__(self, name: str, workload: Workload, halves: Halves, tile: Tile, target: CpuTarget) -> None:
        self.name, self.workload, self.halves = name, workload, halves
        self.writer = Writer()
        view = halves.window_view
        self.across, self.down = view.columns.output.extent, view.rows.output.extent
        self.block = min(tile.extent("block", "rows", 1), self.down)
        self.blocks = -(-self.down // self.block)
        self.channels = tile.extent("block", "channels", view.channel.extent)
        counts = {self.across * rows for rows in (self.block, self.down - (self.blocks - 1) * self.block)}
        window, product = _window_part(tile, halves), _product_tile(tile, halves, max(counts))
        self.window = BlockedWindow(
            f"{name}_window", halves.window, halves.window_view, window, target, self.writer, "window"
        )
        self.product = BlockedProduct(
            f"{name}_product", halves.product, halves.product_view, product, target, self.writer, sorted(counts)
        )
        self.rows_bytes = whole_lines(4 * max(counts) * halves.pitch)

    def lower(self) -> Lowered:
        writer, view = self.writer, self.halves.view
        self.window.functions()
        self.product.functions()
        outer = self.halves.window_view.outer
        roles = f"pixels {axes_of(view.pixels)}; channels {axes_of(view.channels)}; columns {axes_of((view.column,))}"
        with kernel_function(writer, self.name, self.workload, roles):
            writer.line(
                f"float *const rows = (float *)scratch; /* [pixel][channel], {self.halves.pitch} floats apart */"
            )
            if self.product.c_bytes:
                writer.line(f"float *const c = (float *)(scratch + {self.rows_bytes});")
            with writer.block("for (long tile = begin; tile < end; tile++)"):
                decode(writer, outer, f"tile / {self.blocks}" if self.blocks > 1 else "tile")
                first = f"tile % {self.blocks} * {self.block}" if self.blocks > 1 else "0"
                writer.line(f"const long first_row = {first};")
                writer.line(f"const long past_row = tw_least_of(first_row + {self.block}, {self.down});")
                self._rows()
                self._products()
        scratch = self.rows_bytes + self.product.c_bytes
        return Lowered(
            self.name,
            writer.text(),
            self.tasks,
            scratch,
            dict(self._packings()),
            self.grid,
            headers=frozenset(writer.headers),
        )

    @property
    def grid(self) -> TaskGrid:
        """The task grid, over the pixels' axes.

        The window counts an image's rows along an axis of its own. Here they are the pixels' axes around a row's.
        """
        pixels = [*self.halves.view.pixels]
        _taken_from(pixels, self.across)
        rows = _taken_from(pixels, self.down)
        return TaskGrid(self.halves.view.kernel, (*one_by_one(pixels), Cut(rows, self.block)))

    def _rows(self) -> None:
        """The task's rows of A; `pixel` is its first one, and the row's slot points to where pixel 0 would be."""
        writer, view = self.writer, self.halves.view
        place = row_major((*self.halves.window_view.outer, Axis("first_row", self.down)))
        pixel = Emitter(writer, self.window.slots.address).index(place * self.across)
        writer.line(f"const long pixel = {pixel};")
        writer.line(f"float *const {view.row.slot} = rows - pixel * {self.halves.pitch};")
        slots = [slot.name for slot in self.halves.window.kernel.inputs]
        pointers = ", ".join(f"(void *){slot}" for slot in (*slots, view.row.slot))
        channels = self.halves.window_view.channel.extent
        with writer.block(""):
            writer.line(f"void *const window[] = {{{pointers}}};")
            with writer.block(f"for (long first = 0; first < {channels}; first += {self.channels})"):
                writer.line(f"const long past = tw_least_of(first + {self.channels}, {channels});")
                writer.line("long row = first_row;")
                self.window.rows()

    def _products(self) -> None:
        """The product of the task's rows with all panels."""
        (axis,) = self.halves.product_view.m
        self.writer.line(f"const long first_{axis} = pixel;")
        self.writer.line(f"const long past_{axis} = pixel + (past_row - first_row) * {self.across};")
        self.writer.line(f"const long first_panel = 0, past_panel = {self.product.panels};")
        self.product.products()

    def _packings(self) -> list[tuple[int, Packing]]:
        """The packings of both halves, by the inputs of the whole."""
        places = {slot.name: at for at, slot in enumerate(self.workload.kernel.inputs)}
        found = [(self.halves.window, self.window.weights), (self.halves.product, self.product.packing)]
        return [(places[half.kernel.inputs[one[0]].name], one[1]) for half, one in found if one]


def _taken_from(axes: list[Axis], points: int) -> tuple[Axis, ...]:
    """The innermost axes, which have so many points together, taken off the end of a list."""
    taken: tuple[Axis, ...] = ()
    while prod(axis.extent for axis in taken) < points:
        taken = (axes.pop(), *taken)
    assert prod(axis.extent for axis in taken) == points, "a window's axes are whole axes of the pixels, joined"
    return taken


def _window_part(tile: Tile, halves: Halves) -> Tile:
    """The window's part of a tile."""
    sizes = tuple((axis, tile.extent("register", axis, 1)) for axis in ("rows", "columns", "channels"))
    channels = halves.window_view.channel.extent
    block = Level("block", (("rows", tile.extent("block", "rows", 1)), ("channels", channels)))
    return Tile("window", (block, Level("register", sizes)))


def _product_tile(tile: Tile, halves: Halves, rows: int) -> Tile:
    """The product's part of a tile, of which a block has so many rows at most."""
    depth = tile.extent("block", "k")
    block = (("m", rows), ("n", halves.product_view.columns), *((("k", depth),) if depth else ()))
    sizes = tuple((axis, tile.extent("register", axis)) for axis in "mn")
    return Tile("contraction", (Level("block", block), Level("register", sizes)))


SEPARABLE = Algorithm(("separable",), separable_tiles, separable, takes=any_short)
