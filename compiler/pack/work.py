"""How much a kernel computes."""

from __future__ import annotations

from math import prod

from compiler.ir.expr import Apply, Expr
from compiler.ir.kernel import MONOIDS, Kernel, Routine
from compiler.ir.region import Region


def flops(kernel: Kernel | Routine) -> int | None:
    """Floating-point operations as the definition states them, padding included; None for a routine.

    Of a region those of its dearer body, as often as it may run. Each arithmetic function counts as one, whatever it
    costs, and so does each combination of a reduction.
    """
    if isinstance(kernel, Region):
        bodies = [sum(flops(call.kernel) or 0 for call in body.calls) for body in kernel.bodies]
        return kernel.times * max(bodies)
    if isinstance(kernel, Routine):
        return None
    shared = prod(axis.extent for axis in kernel.shared)
    total = 0
    for block in kernel.blocks:
        points = shared * prod(axis.extent for axis in (*block.axes, *block.reduction))
        each = sum(_operations(value) for value in block.values)
        if block.monoid and block.accumulator is not None and block.accumulator.is_float:
            each += MONOIDS[block.monoid].width
        total += points * each
    return total


def _operations(value: Expr) -> int:
    return sum(1 for expr in value.walk() if isinstance(expr, Apply) and expr.dtype.is_float)
