"""Functions as x * sigmoid(polynomial): where the accelerator has a sigmoid, two or three operators and a small error.

The coefficients minimise the greatest error on -8 ... 8 (Nelder-Mead, once); what they reach is proved here for the
whole line. Between two points a and b of a fine grid the difference d of function and form stays below
max(|d(a)|, |d(b)|) + (b - a)**2 / 8 * (max|f''| + max|form''|), where for x s(p(x))

    |form''| <= 2 / 4 |p'| + |x| (0.0963 p'**2 + |p''| / 4)

since |s'| <= 1/4 and |s''| <= 0.0963. Beyond the grid the function and the form have the same asymptotes, and the
distance of each falls monotonically there: their sum at the end of the grid bounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from compiler.legalise.curves import GELU, GELU_TANH, MISH, Array, Curve, sigmoid
from compiler.legalise.sums import SLACK

POINTS = 1 << 16
END = 16.0


@dataclass(frozen=True)
class SigmoidForm:
    """x * sigmoid(shift + scale * x + cube * x**3)."""

    curve: Curve
    scale: float
    shift: float = 0.0
    cube: float = 0.0

    def __call__(self, x: Array) -> Array:
        """In float64."""
        return np.asarray(x * sigmoid(self.shift + self.scale * x + self.cube * x**3))


FORMS: Mapping[str, tuple[SigmoidForm, ...]] = MappingProxyType(
    {
        "gelu": (SigmoidForm(GELU, 1.773), SigmoidForm(GELU, 1.6003, cube=0.0694)),
        "gelu (tanh)": (SigmoidForm(GELU_TANH, 1.773),),
        "mish": (SigmoidForm(MISH, 1.2626, 0.5739),),
    }
)
"""By the curve's name, each more exact than the one before it, and dearer."""


@lru_cache(maxsize=32)
def bound(form: SigmoidForm) -> float:
    """The proved greatest error on the whole line, of the form with coefficients of float32."""
    form = SigmoidForm(form.curve, *(float(np.float32(one)) for one in (form.scale, form.shift, form.cube)))
    x = np.linspace(-END, END, POINTS + 1)
    error = np.abs(form.curve.function(x) - form(x))
    far = np.maximum(np.abs(x[:-1]), np.abs(x[1:]))
    first, second = form.scale + 3 * form.cube * far**2, 6 * form.cube * far
    curvature = form.curve.curvature(x[:-1], x[1:]) + 0.5 * first + far * (0.0963 * first**2 + second / 4)
    inside = float(np.max(np.maximum(error[:-1], error[1:]) + np.diff(x) ** 2 / 8 * curvature))
    ends = np.array([-END, END])
    beyond = np.abs(form.curve.function(ends) - form.curve.asymptote(ends))
    beyond = beyond + np.abs(form(ends) - form.curve.asymptote(ends))
    return max(inside, float(beyond.max())) + SLACK * END
