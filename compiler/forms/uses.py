"""How a kernel reads a constant, which decides in which encodings the constant may be kept."""

from __future__ import annotations

from compiler.encodings.encoding import Use
from compiler.forms.gemv import SPARSE_ROWS, multiplies_few, reads_once
from compiler.forms.recurrence import recurs_by
from compiler.forms.sparse import multiplies_by
from compiler.ir.kernel import Kernel, Routine, Slot


def uses_of(kernel: Kernel | Routine, slot: Slot) -> tuple[Use, ...]:
    """Every use that a kernel of a CPU makes of a slot."""
    once = reads_once(kernel, slot)
    found = [Use.ONCE] if once else []
    if multiplies_by(kernel, slot):
        found += [Use.PRODUCT]
        found += [Use.FEW_ROWS] if multiplies_few(kernel, slot, SPARSE_ROWS) else []
        found += [Use.GEMV] if once else []
    elif recurs_by(kernel, slot):
        found += [Use.RECURRENCE]
    return tuple(found)
