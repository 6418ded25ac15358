"""Bytes made floats by one scale and one zero point, as a DequantizeLinear of a whole tensor has them."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.tensor import DType

BYTES = (DType.U8, DType.I8)


@dataclass(frozen=True)
class Dequantised:
    """scale * (load - zero), where the load is of bytes."""

    load: Load
    zero: int
    scale: float


def dequantised(expr: Expr) -> Dequantised | None:
    """An fp32 expression of this form, None for one of another."""
    scale = 1.0
    if isinstance(expr, Apply) and expr.function == "mul" and isinstance(expr.args[1], Const):
        scale, expr = float(expr.args[1].value), expr.args[0]
    if not isinstance(expr, Cast) or expr.type is not DType.F32:
        return None
    expr, zero = expr.arg, 0
    if isinstance(expr, Apply) and expr.function == "sub":
        expr, taken = expr.args
        taken = taken.arg if isinstance(taken, Cast) else taken
        if not isinstance(taken, Const):
            return None
        zero = int(taken.value)
    expr = expr.arg if isinstance(expr, Cast) and expr.type is DType.I32 else expr
    return Dequantised(expr, zero, scale) if isinstance(expr, Load) and expr.type in BYTES else None
