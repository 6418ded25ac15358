"""The `gemv` algorithm: a few rows times a constant matrix, read once at the speed of the memory it lies in.

The matrix is packed in panels, some of which are read side by side, each along memory. One pass over k fills the sums
of all their columns for all rows, and the maps that follow are applied to them at once. Under `gemv24` the panels hold
24 bits for each element (`compiler.encodings`). Long sums are taken in segments of k, which keeps rounding errors
from growing with the depth.

A tile says how many panels lie side by side, and into how many tasks the columns are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.model import CALL_NS, arrival_rate, widen_cost
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.rows import RowsKernel, is_fetched
from compiler.devices.cpu.codegen.strips import copy_row
from compiler.devices.cpu.codegen.trimming import Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.int24 import INT24, INT24_BYTES
from compiler.forms.contraction import Contraction, axes_of, packing_of
from compiler.forms.gemv import as_gemv, group_of
from compiler.forms.int24_panels import Int24Panels
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

TASKS_PER_LANE = 4
INT24_ERROR = 3e-7
"""Error of a product with 24-bit numbers, relative to its largest value.

It is what rounding to about 2^-21 of a usual element comes to.
"""


def gemv_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The matrix as it is and, where the workload allows it, in 24 bits; empty for a kernel of another form."""
    view = as_gemv(workload)
    if view is None:
        return []
    streams, vectors = group_of(view.rows, view.columns, target.vector_registers, target.vector_floats)
    panel = vectors * target.vector_floats
    groups = -(-view.columns // (streams * panel))
    tasks = min(groups, TASKS_PER_LANE * lanes) if lanes > 1 else 1
    levels = (
        Level("block", (("n", -(-groups // tasks) * streams * panel),)),
        Level("register", (("m", view.rows), ("n", streams * panel))),
        Level("vector", (("n", panel),)),
    )
    scopes = in_registers(view.kernel)
    slot = view.b.loads[0].slot
    position = [declared.name for declared in workload.kernel.inputs].index(slot)
    proposals = [Proposal(Tile("gemv", levels, scopes), _seconds(view, DType.F32.bytes, 0.0, target))]
    if INT24 in workload.encodings[position]:
        seconds = _seconds(view, INT24_BYTES, widen_cost(target), target)
        proposals.append(Proposal(Tile("gemv24", levels, scopes), seconds, INT24_ERROR))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _seconds(view: Contraction, element_bytes: int, widening: float, target: CpuTarget) -> float:
    """What it takes to read the matrix from where it stays between two runs, or to multiply with it if that is more.

    `widening` is what a vector takes beside the multiply-adds of its rows, in multiply-adds.
    """
    octets = view.depth * view.columns * element_bytes
    vectors = view.depth * view.columns / target.vector_floats
    compute = (view.rows + widening) * vectors / target.rates.fma_per_ns
    return 1e-9 * (CALL_NS + max(octets / arrival_rate(octets, target), compute))


def gemv(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_gemv` accepts.

    Levels: `block` n, columns of a task; `register` n, columns worked on at a time; `vector` n, columns of a panel.
    """
    view = as_gemv(workload)
    assert view is not None, "the tile stage offers `gemv` only to kernels of that form"
    lanes, panel = target.vector_floats, tile.extent("vector", "n")
    found = packing_of(view, workload, panel)
    assert found is not None
    position, panels = found
    narrow = tile.algorithm == "gemv24"
    packing: Packing = Int24Panels(panels) if narrow else panels
    group = tile.extent("register", "n") // panel
    fetch = is_fetched(packing, target.l2_bytes)
    rows = RowsKernel(view.rows, view.depth, group, panel // lanes, lanes, narrow, fetch)
    return FewRows(name, workload, view, position, packing, rows, tile.extent("block", "n") // rows.width)


@dataclass(frozen=True)
class HeldSums:
    """The sums of one group of columns, number `group` of `count`, and the maps after them.

    `width` columns in panels of `panel` make a group; the last may have fewer panels.
    """

    writer: Writer
    slots: Slots
    view: Contraction
    width: int
    panel: int
    lanes: int
    count: int

    def write(self, width: int, factor: Callable[[str], str] | None = None) -> None:
        """Applies the maps to c[row][width].

        `factor` gives a vector by which sums at a column are multiplied before.
        """
        with self.writer.block(f"for (long m = 0; m < {self.view.rows}; m++)"):
            decode(self.writer, self.view.m, "m")
            self._columns(width, factor)

    def _columns(self, width: int, factor: Callable[[str], str] | None) -> None:
        """The maps along the columns of a group, of one row: whole vectors, then those at the end of the matrix."""
        writer, view, lanes, step = self.writer, self.view, self.lanes, self.width
        whole = view.columns // lanes * lanes
        writer.line(f"const float *const held = c + m * {width};")
        limit = "" if view.columns % self.panel == 0 else f" && group * {step} + column < {whole}"
        with writer.block(f"for (long column = 0; column < {width}{limit}; column += TW_LANES)"):
            writer.line(f"const long {view.n} = group * {step} + column;")
            self._maps(Vector(view.n), "column", factor)
        if view.columns % lanes:
            with writer.block(f"if (group == {self.count - 1})"):
                writer.line(f"const long {view.n} = {whole};")
                self._maps(Vector(view.n, str(view.columns % lanes)), str(whole % step), factor)

    def _maps(self, vector: Vector, column: str, factor: Callable[[str], str] | None) -> None:
        """The product's stored value and the maps after it, at one vector of columns."""
        value = self.writer.name("product")
        text = f" * {factor(column)}" if factor else ""
        self.writer.line(f"const vf {value} = tw_load(held + {column}){text};")
        emitter = Emitter(self.writer, self.slots.address, vector, self.slots.extents)
        finish(emitter, self.slots, self.view.product, self.view.epilogue, value)


@dataclass
class FewRows(Lowering):
    """A group is what one call of `rows` works on; `groups` of them are a task."""

    name: str
    workload: Workload
    view: Contraction
    position: int
    packing: Packing
    rows: RowsKernel
    groups: int

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.slots = Slots(self.workload)
        panels = -(-self.view.columns // self.rows.panel)
        self.whole, self.rest = divmod(panels, self.rows.panels)
        self.count = self.whole + (1 if self.rest else 0)

    @property
    def grid(self) -> TaskGrid:
        """Groups of columns."""
        return TaskGrid(self.view.kernel, (Cut((self.view.n,), self.groups * self.rows.width),))

    @property
    def scratch(self) -> int:
        """Bytes that rows are copied to."""
        return self.view.rows * self.view.depth * DType.F32.bytes

    def lower(self) -> Lowered:
        """The C functions of the sums, and that of the kernel."""
        view, writer = self.view, self.writer
        self._write_kernels()
        roles = f"m {axes_of(view.m)}; n {axes_of((view.n,))}; k {axes_of(view.k)}"
        with kernel_function(writer, self.name, self.workload, roles):
            self._gather_rows()
            with Trimming(writer, view.kernel, self.slots, self.rows.lanes).tasks(self.grid):
                writer.line(f"const long first = tile * {self.groups};")
                writer.line(f"const long past = tw_least_of(first + {self.groups}, {self.count});")
                with writer.block("for (long group = first; group < past; group++)"):
                    self._group()
        return Lowered(self.name, writer.text(), self.tasks, self.scratch, {self.position: self.packing}, self.grid)

    def _write_kernels(self) -> None:
        """The C functions of the sums of a group."""
        if self.whole:
            self.rows.write(self.writer, f"{self.name}_{self.rows.panels}")
        if self.rest:
            replace(self.rows, panels=self.rest).write(self.writer, f"{self.name}_{self.rest}")

    def _gather_rows(self) -> None:
        """Declares `rows`, what is multiplied, and fills it."""
        self.writer.line("float *const rows = (float *)scratch;")
        self._copy_rows("rows")

    def _copy_rows(self, to: str) -> None:
        """to[m][k] = A[m][k], with whatever was fused into it; times 2^-31 for a matrix of 24-bit numbers."""
        view = self.view
        with self.writer.block(f"for (long m = 0; m < {view.rows}; m++)"):
            decode(self.writer, view.m, "m")
            factor = "0x1p-31f" if self.rows.narrow else ""
            into = f"{to} + m * {view.depth}"
            copy_row(self.writer, self._emitter, self.rows.lanes, view.k, view.a, into, factor)

    def _group(self) -> None:
        """The sums of one group of panels, and the maps at each of its vectors."""
        writer, rows = self.writer, self.rows
        matrix, ctype = self.workload.kernel.inputs[self.position].name, rows.ctype
        writer.line(f"const {ctype} *const b = (const {ctype} *){matrix} + group * {rows.apart * rows.panels}L;")
        writer.line(f"float c[{rows.rows * rows.width}] __attribute__((aligned(64)));")
        if self.whole and self.rest:
            with writer.block(f"if (group < {self.whole})"):
                self._sums(rows)
            with writer.block("else"):
                self._sums(replace(rows, panels=self.rest))
        else:
            self._sums(rows if self.whole else replace(rows, panels=self.rest))

    def _sums(self, rows: RowsKernel) -> None:
        self.writer.line(f"{self.name}_{rows.panels}(rows, b, c);")
        self._finish_rows(rows)

    def _finish_rows(self, rows: RowsKernel) -> None:
        """The maps that follow, for each row of a group's sums."""
        factor = rows.factor if rows.narrow else None
        held = HeldSums(self.writer, self.slots, self.view, self.rows.width, rows.panel, rows.lanes, self.count)
        held.write(rows.width, factor)

    def _emitter(self, vector: Vector) -> Emitter:
        return Emitter(self.writer, self.slots.address, vector, self.slots.extents)


GEMV = Algorithm(
    (
        "gemv",
        "gemv24",
    ),
    gemv_tiles,
    gemv,
    takes=any_short,
)
