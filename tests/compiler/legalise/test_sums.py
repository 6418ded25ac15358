from __future__ import annotations

import math

import numpy as np
import pytest

from compiler.legalise import curves, forms, sums
from compiler.legalise.curves import Curve

TAILED = [
    curves.SIGMOID,
    curves.TANH,
    curves.ERF,
    curves.SOFTPLUS,
    curves.GELU,
    curves.GELU_TANH,
    curves.SILU,
    curves.MISH,
    curves.HARD_SWISH,
    curves.elu(1.0),
    curves.elu(0.7),
]
BETWEEN = [
    (curves.SQUARE, -4.0, 4.0),
    (curves.EXP, -8.0, 1.0),
    (curves.RSQRT, 0.05, 4.0),
    (curves.RECIPROCAL, 0.5, 8.0),
    (curves.SQRT, 0.1, 9.0),
    (curves.LOG, 0.2, 7.0),
    (curves.SILU, -3.0, 3.0),
    (curves.TANH, -1.0, 2.0),
]
FAR = np.array([-1e6, -1e3, 1e3, 1e6])
DENSE = np.unique(np.concatenate([np.linspace(-40, 40, 60_003), FAR, np.linspace(-4, 4, 29_991)]))


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, Curve) else None


@pytest.mark.parametrize("terms", [4, 9])
@pytest.mark.parametrize("curve", TAILED, ids=name_of)
def test_a_proved_bound_holds_on_the_whole_line_and_is_near_what_is_reached(curve: Curve, terms: int) -> None:
    found = sums.best(curve, terms)
    assert found is not None
    assert found.terms <= terms
    assert found.domain == (-math.inf, math.inf)
    reached = np.abs(found(DENSE) - curve.function(DENSE)).max()
    assert reached <= found.bound <= 1.05 * reached


@pytest.mark.parametrize("terms", [8])
@pytest.mark.parametrize(("curve", "low", "high"), BETWEEN, ids=name_of)
def test_a_proved_bound_holds_on_its_domain(curve: Curve, low: float, high: float, terms: int) -> None:
    found = sums.best(curve, terms, low, high)
    assert found is not None
    x = np.linspace(low, high, 60_001)
    reached = np.abs(found(x) - curve.function(x)).max()
    assert reached <= found.bound <= 1.05 * reached + 1e-9


@pytest.mark.parametrize("curve", [curves.SIGMOID, curves.TANH, curves.ERF], ids=name_of)
def test_saturating_functions_have_flat_ends(curve: Curve) -> None:
    found = sums.best(curve, 8)
    assert found is not None
    assert float(found.weights.sum()) == 0.0
    far = found(np.array([1e5, 1e9]))
    assert far[0] == pytest.approx(far[1], abs=1e-3)


@pytest.mark.parametrize("error", [0.05, 0.01, 0.004])
def test_fewest_terms_hold_the_error_and_few_less_do_not(error: float) -> None:
    for curve in (curves.GELU, curves.SOFTPLUS, curves.TANH):
        found = sums.fewest(curve, error, -math.inf, math.inf)
        assert found is not None
        assert found.bound <= error
        fewer = sums.best(curve, found.terms - 2)
        assert fewer is None or fewer.bound > error


def test_errors_are_near_those_that_many_knots_reach_in_theory() -> None:
    """(integral of sqrt|f''|)**2 / (16 (k + 1)**2): 0.72 / (k + 1)**2 for tanh. Two knots serve the asymptotes."""
    found = sums.best(curves.TANH, 12)
    assert found is not None
    assert found.bound < 1.3 * 0.72 / 11**2


@pytest.mark.parametrize("curve", TAILED, ids=name_of)
def test_what_a_proof_rests_on_holds(curve: Curve) -> None:
    """Slopes, second derivatives between bends, and distances to asymptotes that fall outside of the core."""
    x, h = np.linspace(-12, 12, 40_001), 1e-4
    f = curve.function
    away = np.min([np.abs(x - bend) for bend in (*curve.bends, 99.0)], axis=0) > 2 * h
    second = np.abs(f(x + h) - 2 * f(x) + f(x - h)) / h**2
    assert (second[away] <= curve.curvature(x, x)[away] + 1e-5).all()
    assert (np.abs(f(x + h) - f(x - h)) / (2 * h)).max() <= curve.slope + 1e-6
    for side in (-1, 1):
        far = side * np.linspace(curve.core, 60, 2001)
        rest = np.abs(f(far) - curve.asymptote(far))
        assert (np.diff(rest) <= 1e-12).all()
    if curve.least is not None:
        assert f(x).min() >= curve.least[1] - 1e-7


@pytest.mark.parametrize(
    "form", [one for some in forms.FORMS.values() for one in some], ids=lambda one: f"{one.curve.name} {one.scale}"
)
def test_the_bound_of_a_sigmoid_form_holds(form: forms.SigmoidForm) -> None:
    reached = np.abs(form(DENSE[np.abs(DENSE) < 1e3]) - form.curve.function(DENSE[np.abs(DENSE) < 1e3])).max()
    assert reached <= forms.bound(form) <= 1.1 * reached + 1e-5


def test_a_domain_that_a_function_has_not_is_refused() -> None:
    assert sums.best(curves.RSQRT, 8, 0.0, 4.0) is None
    assert sums.best(curves.EXP, 8, -math.inf, 0.0) is None
    assert sums.fewest(curves.GELU, 1e-9, -math.inf, math.inf) is None
