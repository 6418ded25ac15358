"""Products whose B sparse tensor cores take: a packed constant with two of each four neighbours along k zero."""

from __future__ import annotations

from dataclasses import replace

from compiler.devices.cuda.products.floats import as_fp32, times_loaded
from compiler.encodings.two_of_four import GROUP, TwoOfFour
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.integer import IntegerContraction, as_integer
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType


def as_sparse_contraction(workload: Workload) -> Contraction | None:
    """The matrix form of a kernel whose weights are so sparse along k, and read by the product alone; else None."""
    view = as_contraction(workload) if _has_groups(workload) else None
    return None if view is None or weights_of(view, view.b, workload) is None else view


def as_sparse_integer(workload: Workload) -> IntegerContraction | None:
    """The same of bytes, of which the weights are signed and zero where they say 0; else None."""
    form = as_integer(workload) if _has_groups(workload) else None
    if form is None or form.b.value.dtype is not DType.I8 or form.b.fixed_zero != 0:
        return None
    return None if weights_of(form.view, form.b.value, workload) is None else form


def _has_groups(workload: Workload) -> bool:
    """Whether any operand has groups of four of which two are zero."""
    return any(isinstance(one, TwoOfFour) for each in workload.encodings for one in each)


def weights_of(view: Contraction, value: Expr, workload: Workload) -> tuple[int, Panels] | None:
    """The input that B is, and where B lies in it, if each four neighbours along k are a group of the constant.

    `value` is an element of B as it lies in memory, or widened.
    """
    b = as_fp32(value)
    found = packing_of(replace(view, b=b), workload, 1)
    if found is None:
        return None
    position, matrix = found
    assert isinstance(b, Load)
    axes = [one.axis for one in workload.encodings[position] if isinstance(one, TwoOfFour)]
    if times_loaded(view, b.slot) > 1 or not any(_are_groups(b.index, axis, view.k[-1]) for axis in axes):
        return None
    return position, matrix


def _are_groups(index: tuple[Index, ...], axis: int, k: Axis) -> bool:
    """Whether four neighbours along `k`, from a multiple of four on, are a group along a dimension of the constant."""
    along, others = index[axis], [one for at, one in enumerate(index) if at != axis]
    if k.extent % GROUP or along.coefficient(k) != 1 or any(k in one.axes for one in others):
        return False
    return not any(number % GROUP for number in (along.const, *(factor for atom, factor in along.terms if atom != k)))
