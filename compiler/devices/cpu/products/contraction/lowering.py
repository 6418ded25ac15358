"""The `contraction` algorithm: matrix products and convolutions as register-blocked C.

A task works on a block of rows and columns. Rows of A are read in place where they lie in constant steps. Else they are
read from an image of what the block needs, staged in the lane's scratch with its padding, or at last from rows gathered
there (an implicit im2col). B is packed in panels of `n` columns, ahead of time when it is a constant.

A register tile is a rectangle of rows along the two innermost m axes (output positions of a convolution), so that its
rows lie at constant distances. The remainders at the ends have micro-kernels of their own.

The register tile and its place among the cache levels follow Goto and van de Geijn (ACM TOMS 34(3), 2008), the
rectangle of output positions Georganas et al. (SC 2018, "Anatomy of high-performance deep learning convolutions on SIMD
architectures").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import prod

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.scalars import C_TYPES
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.blocking import rest_step
from compiler.devices.cpu.codegen.across import Sums, lie_across, write_across
from compiler.devices.cpu.codegen.epilogue import accesses_of, are_simple, finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.micro_kernel import MicroKernel, Nest, stretches
from compiler.devices.cpu.codegen.operands import Gather, write_panels, write_stage
from compiler.devices.cpu.codegen.trimming import Span, Trimming
from compiler.devices.cpu.products.contraction.ahead import place_ahead, share_of
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import within
from compiler.forms.cache_lines import ALIAS, LINE, whole_lines
from compiler.forms.contraction import Contraction, as_contraction, axes_of, packing_of
from compiler.forms.normal_form import Slots, substitute
from compiler.forms.operand import InPlace, Staged, merged, offsets_of, operand, row_axes
from compiler.ir.expr import Load
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.kernel import Block, Store
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tile import Tile

Columns = tuple[int, ...]
"""The live columns of each vector of a panel."""


def contraction(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_contraction` accepts, blocked as `tile` says: levels `block` and `register`, axes y, m and n.

    m is the innermost row axis, y the one around it; further ones have one point in a task. Without a y there is but
    one row axis, or rows are gathered and counted over all of them.

    With a k the block's sums are taken segment by segment of k for all of its rows, so that B is read once. Else each
    register tile takes all of k.
    """
    view = as_contraction(workload)
    assert view is not None, "the tile stage offers `contraction` only to kernels of that form"
    return BlockedProduct(name, workload, view, tile, target, Writer())


