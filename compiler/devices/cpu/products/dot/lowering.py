"""Contractions whose inner step is a dot product of a group of narrow numbers in each 32-bit lane.

A group is four bytes, two 16-bit integers or two bf16. As in a contraction of fp32, a task works on a block of rows; B
is packed in panels of `n` columns, and the inner kernel keeps the sums of m x n results in registers. Here k is taken a
group at a time: a step loads vectors of B with one group of a column in each lane, and broadcasts one group of each row
of A.

Where B is packed without zeros, k goes through the steps that are left, whose places say where each reads A's rows: one
group, or a window, from which every lane picks the elements that its own weights are multiplied with.

Rows of A are read where they lie, or staged in the lane's scratch: copied along k in the form that the instruction
wants, with padding written between. The maps that follow run on a finished tile, column by column, so that what they
compute of a column alone is computed once for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Protocol

from compiler.codegen.expressions import INTEGERS, Emitter, Vector, has_vectors
from compiler.codegen.scalars import C_TYPES
from compiler.codegen.task_grid import TaskGrid
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.byte_end import ByteEnd, byte_end
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.strips import panel_strips, store_vector, strips
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import LINE_BYTES
from compiler.forms.contraction import Contraction, axes_of
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.forms.kept_groups import PlacedSteps
from compiler.forms.normal_form import Slots, is_contiguous
from compiler.forms.operand import bound_of
from compiler.ir.arithmetic import bounds
from compiler.ir.expr import Expr, Load, Where, conjunction
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Shape:
    """Register tile of rows x vectors; panel columns; block of rows and columns of a task."""

    rows: int
    vectors: int
    panel: int
    block_m: int
    block_n: int

    @staticmethod
    def of(tile: Tile, view: Contraction, target: CpuTarget) -> Shape:
        """The levels `block` and `register` of a tile."""
        vectors = tile.extent("register", "n") // target.vector_floats
        return Shape(
            rows=min(tile.extent("register", "m"), view.rows),
            vectors=vectors,
            panel=vectors * target.vector_floats,
            block_m=tile.extent("block", "m"),
            block_n=tile.extent("block", "n"),
        )


@dataclass(frozen=True)
class Staged:
    """What a row of A is made of: `value` where `condition` holds, else `padding`.

    `source` is the load that is copied, if it is one.
    """

    value: Expr
    padding: Expr
    condition: Expr | None
    source: Load | None


class Held(Protocol):
    """In which form operands are held, and what a finished sum of their products means."""

    @property
    def total(self) -> DType:
        """Of the sums."""

    @property
    def suffix(self) -> str:
        """Of the C functions that store elements of A."""

    @property
    def lone_group(self) -> str:
        """The C function that loads a group of A into the first lane of a vector."""

    @property
    def dot(self) -> str:
        """The C function of a step."""

    @property
    def folds_gelu(self) -> bool:
        """As of `Numerics`."""

    def in_registers(self, product: DotContraction) -> bool:
        """Whether a whole tile's sums stay in registers until the maps that follow are done, by code for each vector.

        Else they go through memory, which costs little beside long sums, and code is short.
        """

    def copy(self, product: DotContraction, to: str, source: str, count: str, emitter: Emitter) -> str:
        """A statement that stages `count` contiguous elements of A."""

    def fill(self, product: DotContraction, to: str, count: str, emitter: Emitter) -> str:
        """A statement that stages padding."""

    def element_of(self, value: str) -> str:
        """A scalar of A as it is staged."""

    def lane_of(self, values: Sequence[str]) -> str:
        """Vectors of B at consecutive k as one vector of groups."""

    def b(self, product: DotContraction) -> Expr:
        """An element of B as it is packed, before it is cut to its width."""

    def extra_bytes(self, product: DotContraction) -> int:
        """Scratch beside rows and panels."""

    def after_row(self, product: DotContraction) -> None:
        """What else is kept of the staged `row` number `m - first_row`."""

    def column_terms(self, product: DotContraction, emitter: Emitter, column: str) -> None:
        """What corrects the sums of a vector of columns, computed once for all rows."""

    def corrected(self, product: DotContraction, emitter: Emitter, value: str) -> str:
        """A vector of sums with that correction."""


class Step(Protocol):
    """The inner kernel: by which instructions a register tile has its sums."""

    @property
    def keeps_sums(self) -> bool:
        """Whether sums may stay in registers until maps are done."""

    def write(self, product: DotContraction, rows: int) -> None:
        """Writes the C function of a register tile of so many rows."""

    def multiply(self, product: DotContraction, rows: int) -> str:
        """The statement that gives `c` the sums of a register tile of so many rows."""

    def begin(self, product: DotContraction) -> None:
        """What the kernel's function does first."""

    def end(self, product: DotContraction) -> None:
        """What it does last."""


