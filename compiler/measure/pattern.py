"""What operands are filled with while kernels are timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from compiler.ir.arithmetic import bounds
from compiler.ir.expr import Apply, Cast, Load, Position
from compiler.ir.index import FloorDiv, Index, Indirect, Mod
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.region import Region
from compiler.ir.tensor import DType, TensorType

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


def greatest_sizes(kernel: Kernel | Routine) -> Mapping[str, int]:
    """Integer inputs that say below which places elements count, and a number that leaves none of them out.

    A program for all sizes of a dimension is timed with all of its work: with few elements every tile costs the same.
    Of a routine every whole scalar is one; of a region, whose scalars say how often it runs, none.
    """
    if isinstance(kernel, Region):
        return {}
    if isinstance(kernel, Routine):
        extent = max((dim for slot in kernel.inputs for dim in slot.type.dims), default=0)
        return {slot.name: extent for slot in kernel.inputs if slot.type == TensorType(DType.I64, ())}
    inputs = {slot.name: slot.type.dtype for slot in kernel.inputs}
    found: dict[str, int] = {}
    for part in (part for block in kernel.blocks for value in block.values for part in value.walk()):
        if isinstance(part, Apply) and part.function in ("lt", "le") and isinstance(part.args[0], Position):
            size = part.args[1]
            while isinstance(size, Cast):
                size = size.arg
            if isinstance(size, Load) and size.slot in inputs and inputs[size.slot].is_integer:
                _, most = part.args[0].index.range
                found[size.slot] = max(found.get(size.slot, 0), int(min(most + 1, bounds(inputs[size.slot])[1])))
    return found


def _indices(exprs: Iterator[object]) -> Iterator[Index]:
    for expr in exprs:
        yield from getattr(expr, "indices", ())


def _is_indirect(index: Index) -> bool:
    return any(
        isinstance(atom, Indirect) or (isinstance(atom, FloorDiv | Mod) and _is_indirect(atom.index))
        for atom, _ in index.terms
    )
