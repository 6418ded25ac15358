"""Interpolation kernels: the weight of an element as a function of its distance from the coordinate."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.expr import Expr, Where
from compiler.ops.build import call, number


def hat(distance: Expr) -> Expr:
    """max(0, 1 - distance)."""
    one, zero = number(1.0, distance.dtype), number(0.0, distance.dtype)
    return call("max", call("sub", one, distance), zero)


def cubic(a: float) -> Callable[[Expr], Expr]:
    """The cubic convolution kernel (Keys 1981) with coefficient `a`, as a function of the distance."""

    def weight(distance: Expr) -> Expr:
        def polynomial(*coefficients: float) -> Expr:
            value: Expr = number(coefficients[0], distance.dtype)
            for coefficient in coefficients[1:]:
                value = call("add", call("mul", value, distance), number(coefficient, distance.dtype))
            return value

        near, far = polynomial(a + 2, -(a + 3), 0.0, 1.0), polynomial(a, -5 * a, 8 * a, -4 * a)
        outer = Where(call("lt", distance, number(2.0, distance.dtype)), far, number(0.0, distance.dtype))
        return Where(call("le", distance, number(1.0, distance.dtype)), near, outer)

    return weight
