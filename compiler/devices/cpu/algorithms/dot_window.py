"""Convolutions by dot products, of an image that is staged once: `integer_window` and `bf16_window`.

`integer` and `bf16` copy a row of A for each output: an image is copied once for each tap. Here a task copies the lines
of the image that it needs, with their padding, pixel beside pixel. The taps of a line of the window then lie side by
side, as one run of k, and its rows are read where they overlap. Lines lie in phases, one for each remainder of a
position by the stride (`compiler.forms.window_rows`); columns do not: a row may begin at any pixel.

Register tiles lie within lines where these hold whole ones, at a constant distance from row to row. Else they run on
from line to line, with a pointer for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from compiler.codegen.task_grid import TaskGrid
from compiler.devices.cpu.algorithms.algorithm import Algorithm, Tiles, any_short
from compiler.devices.cpu.blocking import even_part, parts
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.products.dot import DotContraction, DotProduct, Shape, bf16, integer
from compiler.devices.cpu.products.dot.images import (
    PIECE_NS,
    Phase,
    StagedImage,
    line_blocks,
    lines_of,
    staged_pixels,
    with_line_cuts,
)
from compiler.devices.cpu.products.dot.steps import add_products, store_sums
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import beyond_bounds
from compiler.forms.cache_lines import LINE_BYTES, whole_lines
from compiler.forms.contraction import packing_of
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.forms.integer import as_integer
from compiler.forms.normal_form import Slots
from compiler.forms.window_rows import WindowRows, window_rows
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

MOST_POINTERS = 9
"""Rows of a register tile that runs on from line to line: so many pointers stay in registers."""
LEAST_FILLED = 0.6
"""Of the rows that registers have room for: tiles within lines that have fewer are not proposed."""
MOST_PLANES = 4
"""Channels whose planes are staged pixel beside pixel by shuffles: 16 pixels of them fill two vectors of bf16."""
STAGE_BF16_PER_NS = 40.0
"""Bytes of an image of bf16 that are staged in a nanosecond."""
INTEGER_WINDOW_NAME, BF16_WINDOW_NAME = "integer_window", "bf16_window"


@dataclass(frozen=True)
class Image:
    """A window's image as a task stages it, for dot products of elements of `dtype`."""

    rows: WindowRows
    dtype: DType

    @property
    def is_joined(self) -> bool:
        """Whether the taps of a line lie side by side."""
        return self.rows.columns.dilation == 1

    @property
    def run(self) -> int:
        """Elements of k that lie side by side."""
        return self.rows.run * (len(self.rows.columns.taps) if self.is_joined else 1)

    @property
    def steps(self) -> int:
        """Groups of k, those that fill runs included."""
        return self.rows.view.depth // self.run * parts(self.run * self.dtype.bytes, LANE_BYTES)

    @property
    def line_pixels(self) -> int:
        """Of what a line of outputs reads."""
        side = self.rows.columns
        return (self.rows.width - 1) * side.stride + (len(side.taps) - 1) * side.dilation + 1

    @property
    def line_elements(self) -> int:
        """From one line to the next: whole groups."""
        return parts(self.line_pixels * self.rows.run * self.dtype.bytes, LANE_BYTES) * LANE_BYTES // self.dtype.bytes

    @property
    def line_phases(self) -> tuple[int, ...]:
        """Phases of lines."""
        return self.rows.lines.phases if self.rows.lines else (0,)

    def phase_elements(self, lines: int) -> int:
        """Of a phase, for so many lines of outputs."""
        return (lines - 1 + (self.rows.lines.most if self.rows.lines else 1)) * self.line_elements

    def image_bytes(self, lines: int) -> int:
        """Of what so many lines of outputs read, and a group that the last row may reach beyond."""
        octets = len(self.line_phases) * self.phase_elements(lines) * self.dtype.bytes
        return whole_lines(octets + LINE_BYTES)

    def offsets(self, lines: int) -> Iterator[int]:
        """For each run, in the order of k, the element that the first output reads."""
        side, columns = self.rows.lines, self.rows.columns
        for y in side.taps if side else (0,):
            phase = self.line_phases.index(side.phase(y)) if side else 0
            line = phase * self.phase_elements(lines) + (side.place(y) if side else 0) * self.line_elements
            for x in (0,) if self.is_joined else columns.taps:
                yield line + x * columns.dilation * self.rows.run

    def is_within(self, shape: Shape) -> bool:
        """Whether register tiles lie within lines."""
        return self.rows.width % shape.rows == 0

    @property
    def row_distance(self) -> int:
        """Bytes from one output of a line to the next."""
        return self.rows.columns.stride * self.rows.run * self.dtype.bytes

    @property
    def may_overrun(self) -> bool:
        """Whether runs are no whole groups: a row's last group then ends with elements of the next pixel."""
        return bool(self.run * self.dtype.bytes % LANE_BYTES)


