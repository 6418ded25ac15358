"""Convolutions by tiles (Intel AMX), of an image that is staged once: rows of a tile of A are neighbouring pixels.

`amx` stages a row of A for each output: an image is copied once for each tap. Here a task copies the lines of the image
that it needs, with their padding, and loads tiles from there for each tap: 64 bytes of each of 16 pixels, which lie at
a constant distance (`compiler.forms.window_rows`). A pixel is padded to whole cache lines, and the weights of each tap
with it. Where a pixel has few channels, it holds those of all taps of a line instead.

Register tiles run on from one line to the next: what they compute between two lines is not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from compiler.codegen.task_grid import TaskGrid
from compiler.devices.cpu.algorithms.algorithm import Algorithm, Tiles, any_short
from compiler.devices.cpu.codegen.amx import GROUPS, ROWS, SUMS, A, B
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.products.dot import DotContraction, Shape, bf16, integer
from compiler.devices.cpu.products.dot.amx import Registers, TileProduct, as_tiles, declare_shapes, parts_of
from compiler.devices.cpu.products.dot.images import (
    PIECE_NS,
    Phase,
    StagedImage,
    line_blocks,
    lines_of,
    staged_pixels,
    with_line_cuts,
)
from compiler.devices.cpu.products.dot.tiles import FINISH_NS, STAGE_BYTES_PER_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import beyond_bounds
from compiler.forms.cache_lines import ALIAS_BYTES, LINE_BYTES, whole_lines
from compiler.forms.contraction import packing_of
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.forms.integer import as_integer
from compiler.forms.normal_form import Slots
from compiler.forms.window_rows import WindowRows, window_rows
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

FormOf = Callable[[Workload, CpuTarget, bool], "tuple[TileProduct, WindowRows] | None"]


@dataclass(frozen=True)
class _Windows:
    """A product of windows as these tiles see it."""

    algorithm: str
    rows: WindowRows
    dtype: DType
    pieces: int = 1
    """Of a pixel, which are copied one by one."""

    @property
    def pixel_bytes(self) -> int:
        """From one pixel of a staged image to the next."""
        octets = whole_lines(self.rows.run * self.dtype.bytes)
        return octets + LINE_BYTES if octets % ALIAS_BYTES == 0 else octets

    @property
    def steps(self) -> int:
        """Tiles of k."""
        return self.rows.view.depth // self.rows.run * (whole_lines(self.rows.run * self.dtype.bytes) // LINE_BYTES)

    def image_bytes(self, lines: int) -> int:
        """Of what so many lines of outputs read, without what register tiles read beyond."""
        return len(self.rows.phases) * self.rows.phase_pixels(lines) * self.pixel_bytes

    def tiles(self, product: TileProduct, target: CpuTarget, lanes: int) -> list[Proposal]:
        """Register tiles by blocks of lines, cheapest by the model first."""
        heights = line_blocks(self.rows.height, self.image_bytes, target, lanes)
        return with_line_cuts(
            [
                self._proposal(product, vectors, parts, lines, target, lanes)
                for vectors in product.widths(1, target)
                for parts in range(1, SUMS // vectors + 1)
                for lines in heights
            ],
            lanes,
        )

    def _proposal(
        self, product: TileProduct, vectors: int, parts: int, lines: int, target: CpuTarget, lanes: int
    ) -> Proposal:
        rows, view = self.rows, self.rows.view
        positions, panel = rows.positions(lines), vectors * target.vector_floats
        tiles = -(-positions // (ROWS * parts))
        tall = parts * -(-positions // (tiles * parts))
        panels = -(-view.columns // panel)
        blocks = -(-rows.height // lines)
        images = view.rows // (rows.height * rows.width) * view.batches * blocks
        octets = self.image_bytes(lines)
        staged = octets / STAGE_BYTES_PER_NS + octets / self.pixel_bytes * self.pieces * PIECE_NS
        tile = product.tile_ns(self.steps, tall, vectors, target) + tall * vectors * FINISH_NS
        weights = panels * panel * self.steps * LINE_BYTES
        streamed = weights / target.rates.weights_per_ns if weights > target.l2_bytes // 2 else 0.0
        seconds = 1e-9 * (CALL_NS + images * (staged + max(panels * tiles * tile, streamed)))
        wide = panels if images >= lanes else -(-panels // lanes)
        levels = (
            Level("block", (("m", lines * rows.width), ("n", wide * panel))),
            Level("register", (("m", tall), ("n", panel))),
            Level("vector", (("n", target.vector_floats),)),
        )
        scopes = in_registers(view.kernel)
        return Proposal(Tile(self.algorithm, levels, scopes), seconds, row_blocks=blocks if images == blocks else 1)


@dataclass(frozen=True)
class _WindowTiles:
    """The `Rows` of windows by tiles: neighbouring pixels, on from one line to the next."""

    seen: _Windows
    staged: StagedImage

    @staticmethod
    def of(rows: WindowRows, shape: Shape, dtype: DType) -> _WindowTiles:
        """With phases of lines and of columns."""
        seen, side, lines = _Windows("", rows, dtype), rows.columns, lines_of(rows, shape)
        phases = [Phase(line, column, rows.width - 1 + side.reach(column), side.stride) for line, column in rows.phases]
        pixel = seen.pixel_bytes // dtype.bytes
        elements = (pixel, rows.pitch * pixel, rows.phase_pixels(lines) * pixel)
        return _WindowTiles(seen, StagedImage(rows, lines, phases, *elements))

    def row_bytes(self, product: DotContraction) -> int:
        """From one pixel to the next."""
        return self.seen.pixel_bytes

    def a_bytes(self, product: DotContraction) -> int:
        """Of the image, and what the last register tile reads beyond."""
        beyond = product.shape.rows * self.seen.pixel_bytes
        return whole_lines(self.seen.image_bytes(self.staged.block_lines) + beyond)

    def heights(self, product: DotContraction) -> list[int]:
        """All register tiles have as many rows."""
        return [product.shape.rows]

    def grid(self, product: DotContraction) -> TaskGrid:
        """By lines."""
        return self.staged.grid(product)

    def task(self, product: DotContraction) -> None:
        """Outputs of all lines, with what lies between the lines."""
        writer, shape, rows = product.writer, product.shape, self.seen.rows
        positions = f"const long positions = (past_line - first_line - 1) * {rows.pitch} + {rows.width};"
        self.staged.begin_task(product, positions)
        with (
            writer.block("for (long panel = first_panel; panel < past_panel; panel++)"),
            writer.block(f"for (long row0 = 0; row0 < positions; row0 += {shape.rows})"),
        ):
            product.point_at_panel()
            self.point(product)
            writer.line(f"{product.scalar_type} c[{shape.rows * shape.panel}] __attribute__((aligned(64)));")
            writer.line(f"const long count = tw_least_of(positions - row0, {shape.rows});")
            writer.line(product.step.multiply(product, shape.rows))
            product.epilogue()

    def point(self, product: DotContraction) -> None:
        """Declares where the first pixel lies."""
        product.writer.line(f"const char *const a = (const char *)rows + row0 * {self.seen.pixel_bytes}L;")

    def place(self, product: DotContraction) -> None:
        """Declares the line and the column, or goes on to the next row where it lies between two lines."""
        writer, rows = product.writer, self.seen.rows
        writer.line(f"const long {rows.columns.output} = (row0 + row) % {rows.pitch};")
        if rows.pitch > rows.width:
            writer.line(f"if ({rows.columns.output} >= {rows.width}) continue;")
        if rows.lines:
            writer.line(f"const long {rows.lines.output} = first_line + (row0 + row) / {rows.pitch};")


@dataclass(frozen=True)
class _WindowStep:
    """The `Step` of tiles of neighbouring pixels."""

    rows: WindowRows
    keeps_sums = False

    def _registers(self, product: DotContraction) -> Registers:
        block = self.rows.positions(lines_of(self.rows, product.shape))
        return Registers(product, block, f"row0 / {product.shape.rows}")

    def begin(self, product: DotContraction) -> None:
        """The registers get the shapes of whole register tiles."""
        self._registers(product).begin(product.shape.rows)

    def end(self, product: DotContraction) -> None:
        """The registers are given back."""
        product.writer.line("tw_tiles_end();")

    def multiply(self, product: DotContraction, rows: int) -> str:
        """With what is fetched meanwhile."""
        return self._registers(product).multiply(rows)

    def write(self, product: DotContraction, rows: int) -> None:
        """c[rows][panel] = the sums over taps of pixels, from `a` on, by weights."""
        writer, name, registers = product.writer, product.name, self._registers(product)
        shape, steps = product.shape, product.groups.run_groups // GROUPS
        declare_shapes(writer, registers.shapes(rows), parts_of(rows)[0] * shape.vectors, parts_of(rows)[1], 0)
        offsets = [offset * product.row_bytes for offset in self.rows.offsets(lines_of(self.rows, shape))]
        writer.line(f"static const int {name}_offsets[] = {{{', '.join(map(str, offsets))}}};")
        head = f"void {name}_{rows}(const char *image, const char *panel, {product.scalar_type} *c, const char *ahead)"
        with writer.block(f"static inline __attribute__((always_inline)) {head}"):
            registers.clear_sums(rows)
            with writer.block(f"for (long tap = 0; tap < {len(offsets)}; tap++)"):
                writer.line(f"const char *const a = image + {name}_offsets[tap];")
                octets = steps * GROUPS * shape.panel * LANE_BYTES
                writer.line(f"const char *const b = panel + tap * {octets}L;")
                with writer.block(f"for (long k = 0; k < {steps}; k++)"):
                    registers.fetch_ahead(f"(tap * {steps} + k)")
                    registers.products(rows, "k", A, B)
            registers.store_sums(rows)
        writer.line()


def bf16_form(workload: Workload, target: CpuTarget, by_line: bool) -> tuple[TileProduct, WindowRows] | None:
    """The kernel as products of bf16 see it, and as windows; None where it is none of them."""
    product = bf16.product_of(workload, target) if target.has_tiles else None
    if product is None or not product.packed or beyond_bounds(product.view.kernel):
        return None
    staged = bf16.staged_of(product.view.a)
    rows = window_rows(product.view, staged.condition, staged.value, by_line=by_line)
    return (as_tiles(BF16_NAMES[by_line], product), rows) if rows else None


def byte_form(workload: Workload, target: CpuTarget, by_line: bool) -> tuple[TileProduct, WindowRows] | None:
    """The same for products of bytes; zero points of weights are known, those of pixels the same for all of them."""
    product = integer.product_of(workload, target) if target.has_tiles else None
    form = as_integer(workload)
    if product is None or form is None or not product.packed or beyond_bounds(form.view.kernel):
        return None
    staged = integer.Bytes(form, signed=False).staged
    if form.b.fixed_zero != form.b_shift or staged.padding.axes & {*form.view.m, *form.view.k}:
        return None
    rows = window_rows(form.view, staged.condition, staged.value, by_line=by_line)
    return (as_tiles(BYTE_NAMES[by_line], product), rows) if rows else None


BF16_NAMES = ("amx_bf16_window", "amx_bf16_line_window")
BYTE_NAMES = ("amx_integer_window", "amx_integer_line_window")
"""With pixels as they are, and with pixels that hold all taps of a line."""


def _tiles_of(form_of: FormOf, dtype: DType) -> Tiles:
    def tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
        """Legal tiles, cheapest first; those with taps of a line in a pixel only where that takes fewer products."""
        found = [form for by_line in (False, True) if (form := form_of(workload, target, by_line))]
        slots = Slots(workload)
        seen = [(one, _Windows(one.algorithm, rows, dtype, _pieces(rows, slots))) for one, rows in found]
        fewest = min((windows.steps for _, windows in seen), default=0)
        seen = [(product, windows) for product, windows in seen if windows.steps == fewest][:1]
        return [one for product, windows in seen for one in windows.tiles(product, target, lanes)]

    return tiles


def _pieces(rows: WindowRows, slots: Slots) -> int:
    """How many pieces of a pixel lie apart in memory."""
    offsets = [slots.address(load.slot, load.index)[1] for load in rows.value.loads]
    step = 1
    for at, axis in reversed([*enumerate(rows.pixel)]):
        if any(offset.coefficient(axis) != step for offset in offsets):
            return prod(one.extent for one in rows.pixel[: at + 1])
        step *= axis.extent
    return 1


def _shape(tile: Tile, target: CpuTarget) -> Shape:
    rows, panel = tile.extent("register", "m"), tile.extent("register", "n")
    vectors = panel // target.vector_floats
    return Shape(rows, vectors, panel, tile.extent("block", "m"), tile.extent("block", "n"))


def bf16_windows(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `window_rows` accepts, blocked as `tile` says: levels `block` (whole lines of m) and `register`."""
    found = bf16_form(workload, target, tile.algorithm == BF16_NAMES[True])
    assert found is not None, "the tile stage offers windows only where there are some"
    rows, shape = found[1], _shape(tile, target)
    packing = packing_of(rows.view, workload, shape.panel)
    assert packing is not None, "weights are constants"
    groups = Groups(packing[1], DType.BF16, run=rows.run)
    staged = staged_pixels(rows, bf16.staged_of(found[0].view.a))
    parts = (bf16.held(target), _WindowStep(rows), _WindowTiles.of(rows, shape, groups.dtype))
    operands = ((packing[0], groups), groups, staged, 0, *parts)
    return DotContraction(name, workload, rows.view, Slots(workload), shape, target, *operands)


def byte_windows(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """The same for bytes."""
    found = byte_form(workload, target, tile.algorithm == BYTE_NAMES[True])
    form = as_integer(workload)
    assert found is not None, "the tile stage offers windows only where there are some"
    assert form is not None
    rows, shape, held = found[1], _shape(tile, target), integer.Bytes(form, signed=False)
    packing = replace(form, view=rows.view).packing(workload, shape.panel)
    assert packing is not None, "weights are constants"
    groups = replace(held.groups(packing[1]), run=rows.run)
    parts = (held, _WindowStep(rows), _WindowTiles.of(rows, shape, groups.dtype))
    operands = ((packing[0], groups), groups, staged_pixels(rows, held.staged), 0, *parts)
    return DotContraction(name, workload, rows.view, Slots(workload), shape, target, *operands)


AMX_BF16_WINDOW = Algorithm(BF16_NAMES, _tiles_of(bf16_form, DType.BF16), bf16_windows, "bf16", any_short)
AMX_INTEGER_WINDOW = Algorithm(BYTE_NAMES, _tiles_of(byte_form, DType.I8), byte_windows)
