from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from compiler.ir import arithmetic
from compiler.ir.expr import FUNCTIONS
from compiler.ir.kernel import MONOIDS
from compiler.ir.tensor import DType

UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "sign": lambda a: math.copysign(1, a),
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "reciprocal": lambda a: 1 / a,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
}
BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": min,
    "max": max,
    "pow": lambda a, b: a**b,
    "mod": lambda a, b: a % b,
    "fmod": math.fmod,
}
INTEGER: dict[str, Callable[[int, int], int]] = {
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
}
LOGICAL: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "xor": lambda a, b: bool(a) != bool(b),
}
TESTED = {*UNARY, *BINARY, *INTEGER, *LOGICAL, "bit_not", "not", "isnan", "isinf"}
TOLERANCE = {DType.F16: 2e-3, DType.BF16: 1e-2, DType.F32: 1e-6, DType.F64: 1e-14}


def test_every_function_is_tested_here() -> None:
    assert set(FUNCTIONS) == TESTED


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", UNARY)
def test_float_functions_of_one_argument(name: str, dtype: DType) -> None:
    numbers = [1.0, 1.5, 2.25, 5.0] if name == "acosh" else [0.25, 0.5, 0.75, 0.875]
    if name in ("neg", "abs", "sign", "floor", "ceil", "round", "sin", "tanh", "erf", "sigmoid", "exp"):
        numbers += [-0.5, -1.5, -3.0]
    got = arithmetic.apply(name, (np.array(numbers, dtype.numpy),), dtype, dtype)
    assert got.dtype == dtype.numpy
    np.testing.assert_allclose(
        got.astype(np.float64), [UNARY[name](a) for a in numbers], rtol=TOLERANCE[dtype], atol=1e-15
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", BINARY)
def test_float_functions_of_two_arguments(name: str, dtype: DType) -> None:
    a = [0.5, 2.0, 3.0, 1.25] + ([] if name == "pow" else [-3.0, -0.5])
    b = [0.25, 3.0, -2.0, 0.5] + ([] if name == "pow" else [2.0, -0.75])
    got = arithmetic.apply(name, (np.array(a, dtype.numpy), np.array(b, dtype.numpy)), dtype, dtype)
    assert got.dtype == dtype.numpy
    expected = [BINARY[name](x, y) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", INTEGER)
def test_bits_of_integers(name: str) -> None:
    a, b = [12, -7, 100, 0], [1, 3, 2, 5]
    got = arithmetic.apply(name, (np.array(a), np.array(b)), DType.I64, DType.I64)
    assert got.tolist() == [INTEGER[name](x, y) for x, y in zip(a, b, strict=True)]
    assert arithmetic.apply("bit_not", (np.array(a),), DType.I64, DType.I64).tolist() == [~x for x in a]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I32, DType.BOOL])
@pytest.mark.parametrize("name", LOGICAL)
def test_comparisons_and_connectives_return_bool(name: str, dtype: DType) -> None:
    a, b = [0, 1, 1, 0], [0, 1, 0, 1]
    got = arithmetic.apply(name, (np.array(a, dtype.numpy), np.array(b, dtype.numpy)), dtype, DType.BOOL)
    assert got.dtype == np.bool_
    assert got.tolist() == [LOGICAL[name](x, y) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_infinities_and_nans_are_told(dtype: DType) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], dtype.numpy)
    assert arithmetic.apply("isnan", (x,), dtype, DType.BOOL).tolist() == [False, True, False, False]
    assert arithmetic.apply("isinf", (x,), dtype, DType.BOOL).tolist() == [False, False, True, True]
    assert arithmetic.apply("not", (x.astype(np.float64) > 1,), DType.BOOL, DType.BOOL).tolist() == [
        True,
        True,
        False,
        True,
    ]


def test_rounding_leaves_integers_alone() -> None:
    x = np.array([2**62 + 1, -5])
    for name in ("floor", "ceil", "round"):
        assert arithmetic.apply(name, (x,), DType.I64, DType.I64).tolist() == x.tolist()


VALUES = np.array([[2.0, -1.0, 4.0, 0.5], [1.0, 1.0, -3.0, 1.0]])
EXPECTED: dict[str, tuple[list[float], ...]] = {
    "sum": ([5.5, 0.0],),
    "prod": ([-4.0, -3.0],),
    "max": ([4.0, 1.0],),
    "min": ([-1.0, -3.0],),
    "and": ([1.0, 1.0],),
    "or": ([1.0, 1.0],),
    "argmax_first": ([4.0, 1.0], [2, 0]),
    "argmax_last": ([4.0, 1.0], [2, 3]),
    "argmin_first": ([-1.0, -3.0], [1, 2]),
    "argmin_last": ([-1.0, -3.0], [1, 2]),
    "softmax": ([4.0, 1.0], [math.exp(-2) + math.exp(-5) + 1 + math.exp(-3.5), 3 + math.exp(-4)]),
}


def operands(monoid: str, dtype: DType) -> tuple[np.ndarray, ...]:
    x = VALUES.astype(dtype.numpy)
    if monoid.startswith("arg"):
        return (x, np.broadcast_to(np.arange(4), x.shape))
    return (x, np.ones_like(x)) if monoid == "softmax" else (x,)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("monoid", MONOIDS)
def test_monoids_reduce_at_once_or_in_parts(monoid: str, dtype: DType) -> None:
    whole = operands(monoid, dtype)
    at_once = arithmetic.reduce(monoid, whole, (1,))
    left = arithmetic.reduce(monoid, tuple(value[:, :1] for value in whole), (1,))
    right = arithmetic.reduce(monoid, tuple(value[:, 1:] for value in whole), (1,))
    for result in (at_once, arithmetic.combine(monoid, left, right)):
        for part, expected in zip(result, EXPECTED[monoid], strict=True):
            assert part.shape == (2, 1)
            np.testing.assert_allclose(part[:, 0].astype(np.float64), expected, rtol=TOLERANCE[dtype] * 3)
        assert result[0].dtype == dtype.numpy


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.I32])
@pytest.mark.parametrize("monoid", [name for name in MONOIDS if name not in ("softmax", "and", "or")])
def test_an_identity_changes_nothing(monoid: str, dtype: DType) -> None:
    values = arithmetic.reduce(monoid, tuple(part.astype(part.dtype) for part in operands(monoid, dtype)), (1,))
    identity = tuple(np.broadcast_to(part, (2, 1)) for part in arithmetic.identity(monoid, dtype))
    for got, expected in zip(arithmetic.combine(monoid, values, identity), values, strict=True):
        assert got.tolist() == expected.tolist()


def test_a_contraction_equals_the_sum_of_products_over_any_mixture_of_axes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        extents = rng.integers(2, 4, 5)
        a, b = (rng.integers(-4, 5, np.where(rng.random(5) < 0.6, extents, 1)) for _ in range(2))
        dims = tuple(int(dim) for dim in np.flatnonzero(rng.random(5) < 0.5))
        got = arithmetic.contract(a, b, dims)
        if any(a.shape[dim] == 1 and b.shape[dim] == 1 for dim in dims):
            assert got is None
        else:
            assert got is not None
            assert np.array_equal(got, (a * b).sum(axis=dims, keepdims=True))


def test_bfloat16_bounds_are_those_of_the_type() -> None:
    greatest = np.array(arithmetic.bounds(DType.BF16)[1], ml_dtypes.bfloat16)
    assert greatest.view(np.uint16) == 0x7F7F
    assert arithmetic.bounds(DType.BOOL) == (0, 1)