@dataclass(frozen=True)
class _Windows:
    """The tiles of an image, for a product. `fetches`: whether they are charged for scratch that no cache holds yet."""

    algorithm: str
    image: Image
    product: DotProduct
    fetches: bool

    def tiles(self, target: CpuTarget, lanes: int) -> list[Proposal]:
        """Register tiles by blocks of lines, cheapest by the model first."""
        heights = line_blocks(self.image.rows.height, self.image.image_bytes, target, lanes)
        return with_line_cuts(
            [
                self._proposal(rows, vectors, lines, target, lanes)
                for rows, vectors in self._registers(target)
                for lines in heights
            ],
            lanes,
        )

    def _registers(self, target: CpuTarget) -> Iterator[tuple[int, int]]:
        """Rows and vectors: as many rows as fill the registers, and as many as a line has whole tiles of."""
        width, least = self.image.rows.width, self.product.parts
        for vectors in self.product.widths(least, target):
            most = self.product.most_rows(vectors, self.image.steps, target)
            within = max(rows for rows in range(1, min(most, width) + 1) if width % rows == 0)
            on = min(most, MOST_POINTERS)
            if within >= LEAST_FILLED * most or within >= on:
                yield within, vectors
            if on > within:
                yield even_part(self.image.rows.height * width, on), vectors

    def _proposal(self, rows: int, vectors: int, lines: int, target: CpuTarget, lanes: int) -> Proposal:
        image, view, rates = self.image, self.image.rows.view, target.rates
        panel, height = vectors * target.vector_floats, image.rows.height
        panels, blocks = parts(view.columns, panel), parts(height, lines)
        images = view.rows // (height * image.rows.width) * view.batches * blocks
        loads = (rows + vectors) * LANE_BYTES * target.vector_floats / rates.l1_per_ns
        step = max(rows * vectors / self.product.steps_per_ns, loads)
        tile = image.steps * step + rows * vectors * self.product.finish_ns
        staged = image.image_bytes(lines) / self.product.stage_per_ns + lines * len(image.line_phases) * PIECE_NS
        fetched = image.image_bytes(lines) / rates.l3_per_ns if self.fetches else 0.0
        weights = panels * panel * image.steps * LANE_BYTES
        streamed = weights / rates.weights_per_ns if weights > target.l2_bytes // 2 else 0.0
        tiles = panels * parts(lines * image.rows.width, rows)
        seconds = 1e-9 * (CALL_NS + fetched + images * (staged + max(tiles * tile, streamed)))
        wide = panels if images >= lanes else parts(panels, lanes)
        levels = (
            Level("block", (("m", lines * image.rows.width), ("n", wide * panel))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("n", target.vector_floats),)),
        )
        scopes = in_registers(view.kernel)
        return Proposal(Tile(self.algorithm, levels, scopes), seconds, row_blocks=blocks if images == blocks else 1)


