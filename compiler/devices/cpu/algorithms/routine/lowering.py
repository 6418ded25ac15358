"""Routines: computations that are no loop nests, written by hand in C."""

from __future__ import annotations

from math import prod

from compiler.codegen.scalars import C_TYPES, convert
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.routine.boxes import SelectBoxes
from compiler.devices.cpu.algorithms.routine.forest import Forest, forest_seconds
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import InternalError
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ir.region import Region
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

ROUTINE_NS = 10.0
"""One element through a hand-written routine."""


def routine_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The hand-written form of a Routine; empty for a Kernel, and for a Region."""
    if not isinstance(workload.kernel, Routine) or isinstance(workload.kernel, Region):
        return []
    if workload.kernel.name == "forest":
        return [Proposal(Tile("routine"), 1e-9 * CALL_NS + forest_seconds(workload.kernel))]
    elements = sum(buffer.type.elements for buffer in workload.inputs)
    return [Proposal(Tile("routine"), 1e-9 * (CALL_NS + ROUTINE_NS * elements))]


def routine(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A Routine. Raises InternalError for one that has no C form, and where a buffer is not plain and contiguous."""
    kernel = workload.kernel
    assert isinstance(kernel, Routine)
    if any(not buffer.is_contiguous or not buffer.layout.is_plain for buffer in (*workload.inputs, *workload.outputs)):
        raise InternalError(f"routine {kernel.name} needs plain buffers", fix="report this model: it is our fault")
    if kernel.name == "topk":
        return _TopK(name, workload, kernel)
    if kernel.name == "select_boxes":
        return SelectBoxes(name, workload, kernel)
    if kernel.name == "forest":
        return Forest(name, workload, kernel)
    raise InternalError(f"routine {kernel.name} has no C form", fix="report this model: it is our fault")


class _TopK(Lowering):
    """Selection with a heap: k best of each row, best first; a tie keeps the lower index, NaN counts as greatest.

    The heap holds the places of the best so far in the lane's scratch, the one that comes last at its root (Knuth, The
    Art of Computer Programming 3, 5.2.3); most elements are only compared with that one. A tile task is one row.
    """

    def __init__(self, name: str, workload: Workload, routine: Routine) -> None:
        self.name, self.workload, self.routine = name, workload, routine
        axis, k = routine.params["axis"], routine.params["k"]
        assert isinstance(axis, int)
        assert isinstance(k, int)
        self.k, self.type = k, workload.inputs[0].type
        dims = self.type.dims
        self.outer, self.extent, self.inner = prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])

    @property
    def grid(self) -> None:
        """None: where a row lies is in its text only."""

    @property
    def tasks(self) -> int:
        return self.outer * self.inner if self.k else 0

    def lower(self) -> Lowered:
        writer, name, routine = Writer(), self.name, self.routine
        k, extent, outer, inner = self.k, self.extent, self.outer, self.inner
        ctype = C_TYPES[self.type.dtype]
        largest, indexed = bool(routine.params["largest"]), len(routine.outputs) > 1
        source, best, where = routine.inputs[0].name, routine.outputs[0].name, routine.outputs[-1].name
        _order(writer, name, ctype, inner, _precedes("x", "other", self.type.dtype, largest))
        note = f"the {k} {'greatest' if largest else 'least'} of {extent}, {outer * inner} times"
        with kernel_function(writer, name, self.workload, note):
            writer.line("int64_t *const heap = (int64_t *)scratch;")
            with writer.block("for (long row = begin; row < end; row++)"):
                writer.line(f"const {ctype} *const from = {source} + row / {inner} * {extent * inner} + row % {inner};")
                writer.line(f"const long to = row / {inner} * {k * inner} + row % {inner};")
                writer.line(f"for (long at = 0; at < {k}; at++) heap[at] = at;")
                writer.line(f"for (long at = {k} / 2; at-- > 0;) {name}_sift(from, heap, at, {k});")
                with (
                    writer.block(f"for (long at = {k}; at < {extent}; at++)"),
                    writer.block(f"if ({name}_before(from, at, heap[0]))"),
                ):
                    writer.line("heap[0] = at;")
                    writer.line(f"{name}_sift(from, heap, 0, {k});")
                with writer.block(f"for (long left = {k}; left-- > 1;)"):
                    writer.line("const int64_t last = heap[0];")
                    writer.line("heap[0] = heap[left], heap[left] = last;")
                    writer.line(f"{name}_sift(from, heap, 0, left);")
                with writer.block(f"for (long rank = 0; rank < {k}; rank++)"):
                    writer.line(f"{best}[to + rank * {inner}] = from[heap[rank] * {inner}];")
                    if indexed:
                        writer.line(f"{where}[to + rank * {inner}] = heap[rank];")
        return Lowered(name, writer.text(), self.tasks, 8 * k, headers=frozenset(writer.headers))


def _order(writer: Writer, name: str, ctype: str, inner: int, precedes: str) -> None:
    """C functions on places of a row.

    One says which of two comes first, the other restores a heap's order where only the entry `at` may break it.
    """
    with writer.block(f"static inline int {name}_before(const {ctype} *from, long one, long two)"):
        writer.line(f"const {ctype} a = from[one * {inner}], b = from[two * {inner}];")
        for x, other, answer in (("a", "b", 1), ("b", "a", 0)):
            writer.line(f"{{ const {ctype} x = {x}, other = {other}; if ({precedes}) return {answer}; }}")
        writer.line("return one < two;")
    with writer.block(f"static void {name}_sift(const {ctype} *from, int64_t *heap, long at, long size)"):
        writer.line("const int64_t place = heap[at];")
        with writer.block("for (long child; (child = 2 * at + 1) < size; at = child)"):
            writer.line(f"if (child + 1 < size && {name}_before(from, heap[child], heap[child + 1])) child++;")
            writer.line(f"if (!{name}_before(from, place, heap[child])) break;")
            writer.line("heap[at] = heap[child];")
        writer.line("heap[at] = place;")


def _precedes(x: str, other: str, dtype: DType, largest: bool) -> str:
    """Whether `x` comes strictly before `other` in the result, as a C condition."""
    if dtype is DType.BF16:
        x, other, dtype = convert(x, dtype, DType.F32), convert(other, dtype, DType.F32), DType.F32
    order = f"{x} > {other}" if largest else f"{x} < {other}"
    if not dtype.is_float:
        return order
    ahead, behind = (x, other) if largest else (other, x)
    return f"{order} || ({ahead} != {ahead} && {behind} == {behind})"
