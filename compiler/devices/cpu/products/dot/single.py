"""Rows of A one by one: read where they lie, or copied for a block of them."""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.expressions import Emitter
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.devices.cpu.codegen.trimming import Span
from compiler.devices.cpu.products.dot.lowering import DotContraction
from compiler.devices.cpu.products.dot.steps import DotStep
from compiler.forms.cache_lines import ALIAS_BYTES, LINE_BYTES, whole_lines
from compiler.forms.groups import LANE_BYTES
from compiler.ir.expr import conjuncts
from compiler.ir.index import Index


class SingleRows:
    """The `Rows` of any product."""

    def row_bytes(self, product: DotContraction) -> int:
        """Whole lines, and not all rows in one set of the cache."""
        octets = whole_lines(product.groups.groups * LANE_BYTES)
        return octets + LINE_BYTES if octets % ALIAS_BYTES == 0 else octets

    def a_bytes(self, product: DotContraction) -> int:
        """Of staged rows."""
        return 0 if product.row_step else product.shape.block_m * product.row_bytes

    def heights(self, product: DotContraction) -> list[int]:
        """As many as registers hold, and what is left of a block."""
        rows, block = product.shape.rows, product.shape.block_m
        assert product.row_blocks == 1 or block % rows == 0, "a block holds whole register tiles"
        return sorted({rows, product.view.rows % rows} - {0}, reverse=True)

    def grid(self, product: DotContraction) -> TaskGrid:
        """How tasks cut the result: batches, blocks of rows, blocks of panels."""
        view, shape = product.view, product.shape
        rows, columns = Cut(view.m, shape.block_m), Cut((view.n,), product.block_panels * shape.panel)
        return TaskGrid(view.kernel, (*one_by_one(view.batch), rows, columns))

    def task(self, product: DotContraction) -> None:
        """One block of rows against one block of columns."""
        writer, view, shape = product.writer, product.view, product.shape
        writer.line(f"const long column_block = tile % {product.column_blocks};")
        writer.line(f"const long row_block = tile / {product.column_blocks} % {product.row_blocks};")
        writer.line(f"const long batch = tile / {product.column_blocks * product.row_blocks};")
        decode(writer, view.batch, "batch")
        writer.line(f"const long first_row = row_block * {shape.block_m};")
        ends = "end_row" if product.trimming.beyond else "past_row"
        writer.line(f"const long {ends} = tw_least_of(first_row + {shape.block_m}, {view.rows});")
        writer.line(f"const long first_panel = column_block * {product.block_panels};")
        end = "end_panel" if product.trimming.beyond else "past_panel"
        writer.line(f"const long {end} = tw_least_of(first_panel + {product.block_panels}, {product.panels});")
        if product.trimming.beyond:
            self._clip(product)
        if not product.row_step:
            with writer.block(f"if (packed_rows != tile / {product.column_blocks})"):
                writer.line(f"packed_rows = tile / {product.column_blocks};")
                self._stage(product)
        product.make_panels()
        panels = "for (long panel = first_panel; panel < past_panel; panel++)"
        rows = f"for (long row0 = first_row; row0 < past_row; row0 += {shape.rows})"
        outer, inner = (rows, panels) if self._along_rows(product) else (panels, rows)
        with writer.block(outer), writer.block(inner):
            product.multiply(view.rows % shape.rows)

    def _along_rows(self, product: DotContraction) -> bool:
        """Whether rows of the result are written one after the other, as wide as the block is.

        So they are where the block's panels stay in the nearest cache: lines of a large result are then written whole,
        and not once for each panel, where each line has to come from afar while the maps of a vector are computed.
        """
        panels = product.block_panels * product.panel_bytes
        return isinstance(product.step, DotStep) and panels <= product.target.l1_bytes // 2

    def _clip(self, product: DotContraction) -> None:
        """Declares where a block's panels and rows end once those beyond a size are left out; these are stored here."""
        writer, view, panel = product.writer, product.view, product.shape.panel
        writer.line(f"const long end_column = tw_least_of({view.columns}, end_panel * {panel});")
        columns, rows = Span((view.n,), f"first_panel * {panel}", "end_column"), Span(view.m, "first_row", "end_row")
        writer.line(f"const long past_column = {product.trimming.clip(columns, panel, (rows,))};")
        writer.line(f"const long past_panel = (past_column + {panel - 1}) / {panel};")
        columns = replace(columns, past="past_column")
        writer.line(f"const long past_row = {product.trimming.clip(rows, product.shape.rows, (columns,))};")

    def point(self, product: DotContraction) -> None:
        """Declares where the rows of a register tile lie: `a`."""
        writer, view, source = product.writer, product.view, product.staged.source
        if not product.row_step:
            writer.line(f"const char *const a = (const char *)rows + (row0 - first_row) * {product.row_bytes}L;")
            return
        assert source is not None
        slot, offset = product.slots.address(source.slot, source.index)
        first = product.index(offset.substitute({axis: Index.of(0) for axis in (*view.m, *view.k)}))
        writer.line(f"const char *const a = (const char *){slot} + {first} + row0 * {product.row_step}L;")

    def place(self, product: DotContraction) -> None:
        """Declares the axes of m for row number `row` of a register tile that begins at `row0`."""
        product.writer.line("const long m = row0 + row;")
        decode(product.writer, product.view.m, "m")

    def _stage(self, product: DotContraction) -> None:
        """rows[m - first_row][k] = A[m][k] for the task's block of rows, in groups; what fills the last group is 0."""
        view, writer, groups = product.view, product.writer, product.groups
        guards = conjuncts(product.staged.condition) if product.staged.condition is not None else []
        with writer.block("for (long m = first_row; m < past_row; m++)"):
            decode(writer, view.m, "m")
            writer.line(f"{product.element} *const row = rows + (m - first_row) * {product.row_elements}L;")
            product.gather(
                list(view.k), guards, Index.of(0), Emitter(writer, product.slots.address, numerics=product.numerics)
            )
            past = product.row_elements if product.held.extra_bytes(product) else groups.groups * groups.group
            if past > view.depth:
                writer.line(f"memset(row + {view.depth}, 0, {past - view.depth} * sizeof *row);")
            product.held.after_row(product)
