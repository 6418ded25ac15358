"""Which blocks are computed in vectors, and what their C is called."""

from __future__ import annotations

from compiler.codegen.expressions import INTEGERS, is_vectorised
from compiler.codegen.scalars import C_TYPES
from compiler.ir.kernel import Block
from compiler.ir.tensor import DType

HORIZONTAL = {"sum": "tw_sum", "prod": "tw_product", "max": "tw_greatest", "min": "tw_least"}


def has_vectors(block: Block) -> bool:
    """Whether vectors can hold a block's values, and its reduction be carried out in them."""
    if (
        block.sequential
        or (block.monoid and block.monoid not in HORIZONTAL)
        or not all(map(is_vectorised, block.values))
    ):
        return False
    if block.accumulator is None:
        return True
    kinds = {value.dtype for value in block.values}
    if DType.F32 in (block.accumulator, *kinds):
        return {block.accumulator} == kinds
    return (
        block.accumulator is DType.I32
        if block.monoid == "sum"
        else {block.accumulator} == kinds and block.monoid != "prod"
    )


def type_of(dtype: DType, wide: bool) -> str:
    """The C type of a value, or of a vector of them."""
    return ("vi" if dtype in INTEGERS else "vf") if wide else C_TYPES[dtype]


def mark(dtype: DType) -> str:
    """What ends the names of C functions on vectors of integers."""
    return "_i" if dtype in INTEGERS else ""
