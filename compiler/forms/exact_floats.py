"""Sums of few products of bytes, in fp32: each sum is a whole number of at most 24 bits, so that nothing is rounded."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from compiler.ir.expr import Apply, Cast, Const, Expr, Load, Where
from compiler.ir.kernel import Block, Kernel, Slot
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, TensorType

EXACT = 2**24
"""Up to here fp32 holds every whole number."""
GREATEST = {DType.U8: 255, DType.I8: 128}
"""By type of bytes, how far from 0 they may be."""


def in_floats(workload: Workload) -> Workload | None:
    """A kernel that sums products of bytes in 32 bits, with sums and products in fp32 and the same results, bit by bit.

    None where a sum may be too large, or where sums are needed as integers by what follows.
    """
    kernel = workload.kernel
    if not isinstance(kernel, Kernel) or not kernel.blocks:
        return None
    first, *rest = kernel.blocks
    temps = {slot.name for slot in kernel.temps}
    if first.monoid != "sum" or first.accumulator is not DType.I32 or first.stores[0].slot not in temps:
        return None
    found = _in_floats(first.values[0])
    if found is None or found[1] * prod(axis.extent for axis in first.reduction) > EXACT:
        return None
    total = first.stores[0].slot
    blocks = [_reads_floats(block, total) for block in rest]
    if any(
        load == Load(total, load.index, DType.I32) for block in blocks for one in block.values for load in one.loads
    ):
        return None
    product = replace(first, values=(found[0],), accumulator=DType.F32)
    held = tuple(
        Slot(slot.name, TensorType(DType.F32, slot.type.shape)) if slot.name == total else slot for slot in kernel.temps
    )
    return replace(workload, kernel=replace(kernel, blocks=(product, *blocks), temps=held))


def _in_floats(expr: Expr) -> tuple[Expr, int] | None:
    """An int32 expression over bytes in fp32, and how far from 0 it may be; None for one of another kind."""
    if isinstance(expr, Const):
        return Const(float(expr.value), DType.F32), abs(int(expr.value))
    if isinstance(expr, Cast):
        if isinstance(expr.arg, Const):
            return Const(float(expr.arg.value), DType.F32), abs(int(expr.arg.value))
        greatest = GREATEST.get(expr.arg.dtype)
        return None if greatest is None else (Cast(expr.arg, DType.F32), greatest)
    if isinstance(expr, Where):
        then, otherwise = _in_floats(expr.then), _in_floats(expr.otherwise)
        if then is None or otherwise is None:
            return None
        return Where(expr.condition, then[0], otherwise[0]), max(then[1], otherwise[1])
    if not isinstance(expr, Apply) or expr.function not in ("add", "sub", "mul"):
        return None
    left, right = map(_in_floats, expr.args)
    if left is None or right is None:
        return None
    greatest = left[1] * right[1] if expr.function == "mul" else left[1] + right[1]
    return (Apply(expr.function, (left[0], right[0])), greatest) if greatest <= EXACT else None


def _reads_floats(block: Block, total: str) -> Block:
    """A map whose conversions of sums to fp32 are loads of them."""

    def read(expr: Expr) -> Expr:
        if isinstance(expr, Cast) and isinstance(expr.arg, Load) and expr.arg.slot == total:
            return Load(total, expr.arg.index, DType.F32) if expr.type is DType.F32 else expr
        return expr

    return replace(block, values=tuple(value.transform(read) for value in block.values))
