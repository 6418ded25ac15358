"""The vector functions of tw_kernel.h against float64, in units of the last place, over all of float32's range."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.library import build_library, runtime_headers
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from tests.compiler.devices.cpu.library import loaded

FUNCTIONS = (
    "exp",
    "exp_normal",
    "log",
    "tanh",
    "sigmoid",
    "erf",
    "expm1",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "floor",
    "ceil",
    "round",
    "abs",
    "neg",
)
SOURCE = '#include "tw_kernel.h"\n' + "\n".join(
    f"""__attribute__((visibility("default"))) void map_{name}(const float *x, float *y, long n) {{
    for (long i = 0; i < n; i += TW_LANES) tw_store_n(y + i, tw_{name}(tw_load_n(x + i, TW_LANES)), TW_LANES);
}}"""
    for name in FUNCTIONS
)
PAIRS = "\n".join(
    f"""__attribute__((visibility("default"))) void pair_{name}(const float *a, const float *b, float *y, long n) {{
    for (long i = 0; i < n; i += TW_LANES) tw_store(y + i, tw_{name}(tw_load(a + i), tw_load(b + i)));
}}"""
    for name in ("min", "max")
)
PORTABLE = CpuTarget("portable", "any", ("-mno-avx",), (), 4, 16)
TARGETS = [profile for profile in PROFILES if runs_here(profile)]
ERF = np.frompyfunc(math.erf, 1, 1)
TRUTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: ERF(x).astype(np.float64),
    "expm1": np.expm1,
    "log1p": np.log1p,
}
EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(np.float32),
    "reciprocal": lambda x: (1 / x).astype(np.float32),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "abs": np.abs,
    "neg": np.negative,
}


def stated() -> dict[str, float]:
    """The errors that the header promises."""
    text = re.sub(r"\s*\n \* ?", " ", runtime_headers()["tw_kernel.h"].split("*/")[0])
    return {name: float(ulp) for name, ulp in re.findall(r"(\w+) ([\d.]+) ULP", text)}


def samples() -> np.ndarray:
    """Every 4,099th float of each sign, and dense ranges where functions bend.

    4,099 is a prime: all exponents come up, and all kinds of mantissa.
    """
    bits = np.arange(0, 0x7F800000, 4099, dtype=np.uint32)
    spread = np.concatenate([bits, bits | 0x80000000]).view(np.float32)
    dense = [np.linspace(low, high, 60_000) for low, high in ((-105, 90), (-10, 10), (-1, 1), (0.5, 2), (0.9, 1.1))]
    edges = [0.0, -0.0, 88.72283, 88.72284, 88.72285, -87.33655, -103.97, -103.98, -104.1, 1.1754944e-38, 1e-45]
    all_of = np.concatenate([spread, *dense, edges]).astype(np.float32)
    return np.pad(all_of, (0, -len(all_of) % 64))


SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 2.5, -2.5, 3.5, 0.5, -0.5],
    np.float32,
)


@pytest.fixture(scope="module", params=[*TARGETS, PORTABLE], ids=lambda target: target.name)
def code(request: pytest.FixtureRequest) -> ctypes.CDLL:
    target: CpuTarget = request.param
    return loaded(build_library({"math.c": f"{SOURCE}\n{PAIRS}\n"}, target, find_toolchain()))


def applied(code: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    getattr(code, f"map_{name}")(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(len(x)))
    return y


def ulps(got: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of float32 at the true value.

    What overflows or vanishes in float32 must do so.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = truth.astype(np.float32)
    unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, np.float32(3e38)))).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(got.astype(np.float64) - truth) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(same, 0.0, np.where(np.isfinite(got) & np.isfinite(rounded), apart, np.inf))


@pytest.mark.parametrize("name", TRUTH)
def test_errors_are_what_the_header_states(code: ctypes.CDLL, name: str) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        truth = TRUTH[name](x.astype(np.float64))
    error = ulps(applied(code, name, x), truth)
    worst = int(np.argmax(error))
    assert error[worst] <= stated()[name], f"{name}({x[worst]!r}) is off by {error[worst]:.3g} ULP"


@pytest.mark.parametrize("name", TRUTH)
def test_special_values(code: ctypes.CDLL, name: str) -> None:
    with np.errstate(all="ignore"):
        truth = TRUTH[name](SPECIAL.astype(np.float64))
    got = applied(code, name, SPECIAL)
    assert (ulps(got, truth) <= stated()[name]).all(), (SPECIAL, got, truth)
    if name in ("tanh", "erf", "expm1", "log1p"):
        assert np.signbit(got[1]), "the sign of zero is kept"


@pytest.mark.parametrize("name", EXACT)
def test_what_the_machine_computes_is_exact(code: ctypes.CDLL, name: str) -> None:
    x = np.concatenate([samples(), SPECIAL])
    with np.errstate(all="ignore"):
        want = EXACT[name](x)
    np.testing.assert_array_equal(applied(code, name, x), want)


@pytest.mark.parametrize("name", ["min", "max"])
def test_min_and_max_give_nan_when_an_argument_is_one(code: ctypes.CDLL, name: str) -> None:
    a, b = (np.ascontiguousarray(part.reshape(-1)) for part in np.meshgrid(SPECIAL, SPECIAL))
    y = np.empty_like(a)
    getattr(code, f"pair_{name}")(*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, y)), ctypes.c_long(len(a)))
    np.testing.assert_array_equal(y, (np.minimum if name == "min" else np.maximum)(a, b))


def test_an_exponential_of_a_distance_is_that_of_all_numbers_or_zero_where_it_would_be_subnormal(
    code: ctypes.CDLL,
) -> None:
    below = samples()
    edges = np.array([-np.inf, np.nan, -87.0, np.nextafter(np.float32(-87), -np.float32(np.inf))], np.float32)
    below = np.append(below[below <= 0], edges)
    below = np.pad(below, (0, -len(below) % 64))
    found, whole = applied(code, "exp_normal", below), applied(code, "exp", below)
    is_normal = ~(below < -87)
    assert found[is_normal].tobytes() == whole[is_normal].tobytes()
    assert (found[~is_normal] == 0).all()
    assert not ((found > 0) & (found < np.finfo(np.float32).tiny)).any()
