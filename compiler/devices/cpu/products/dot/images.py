"""Dot products of windows whose image a task stages once: rows of A are read in it, and not copied for each output.

A task copies the lines of the image that its lines of outputs read, with their padding, in the form that the
instruction wants. Lines lie in phases, one for each remainder of a position by the stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.codegen.expressions import Emitter
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.devices.cpu.blocking import even_part
from compiler.devices.cpu.products.dot.lowering import DotContraction, Shape, Staged
from compiler.devices.cpu.products.row_cuts import with_row_cuts
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.operand import bound_of
from compiler.forms.window_rows import WindowRows
from compiler.ir.expr import Expr, conjuncts
from compiler.ir.index import Index
from compiler.tuning.proposal import Proposal

PIECE_NS = 3.0
"""A piece of memory copied when an image is staged, beside its bytes."""


def line_blocks(height: int, image_bytes: Callable[[int], int], target: CpuTarget, lanes: int) -> list[int]:
    """Lines of outputs of a block: as many as a cache has room for, and so few that each lane has some.

    `image_bytes` is what so many lines read.
    """
    fit = [
        max(lines for lines in range(1, height + 1) if lines == 1 or image_bytes(lines) <= room)
        for room in (target.l2_bytes // 2, target.l1_bytes // 2)
    ]
    return sorted({even_part(height, most) for most in (*fit, min(fit[0], -(-height // lanes)))}, reverse=True)


def with_line_cuts(found: Sequence[Proposal], lanes: int) -> list[Proposal]:
    """Proposals, cheapest first; beside them those whose blocks of lines lanes have in turn."""
    cuts = [(one.seconds / min(one.row_blocks, lanes), one) for one in found]
    return with_row_cuts([one for one in found if one.row_blocks < lanes] or [*found], cuts, lanes)


@dataclass(frozen=True)
class Phase:
    """Lines of the image whose positions leave the remainder `line`.

    Of each there are `columns` pixels, at the positions `first`, `first + step` and so on.
    """

    line: int
    first: int
    columns: int
    step: int


@dataclass(frozen=True)
class StagedImage:
    """The image of windows, whose lines a task stages for a block of `block_lines` lines of outputs.

    phases  of it, in the order in which they are staged
    pixel_elements, line_elements, phase_elements  from one to the next in the staged image
    planes  how many planes of fp32 at most, one for each channel, are staged pixel beside pixel
    """

    rows: WindowRows
    block_lines: int
    phases: Sequence[Phase]
    pixel_elements: int
    line_elements: int
    phase_elements: int
    planes: int = 0

    @property
    def row_blocks(self) -> int:
        """Blocks of lines."""
        return -(-self.rows.height // self.block_lines)

    def grid(self, product: DotContraction) -> TaskGrid:
        """How tasks cut the result: images one by one, blocks of lines, blocks of panels."""
        view, rows = product.view, self.rows
        inner = tuple(axis for axis in view.m if axis not in rows.outer)
        lines = Cut(inner, self.block_lines * rows.width)
        columns = Cut((view.n,), product.block_panels * product.shape.panel)
        return TaskGrid(view.kernel, (*one_by_one((*view.batch, *rows.outer)), lines, columns))

    def begin_task(self, product: DotContraction, declare_rows: str) -> None:
        """Declares a task's image, lines and panels, and stages what it reads unless the task before has done so.

        `declare_rows` is the statement that declares how many rows register tiles go through.
        """
        writer, rows, blocks, column_blocks = product.writer, self.rows, self.row_blocks, product.column_blocks
        writer.line(f"const long column_block = tile % {column_blocks};")
        writer.line(f"const long first_line = tile / {column_blocks} % {blocks} * {self.block_lines};")
        writer.line(f"const long past_line = tw_least_of(first_line + {self.block_lines}, {rows.height});")
        writer.line(f"const long batch = tile / {column_blocks * blocks};")
        decode(writer, (*product.view.batch, *rows.outer), "batch")
        writer.line(f"const long first_panel = column_block * {product.block_panels};")
        writer.line(f"const long past_panel = tw_least_of(first_panel + {product.block_panels}, {product.panels});")
        writer.line(declare_rows)
        with writer.block(f"if (packed_rows != tile / {column_blocks})"):
            writer.line(f"packed_rows = tile / {column_blocks};")
            for number, phase in enumerate(self.phases):
                self._stage_phase(product, number, phase)

    def _stage_phase(self, product: DotContraction, number: int, phase: Phase) -> None:
        """The lines of a phase that a block of outputs reads."""
        writer, rows = product.writer, self.rows
        guards = conjuncts(rows.condition) if rows.condition is not None else []
        lines = rows.lines.reach(phase.line) if rows.lines else 1
        emitter = Emitter(writer, product.slots.address, numerics=product.numerics)
        with writer.block(f"for (long line = 0; line < past_line - first_line + {lines - 1}; line++)"), emitter.scope():
            if rows.lines:
                at = f"(first_line + line) * {rows.lines.stride} + {phase.line}"
                writer.line(f"const long {rows.lines.position} = {at};")
            place = f"rows + {number * self.phase_elements} + line * {self.line_elements}L"
            writer.line(f"{product.element} *const pixels = {place};")
            writer.line(f"{product.element} *const row = pixels;")
            here = {*rows.pixel, rows.columns.position}
            ready = [guard for guard in guards if not guard.axes & here]
            waiting = [guard for guard in guards if guard not in ready]
            if ready:
                test = " && ".join(emitter.scalar(guard) for guard in ready)
                with writer.block(f"if (!({test}))"), emitter.scope():
                    writer.line(product.held.fill(product, "row", str(phase.columns * self.pixel_elements), emitter))
                    writer.line("continue;")
            if not self._copy_line(product, phase, waiting, emitter):
                self._copy_pixels(product, phase, waiting, emitter)

    def _copy_line(self, product: DotContraction, phase: Phase, guards: list[Expr], emitter: Emitter) -> bool:
        """All pixels of a line at once; False where neither they nor those of a plane follow each other in memory."""
        writer, rows, source = product.writer, self.rows, product.staged.source
        side = rows.columns
        if source is None or phase.step != 1 or rows.run != self.pixel_elements:
            return False
        pointer, offset = product.slots.address(source.slot, source.index)
        bounds = [bound_of(guard, side.position) for guard in guards]
        if any(bound is None or bound[1].axes for bound in bounds):
            return False
        low = max([0, *(bound[1].const for bound in bounds if bound and bound[0] == "ge")])
        past = min([phase.columns, *(bound[1].const for bound in bounds if bound and bound[0] == "lt")])
        first = offset.substitute(
            {axis: Index.of(low if axis == side.position else 0) for axis in (side.position, *rows.pixel)}
        )
        to, start = f"row + {low * rows.run}", f"{pointer} + {emitter.index(first)}"
        if product.run(guards) >= len(rows.pixel) and offset.coefficient(side.position) == rows.run:
            copied = product.held.copy(product, to, start, str((past - low) * rows.run), emitter)
        else:
            plane = offset.coefficient(rows.pixel[0]) if len(rows.pixel) == 1 else None
            if not plane or offset.coefficient(side.position) != 1 or product.slots.buffers[source.slot].element:
                return False
            if rows.run > self.planes:
                return False
            writer.include("tw_pixels.h")
            copied = f"tw_pixels_of_planes({to}, {start}, {plane}, {rows.run}, {past - low});"
        if low > 0:
            writer.line(product.held.fill(product, "row", str(low * rows.run), emitter))
        if past > low:
            writer.line(copied)
        if phase.columns > past:
            rest = str((phase.columns - past) * rows.run)
            writer.line(product.held.fill(product, f"row + {past * rows.run}", rest, emitter))
        return True

    def _copy_pixels(self, product: DotContraction, phase: Phase, guards: list[Expr], emitter: Emitter) -> None:
        """A line pixel by pixel, each with zeros up to where the next one begins."""
        writer, side = product.writer, self.rows.columns
        with writer.block(f"for (long column = 0; column < {phase.columns}; column++)"), emitter.scope():
            writer.line(f"{product.element} *const row = pixels + column * {self.pixel_elements}L;")
            writer.line(f"const long {side.position} = column * {phase.step} + {phase.first};")
            product.gather(list(self.rows.pixel), guards, Index.of(0), emitter)
            if self.pixel_elements > self.rows.run:
                writer.line(f"memset(row + {self.rows.run}, 0, {self.pixel_elements - self.rows.run} * sizeof *row);")


def lines_of(rows: WindowRows, shape: Shape) -> int:
    """Lines of outputs of a block."""
    return min(shape.block_m // rows.width, rows.height)


def staged_pixels(rows: WindowRows, staged: Staged) -> Staged:
    """As `staged`, over positions of an image."""
    source = next(iter(rows.value.loads)) if staged.source else None
    return Staged(rows.value, staged.padding, rows.condition, source)
