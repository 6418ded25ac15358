"""The skeleton: rows are copied once, groups of columns are tasks, sums are finished while they are in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.strips import copy_row
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.forms.contraction import Contraction, axes_of
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType


class Panels(Protocol):
    """How the matrix lies in memory, and the C functions that multiply rows by a group of its columns."""

    @property
    def packing(self) -> Packing:
        """How the matrix is packed."""

    @property
    def lanes(self) -> int:
        """Floats of a vector."""

    @property
    def panel(self) -> int:
        """Columns of a panel."""

    @property
    def width(self) -> int:
        """Columns of a group, which are multiplied by one call."""

    @property
    def scratch_floats(self) -> int:
        """Floats that the rows are copied to."""

    def write_kernels(self, writer: Writer, name: str) -> None:
        """Writes the C functions of the sums, whose names begin with `name`."""

    def copy_rows(self, product: FewRows) -> None:
        """Fills `rows`, which points to the scratch."""

    def multiply(self, product: FewRows) -> None:
        """Declares `c`, the sums of group number `group`, and finishes them."""


def row_counts(rows: int, together: int) -> list[int]:
    """How many rows go through a panel at a time: so many together, then those left over."""
    return sorted({together, rows % together} - {0}, reverse=True)


@dataclass
class FewRows(Lowering):
    """The product under a tile; `groups` groups of columns are a task."""

    name: str
    workload: Workload
    view: Contraction
    position: int
    panels: Panels
    groups: int

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.slots = Slots(self.workload)
        self.matrix = self.workload.kernel.inputs[self.position].name
        panel, width = self.panels.panel, self.panels.width
        self.count = -(-(-(-self.view.columns // panel) * panel) // width)

    @property
    def grid(self) -> TaskGrid:
        """Groups of columns."""
        return TaskGrid(self.view.kernel, (Cut((self.view.n,), self.groups * self.panels.width),))

    def lower(self) -> Lowered:
        """The C functions of the sums, and that of the kernel."""
        view, writer, panels = self.view, self.writer, self.panels
        panels.write_kernels(writer, self.name)
        roles = f"m {axes_of(view.m)}; n {axes_of((view.n,))}; k {axes_of(view.k)}"
        with kernel_function(writer, self.name, self.workload, roles):
            writer.line("float *const rows = (float *)scratch;")
            panels.copy_rows(self)
            with Trimming(writer, view.kernel, self.slots, panels.lanes).tasks(self.grid):
                writer.line(f"const long first = tile * {self.groups};")
                writer.line(f"const long past = tw_least_of(first + {self.groups}, {self.count});")
                with writer.block("for (long group = first; group < past; group++)"):
                    panels.multiply(self)
        scratch = panels.scratch_floats * DType.F32.bytes
        return Lowered(
            self.name,
            writer.text(),
            self.tasks,
            scratch,
            {self.position: panels.packing},
            self.grid,
            headers=frozenset(writer.headers),
        )

    def copy_to(self, rows: str, pitch: int, factor: str = "") -> None:
        """rows[m][k] = A[m][k], with whatever was fused into it, times a factor; zeros from the depth to the pitch."""
        view, writer = self.view, self.writer
        with writer.block(f"for (long m = 0; m < {view.rows}; m++)"):
            decode(writer, view.m, "m")
            copy_row(writer, self._emitter, self.panels.lanes, view.k, view.a, f"{rows} + m * {pitch}", factor=factor)
            if pitch > view.depth:
                writer.line(f"for (long k = {view.depth}; k < {pitch}; k++) {rows}[m * {pitch} + k] = 0.0f;")

    def declare_sums(self) -> None:
        """Declares `c`, of all rows by a group of columns."""
        self.writer.line(f"float c[{self.view.rows * self.panels.width}] __attribute__((aligned(64)));")

    def finish(self, width: int, factor: Callable[[str], str] | None = None) -> None:
        """Applies the maps to c[row][width]: whole vectors of a group, then those at the end of the matrix.

        `factor` gives a vector by which sums at a column are multiplied before.
        """
        writer, view, lanes, step = self.writer, self.view, self.panels.lanes, self.panels.width
        whole, rest = view.columns // lanes * lanes, view.columns % lanes
        with writer.block(f"for (long m = 0; m < {view.rows}; m++)"):
            decode(writer, view.m, "m")
            writer.line(f"const float *const held = c + m * {width};")
            limit = "" if view.columns % self.panels.panel == 0 else f" && group * {step} + column < {whole}"
            with writer.block(f"for (long column = 0; column < {width}{limit}; column += TW_LANES)"):
                writer.line(f"const long {view.n} = group * {step} + column;")
                self._maps(Vector(view.n), "column", factor)
            if rest:
                with writer.block(f"if (group == {self.count - 1})"):
                    writer.line(f"const long {view.n} = {whole};")
                    self._maps(Vector(view.n, str(rest)), str(whole % step), factor)

    def _maps(self, vector: Vector, column: str, factor: Callable[[str], str] | None) -> None:
        """The product's stored value and the maps after it, at one vector of columns."""
        value = self.writer.name("product")
        text = f" * {factor(column)}" if factor else ""
        self.writer.line(f"const vf {value} = tw_load(held + {column}){text};")
        finish(self._emitter(vector), self.slots, self.view.product, self.view.epilogue, value)

    def _emitter(self, vector: Vector) -> Emitter:
        return Emitter(self.writer, self.slots.address, vector, self.slots.extents, self.slots.numerics)
