"""What interval arithmetic says of a function holds what the function does, on random segments and expressions."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.expr import Apply, Const, Expr, Load, Where
from compiler.ir.tensor import DType
from compiler.legalise.enclosures import BINARY, STEPS, UNARY, Jet, computed, enclosed

X = Load("x", (), DType.F64)
DOMAINS = {
    **dict.fromkeys(("log", "rsqrt", "sqrt", "reciprocal"), (0.05, 6.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.98, 0.98)),
    "acosh": (1.02, 6.0),
    "log1p": (-0.95, 6.0),
    "tan": (-1.5, 1.5),
}
MANY = 400


def number(value: float) -> Const:
    return Const(value, DType.F64)


def segments(low: float, high: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of lengths from a millionth of the domain to all of it."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(low, high, MANY)
    half = (high - low) * 10.0 ** rng.uniform(-6, 0, MANY)
    return np.maximum(middle - half, low), np.minimum(middle + half, high)


def holds(expr: Expr, low: float, high: float, seed: int = 0) -> Jet:
    """Values, and divided differences of first and second order, which the mean value theorem makes slopes of."""
    a, b = segments(low, high, seed)
    found = enclosed(expr, a, b)
    assert isinstance(found, Jet), found
    at = np.linspace(0.0, 1.0, 9)
    x = a + (b - a) * at[:, None]
    y = computed(expr, x)
    size = 1e-13 * (1 + np.abs(y).max(axis=0))
    assert (y >= found.value.low - size).all()
    assert (y <= found.value.high + size).all()
    step = (b - a) / 8
    slopes = np.diff(y, axis=0) / step
    room = 8 * (size + found.jump) / step
    assert (slopes >= found.slope.low - room).all()
    assert (slopes <= found.slope.high + room).all()
    second = np.diff(slopes, axis=0) / step
    smooth = found.jump == 0
    assert (np.abs(second) <= found.curvature.size + 8 * room / step)[:, smooth].all()
    return found


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name: str) -> None:
    found = holds(Apply(name, (X,)), *DOMAINS.get(name, (-4.0, 4.0)))
    inside = found.curvature.size[np.argsort(found.value.high - found.value.low)[: MANY // 4]]
    assert np.isfinite(inside).all()


@pytest.mark.parametrize("name", [*BINARY, *STEPS])
def test_functions_of_two_arguments_and_steps(name: str) -> None:
    wave, other = Apply("sin", (X,)), Apply("add", (Apply("cosh", (X,)), number(0.5)))
    one = Apply(name, (wave,) if name in ("abs", *STEPS) else (other, wave) if name == "pow" else (wave, other))
    holds(one, -3.0, 3.0)


@pytest.mark.parametrize("power", [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.7, 2.0, 3.0])
def test_powers(power: float) -> None:
    whole = power == int(power) and power >= 0
    holds(Apply("pow", (X, number(power))), -3.0 if whole else 0.1, 3.0)


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tame = ("tanh", "sigmoid", "sin", "cos", "atan", "erf", "abs", "neg", "asinh")

    def drawn(depth: int) -> Expr:
        if depth == 0:
            return X if rng.random() < 0.7 else number(float(rng.normal()))
        kind = rng.random()
        if kind < 0.4:
            return Apply(str(rng.choice(tame)), (drawn(depth - 1),))
        if kind < 0.85:
            name = str(rng.choice(("add", "sub", "mul", "max", "min")))
            return Apply(name, (drawn(depth - 1), drawn(depth - 1)))
        test = Apply(str(rng.choice(("lt", "ge"))), (drawn(depth - 1), number(float(rng.normal()))))
        return Where(test, drawn(depth - 1), drawn(depth - 1))

    for part in range(6):
        holds(drawn(4), -2.0, 3.0, seed=100 * seed + part)


@pytest.mark.parametrize("name", ["log", "reciprocal", "rsqrt", "acosh"])
def test_what_has_no_value_somewhere_on_a_segment_may_be_anything(name: str) -> None:
    found = enclosed(Apply(name, (X,)), np.array([-1.0, 1.1]), np.array([1.1, 2.0]))
    assert isinstance(found, Jet)
    assert np.isfinite(found.curvature.size).tolist() == [False, True]


def test_a_function_without_a_known_slope_is_named() -> None:
    assert enclosed(Apply("fmod", (X, X)), np.zeros(1), np.ones(1)) == "nothing is known of the slope of fmod"
