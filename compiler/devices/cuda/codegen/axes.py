"""Positions of a row-major iteration, and conditions on them, as C."""

from __future__ import annotations

from compiler.codegen.scalars import COMPARISONS, INFIX
from compiler.devices.cuda.codegen.scalars import CudaEmitter
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Apply, Const, Expr, Load, Position
from compiler.ir.index import Axis


def value_axes(value: Expr, slots: Slots) -> frozenset[Axis]:
    """The axes that an expression's text mentions, where its values in registers are held already."""
    found: frozenset[Axis] = frozenset()
    for part in value.walk():
        indices = part.indices
        if isinstance(part, Load):
            indices = (slots.address(part.slot, part.index)[1],) if part.slot in slots.buffers else ()
        found = found.union(*(index.axes for index in indices))
    return found


def test_of(condition: Expr, emitter: CudaEmitter) -> str:
    """A condition as C; comparisons of positions in `int`."""
    if isinstance(condition, Apply) and condition.function in COMPARISONS:
        sides = [_number(arg, emitter) for arg in condition.args]
        if all(sides):
            return f"{sides[0]} {INFIX[condition.function]} {sides[1]}"
    return emitter.scalar(condition)


def _number(arg: Expr, emitter: CudaEmitter) -> str:
    """A position or an integer constant; "" for anything else."""
    if isinstance(arg, Position):
        return emitter.index(arg.index)
    return str(int(arg.value)) if isinstance(arg, Const) and arg.dtype.is_integer else ""
