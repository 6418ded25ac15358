"""Functions of one variable that may be approximated, with what a proof needs: bounds of the second derivative.

The second derivatives (|.| at most): sigmoid 0.0963 (at s = (3 - sqrt 3) / 6), tanh 0.770, softplus 1/4,
erf 4 / sqrt(pi) / sqrt(2e) < 0.97, GELU 2 phi(0) < 0.80, SiLU 1/2, ELU alpha. Mish is x T(x) with T = tanh(softplus x):
|f''| <= 2 |T'| + |x T''| with |T'| <= 1 and |x T''| <= 4 / e for x > 0, since sech(softplus x)**2 <= 4 exp(-2 x), and
2 / e below: at most 3.5. Where a function has a bend (HardSwish, ELU) the derivative is still Lipschitz between the
`bends`, which are ends of segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray


@dataclass(frozen=True)
class Curve:
    """A continuous function.

    function    on float64 arrays
    curvature   of two arrays, the ends of segments: a bound of |f''| on each
    slope       a Lipschitz constant on the whole line; infinity where there is none
    left, right slopes of the asymptotes, whose other coefficient is `left_value`, `right_value`; None: there is none
    core        outside of it the distance to the asymptotes falls monotonically
    least       of the function's values, where that is not at an end of an interval: (where, value)
    bends       points where the derivative jumps
    low         the function is defined above it
    """

    name: str
    function: Callable[[Array], Array]
    curvature: Callable[[Array, Array], Array]
    slope: float
    left: float | None = None
    right: float | None = None
    left_value: float = 0.0
    right_value: float = 0.0
    core: float = 8.0
    least: tuple[float, float] | None = None
    bends: tuple[float, ...] = ()
    low: float = -math.inf

    @property
    def has_tails(self) -> bool:
        """Whether both ends have asymptotes, so that a bound may hold on the whole line."""
        return self.left is not None and self.right is not None

    def asymptote(self, x: Array) -> Array:
        """Of the nearer end: that of the left for x < 0. Only for curves that have both."""
        assert self.left is not None
        assert self.right is not None
        left, right = self.left * x + self.left_value, self.right * x + self.right_value
        return np.asarray(np.where(x < 0, left, right))


def constant(bound: float) -> Callable[[Array, Array], Array]:
    """The same bound of |f''| everywhere."""
    return lambda low, high: np.full(np.shape(low), bound)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(x, np.float64))))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return np.asarray(np.logaddexp(0.0, x))


def erf(x: Array) -> Array:
    """The error function."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _silu(x: Array) -> Array:
    return np.asarray(x * sigmoid(x))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * np.vectorize(lambda one: math.erfc(-one / math.sqrt(2)), otypes=[np.float64])(x))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _mish(x: Array) -> Array:
    return np.asarray(x * np.tanh(softplus(x)))


def _hardswish(x: Array) -> Array:
    return np.asarray(x * np.clip(x + 3, 0, 6) / 6)


@lru_cache(maxsize=64)
def elu(alpha: float) -> Curve:
    """x above 0, alpha (exp(x) - 1) below."""
    return Curve(
        f"elu({alpha:g})",
        lambda x: np.asarray(np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))),
        constant(abs(alpha)),
        max(1.0, abs(alpha)),
        0.0,
        1.0,
        left_value=-alpha,
        core=16.0,
        bends=(0.0,),
    )


SIGMOID = Curve("sigmoid", sigmoid, constant(0.0963), 0.25, 0.0, 0.0, 0.0, 1.0, core=16.0)
TANH = Curve("tanh", lambda x: np.asarray(np.tanh(x)), constant(0.77), 1.0, 0.0, 0.0, -1.0, 1.0)
ERF = Curve("erf", erf, constant(0.97), 2 / math.sqrt(math.pi), 0.0, 0.0, -1.0, 1.0)
SOFTPLUS = Curve("softplus", softplus, constant(0.25), 1.0, 0.0, 1.0, core=16.0)
GELU = Curve("gelu", _gelu, constant(0.8), 1.13, 0.0, 1.0, least=(-0.75179, -0.16997121))
GELU_TANH = Curve("gelu (tanh)", _gelu_tanh, constant(1.0), 1.13, 0.0, 1.0, least=(-0.7523, -0.17004076))
SILU = Curve("silu", _silu, constant(0.5), 1.0999, 0.0, 1.0, core=16.0, least=(-1.278465, -0.27846455))
MISH = Curve("mish", _mish, constant(3.5), 1.0885, 0.0, 1.0, core=16.0, least=(-1.192369, -0.30884341))
HARD_SWISH = Curve("hardswish", _hardswish, constant(1 / 3), 1.5, 0.0, 1.0, least=(-1.5, -0.375), bends=(-3.0, 3.0))
SQUARE = Curve("square", lambda x: np.asarray(x * x), constant(2.0), math.inf, least=(0.0, 0.0))
EXP = Curve("exp", lambda x: np.asarray(np.exp(x)), lambda low, high: np.exp(high), math.inf)
RSQRT = Curve("1 / sqrt", lambda x: np.asarray(x**-0.5), lambda low, high: 0.75 * low**-2.5, math.inf, low=0.0)
RECIPROCAL = Curve("1 / x", lambda x: np.asarray(1 / x), lambda low, high: 2 * low**-3.0, math.inf, low=0.0)
SQRT = Curve("sqrt", lambda x: np.asarray(np.sqrt(x)), lambda low, high: 0.25 * low**-1.5, math.inf, low=0.0)
LOG = Curve("log", lambda x: np.asarray(np.log(x)), lambda low, high: low**-2.0, math.inf, low=0.0)
