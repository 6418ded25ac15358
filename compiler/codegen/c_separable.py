"""The `separable` algorithm: a window channel by channel and the pointwise product that reads it, through rows that stay in a cache.

A task takes some rows of output positions. It computes the window at all of their channels into the lane's scratch, pixel after pixel, as
the `window` algorithm does; those are the rows of A, in place, of a product by the `contraction` algorithm, whose micro-kernels and
epilogue follow. What lies between the two is never stored, and nothing is computed twice: tasks share pixels out, not columns.

Depthwise before pointwise is the pair of which fusion by tiles is said to pay most (Welder, OSDI 2023).
"""

from __future__ import annotations

from math import prod

from compiler.codegen.c_contraction import BlockedProduct
from compiler.codegen.c_expr import Emitter
from compiler.codegen.c_window import BlockedWindow
from compiler.codegen.lowered import Lowered, Lowering, decode, kernel_function
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.ir.cache_lines import whole_lines
from compiler.ir.contraction import axes_of
from compiler.ir.index import Axis, row_major
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.separable import Halves, as_halves
from compiler.ir.tile import Level, Tile
from compiler.targets.cpu import CpuTarget


def separable(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_halves` accepts.

    Levels: `block` rows, the rows of output positions of a task, and channels, how many of them the window takes at a time; `register` rows, columns and channels, the register tile of the window, m and n,
    that of the product, whose rows are pixels; `block` k, if given, cuts the product's sums as it does those of `contraction`.
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
        window, product = _window_tile(tile, halves), _product_tile(tile, halves, max(counts))
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
        return Lowered(self.name, writer.text(), self.tasks, scratch, dict(self._packings()), self.grid)

    @property
    def grid(self) -> TaskGrid:
        """Rows of an image, which the window counts along an axis of its own, are those of the pixels' axes that stand around a row's."""
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


def _window_tile(tile: Tile, halves: Halves) -> Tile:
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
