"""Quotients and factors that depend on positions alone, as one product."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from compiler.ir.expr import Apply, Cast, Const, Expr, Position
from compiler.ir.tensor import DType

LEAST_FACTOR = 2.0**-100
"""Of a product of numbers that stays far from what fp32 cannot hold."""


def is_positional(expr: Expr) -> bool:
    """Whether an expression depends on loop positions and constants only, not on data."""
    return all(isinstance(part, Position | Const | Apply | Cast) for part in expr.walk())


def by_multiplication(expr: Expr) -> Expr:
    """A quotient by a number that depends on positions alone, as a product: one division for all channels.

    Such a number is how many elements an average is over.
    """
    if not isinstance(expr, Apply) or expr.function != "div" or expr.dtype is not DType.F32:
        return expr
    value, count = expr.args
    if not is_positional(count) or is_positional(value):
        return expr
    if isinstance(count, Const):
        with np.errstate(divide="ignore"):
            return Apply("mul", (value, Const(float(np.float32(1) / np.float32(count.value)), DType.F32)))
    return Apply("mul", (value, Apply("reciprocal", (count,))))


def by_one_factor(expr: Expr) -> Expr:
    """x * a / b * c = x * (a c / b), where a, b and c depend on positions alone: one product for all channels.

    Numbers among them are multiplied in float64. Where their product is too large or too small for fp32, nothing is
    changed.
    """
    number, value, factors, divisors = 1.0, expr, list[Expr](), list[Expr]()
    while (split := _factor(value)) is not None:
        function, value, other = split
        for term, is_divisor in _terms(other, is_divisor=function == "div"):
            if not isinstance(term, Const):
                (divisors if is_divisor else factors).append(term)
            elif term.value == 0:
                return expr
            else:
                number = number / term.value if is_divisor else number * term.value
    if value is expr or not LEAST_FACTOR <= abs(number) <= 1 / LEAST_FACTOR:
        return expr
    whole: Expr = Const(number, DType.F32)
    factor = reduce(_times, factors, whole)
    return Apply("mul", (value, Apply("div", (factor, reduce(_times, divisors))) if divisors else factor))


def _times(one: Expr, other: Expr) -> Expr:
    return Apply("mul", (one, other))


def _terms(factor: Expr, *, is_divisor: bool) -> Iterator[tuple[Expr, bool]]:
    """What a factor is a product of, each with whether it is divided by."""
    if not isinstance(factor, Apply) or factor.function not in ("mul", "div"):
        yield factor, is_divisor
        return
    left, right = factor.args
    yield from _terms(left, is_divisor=is_divisor)
    yield from _terms(right, is_divisor=is_divisor != (factor.function == "div"))


def _factor(expr: Expr) -> tuple[str, Expr, Expr] | None:
    """What a value is multiplied or divided by that depends on positions alone: the function, the value, the other."""
    if not isinstance(expr, Apply) or expr.function not in ("mul", "div") or expr.dtype is not DType.F32:
        return None
    value, other = expr.args
    if expr.function == "mul" and is_positional(value):
        value, other = other, value
    return (expr.function, value, other) if is_positional(other) and not is_positional(value) else None
