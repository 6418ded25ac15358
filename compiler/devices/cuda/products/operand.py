"""What a product's operands allow on a GPU.

In which dtype tensor cores may take them, and how many elements move at once along k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.forms.contraction import Contraction, is_constant
from compiler.forms.normal_form import Slots
from compiler.forms.operand import guarded
from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.index import Axis, Indirect
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType

HALVES = (DType.F16, DType.BF16)
PIECES = (16, 8, 4)
"""Bytes that one thread copies at once."""


def half_of(view: Contraction, workload: Workload, exact: bool) -> DType | None:
    """The 16-bit float in which tensor cores multiply a product's operands; None for fp32.

    Where `exact`, both operands lie in memory in it and nothing is computed in between. Otherwise one of them may be
    rounded to it, unless a constant is kept in fp32: it may be too large.
    """
    slots = Slots(workload)
    values = (view.a, view.b)
    kinds = {slots.buffers[load.slot].dtype for value in values for load in value.loads}
    halves = [kind for kind in HALVES if kind in kinds]
    if len(halves) != 1 or not kinds <= {DType.F32, *halves}:
        return None
    if exact:
        plain = all(isinstance(source(value)[1], Load) for value in values)
        return halves[0] if plain and kinds == {halves[0]} else None
    loads = [load for value in values for load in value.loads]
    wide = any(is_constant(workload, load.slot) and slots.buffers[load.slot].dtype is DType.F32 for load in loads)
    return None if wide else halves[0]


def source(value: Expr) -> tuple[Expr | None, Expr]:
    """The condition outside of which an operand is zero, if there is one, and its value inside."""
    condition, inner = guarded(without_widening(value))
    return condition, without_widening(inner)


def without_widening(expr: Expr) -> Expr:
    """An fp32 expression without the conversion from 16-bit floats around it, which loses nothing."""
    if isinstance(expr, Cast) and expr.type is DType.F32 and expr.arg.dtype in HALVES:
        return expr.arg
    return expr


@dataclass(frozen=True)
class Access:
    """How an operand is read along k: `count` elements at once, 1 for single ones.

    They are all there or none, side by side, aligned. `is_copy` says that they lie in memory as the product takes them.
    Otherwise registers hold what `loads` bring.
    """

    count: int
    loads: tuple[Load, ...] = ()
    is_copy: bool = False

    def within(self, group: int, element: DType) -> Access:
        """How groups of so many neighbours are read, of which each lies somewhere else; a power of two."""
        count = min(self.count, group)
        return replace(self, count=count, is_copy=self.is_copy and count * element.bytes >= PIECES[-1])


SINGLE = Access(1)
MOST_LOADS = 3
"""Loads of one element that are worth holding in registers by pieces."""


def access_of(value: Expr, k: Axis, slots: Slots, element: DType) -> Access:
    """How an operand is read along `k`, its innermost axis of k, to become `element` in shared memory."""
    condition, inner = source(value)
    loads = tuple(dict.fromkeys(inner.loads))
    if not 0 < len(loads) <= MOST_LOADS or (condition is not None and k in condition.axes):
        return SINGLE
    if not all(isinstance(part, Load | Apply | Cast | Const) for part in inner.walk()):
        return SINGLE
    count = min(piece_of(load, k, slots, element) for load in loads)
    is_copy = inner == loads[0] and slots.buffers[loads[0].slot].dtype is element
    if count < 2 or (is_copy and count * element.bytes < PIECES[-1]):
        return SINGLE
    return Access(count, loads, is_copy)


def piece_of(load: Load, k: Axis, slots: Slots, element: DType) -> int:
    """How many elements of a load may be moved at once along k; as many as fit where it does not move."""
    buffer = slots.buffers[load.slot]
    offset = slots.address(load.slot, load.index)[1]
    along = offset.coefficient(k)
    if along not in (0, 1) or any(isinstance(atom, Indirect) for atom, _ in offset.terms):
        return 1
    others = [factor for atom, factor in offset.terms if atom != k]
    places = (*others, offset.const, buffer.offset) if along else ()
    widest = max(buffer.dtype.bytes, element.bytes)
    for size in PIECES:
        count = size // widest
        if count and not any(number % count for number in (*places, k.extent)):
            return count
    return 1
