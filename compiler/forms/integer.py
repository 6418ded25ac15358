"""Kernels as products of bytes: C[b, m, n] = sum over k of (A[b, m, k] - p) (B[b, k, n] - q), int32, and maps.

p and q are zero points: p may differ from row to row, q from column to column. Where A's condition does not hold, as in
the padding of a convolution, the difference is 0, which is to say that A is p there.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.forms.cache_lines import ALIAS_BYTES
from compiler.forms.contraction import MIN_COLUMNS, MIN_ROWS, Contraction, merit, packing_of, sorted_axes, sums_products
from compiler.forms.groups import LANE_BYTES
from compiler.forms.normal_form import Slots, in_normal_form
from compiler.forms.operand import guarded
from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

BYTES = (DType.U8, DType.I8)
VECTORS = (DType.F32, DType.I32, DType.I16, DType.U16, *BYTES)
"""What the maps after a product may give."""


@dataclass(frozen=True)
class Operand:
    """`value - zero` where `condition` holds (None: everywhere), else 0; `value` of a dtype in BYTES, `zero` int32."""

    value: Expr
    zero: Expr | None
    condition: Expr | None

    @property
    def fixed_zero(self) -> int | None:
        """The zero point as a number; None where it is known only when the program runs."""
        zero = self.zero.arg if isinstance(self.zero, Cast) else self.zero
        if zero is None:
            return 0
        return int(zero.value) if isinstance(zero, Const) else None


@dataclass(frozen=True)
class IntegerContraction:
    """A kernel in this form. The axes are those of `view`."""

    view: Contraction
    a: Operand
    b: Operand

    def a_shift(self, signed: bool) -> int:
        """What is added to A so that it is an unsigned byte, or a signed one."""
        if signed:
            return -128 if self.a.value.dtype is DType.U8 else 0
        return 128 if self.a.value.dtype is DType.I8 else 0

    @property
    def b_shift(self) -> int:
        """What is taken from B so that it is a signed byte."""
        return 128 if self.b.value.dtype is DType.U8 else 0

    def packing(self, workload: Workload, panel: int) -> tuple[int, Panels] | None:
        """The panels of B with its input position; None when B is not a constant read at affine positions."""
        return packing_of(_with_b(self.view, self.b.value), workload, panel)


def as_integer(workload: Workload) -> IntegerContraction | None:
    """This form of a kernel; None if it is no int32 sum of products of bytes and maps, or too narrow to pay."""
    found = in_normal_form(workload, _has_form)
    if found is None:
        return None
    kernel, slots = found
    options = []
    for first in (0, 1):
        view = sorted_axes(kernel, first, slots)
        option = _option(view, workload) if view else None
        if option:
            options.append((merit(_with_b(option.view, option.b.value), workload, slots), -first, option))
    return max(options, key=lambda entry: entry[:2], default=(None, None, None))[2]


def row_step(form: IntegerContraction, slots: Slots, signed: bool) -> int:
    """The distance in bytes of the rows of A where its bytes are read in place; 0 where they have to be staged."""
    view, a = form.view, form.a
    if a.condition is not None or not isinstance(a.value, Load) or form.a_shift(signed):
        return 0
    if len(view.m) != 1 or len(view.k) != 1 or view.depth % LANE_BYTES or form.b.fixed_zero != form.b_shift:
        return 0
    offset = slots.address(a.value.slot, a.value.index)[1]
    step = offset.coefficient(view.m[0])
    if offset.coefficient(view.k[0]) != 1 or not step or step < 0 or step % ALIAS_BYTES == 0:
        return 0
    return step


def _has_form(kernel: Kernel) -> bool:
    if not sums_products(kernel, DType.I32):
        return False
    first, *rest = kernel.blocks
    if any(value.dtype not in VECTORS for block in rest for value in block.values):
        return False
    slots = kernel.slots
    stored = [(slots[store.slot].type.dtype, DType.I32) for store in first.stores]
    stored += [
        (slots[store.slot].type.dtype, expr.dtype)
        for block in rest
        for store, expr in zip(block.stores, block.values, strict=True)
    ]
    return all(slot is value for slot, value in stored)


def _option(view: Contraction, workload: Workload) -> IntegerContraction | None:
    a, b = operand_of(view.a), operand_of(view.b)
    if a is None or b is None or b.condition is not None:
        return None
    depth = frozenset(view.k)
    if (a.zero and a.zero.axes & (depth | {view.n})) or (b.zero and b.zero.axes & (depth | {*view.m})):
        return None
    option = IntegerContraction(view, a, b)
    ahead = option.packing(workload, MIN_COLUMNS) is not None
    return option if ahead or view.rows >= MIN_ROWS else None


def operand_of(expr: Expr) -> Operand | None:
    """A factor of a product as one of bytes; None for any other."""
    zero = None
    condition, expr = guarded(expr)
    if isinstance(expr, Apply) and expr.function == "sub":
        expr, zero = expr.args
    if not isinstance(expr, Cast) or expr.arg.dtype not in BYTES or not any(load.slot for load in expr.arg.loads):
        return None
    return Operand(expr.arg, zero, condition)


def _with_b(view: Contraction, b: Expr) -> Contraction:
    return Contraction(view.kernel, view.product, view.epilogue, view.a, b, view.batch, view.m, view.n, view.k)


def plus(expr: Expr | None, number: int) -> Expr:
    """An int32 expression, 0 when absent, and a number."""
    if expr is None:
        return Const(number, DType.I32)
    return Apply("add", (expr, Const(number, DType.I32))) if number else expr
