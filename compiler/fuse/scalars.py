"""Constants of one element, or of equal ones along a channel, written into the expressions that read them.

Powers that this makes plain become products, and quotients by 1 what is divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.ir.expr import Apply, Const, Expr, Load
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType


def with_scalars(kernel: Kernel, constants: Mapping[str, np.ndarray]) -> Kernel:
    """The kernel with loads of constants (by slot) that are one number everywhere replaced by it.

    Slots that nothing reads any more remain.
    """
    values = {slot: _number(array) for slot, array in constants.items() if _is_uniform(array)}
    if not values:
        return kernel

    def write(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.slot in values:
            return Const(values[expr.slot], expr.type)
        return _plain_quotient(_plain_power(expr))

    blocks = tuple(
        replace(block, values=tuple(value.transform(write) for value in block.values)) for block in kernel.blocks
    )
    return replace(kernel, blocks=blocks)


def _is_uniform(array: np.ndarray) -> bool:
    """One element, or a vector of equal integers: the zero points of channels that are all symmetric."""
    vector = array.ndim == 1 and array.dtype.kind in "iu" and array.size > 0
    return array.size == 1 or (vector and bool((array == array[0]).all()))


def _number(array: np.ndarray) -> float | int | bool:
    value = array.reshape(-1)[0].item()
    assert isinstance(value, bool | int | float)
    return value


def _plain_quotient(expr: Expr) -> Expr:
    """x / 1 = x."""
    if not isinstance(expr, Apply) or expr.function != "div":
        return expr
    value, by = expr.args
    return value if isinstance(by, Const) and by.value == 1 and value.dtype.is_float else expr


def _plain_power(expr: Expr) -> Expr:
    """pow(x, 1) = x, pow(x, 2) = x x, pow(x, 3) = x x x, for floats.

    A square root differs from pow in its signs and stays one.
    """
    if not isinstance(expr, Apply) or expr.function != "pow" or not isinstance(expr.args[1], Const):
        return expr
    base, exponent = expr.args[0], expr.args[1].value
    if base.dtype not in (DType.F32, DType.F64):
        return expr
    if exponent == 2:
        return Apply("mul", (base, base))
    if exponent == 3:
        return Apply("mul", (Apply("mul", (base, base)), base))
    return base if exponent == 1 else expr
