"""Routines: computations that are no loop nests, written by hand in C."""

from __future__ import annotations

from math import prod

from compiler.codegen.c_scalar import C_TYPES, convert
from compiler.codegen.lowered import Lowered, declarations
from compiler.codegen.writer import Writer
from compiler.errors import InternalError
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType


def lower_routine(name: str, workload: Workload) -> Lowered:
    """A Routine as C. Raises InternalError for one that has no C form, and where a buffer is not plain and contiguous."""
    routine = workload.kernel
    assert isinstance(routine, Routine)
    if any(not buffer.is_contiguous or not buffer.layout.is_plain for buffer in (*workload.inputs, *workload.outputs)):
        raise InternalError(f"routine {routine.name} needs plain buffers", fix="report this model: it is our fault")
    if routine.name == "topk":
        return _top_k(name, workload, routine)
    raise InternalError(f"routine {routine.name} has no C form", fix="report this model: it is our fault")


def _top_k(name: str, workload: Workload, routine: Routine) -> Lowered:
    """Selection by insertion: k best of each row, kept in order; a tie keeps the lower index, NaN counts as greatest.

    The outputs, values and (if asked for) indices, are where the best so far are kept. A tile task is one row.
    """
    writer = Writer()
    axis, k = routine.params["axis"], routine.params["k"]
    assert isinstance(axis, int)
    assert isinstance(k, int)
    type = workload.inputs[0].type
    outer, extent, inner = prod(type.dims[:axis]), type.dims[axis], prod(type.dims[axis + 1 :])
    ctype = C_TYPES[type.dtype]
    largest, indexed = bool(routine.params["largest"]), len(routine.outputs) > 1
    source, best, where = routine.inputs[0].name, routine.outputs[0].name, routine.outputs[-1].name
    writer.line(f"/* TopK: the {k} {'greatest' if largest else 'least'} of {extent}, {outer * inner} times */")
    with writer.block(f"void {name}(void *const *p, char *scratch, long begin, long end)"):
        for line in declarations(workload):
            writer.line(line)
        writer.line("(void)scratch;")
        with writer.block("for (long row = begin; row < end; row++)"):
            writer.line(f"const {ctype} *const from = {source} + row / {inner} * {extent * inner} + row % {inner};")
            writer.line(f"{ctype} *const best = {best} + row / {inner} * {k * inner} + row % {inner};")
            if indexed:
                writer.line(f"int64_t *const place = {where} + row / {inner} * {k * inner} + row % {inner};")
            writer.line("long held = 0;")
            with writer.block(f"for (long at = 0; at < {extent}; at++)"):
                writer.line(f"const {ctype} x = from[at * {inner}];")
                writer.line("long rank = held;")
                with writer.block("for (; rank > 0; rank--)"):
                    writer.line(f"const {ctype} other = best[(rank - 1) * {inner}];")
                    writer.line(f"if (!({_precedes('x', 'other', type.dtype, largest)})) break;")
                writer.line(f"if (rank == {k}) continue;")
                writer.line(f"if (held < {k}) held++;")
                with writer.block("for (long later = held - 1; later > rank; later--)"):
                    writer.line(f"best[later * {inner}] = best[(later - 1) * {inner}];")
                    if indexed:
                        writer.line(f"place[later * {inner}] = place[(later - 1) * {inner}];")
                writer.line(f"best[rank * {inner}] = x;")
                if indexed:
                    writer.line(f"place[rank * {inner}] = at;")
    return Lowered(name, writer.text(), outer * inner if k else 0)


def _precedes(x: str, other: str, dtype: DType, largest: bool) -> str:
    """Whether `x` comes strictly before `other` in the result, as a C condition."""
    if dtype is DType.BF16:
        x, other, dtype = convert(x, dtype, DType.F32), convert(other, dtype, DType.F32), DType.F32
    order = f"{x} > {other}" if largest else f"{x} < {other}"
    if not dtype.is_float:
        return order
    ahead, behind = (x, other) if largest else (other, x)
    return f"{order} || ({ahead} != {ahead} && {behind} == {behind})"