@dataclass(frozen=True)
class _WindowRows:
    """The `Rows` of windows: register tiles within the lines of an image, or on from line to line."""

    image: Image
    staged: StagedImage

    @staticmethod
    def of(image: Image, shape: Shape) -> _WindowRows:
        """With phases of lines; their columns are whole."""
        lines, run = lines_of(image.rows, shape), image.rows.run
        phases = [Phase(line, 0, image.line_pixels, 1) for line in image.line_phases]
        planes = MOST_PLANES if image.dtype is DType.BF16 else 0
        elements = (run, image.line_elements, image.phase_elements(lines))
        return _WindowRows(image, StagedImage(image.rows, lines, phases, *elements, planes))

    def row_bytes(self, product: DotContraction) -> int:
        """From one output of a line to the next."""
        return self.image.row_distance

    def a_bytes(self, product: DotContraction) -> int:
        """Of the image."""
        return self.image.image_bytes(self.staged.block_lines)

    def heights(self, product: DotContraction) -> list[int]:
        """All register tiles have as many rows; of the last one some may not be stored."""
        return [product.shape.rows]

    def grid(self, product: DotContraction) -> TaskGrid:
        """By lines."""
        return self.staged.grid(product)

    def task(self, product: DotContraction) -> None:
        """The lines of a block, which may end within a register tile where these run on."""
        writer, rows = product.writer, self.image.rows
        past_row = f"const long past_row = (past_line - first_line) * {rows.width};"
        self.staged.begin_task(product, past_row)
        with (
            writer.block("for (long panel = first_panel; panel < past_panel; panel++)"),
            writer.block(f"for (long row0 = 0; row0 < past_row; row0 += {product.shape.rows})"),
        ):
            product.multiply(0 if self.image.is_within(product.shape) else product.view.rows)

    def point(self, product: DotContraction) -> None:
        """Declares the line and the column of the first row, and where it lies, or where all do."""
        writer, width, rows = product.writer, self.image.rows.width, product.shape.rows
        writer.line(f"const long line0 = row0 / {width}, column0 = row0 % {width};")
        line_bytes, distance = self.staged.line_elements * product.groups.dtype.bytes, self.image.row_distance
        place = f"(const char *)rows + line0 * {line_bytes}L + column0 * {distance}L"
        if self.image.is_within(product.shape):
            writer.line(f"const char *const a = {place};")
            return
        writer.line(f"const char *a[{rows}];")
        writer.line(f"a[0] = {place};")
        with writer.block(f"for (long row = 1, column = column0; row < {rows}; row++)"):
            writer.line(f"const long ends = ++column == {width};")
            writer.line(f"const long step = ends ? {line_bytes - (width - 1) * distance}L : {distance};")
            writer.line("a[row] = a[row - 1] + (row0 + row < past_row ? step : 0);")
            writer.line("column = ends ? 0 : column;")

    def place(self, product: DotContraction) -> None:
        """Declares the line and the column of row number `row`."""
        writer, rows = product.writer, self.image.rows
        line, column = "line0", "column0 + row"
        if not self.image.is_within(product.shape):
            line, column = f"(row0 + row) / {rows.width}", f"(row0 + row) % {rows.width}"
        writer.line(f"const long {rows.columns.output} = {column};")
        if rows.lines:
            writer.line(f"const long {rows.lines.output} = first_line + {line};")


@dataclass(frozen=True)
class _WindowStep:
    """The `Step` of such rows."""

    image: Image
    keeps_sums = True

    def begin(self, product: DotContraction) -> None:
        """Nothing is done before."""

    def end(self, product: DotContraction) -> None:
        """Nothing is done after."""

    def multiply(self, product: DotContraction, rows: int) -> str:
        """Of the rows that begin at `a`, or at each of `a`."""
        return f"{product.name}_{rows}(a, b, c);"

    def write(self, product: DotContraction, rows: int) -> None:
        """c[rows][panel] = the sums over all runs of the rows that begin at `first`, or at each of `first`."""
        writer, shape, image = product.writer, product.shape, self.image
        is_within = image.is_within(shape)
        size, groups = product.groups.dtype.bytes, product.groups.run_groups
        offsets = [offset * size for offset in image.offsets(lines_of(image.rows, shape))]
        writer.line(f"static const int {product.name}_offsets[] = {{{', '.join(map(str, offsets))}}};")
        first = "const char *first" if is_within else "const char *const *first"
        head = f"void {product.name}_{rows}({first}, const char *panel, {product.scalar_type} *c)"
        # Of an odd run of bf16 the last group is read without what follows: 0 times that is NaN where it is infinite.
        cuts_ends = image.may_overrun and product.held.total is DType.F32

        def row_at(row: int, offset: str) -> str:
            return f"a + {offset} + {row * image.row_distance}L" if is_within else f"a{row} + {offset}"

        with writer.block(f"static inline __attribute__((always_inline)) {head}"):
            writer.line(f"{product.vector_type} acc[{rows}][{shape.vectors}] = {{0}};")
            with writer.block(f"for (long run = 0; run < {len(offsets)}; run++)"):
                at = f"{product.name}_offsets[run]"
                if is_within:
                    writer.line(f"const char *const a = first + {at};")
                else:
                    for row in range(rows):
                        writer.line(f"const char *const a{row} = first[{row}] + {at};")
                writer.line(f"const char *const b = panel + run * {groups * shape.panel * LANE_BYTES}L;")
                with writer.block(f"for (long k = 0; k < {groups - cuts_ends}; k++)"):
                    add_products(product, rows, "k", row_at)
                if cuts_ends:
                    with writer.block(""):
                        writer.line(f"const long k = {groups - 1};")
                        writer.include("tw_pixels.h")
                        add_products(product, rows, "k", row_at, "tw_pixel_end")
            store_sums(product, rows)
        writer.line()