class Rows(Protocol):
    """Where the rows of A that register tiles go through lie, and which rows of the result they are."""

    def row_bytes(self, product: DotContraction) -> int:
        """From one row to the next where they are staged."""

    def a_bytes(self, product: DotContraction) -> int:
        """Of scratch for what is staged."""

    def heights(self, product: DotContraction) -> list[int]:
        """How many rows register tiles have."""

    def grid(self, product: DotContraction) -> TaskGrid:
        """How tasks cut the result."""

    def task(self, product: DotContraction) -> None:
        """Writes what a task does: declares its block, stages what it reads, and multiplies tile by tile."""

    def point(self, product: DotContraction) -> None:
        """Declares where the rows of a register tile lie: `a`."""

    def place(self, product: DotContraction) -> None:
        """Declares the axes of m for row number `row` of a register tile that begins at `row0`."""


class Panels(Protocol):
    """Panels of B that a task makes of something else than B."""

    def make(self, product: DotContraction) -> None:
        """Fills `panels` for the task's block of columns."""


@dataclass
class DotContraction(Lowering):
    """One lowering, put together from how operands are held, what a step is, where rows lie, what makes panels.

    `row_step` is the distance in bytes of A's rows where they are read in place, 0 where they are staged.
    """

    name: str
    workload: Workload
    view: Contraction
    slots: Slots
    shape: Shape
    target: CpuTarget
    packing: tuple[int, Groups | PlacedSteps] | None
    """The position of B where it is packed ahead of time, and how."""
    groups: Groups
    """All groups of B, as they are packed ahead of time, or by the task itself."""
    staged: Staged
    row_step: int
    held: Held
    step: Step
    rows: Rows
    made: Panels | None = field(default=None, kw_only=True)
    """What a task makes its panels by; None: of B, unless that is packed ahead of time."""

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.numerics = replace(self.slots.numerics, folds_gelu=self.held.folds_gelu)
        view, shape = self.view, self.shape
        self.trimming = Trimming(self.writer, view.kernel, self.slots, self.target.vector_floats)
        self.panel_bytes = self.groups.panel_elements * self.groups.dtype.bytes
        self.panels = -(-view.columns // shape.panel)
        self.block_panels = -(-shape.block_n // shape.panel)
        self.row_blocks = -(-view.rows // shape.block_m)
        self.column_blocks = -(-self.panels // self.block_panels)
        self.element = C_TYPES[self.groups.dtype] if self.groups.dtype is not DType.I8 else "uint8_t"
        self.row_bytes = self.rows.row_bytes(self)
        self.row_elements = self.row_bytes // self.groups.dtype.bytes
        self.vector_type = "vf" if self.held.total is DType.F32 else "vi"
        self.scalar_type = C_TYPES[self.held.total]

    @property
    def sums_of_panel(self) -> str:
        """Where the sums of the panel's columns lie, where they are packed."""
        if self.kept:
            return f"(const int32_t *)(packed + {self.kept.parts[1]}) + panel * {self.shape.panel}"
        return f"(const int32_t *)b + {self.groups.groups * self.shape.panel}"

    @property
    def kept(self) -> PlacedSteps | None:
        """B without zeros, where it is packed so."""
        return self.packing[1] if self.packing and isinstance(self.packing[1], PlacedSteps) else None

    # The function

    @property
    def makes_panels(self) -> bool:
        """Whether a task makes its panels of B itself."""
        return self.made is not None or not self.packing

    @property
    def b_bytes(self) -> int:
        """Of panels that a task makes."""
        return self.block_panels * self.panel_bytes if self.makes_panels else 0

    @property
    def grid(self) -> TaskGrid:
        """How tasks cut the result: as the rows do."""
        return self.rows.grid(self)

    def lower(self) -> Lowered:
        """The C functions of the product: blocks of the result, each one task."""
        view, writer = self.view, self.writer
        for rows in self.rows.heights(self):
            self.step.write(self, rows)
        roles = f"batch {axes_of(view.batch)}; m {axes_of(view.m)}; n {axes_of((view.n,))}; k {axes_of(view.k)}"
        with kernel_function(writer, self.name, self.workload, f"{roles} in groups of {self.groups.group}"):
            self._declare()
            self.step.begin(self)
            with self.trimming.tasks(self.grid):
                self.rows.task(self)
            self.step.end(self)
        packings = {self.packing[0]: self.packing[1]} if self.packing else {}
        scratch = self.rows.a_bytes(self) + self.b_bytes + self.held.extra_bytes(self)
        return Lowered(
            self.name, writer.text(), self.tasks, scratch, packings, self.grid, headers=frozenset(writer.headers)
        )

    def _declare(self) -> None:
        if self.packing and self.kept:
            slot = self.workload.kernel.inputs[self.packing[0]].name
            self.writer.line(f"const char *const packed = (const char *){slot};")
        if not self.row_step:
            self.writer.line(f"{self.element} *const rows = ({self.element} *)scratch;")
        if self.makes_panels:
            self.writer.line(f"char *const panels = scratch + {self.rows.a_bytes(self)};")
        self.writer.line("long packed_rows = -1, packed_panels = -1;")
        self.writer.line("(void)packed_rows, (void)packed_panels;")

    # A task: one block of rows against one block of columns

    def make_panels(self) -> None:
        """Makes the panels of a task, unless the task before has done so."""
        writer = self.writer
        if self.makes_panels:
            with writer.block(f"if (packed_panels != batch * {self.column_blocks} + column_block)"):
                writer.line(f"packed_panels = batch * {self.column_blocks} + column_block;")
                self.made.make(self) if self.made else self._make_panels()

    def multiply(self, tail: int) -> None:
        """Results of one register tile and one panel; where a block may end within a tile, `tail` is not 0."""
        writer, view, shape = self.writer, self.view, self.shape
        self.point_at_panel()
        self.rows.point(self)
        writer.line(f"{self.scalar_type} c[{shape.rows * shape.panel}] __attribute__((aligned(64)));")
        count = f"tw_least_of(past_row - row0, {shape.rows})" if tail else str(shape.rows)
        writer.line(f"const long count = {count};")
        if not (self.step.keeps_sums and self.held.in_registers(self)):
            self.sums(tail)
            self.epilogue()
            return
        tests = [f"count == {shape.rows}"] if tail else []
        tests += [f"panel < {view.columns // shape.panel}"] if view.columns % shape.panel else []
        with writer.block(f"if ({' && '.join(tests)})" if tests else ""):
            writer.line(self.step.multiply(self, shape.rows))
            writer.line(f"#pragma GCC unroll {shape.vectors}")
            with writer.block(f"for (long column = 0; column < {shape.panel}; column += TW_LANES)"):
                writer.line(f"const long {view.n} = panel * {shape.panel} + column;")
                self._columns(Vector(view.n), "column", shape.rows)
        if tests:
            with writer.block("else"):
                self.sums(tail)
                self.epilogue()

    def point_at_panel(self) -> None:
        """Declares `b`, the panel number `panel`; without zeros, also how many steps it has, and their places."""
        writer, view = self.writer, self.view
        if self.kept:
            _, _, places, steps, _ = self.kept.parts
            writer.line("const int32_t *const starts = (const int32_t *)packed + panel;")
            writer.line("const long steps = starts[1] - starts[0];")
            writer.line(f"const uint16_t *const places = (const uint16_t *)(packed + {places}) + starts[0];")
            writer.line(f"const char *const b = packed + {steps} + starts[0] * {self.kept.step_bytes}L;")
        elif self.packing and not self.makes_panels:
            batch = row_major([axis for axis in view.batch if axis in view.b.axes])
            slot = self.workload.kernel.inputs[self.packing[0]].name
            place = f"(({self.index(batch)}) * {self.panels}L + panel) * {self.panel_bytes}L"
            writer.line(f"const char *const b = (const char *){slot} + {place};")
        else:
            writer.line(f"const char *const b = panels + (panel - first_panel) * {self.panel_bytes}L;")

    def sums(self, tail: int) -> None:
        """c = the sums of a register tile, of which the last one has `tail` rows where that is not 0."""
        writer, view, shape = self.writer, self.view, self.shape
        if not tail or self.rows.heights(self) == [shape.rows]:
            writer.line(self.step.multiply(self, shape.rows))
            return
        if view.rows > shape.rows:
            writer.line(f"if (count == {shape.rows}) {self.step.multiply(self, shape.rows)}")
            writer.line(f"else {self.step.multiply(self, tail)}")
        else:
            writer.line(self.step.multiply(self, tail))

    def index(self, index: Index) -> str:
        """A position in C."""
        return Emitter(self.writer, self.slots.address).index(index)

    # What follows the product, on one finished tile

    def epilogue(self) -> None:
        """The maps on `count` rows of a register tile of sums, `c`."""
        panel_strips(self.writer, self.view.n, self.shape.panel, self.target.vector_floats, self._columns)

    def _columns(self, vector: Vector, column: str, rows: int = 0) -> None:
        """One vector of columns, row by row; with `rows` given of so many, each by code of its own."""
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.numerics)
        self.held.column_terms(self, emitter, column)
        for block in self.view.epilogue:
            for value in block.values:
                self._hoist(emitter, value)
        first = "0"
        if not vector.count and self.end:
            first = "four"
            self._four_rows(emitter, column, self.end, rows)
        if rows:
            self.writer.line(f"#pragma GCC unroll {rows}")
        with self.writer.block(f"for (long row = {first}; row < {rows or 'count'}; row++)"), emitter.scope():
            self._row(emitter, column, self.view.epilogue)

    def _row(self, emitter: Emitter, column: str, maps: Sequence[Block]) -> None:
        """Maps of a vector of sums of row number `row`."""
        self.rows.place(self)
        load = "tw_load" if self.held.total is DType.F32 else "tw_load_i"
        sums = self.writer.name("sums")
        self.writer.line(f"const {self.vector_type} {sums} = {load}(c + row * {self.shape.panel} + {column});")
        sums = self.held.corrected(self, emitter, sums)
        finish(emitter, self.slots, self.view.product, maps, sums, self.held.total)

    @cached_property
    def end(self) -> ByteEnd | None:
        """How the maps end in bytes that neighbouring columns store side by side.

        None where they do not, and for a target that has no vectors of 64 bytes.
        """
        if self.target.vector_floats * LANE_BYTES != LINE_BYTES:
            return None
        kept, tables = frozenset(self.slots.buffers), self.target.picks_from(LINE_BYTES, 1)
        end = byte_end(self.view.epilogue, kept, tables=tables)
        if end is None or self.slots.address(end.store.slot, end.store.index)[1].coefficient(self.view.n) != 1:
            return None
        return end

    def _four_rows(self, emitter: Emitter, column: str, end: ByteEnd, rows: int) -> None:
        """Rows as long as there are four: their bytes become one vector, of which each row stores a part."""
        writer = self.writer
        pointer, offset = self.slots.address(end.store.slot, end.store.index)
        step = [offset.coefficient(axis) for axis in reversed(self.view.m)]
        lanes = self.target.vector_floats
        dense = [lanes * prod(axis.extent for axis in self.view.m[len(step) - at :]) for at in range(len(step))]
        table = "0"
        if isinstance(end.table, Load):
            source, first = self.slots.address(end.table.slot, end.table.index)
            table = f"{source} + {first.const + bounds(end.dtype)[0]}"
        elif end.table is not None:
            table = f"{self.name}_table"
            numbers = ", ".join(map(str, end.table))
            writer.line(f"static const {C_TYPES[end.result]} {table}[] = {{{numbers}}};")
        writer.line("long four = 0;")
        if rows:
            writer.line(f"#pragma GCC unroll {rows}")
        with writer.block(f"for (; four + 4 <= {rows or 'count'}; four += 4)"):
            writer.line("void *to[4];")
            writer.line("vf real[4];")
            for part in range(4):
                with writer.block(""), emitter.scope():
                    writer.line(f"const long row = four + {part};")
                    self._row(emitter, column, end.maps)
                    writer.line(f"real[{part}] = {emitter.vector_of(end.value)};")
                    writer.line(f"to[{part}] = {pointer} + {emitter.index(offset)};")
            dense_rows = int(step == dense)
            writer.include("tw_quantise.h")
            writer.line(f"tw_quantised_rows_{INTEGERS[end.dtype]}(to, real, {end.zero}, {dense_rows}, {table});")

    def _hoist(self, emitter: Emitter, expr: Expr) -> None:
        """Computes the largest parts of an expression that read inputs at positions all rows share."""
        inputs = {slot.name for slot in self.workload.kernel.inputs}
        if isinstance(expr, Where):
            return
        same = expr.axes <= {self.view.n, *self.view.batch} and all(load.slot in inputs for load in expr.loads)
        if same and expr.loads and has_vectors(expr.dtype):
            emitter.vector_of(expr)
            return
        for child in expr.children:
            self._hoist(emitter, child)

    # Elements of A, staged

    def gather(self, axes: list[Axis], guards: Sequence[Expr], place: Index, emitter: Emitter) -> None:
        """Loops over k, testing each guard as soon as its axes are known; what it excludes is padding."""
        writer = self.writer
        inner = prod(axis.extent for axis in axes)
        ready = [guard for guard in guards if not guard.axes & set(axes)]
        waiting = [guard for guard in guards if guard not in ready]
        with ExitStack() as stack, emitter.scope():
            if ready:
                test = " && ".join(emitter.scalar(guard) for guard in ready)
                with writer.block(f"if (!({test}))"), emitter.scope():
                    writer.line(self.held.fill(self, f"row + {emitter.index(place * inner)}", str(inner), emitter))
                stack.enter_context(writer.block("else"))
                stack.enter_context(emitter.scope())
            if axes and len(axes) == self.run(waiting):
                self._copy_run(axes, waiting, place * inner, emitter)
            elif not axes:
                writer.line(f"row[{emitter.index(place)}] = {self.held.element_of(emitter.scalar(self.staged.value))};")
            elif len(axes) == 1 and is_contiguous(self.staged.value, axes[0], self.slots):
                self._strips(axes[0], waiting, place * inner + axes[0], emitter)
            else:
                with writer.block(f"for (long {axes[0]} = 0; {axes[0]} < {axes[0].extent}; {axes[0]}++)"):
                    self.gather(axes[1:], waiting, place * axes[0].extent + axes[0], emitter)

    def run(self, guards: Sequence[Expr]) -> int:
        """How many of the innermost axes of k A lies densely along; 0 for none.

        Guards may bound the outermost of them, and no other.
        """
        if self.staged.source is None:
            return 0
        offset = self.slots.address(self.staged.source.slot, self.staged.source.index)[1]
        step, count = 1, 0
        for axis in reversed(self.view.k):
            mine = [guard for guard in guards if axis in guard.axes]
            if offset.coefficient(axis) != step or any(bound_of(guard, axis) is None for guard in mine):
                break
            step, count = step * axis.extent, count + 1
            if mine:
                break
        return count

    def _copy_run(self, axes: Sequence[Axis], guards: Sequence[Expr], place: Index, emitter: Emitter) -> None:
        """A dense stretch of A, bounded by guards on its outermost axis."""
        writer, source = self.writer, self.staged.source
        assert source is not None
        pointer, offset = self.slots.address(source.slot, source.index)
        start = f"{pointer} + {emitter.index(offset.substitute({axis: Index.of(0) for axis in axes}))}"
        to, extent, inner = f"row + {emitter.index(place)}", axes[0].extent, prod(axis.extent for axis in axes[1:])
        if not guards:
            writer.line(self.held.copy(self, to, start, str(extent * inner), emitter))
            return
        writer.line(f"long from = 0, past = {extent};")
        for guard in guards:
            bound = bound_of(guard, axes[0])
            assert bound is not None
            name, test = ("from", ">") if bound[0] == "ge" else ("past", "<")
            writer.line(f"if ({emitter.index(bound[1])} {test} {name}) {name} = {emitter.index(bound[1])};")
        with writer.block(f"if (from <= 0 && past >= {extent})"), emitter.scope():
            writer.line(self.held.copy(self, to, start, str(extent * inner), emitter))
        with writer.block("else"), emitter.scope():
            writer.line(f"if (from > {extent}) from = {extent};")
            writer.line("if (past < from) past = from;")
            writer.line(f"if (from > 0) {self.held.fill(self, to, f'from * {inner}', emitter)}")
            count = f"(past - from) * {inner}"
            writer.line(self.held.copy(self, f"{to} + from * {inner}", f"{start} + from * {inner}", count, emitter))
            rest = f"({extent} - past) * {inner}"
            writer.line(f"if (past < {extent}) {self.held.fill(self, f'{to} + past * {inner}', rest, emitter)}")

    def _strips(self, axis: Axis, guards: Sequence[Expr], position: Index, emitter: Emitter) -> None:
        """The innermost k axis in vectors; guards along it become conditions on lanes."""
        condition, value = conjunction(list(guards)), self.staged.value
        expr = value if condition is None else Where(condition, value, self.staged.padding)

        def strip(vector: Vector) -> None:
            inner = Emitter(self.writer, emitter.address, vector, self.slots.extents, emitter.numerics)
            result = inner.vector_of(expr)
            store_vector(self.writer, f"row + {inner.index(position)}", result, vector, f"_{self.held.suffix}")

        strips(self.writer, axis, self.target.vector_floats, strip)

    # Panels of B, packed by the task

    def _make_panels(self) -> None:
        """panels[panel - first_panel][group][column] = B[k][n] for the task's block of columns, padded with zeros."""
        view, writer, shape = self.view, self.writer, self.shape
        n = view.n
        with writer.block("for (long panel = first_panel; panel < past_panel; panel++)"):
            writer.line(f"char *const packed = panels + (panel - first_panel) * {self.panel_bytes}L;")
            with writer.block(f"for (long column = 0; column < {shape.panel}; column += TW_LANES)"):
                writer.line(f"const long {n} = panel * {shape.panel} + column;")
                with writer.block(f"if ({n} + TW_LANES <= {view.columns})"):
                    self._pack_columns(Vector(n))
                with writer.block("else"):
                    writer.line(f"const long live = {n} < {view.columns} ? {view.columns} - {n} : 0;")
                    self._pack_columns(Vector(n, "live"))

    def _pack_columns(self, vector: Vector) -> None:
        """All groups of one vector of columns, and below them the sums if they are wanted."""
        writer, group = self.writer, self.groups.group
        depth, place = self.view.depth, f"((int32_t *)packed + {{at}} * {self.shape.panel} + column)"
        if self.groups.sums:
            writer.line("vi below = {0};")
        with writer.block(f"for (long group = 0; group < {depth // group}; group++)"):
            self._pack_group(vector, [f"(group * {group} + {at})" for at in range(group)], place.format(at="group"))
        if depth % group:
            rest = [f"{depth - depth % group + at}L" for at in range(depth % group)]
            with writer.block(""):
                self._pack_group(vector, rest, place.format(at=depth // group))
        if self.groups.sums:
            writer.line(f"tw_store_i({place.format(at=self.groups.groups)}, below);")

    def _pack_group(self, vector: Vector, positions: Sequence[str], place: str) -> None:
        values = []
        for position in positions:
            emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.numerics)
            inner = self.view.depth
            for axis in self.view.k:
                inner //= axis.extent
                emitter.names[axis] = f"({position} / {inner} % {axis.extent})" if len(self.view.k) > 1 else position
            values.append(emitter.vector_of(self.held.b(self)))
        if self.groups.sums:
            self.writer.line(f"below = below + {' + '.join(values)};")
        zero = f"({self.vector_type}){{0}}"
        padded = values + [zero] * (self.groups.group - len(values))
        self.writer.line(f"tw_store_i({place}, {self.held.lane_of(padded)});")