class BlockedProduct(Lowering):
    """One lowering: the kernel in matrix form, how its operands are reached, and the text being written.

    `rows` are the numbers of rows that a block may have along the innermost row axis, where they are not those that the
    tile's blocks leave.
    """

    def __init__(
        self,
        name: str,
        workload: Workload,
        view: Contraction,
        tile: Tile,
        target: CpuTarget,
        writer: Writer,
        rows: Sequence[int] = (),
    ) -> None:
        self.name, self.workload, self.target = name, workload, target
        self.writer, self.slots = writer, Slots(workload)
        self.lanes = target.vector_floats
        self.panel = tile.extent("register", "n")
        self.packing: tuple[int, Panels] | None = packing_of(view, workload, self.panel)
        self.packed = workload.kernel.inputs[self.packing[0]].name if self.packing else ""
        self.access = operand(view, self.slots, _extents(view, tile, "register"))
        self.gather: Gather | None = None
        self.counted: dict[Axis, tuple[Axis, ...]] = {}
        if self.access is None:
            pitch = -(-view.depth // LINE) * LINE
            pitch += LINE if pitch % ALIAS == 0 else 0
            self.gather = Gather(self.writer, self.slots, view, pitch, self.lanes)
            counted = view.m
            view = _with_one_row_axis(view)
            self.counted[view.m[0]] = counted
        self.view = view
        self.trimming = Trimming(writer, view.kernel, self.slots, self.lanes)
        self.part, self.block = _extents(view, tile, "register"), _extents(view, tile, "block")
        self.counts: dict[Axis, tuple[int, ...]] = {
            axis: (self.block[axis], axis.extent % self.block[axis]) for axis in view.m
        }
        clipped = [axis for axis in view.m if not rows and self.trimming.clips(self._rows_of(axis))]
        self.rests = {axis: rest_step(self.part[axis]) for axis in clipped}
        if rows:
            self.counts[view.m[-1]] = tuple(rows)
        for axis in view.m if not rows else ():
            whole = self.block[axis] in (axis.extent, self.block[axis] // self.part[axis] * self.part[axis])
            assert whole, "a block holds whole register tiles"
        self.panels = -(-view.columns // self.panel)
        self.block_panels = -(-tile.extent("block", "n") // self.panel)
        self.column_blocks = -(-self.panels // self.block_panels)
        left = view.columns - (self.panels - 1) * self.panel
        self.full: Columns = (self.lanes,) * (self.panel // self.lanes)
        last = tuple(min(self.lanes, left - at) for at in range(0, left, self.lanes))
        self.tails = () if last == self.full else (last,)
        ended = not rows and not self.tails and self.trimming.clips((view.n,))
        self.shorter: tuple[Columns, ...] = tuple(self.full[:count] for count in range(1, len(self.full)) if ended)
        """The last panel where a size ends columns: as many vectors as it takes."""
        self.steps = self._steps()
        self.nest = merged([(axis.extent, self.steps[axis]) for axis in view.k])
        self.stretches = stretches(self.nest)
        sides = {*view.batch, *view.m}
        self.bounds = tuple(
            one.bound for one in self.trimming.beyond if not self.counted and one.bound.place.axes <= sides
        )
        self.epilogue = tuple(within(block, self.bounds) for block in view.epilogue)
        alone = {*self.bounds} <= {*self.trimming.overwritten(view.epilogue)}
        self.overwrites = bool(self.bounds) and not rows and alone
        self.asked = () if self.overwrites else self.bounds
        """Bounds that tiles ask about: where rows beyond sizes are stored again, none."""
        self.in_registers = not self.stretches.outer and are_simple(view, self.slots, self.epilogue)
        self.tiles = prod(-(-self.block[axis] // self.part[axis]) for axis in view.m)
        self.by_stretch = tile.extent("block", "k") > 0 and not self.in_registers
        self.across = (
            not (rows or self.in_registers) and self._are_lines and lie_across(view, self.slots, self.epilogue)
        )
        self.share = self._share()
        self.fetched = self.share * (self.stretches.steps if self.by_stretch else view.depth)
        """Floats that a register tile fetches ahead."""

    @property
    def _are_lines(self) -> bool:
        """Whether the rows of a register tile are neighbours among those of a block."""
        (*outer, m) = self.view.m[-2:] or (None,)
        if m is None or not outer or self.part[outer[0]] == 1:
            return m is not None
        return self.part[m] == self.block[m] and m.extent % self.block[m] == 0

    def _share(self) -> int:
        """Floats of B that each step of k fetches ahead, of the segment or the panel that is read next."""
        has_next = self.panels > 1 or self.by_stretch
        return share_of(self.panel, self.tiles) if self.packing and has_next else 0

    def _ahead(self, wanted: str) -> str:
        """The place from which a register tile fetches, in C; `b` where none does."""
        if not (self.packing and self.share):
            return "b"
        return place_ahead(wanted, self.fetched, self.packed, self.packing[1].elements)

    @property
    def _innermost(self) -> Axis | None:
        return self.view.m[-1] if self.view.m else None

    def _steps(self) -> Mapping[Axis, int]:
        """Distance in elements between neighbours along each m and k axis, as the micro-kernel finds them."""
        if isinstance(self.access, InPlace):
            return self.access.steps
        if isinstance(self.access, Staged):
            return self.access.steps((*self.view.m, *self.view.k), self.block, self._innermost)
        assert self.gather is not None
        dense, steps = 1, {self.view.m[0]: self.gather.pitch}
        for axis in reversed(self.view.k):
            steps[axis] = dense
            dense *= axis.extent
        return steps

    @property
    def _a_bytes(self) -> int:
        if self.gather is not None:
            return self.block[self.view.m[0]] * self.gather.pitch * 4
        if isinstance(self.access, Staged):
            return whole_lines(4 * self.access.floats(self.block, self._innermost))
        return 0

    @property
    def _b_bytes(self) -> int:
        return 0 if self.packing else self.block_panels * self.panel * self.view.depth * 4

    @property
    def c_bytes(self) -> int:
        """Scratch of sums that do not stay in registers: `float *c`."""
        whole = self.by_stretch or self.across
        rows = prod((self.block if whole else self.part).values()) + (self.lanes if self.across else 0)
        return 0 if self.in_registers else rows * self.panel * 4

    @property
    def _live_c_bytes(self) -> str:
        """Those of the rows that a block has without those beyond a size, in C."""
        if not self.trimming.beyond or not self.view.m:
            return str(self.c_bytes)
        outer = self.view.m[-2:][0]
        return f"(past_{outer} - first_{outer}) * {self.c_bytes // self.block[outer]}L"

    def lower(self) -> Lowered:
        """The C functions of the product: blocks of the result, each one task."""
        view = self.view
        self.functions()
        roles = f"batch {axes_of(view.batch)}; m {axes_of(view.m)}; n {axes_of((view.n,))}; k {axes_of(view.k)}"
        with kernel_function(self.writer, self.name, self.workload, roles):
            self._declare()
            with self.trimming.tasks(self.grid):
                self._task()
        packings = {self.packing[0]: self.packing[1]} if self.packing else {}
        scratch = self._a_bytes + self._b_bytes + self.c_bytes
        return Lowered(
            self.name,
            self.writer.text(),
            self.tasks,
            scratch,
            packings,
            self.grid,
            headers=frozenset(self.writer.headers),
        )

    @property
    def grid(self) -> TaskGrid:
        """As `_task` takes a tile's number apart; a row axis that stands for several is cut where it counts them."""
        view = self.view
        rows = [Cut(self.counted.get(axis, (axis,)), self.block[axis]) for axis in view.m]
        columns = Cut((view.n,), self.block_panels * self.panel)
        return TaskGrid(view.kernel, (*one_by_one(view.batch), *rows, columns))

    def functions(self) -> None:
        """The C functions of all register tiles."""
        for columns in (*((self.full,) if self.panels > len(self.tails) else ()), *self.tails, *self.shorter):
            for rows in self._variants():
                self._function(rows, columns)

    def _declare(self) -> None:
        if self._a_bytes:
            self.writer.line("float *const rows = (float *)scratch;")
            self.writer.line("long rows_of = -1; /* the block whose rows are there */")
        if self._b_bytes:
            self.writer.line(f"float *const panels = (float *)(scratch + {self._a_bytes});")
            self.writer.line("long panels_of = -1; /* the batch and block whose panels are there */")
        if self.c_bytes:
            self.writer.line(f"float *const c = (float *)(scratch + {self._a_bytes + self._b_bytes});")

    # A task: one block of rows against one block of columns

    def _task(self) -> None:
        writer, view = self.writer, self.view
        blocks = [Axis(f"block_{axis}", -(-axis.extent // self.block[axis])) for axis in view.m]
        several = self.column_blocks > 1
        writer.line(f"const long column_block = {f'tile % {self.column_blocks}' if several else '0'};")
        writer.line(f"const long block = {f'tile / {self.column_blocks}' if several else 'tile'};")
        decode(writer, (*view.batch, *blocks), "block")
        for axis, block in zip(view.m, blocks, strict=True):
            size = self.block[axis]
            writer.line(f"const long first_{axis} = {f'{block} * {size}' if block.extent > 1 else '0'};")
            past = (
                f"tw_least_of({axis.extent}, first_{axis} + {size})" if axis.extent % size else f"first_{axis} + {size}"
            )
            writer.line(f"const long {self._ends(axis)} = {past};")
        writer.line(f"const long first_panel = column_block * {self.block_panels};")
        ends = "end_panel" if self.trimming.beyond else "past_panel"
        writer.line(f"const long {ends} = tw_least_of({self.panels}, first_panel + {self.block_panels});")
        if self.trimming.beyond:
            self._clip()
        if self._a_bytes:
            with writer.block("if (rows_of != block)"):
                writer.line("rows_of = block;")
                self._bring_rows()
        if self._b_bytes:
            batch = f"block / {prod(block.extent for block in blocks)} * {self.column_blocks} + column_block"
            with writer.block(f"if (panels_of != {batch})"):
                writer.line(f"panels_of = {batch};")
                write_panels(writer, self.slots, view, self.panel)
        for axis in view.m[:-2]:
            writer.line(f"const long {axis} = first_{axis};")
        self.products()
        if self.overwrites:
            self._overwrite()

    def _ends(self, axis: Axis) -> str:
        """The C variable of where a block's rows end along an axis before those beyond a size are left out."""
        return f"{'end' if self.trimming.beyond else 'past'}_{axis}"

    def _clip(self) -> None:
        """Declares where a block's panels and rows end once those beyond a size are left out, one axis at a time.

        Whole panels are, and whole register tiles; what lies in them is stored here.
        """
        writer, view, panel = self.writer, self.view, self.panel
        writer.line(f"const long end_column = tw_least_of({view.columns}, end_panel * {panel});")
        whole = [Span(self._rows_of(axis), f"first_{axis}", self._ends(axis)) for axis in view.m]
        columns = Span((view.n,), f"first_panel * {panel}", "end_column")
        rest = self.lanes if self.shorter else 0
        writer.line(f"const long past_column = {self.trimming.clip(columns, panel, whole, rest)};")
        writer.line(f"const long past_panel = (past_column + {panel - 1}) / {panel};")
        columns = replace(columns, past="past_column")
        for place, axis in enumerate(view.m):
            before = [Span(self._rows_of(done), f"first_{done}", f"past_{done}") for done in view.m[:place]]
            after = [Span(self._rows_of(other), f"first_{other}", self._ends(other)) for other in view.m[place + 1 :]]
            rows = Span(self._rows_of(axis), f"first_{axis}", self._ends(axis))
            past = self.trimming.clip(rows, self.part[axis], (*before, *after, columns), self.rests.get(axis, 0))
            writer.line(f"const long past_{axis} = {past};")

    def _overwrite(self) -> None:
        """Stores what lies beyond sizes in the last register tiles, which stored what they computed there."""
        spans = {axis: Span((axis,), f"first_{axis}", f"past_{axis}") for axis in self.view.m}
        columns = Span((self.view.n,), f"first_panel * {self.panel}", "past_column")
        for axis, span in spans.items():
            others = [other for each, other in spans.items() if each != axis]
            self.trimming.overwrite(span, self.part[axis] - 1, (*others, columns))

    def _rows_of(self, axis: Axis) -> tuple[Axis, ...]:
        """The kernel's axes that a row axis stands for."""
        return self.counted.get(axis, (axis,))

    def products(self) -> None:
        """A block of rows, from first_.. to past_.. along each m axis, against panels first_panel .. past_panel - 1."""
        writer, whole = self.writer, self.panels - len(self.tails)
        past = f"tw_least_of({whole}, past_panel)" if self.tails else "past_panel"
        past = f"past_column / {self.panel}" if self.shorter else past
        if whole:
            with writer.block(f"for (long panel = first_panel; panel < {past}; panel++)"):
                self._panel(self.full)
        for columns in self.shorter:
            with writer.block(f"if (past_column % {self.panel} == {sum(columns)})"):
                writer.line(f"const long panel = past_column / {self.panel};")
                self._panel(columns)
        for tail in self.tails:
            with writer.block(f"if (past_panel == {self.panels})"):
                writer.line(f"const long panel = {whole};")
                self._panel(tail)

    def _panel(self, columns: Columns) -> None:
        """The block's rows against one panel, of which each vector has so many live columns."""
        size = self.panel * self.view.depth
        b = "panels + (panel - first_panel)" if self._b_bytes else f"{self._packed_batch(size)} + panel"
        self.writer.line(f"const float *const b = {b} * {size}L;")
        if self.by_stretch:
            self._stretch_by_stretch(columns)
            return
        if self.share:
            self.writer.line(f"const float *next = {self._ahead(f'b + {size}L')};")
        self._tiles(self.view.m[-2:], (), columns)
        if self.across:
            self._finish_block(columns)

    def _stretch_by_stretch(self, columns: Columns) -> None:
        """The sums of a block against one panel, then the maps.

        Each segment of k is taken for all of the block's rows, so that B is read once.
        """
        writer = self.writer
        writer.line(f"memset(c, 0, {self._live_c_bytes});")
        with self.stretches.loops(writer):
            writer.line(f"const float *const b_at = b + done * {self.panel};")
            writer.line(f"const float *next = {self._ahead(f'b_at + {self.stretches.steps * self.panel}L')};")
            self._tiles(self.view.m[-2:], (), columns)
        self._finish_block(columns)

    def _finish_block(self, columns: Columns) -> None:
        """The maps on the sums of all rows of the block."""
        rows = {axis: (f"first_{axis}", f"past_{axis}", self.block[axis]) for axis in self.view.m[-2:]}
        if not self.across:
            self._finish(rows, columns)
            return
        epilogue = self.view.epilogue if self.asked else self.epilogue
        ends = [(axis, first, past) for axis, (first, past, _) in rows.items()]
        sums = Sums(self._sums_of_row(rows), self.panel, columns, self.lanes)
        write_across(
            self.writer, self.view, ends, sums, lambda vector, sums: self._mapped_at(vector, {}, sums, epilogue)
        )

    def _finish(self, rows: Mapping[Axis, tuple[str, str, int]], columns: Columns) -> None:
        """The maps on the sums in `c`.

        `rows` gives for each axis the first row, one past the last, and how many rows `c` has room for.
        """
        with ExitStack() as stack:
            for axis, (first, past, _) in rows.items():
                stack.enter_context(self.writer.block(f"for (long {axis} = {first}; {axis} < {past}; {axis}++)"))
            self.writer.line(f"const float *const sums = {self._sums_of_row(rows)};")
            self._rolled(columns)

    def _sums_of_row(self, rows: Mapping[Axis, tuple[str, str, int]]) -> str:
        """Where in `c` the sums of a row begin."""
        row = "0"
        for axis, (first, _, count) in rows.items():
            row = f"{axis} - {first}" if row == "0" else f"({row}) * {count} + {axis} - {first}"
        return f"c + ({row}) * {self.panel}"

    def _packed_batch(self, size: int) -> str:
        """Where the panels of the task's batch begin."""
        batch = row_major([axis for axis in self.view.batch if axis in self.view.b.axes])
        at = f" + ({self._index(batch)}) * {self.panels * size}L"
        return f"{self.packed}{'' if batch == Index.of(0) else at}"

    def _bring_rows(self) -> None:
        if self.gather is not None:
            (row,) = self.view.m
            self.gather.write(row, f"first_{row}", f"past_{row}")
            return
        assert isinstance(self.access, Staged)
        pitches = self.access.pitches(self.block, self._innermost)
        bounds = {axis: (f"first_{axis}", f"past_{axis}") for axis in self.view.m}
        write_stage(self.writer, self.slots, self.access, pitches, bounds)

    # Register tiles over the block's rows

    def _variants(self) -> Iterator[tuple[int, ...]]:
        """Rows along y and m of every kind of register tile: whole ones, and those at the ends of an axis."""
        kinds: list[tuple[int, ...]] = [()]
        for axis in self.view.m[-2:]:
            kinds = [(*kind, rows) for kind in kinds for rows in self._lengths(axis)]
        return iter(kinds)

    def _lengths(self, axis: Axis) -> tuple[int, ...]:
        """Of register tiles along an axis: whole ones, if any block holds one, and what blocks or sizes leave over."""
        part, counts = self.part[axis], self.counts[axis]
        shorter = range(0, min(part, max(counts)), self.rests[axis]) if axis in self.rests else ()
        rests = sorted({*(count % part for count in counts), *shorter} - {0})
        return (*((part,) if max(counts) >= part else ()), *rests)

    def _tiles(self, axes: Sequence[Axis], rows: tuple[int, ...], columns: Columns) -> None:
        """Loops over register tiles along `axes`; `rows` are the tile's rows along the axes outside."""
        if not axes:
            self._tile(rows, columns)
            return
        axis, part = axes[0], self.part[axes[0]]
        lengths = self._lengths(axis)
        with self.writer.block(""):
            self.writer.line(f"long {axis} = first_{axis};")
            if part in lengths:
                with self.writer.block(f"for (; {axis} + {part} <= past_{axis}; {axis} += {part})"):
                    self._tiles(axes[1:], (*rows, part), columns)
            rests = [length for length in lengths if length != part]
            for rest in rests:
                test = f"past_{axis} - {axis} == {rest}" if len(rests) > 1 else f"{axis} < past_{axis}"
                with self.writer.block(f"if ({test})"):
                    self._tiles(axes[1:], (*rows, rest), columns)

    def _kernel(self, rows: tuple[int, ...], columns: Columns, nest: Nest) -> MicroKernel:
        tile = [*zip(self.view.m[-2:], rows, strict=True)]
        return MicroKernel(offsets_of(tile, self.steps), nest, len(columns), self.lanes, wide=self.panel)

    def _name(self, rows: tuple[int, ...], columns: Columns) -> str:
        return f"{self.name}_{'x'.join(map(str, rows)) or '1'}_{sum(columns)}"

    def _function(self, rows: tuple[int, ...], columns: Columns) -> None:
        """The C function of a register tile: its sums with the maps after them, or the sums alone.

        The sums alone are all of them or those of one segment of k.
        """
        writer, name = self.writer, self._name(rows, columns)
        writer.line(f"/* {' x '.join(map(str, rows)) or '1'} rows, {sum(columns)} columns */")
        if self.in_registers:
            slots = [f"{declaration} {slot}" for slot, declaration in self._mapped_slots().items()]
            axes = [f"long {axis}" for axis in (*self._mapped_axes(), "panel")]
            with self._kernel(rows, columns, self.nest).write_sums(writer, name, self.share, [*slots, *axes]):
                self._unrolled(rows, columns)
        elif self.by_stretch:
            self._kernel(rows, columns, self.stretches.inner).write_adding(writer, name, self.share)
        else:
            self._kernel(rows, columns, self.nest).write(writer, name, self.share)

    def _mapped(self) -> tuple[list[Load | Store], frozenset[Axis]]:
        """What the maps load and store, and the axes they mention."""
        accesses = accesses_of(self.view.product, self.epilogue)
        places = [index for access in accesses if access.slot in self.slots.buffers for index in access.index]
        return accesses, frozenset(axis for index in places for axis in index.axes)

    def _mapped_slots(self) -> dict[str, str]:
        """The buffers that the maps read and write, with their C types."""
        accesses, _ = self._mapped()
        inputs = {slot.name for slot in self.workload.kernel.inputs}
        used = dict.fromkeys(access.slot for access in accesses if access.slot in self.slots.buffers)
        sizes = {bound.size.slot: f"const {C_TYPES[bound.size.dtype]} *" for bound in self.asked}
        kinds = {slot: C_TYPES[self.slots.buffers[slot].dtype] for slot in used}
        return {**{slot: f"{'const ' if slot in inputs else ''}{kind} *" for slot, kind in kinds.items()}, **sizes}

    def _mapped_axes(self) -> list[Axis]:
        """The axes, n apart, that tell where the maps read and write."""
        _, axes = self._mapped()
        axes = axes.union(*(bound.place.axes for bound in self.asked))
        return [axis for axis in (*self.view.batch, *self.view.m) if axis in axes]

    def _tile(self, rows: tuple[int, ...], columns: Columns) -> None:
        """One register tile: all of its sums and the maps after them, or one segment of its sums at a time."""
        writer, axes, name = self.writer, self.view.m[-2:], self._name(rows, columns)
        a = self._first_row()
        if self.in_registers:
            ahead = "next" if self.share else "b"
            writer.line(
                f"{name}({', '.join((a, 'b', ahead, *self._mapped_slots(), *map(str, self._mapped_axes()), 'panel'))});"
            )
        elif self.by_stretch:
            extent = self.stretches.inner[0][0] if self.stretches.inner else 1
            sums = self._sums_of_row({axis: (f"first_{axis}", "", self.block[axis]) for axis in axes})
            writer.line(f"{name}({a} + a_at, b_at, {sums}, {extent or 'count'}, next);")
        elif self.across:
            sums = self._sums_of_row({axis: (f"first_{axis}", "", self.block[axis]) for axis in axes})
            writer.line(f"{name}({a}, b, {sums}{', next' if self.share else ''});")
        else:
            writer.line(f"{name}({a}, b, c{', next' if self.share else ''});")
            for axis in axes:
                writer.line(f"const long from_{axis} = {axis};")
            ends = zip(axes, rows, strict=True)
            self._finish({axis: (f"from_{axis}", f"from_{axis} + {count}", count) for axis, count in ends}, columns)
        if self.share:
            writer.line(f"next = {self._ahead(f'next + {self.fetched}L')};")

    def _first_row(self) -> str:
        """Where the tile's first row begins."""
        if isinstance(self.access, InPlace):
            slot, offset = self.slots.address(self.access.load.slot, self.access.load.index)
            return f"{slot} + {self._index(offset.substitute({axis: Index.of(0) for axis in self.view.k}))}"
        places = [f"({axis} - first_{axis}) * {self.steps[axis]}" for axis in self.view.m[-2:]]
        return " + ".join(["rows", *places])

    def _index(self, index: Index) -> str:
        return Emitter(self.writer, self.slots.address).index(index)

    # What follows the product, on one finished tile

    def _unrolled(self, rows: tuple[int, ...], columns: Columns) -> None:
        """The maps on sums in registers; rows and vectors lie at constant distances from the tile's first.

        Only a tile of which some rows lie beyond a size asks for each row whether it does.
        """
        self.writer.line(f"const long {self.view.n} = panel * {self.panel};")
        if not self.asked:
            self._at_points(rows, columns, self.epilogue)
            return
        last = {axis: Index.of(axis) + count - 1 for axis, count in zip(self.view.m[-2:], rows, strict=True)}
        tests = [
            f"{self._index(bound.place.substitute(last))} < {self.trimming.size(bound.size)}" for bound in self.asked
        ]
        with self.writer.block(f"if ({' && '.join(tests)})"):
            self._at_points(rows, columns, self.epilogue)
        with self.writer.block("else"):
            self._at_points(rows, columns, self.view.epilogue)

    def _at_points(self, rows: tuple[int, ...], columns: Columns, epilogue: Sequence[Block]) -> None:
        n = self.view.n
        points: list[tuple[int, ...]] = [()]
        for count in rows:
            points = [(*point, at) for point in points for at in range(count)]
        for row, point in enumerate(points):
            moved = {axis: Index.of(axis) + at for axis, at in zip(self.view.m[-2:], point, strict=True)}
            for vector, live in enumerate(columns):
                self._maps(live, {**moved, n: Index.of(n) + vector * self.lanes}, f"acc[{row}][{vector}]", epilogue)

    def _rolled(self, columns: Columns) -> None:
        """The maps on one row of sums in memory."""
        writer, n, lanes = self.writer, self.view.n, self.lanes
        epilogue = self.view.epilogue if self.asked else self.epilogue
        whole = columns.count(lanes)
        if whole:
            with writer.block(f"for (long column = 0; column < {whole * lanes}; column += TW_LANES)"):
                writer.line(f"const long {n} = panel * {self.panel} + column;")
                self._maps(lanes, {}, "tw_load(sums + column)", epilogue)
        if whole < len(columns):
            with writer.block(""):
                writer.line(f"const long {n} = panel * {self.panel} + {whole * lanes};")
                self._maps(columns[-1], {}, f"tw_load(sums + {whole * lanes})", epilogue)

    def _maps(self, live: int, moved: Mapping[Axis, Index], sums: str, epilogue: Sequence[Block]) -> None:
        """The product's stored value and the epilogue's maps, at one vector of a row, of which `live` columns exist."""
        self._mapped_at(Vector(self.view.n, str(live) if live < self.lanes else ""), moved, sums, epilogue)

    def _mapped_at(self, vector: Vector, moved: Mapping[Axis, Index], sums: str, epilogue: Sequence[Block]) -> None:
        """`_maps` at a vector along any axis."""
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)
        value = self.writer.name("sum")
        self.writer.line(f"const vf {value} = {sums};")
        maps = [substitute(block, moved) for block in epilogue]
        finish(emitter, self.slots, substitute(self.view.product, moved), maps, value)


def _extents(view: Contraction, tile: Tile, level: str) -> dict[Axis, int]:
    """How many points of each m axis a level works on."""
    named = {axis: tile.extent(level, role, 1) for role, axis in row_axes(view).items()}
    return {axis: min(named.get(axis, 1), axis.extent) for axis in view.m}


def _with_one_row_axis(view: Contraction) -> Contraction:
    """The same product with all m axes as one, in what stores its results; A keeps the axes it is gathered over."""
    row = Axis("row", view.rows)  # in lower case, as no axis of the kernel is
    moved, place = {}, Index.of(row)
    for axis in reversed(view.m):
        moved[axis], place = place % axis.extent, place // axis.extent
    epilogue = tuple(substitute(block, moved) for block in view.epilogue)
    return replace(view, product=substitute(view.product, moved), epilogue=epilogue, m=(row,))
