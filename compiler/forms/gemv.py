"""Products of a few rows with a constant matrix, which cost what it costs to read the matrix once."""

from __future__ import annotations

from math import prod

from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.ir.kernel import Kernel, Routine, Slot
from compiler.ir.machine import Workload

MAX_ROWS = 4
"""More rows reuse what they read of the matrix often enough to be bound by arithmetic."""
SPARSE_ROWS = 24
"""Of a product that reads a matrix without its zeros column by column; more rows fill vectors by themselves."""
STREAMS = 4
"""Panels read side by side: so many streams keep more lines on their way from memory than one does."""
LARGEST_GROUP = 16
"""Vectors of columns that are worked on at a time; more would not be faster."""


def as_gemv(workload: Workload, most: int = MAX_ROWS) -> Contraction | None:
    """The matrix form of a kernel of at most so many rows and one constant matrix, or None when it is not one."""
    view = as_contraction(workload)
    if view is None or view.rows > most or view.batches > 1 or packing_of(view, workload, 1) is None:
        return None
    return view


def reads_once(kernel: Kernel | Routine, slot: Slot) -> bool:
    """Whether a product of few rows, or each step of a recurrence, reads a slot, so that the bytes it takes matter."""
    return isinstance(kernel, Kernel) and (bool(kernel.sequential) or multiplies_few(kernel, slot, MAX_ROWS))


def multiplies_few(kernel: Kernel | Routine, slot: Slot, rows: int) -> bool:
    """Whether a product of at most so many rows reads a slot."""
    if not isinstance(kernel, Kernel) or kernel.sequential:
        return False
    product = kernel.blocks[0]
    points = prod(axis.extent for axis in (*kernel.shared, *product.reduction))
    return product.monoid == "sum" and slot.name in product.reads and points <= rows * slot.type.elements


def group_of(rows: int, columns: int, registers: int, lanes: int) -> tuple[int, int]:
    """Panels read side by side, and vectors in each: as many sums as three quarters of the registers hold."""
    most = min(registers * 3 // 4 // rows, LARGEST_GROUP)
    needed = -(-columns // lanes)
    vectors = next((v for v in (4, 2) if STREAMS * v <= most and STREAMS * v <= needed), 1)
    return max(min(STREAMS, most // vectors, -(-needed // vectors)), 1), vectors
