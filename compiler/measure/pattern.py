"""What operands are filled with while kernels are timed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compiler.ir.arithmetic import bounds
from compiler.ir.expr import Position
from compiler.ir.index import FloorDiv, Index, Indirect, Mod
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType

PATTERN = 65_521
"""Random elements drawn for a dtype and repeated to fill an operand; prime, so that no row of a tensor lines up with
it."""


def pattern(dtype: DType, random: np.random.Generator, *, zero: bool) -> np.ndarray:
    """Elements to fill an operand with: integers are zero if they may be indices, else small and never zero.

    They may be divisors.
    """
    if dtype.is_float:
        return random.uniform(0.5 if dtype.is_small else 0.1, 1.0, PATTERN).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return random.integers(0, 2, PATTERN).astype(np.bool_)
    if zero:
        return np.zeros(PATTERN, dtype.numpy)
    return random.integers(1, min(8, int(bounds(dtype)[1]) + 1), PATTERN).astype(dtype.numpy)


def reads_indices(kernel: Kernel | Routine) -> bool:
    """Whether an integer operand may decide which element is touched; a routine's may, as nothing is known of it."""
    if isinstance(kernel, Routine):
        return True
    roots = [value for block in kernel.blocks for value in block.values]
    roots += [Position(index) for block in kernel.blocks for store in block.stores for index in store.index]
    return any(_is_indirect(index) for root in roots for index in _indices(root.walk()))


def _indices(exprs: Iterator[object]) -> Iterator[Index]:
    for expr in exprs:
        yield from getattr(expr, "indices", ())


def _is_indirect(index: Index) -> bool:
    return any(
        isinstance(atom, Indirect) or (isinstance(atom, FloorDiv | Mod) and _is_indirect(atom.index))
        for atom, _ in index.terms
    )
