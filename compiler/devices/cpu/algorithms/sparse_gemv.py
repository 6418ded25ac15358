"""The `sparse_gemv` algorithm: a few rows times a constant matrix of which a good part is zero, read once.

Columns of a panel, one for each lane, go through its weights step by step. In a step each lane looks up one element in
a vector of the row (`compiler.ir.lookups`), so that most lanes have a weight in each. Where columns of the weights can
be combined, the row is brought into their order before.

A lane without a weight in a step multiplies some element of the row by zero: a NaN or an infinity there need not reach
results to which only zero weights link it, and may.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.gemv import TASKS_PER_LANE, FewRows
from compiler.devices.cpu.algorithms.model import CALL_NS, read_rate
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.rows import RowsKernel
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.contraction import packing_of
from compiler.forms.gemv import as_gemv
from compiler.forms.groups import LANE_BYTES
from compiler.forms.looked_up import LookedUp
from compiler.ir.lookups import Lookups
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

AT_ONCE = 4
"""Steps whose sums do not wait for each other."""
STEP_FMAS, ROW_FMAS = 2.5, 2.0
"""What a step costs, and each of its rows, in vector multiply-adds: reading weights and places, and looking up."""
ORDER_NS = 0.4
"""Of an element of a row that is brought into another order."""


def sparse_gemv_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """One tile; none for a kernel of another form, or a matrix of which nothing is known of zeros."""
    if not any(isinstance(one, Lookups) for each in workload.encodings for one in each) or not target.looks_up:
        return []
    view = as_gemv(workload)
    found = _packing(workload, target) if view is not None else None
    if view is None or found is None:
        return []
    _, packing = found
    groups = -(-view.columns // packing.panel)
    tasks = min(groups, TASKS_PER_LANE * lanes) if lanes > 1 else 1
    levels = (
        Level("block", (("n", -(-groups // tasks) * packing.panel),)),
        Level("register", (("m", view.rows), ("n", packing.panel))),
    )
    compute = packing.kept * (STEP_FMAS + ROW_FMAS * view.rows) / target.rates.fma_per_ns
    reading = packing.elements / read_rate(packing.elements, target)
    ordering = ORDER_NS * view.rows * view.depth if packing.ordered else 0.0
    seconds = 1e-9 * (CALL_NS + max(compute, reading) + ordering)
    return [Proposal(Tile("sparse_gemv", levels, in_registers(view.kernel)), seconds)]


def _packing(workload: Workload, target: CpuTarget) -> tuple[int, LookedUp] | None:
    """The position of the matrix, and how it is kept without zeros; None where nothing is known of them."""
    view = as_gemv(workload)
    found = packing_of(view, workload, target.vector_floats) if view is not None else None
    if found is None:
        return None
    position, panels = found
    dims = workload.kernel.inputs[position].type.dims
    known = (one for one in workload.encodings[position] if isinstance(one, Lookups))
    each = (LookedUp.of(panels, one, dims) for one in known)
    packing = next((one for one in each if one is not None), None)
    return None if packing is None else (position, packing)


def sparse_gemv(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel for which `sparse_gemv_tiles` proposed the tile.

    Levels: `block` n, columns of a task; `register` n, columns of a panel.
    """
    view, found = as_gemv(workload), _packing(workload, target)
    assert view is not None, "tiles are offered only for products of few rows"
    assert found is not None, "tiles are offered only where an encoding tells of zeros"
    position, packing = found
    _, _, places, steps, end = packing.parts
    rows = _LookupRows(
        view.rows, view.depth, 1, 1, target.vector_floats, places=places, steps=steps, step_bytes=packing.step_bytes
    )
    groups, order = tile.extent("block", "n") // packing.panel, end if packing.ordered else None
    return _SparseGemv(name, workload, view, position, packing, rows, groups, order)


@dataclass(frozen=True)
class _LookupRows(RowsKernel):
    """c[row][column] = sum over the steps of a panel of weight times the element of x that its lane looks up.

    places, steps  bytes of the packed matrix at which those parts begin
    step_bytes     of one step
    """

    places: int = 0
    steps: int = 0
    step_bytes: int = 0

    @property
    def ctype(self) -> str:
        """Of the matrix."""
        return "uint8_t"

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(x, b, starts, c)`, inlined where it is called.

        `b` is the packed matrix, `starts` where it tells of the panel's first step.
        """
        arguments = "const float *x, const uint8_t *b, const int32_t *starts, float *c"
        with writer.block(f"static inline __attribute__((always_inline)) void {name}({arguments})"):
            writer.line(f"const uint16_t *const places = (const uint16_t *)(b + {self.places});")
            writer.line("const long past = starts[1];")
            writer.line("long step = starts[0];")
            writer.line(f"vf acc[{self.rows}][{AT_ONCE}] = {{0}};")
            with writer.block(f"for (; step + {AT_ONCE} <= past; step += {AT_ONCE})"):
                for at in range(AT_ONCE):
                    self._step(writer, at)
            with writer.block("for (; step < past; step++)"):
                self._step(writer, 0)
            for row in range(self.rows):
                sums = " + ".join(f"acc[{row}][{at}]" for at in range(AT_ONCE))
                writer.line(f"tw_store(c + {row * self.width}, {sums});")
        writer.line()

    def _step(self, writer: Writer, at: int) -> None:
        step = f"(step + {at})" if at else "step"
        with writer.block(""):
            writer.line(f"const uint8_t *const w = b + {self.steps} + {step} * {self.step_bytes}L;")
            writer.line(f"const float *const from = x + places[{step}];")
            writer.line("const vf weights = tw_load((const float *)w);")
            for row in range(self.rows):
                read = f"tw_lookup(from + {row * self.depth}, w + {LANE_BYTES * self.lanes})"
                writer.line(f"acc[{row}][{at}] += weights * {read};")


@dataclass
class _SparseGemv(FewRows):
    """A group is one panel. Behind rows in the order of the weights lie rows as they are, where these differ."""

    order: int | None
    """The byte of the packed matrix from which on it has the order of a row's elements."""

    @property
    def scratch(self) -> int:
        """Bytes that rows are copied to."""
        return super().scratch * (1 if self.order is None else 2)

    def _gather(self) -> None:
        if self.order is None:
            super()._gather()
            return
        writer, rows, depth = self.writer, self.view.rows, self.view.depth
        writer.line("float *const rows = (float *)scratch;")
        writer.line(f"float *const plain = rows + {rows * depth};")
        matrix = self.workload.kernel.inputs[self.position].name
        writer.line(f"const uint16_t *const order = (const uint16_t *)((const char *){matrix} + {self.order});")
        self._copy_rows("plain")
        with writer.block(f"for (long m = 0; m < {rows * depth}; m += {depth})"):
            writer.line(f"for (long k = 0; k < {depth}; k++) rows[m + k] = plain[m + order[k]];")

    def _point(self, matrix: str) -> None:
        self.writer.line(f"const uint8_t *const b = (const uint8_t *){matrix};")

    def _sums(self, rows: RowsKernel) -> None:
        self.writer.line(f"{self.name}_1(rows, b, (const int32_t *)b + group, c);")
        self._finish_rows(rows)


SPARSE_GEMV = Algorithm(("sparse_gemv",), sparse_gemv_tiles, sparse_gemv, takes=any_short)
