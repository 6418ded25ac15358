"""Routines: computations that are no loop nests, written by hand in C."""

from __future__ import annotations

from compiler.codegen.c_expr import C_TYPES
from compiler.codegen.lowered import Lowered, declarations
from compiler.codegen.writer import Writer
from compiler.errors import InternalError
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload


def lower_routine(name: str, workload: Workload) -> Lowered:
    """A Routine as C. Raises InternalError for one that has no C form."""
    routine = workload.kernel
    assert isinstance(routine, Routine)
    if any(not buffer.is_contiguous or not buffer.layout.is_plain for buffer in (*workload.inputs, *workload.outputs)):
        raise InternalError(f"routine {routine.name} needs plain buffers", fix="report this model: it is our fault")
    if routine.name == "top_k":
        return _top_k(name, workload, routine)
    raise InternalError(f"routine {routine.name} has no C form", fix="report this model: it is our fault")


def _top_k(name: str, workload: Workload, routine: Routine) -> Lowered:
    """Selection by insertion: k best of each row, kept in order; a tie keeps the lower index, NaN counts as greatest."""
    writer = Writer()
    axis, k = routine.params["axis"], routine.params["k"]
    assert isinstance(axis, int)
    assert isinstance(k, int)
    dims = workload.inputs[0].type.dims
    outer, extent, inner = _product(dims[:axis]), dims[axis], _product(dims[axis + 1 :])
    ctype = C_TYPES[workload.inputs[0].type.dtype]
    sign = ">" if routine.params["largest"] else "<"
    writer.line(f"/* TopK: the {k} {'greatest' if sign == '>' else 'least'} of {extent}, {outer * inner} times */")
    with writer.block(f"void {name}(void *const *p, char *scratch, long begin, long end)"):
        for line in declarations(workload):
            writer.line(line)
        writer.line("(void)scratch;")
        with writer.block("for (long row = begin; row < end; row++)"):
            writer.line(f"const {ctype} *const from = x0 + row / {inner} * {extent * inner} + row % {inner};")
            writer.line(f"{ctype} *const best = y0 + row / {inner} * {k * inner} + row % {inner};")
            writer.line(f"int64_t *const where = y1 + row / {inner} * {k * inner} + row % {inner};")
            writer.line("long held = 0;")
            with writer.block(f"for (long at = 0; at < {extent}; at++)"):
                writer.line(f"const {ctype} x = from[at * {inner}];")
                writer.line("long place = held;")
                better = f"(x {sign} best[(place - 1) * {inner}]" + (
                    f" || (x != x && best[(place - 1) * {inner}] == best[(place - 1) * {inner}]))"
                    if sign == ">"
                    else ")"
                )
                writer.line(f"while (place > 0 && {better}) place--;")
                writer.line(f"if (place == {k}) continue;")
                writer.line(f"if (held < {k}) held++;")
                with writer.block("for (long later = held - 1; later > place; later--)"):
                    writer.line(f"best[later * {inner}] = best[(later - 1) * {inner}];")
                    writer.line(f"where[later * {inner}] = where[(later - 1) * {inner}];")
                writer.line(f"best[place * {inner}] = x;")
                writer.line(f"where[place * {inner}] = at;")
    return Lowered(name, writer.text(), outer * inner if k else 0)


def _product(dims: tuple[int, ...]) -> int:
    total = 1
    for dim in dims:
        total *= dim
    return total