Found = tuple[Image, DotProduct]


def bf16_image(workload: Workload, target: CpuTarget) -> Found | None:
    """The kernel's image for products of bf16, with the product; None where it has none.

    Beside tiles of AMX runs are whole groups.
    """
    product = bf16.product_of(workload, target)
    if product is None or not product.packed or beyond_bounds(product.view.kernel):
        return None
    staged = bf16.staged_of(product.view.a)
    rows = window_rows(product.view, staged.condition, staged.value)
    image = Image(rows, DType.BF16) if rows else None
    if image is None or (image.may_overrun and target.has_tiles):
        return None
    if not target.has_tiles:
        product = replace(bf16.finished(product, target), stage_per_ns=STAGE_BF16_PER_NS)
    return image, product


def byte_image(workload: Workload, target: CpuTarget) -> Found | None:
    """The same for products of bytes; zero points of weights are known, those of pixels the same for all of them."""
    product, form = integer.product_of(workload, target), as_integer(workload)
    if product is None or form is None or not product.packed or beyond_bounds(form.view.kernel):
        return None
    staged = integer.held(form, target).staged
    shift = form.b_shift if target.multiplies_bytes else form.b.fixed_zero
    if form.b.fixed_zero != shift or staged.padding.axes & {*form.view.m, *form.view.k}:
        return None
    rows = window_rows(form.view, staged.condition, staged.value)
    return (Image(rows, DType.I8 if target.multiplies_bytes else DType.I16), product) if rows else None


def _tiles_of(algorithm: str, image_of: Callable[[Workload, CpuTarget], Found | None]) -> Tiles:
    def tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
        """Legal tiles, cheapest first."""
        found = image_of(workload, target)
        if found is None:
            return []
        fetches = found[0].dtype is DType.BF16 and not target.has_tiles
        return _Windows(algorithm, *found, fetches).tiles(target, lanes)

    return tiles


def bf16_windows(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel of which `bf16_image` finds the image: levels `block` (whole lines of m) and `register`."""
    found = bf16_image(workload, target)
    assert found is not None, "the tile stage offers windows only where there are some"
    image, shape = found[0], Shape.of(tile, found[0].rows.view, target)
    packing = packing_of(image.rows.view, workload, shape.panel)
    assert packing is not None, "weights are constants"
    groups = Groups(packing[1], DType.BF16, run=image.run, align=LANE_BYTES)
    staged = staged_pixels(image.rows, bf16.staged_of(found[1].view.a))
    operands = (
        (packing[0], groups),
        groups,
        staged,
        0,
        bf16.held(target),
        _WindowStep(image),
        _WindowRows.of(image, shape),
    )
    slots, view = Slots(workload), image.rows.view
    return DotContraction(name, workload, view, slots, shape, target, *operands)


def byte_windows(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """The same for bytes."""
    found, form = byte_image(workload, target), as_integer(workload)
    assert found is not None, "the tile stage offers windows only where there are some"
    assert form is not None
    image, shape = found[0], Shape.of(tile, found[0].rows.view, target)
    held = integer.held(form, target)
    packing = replace(form, view=image.rows.view).packing(workload, shape.panel)
    assert packing is not None, "weights are constants"
    groups = replace(held.groups(packing[1]), run=image.run, align=LANE_BYTES)
    staged = staged_pixels(image.rows, held.staged)
    operands = ((packing[0], groups), groups, staged, 0, held, _WindowStep(image), _WindowRows.of(image, shape))
    slots, view = Slots(workload), image.rows.view
    return DotContraction(name, workload, view, slots, shape, target, *operands)


INTEGER_WINDOW = Algorithm((INTEGER_WINDOW_NAME,), _tiles_of(INTEGER_WINDOW_NAME, byte_image), byte_windows)
BF16_WINDOW = Algorithm((BF16_WINDOW_NAME,), _tiles_of(BF16_WINDOW_NAME, bf16_image), bf16_windows, "bf16", any_short)
