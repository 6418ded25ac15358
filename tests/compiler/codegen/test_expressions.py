"""Functions, casts and reductions on the values where they break: limits, zeros, NaN, infinities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from compiler.codegen.scalars import literal
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.ir.arithmetic import bounds
from compiler.ir.buffers import Buffer
from compiler.ir.expr import FUNCTIONS
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, check
from tests.parse import parse_kernel

INTEGERS = [dtype for dtype in DType if dtype.is_integer]
FLOATS = [DType.F16, DType.F32, DType.F64]
HERE = [profile for profile in PROFILES if runs_here(profile)]
IN_FLOATS = ("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "bit_not", "and", "or", "xor", "not")
REALS_ONLY: tuple[str, ...] = (
    "exp",
    "log",
    "rsqrt",
    "tanh",
    "erf",
    "sigmoid",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "sqrt",
    "pow",
)
REALS_ONLY += ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "reciprocal")


def edges(dtype: DType) -> np.ndarray:
    low, high = bounds(dtype)
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        some = {low, high, 0, 1, 2, 3, 5, 7, 10, 100, int(high) - 1, int(high) // 2}
        some |= {-1, -2, -3, -7, -100, int(low) + 1} if dtype.is_signed else set()
        return np.array(sorted(some), dtype.numpy)
    tiny = np.finfo(dtype.numpy)
    some_reals = [
        0.0,
        0.25,
        0.5,
        0.9,
        1.0,
        1.5,
        2.5,
        3.0,
        7.25,
        10.0,
        80.0,
        1e3,
        high,
        tiny.tiny,
        tiny.smallest_subnormal,
    ]
    return np.array([*some_reals, *(-real for real in some_reals), np.inf, -np.inf, np.nan], dtype.numpy)


def case(text: str, *inputs: np.ndarray, tolerance: float = 2e-6) -> Case:
    kernel = parse_kernel(text)
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(Buffer.whole(number, slot.type) for number, slot in enumerate(slots))
    return Case(kernel, buffers, inputs, tolerance=tolerance)


def unary(function: str, dtype: DType, values: np.ndarray) -> Case:
    out = DType.BOOL if FUNCTIONS[function].returns == "bool" else dtype
    n = len(values)
    return case(f"kernel f(in x: {dtype}[{n}]; out y: {out}[{n}]) for i:{n} y[i] = {function}(x[i])", values)


def binary(function: str, dtype: DType, values: np.ndarray) -> Case:
    out = DType.BOOL if FUNCTIONS[function].returns == "bool" else dtype
    a, b = (np.array(part) for part in zip(*itertools.product(values, values), strict=True))
    n = len(a)
    text = (
        f"kernel f(in a: {dtype}[{n}], in b: {dtype}[{n}]; out y: {out}[{n}]) for i:{n} y[i] = {function}(a[i], b[i])"
    )
    return case(text, a, b)


def of_integers() -> list[Case]:
    found = []
    for name, function in FUNCTIONS.items():
        if name in REALS_ONLY:
            continue
        for dtype in INTEGERS:
            values = edges(dtype)
            if name.startswith("shift"):
                values = np.array([value for value in values if value >= 0], dtype.numpy)
            found.append((unary if function.arity == 1 else binary)(name, dtype, values))
    return found


def test_functions_of_integers_at_their_limits() -> None:
    check(of_integers())


def test_powers_of_integers() -> None:
    bases, powers = np.arange(-4, 5), np.arange(-3, 20)
    a, b = (np.array(part) for part in zip(*itertools.product(bases, powers), strict=True))
    cases = []
    for dtype in (DType.I32, DType.I64):
        keep = (a != 0) | (b >= 0)
        n = int(keep.sum())
        text = f"kernel f(in a: {dtype}[{n}], in b: {dtype}[{n}]; out y: {dtype}[{n}]) for i:{n} y[i] = pow(a[i], b[i])"
        cases.append(case(text, a[keep].astype(dtype.numpy), b[keep].astype(dtype.numpy)))
    check([*cases, binary("pow", DType.U8, np.array([0, 1, 2, 3, 7], np.uint8))])


def of_booleans() -> list[Case]:
    names = ("and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge", "min", "max")
    return [
        unary("not", DType.BOOL, edges(DType.BOOL)),
        *(binary(name, DType.BOOL, edges(DType.BOOL)) for name in names),
    ]


def test_functions_of_booleans() -> None:
    check(of_booleans())


def of_floats() -> list[Case]:
    found = []
    for name, function in FUNCTIONS.items():
        if name in IN_FLOATS:
            continue
        for dtype in FLOATS:
            values = edges(dtype)
            if name in ("sin", "cos", "tan"):
                values = values[np.abs(values) < 1e4]
            if name == "mod":
                values = values[np.isfinite(values)]
            found.append((unary if function.arity == 1 else binary)(name, dtype, values))
    return found


@pytest.mark.parametrize("target", HERE, ids=lambda profile: profile.name)
def test_functions_of_floats_at_their_edges(target: CpuTarget) -> None:
    check(of_floats(), resolve(target.name))


def casts() -> list[Case]:
    found = []
    for source, target, word in itertools.product(
        (*INTEGERS, *FLOATS, DType.BOOL), (*INTEGERS, *FLOATS, DType.BOOL), ("cast", "saturate")
    ):
        values = edges(source)
        if word == "cast" and source.is_float and target.is_integer:
            low, high = bounds(target)
            with np.errstate(invalid="ignore"):
                wide = values.astype(np.float64)
                values = values[(np.trunc(wide) >= float(low)) & (np.trunc(wide) < float(high))]
        n = len(values)
        text = f"kernel f(in x: {source}[{n}]; out y: {target}[{n}]) for i:{n} y[i] = {word}(x[i]):{target}"
        found.append(case(text, values))
    return found


def test_casts_at_the_limits_of_both_types() -> None:
    check(casts())


def reduced() -> list[Case]:
    """Rows with NaN, infinities, ties and nothing but the identity."""
    inf, nan = np.inf, np.nan
    rows = np.array(
        [
            [1, 2, 3, 2, 1, 0],
            [nan, 1, nan, 0, 5, nan],
            [1, nan, 2, 3, 4, 5],
            [inf, 1, inf, 0, 0, 1],
            [-inf] * 6,
            [inf] * 6,
            [-inf, 3, -inf, 3, 3, 1],
        ]
    )
    found = []
    for dtype in (DType.F32, DType.F64):
        values = rows.astype(dtype.numpy)
        for monoid in ("sum", "prod", "max", "min"):
            for x, index in ((values, "x[i, j]"), (np.ascontiguousarray(values.T), "x[j, i]")):
                shape = ", ".join(map(str, x.shape))
                text = (
                    f"kernel r(in x: {dtype}[{shape}]; out y: {dtype}[7]) for i:7 y[i] = {monoid}<{dtype}> j:6 . "
                    f"{index}"
                )
                found.append(case(text, x))
        head = f"kernel r(in x: {dtype}[7, 6]; out v: {dtype}[7], out at: i64[7]) for i:7 v[i], at[i] = "
        for monoid in ("argmax_first", "argmax_last", "argmin_first", "argmin_last"):
            found.append(case(f"{head}{monoid}<{dtype}> j:6 . x[i, j], #(7*i + j + 3):i64", values))
        head = f"kernel r(in x: {dtype}[7, 6]; out v: {dtype}[7], out s: {dtype}[7]) for i:7 v[i], s[i] = "
        found.append(case(f"{head}softmax<{dtype}> j:6 . x[i, j], 1.0:{dtype}", values))
    return found


@pytest.mark.parametrize("target", HERE, ids=lambda profile: profile.name)
def test_reductions_of_rows_with_nan_and_infinities(target: CpuTarget) -> None:
    check(reduced(), resolve(target.name))


def empty() -> list[Case]:
    found = []
    for monoid, dtype in itertools.product(("sum", "prod", "max", "min"), (DType.F32, DType.I8, DType.U8, DType.I64)):
        text = f"kernel r(in x: {dtype}[3, 0]; out y: {dtype}[3]) for i:3 y[i] = {monoid}<{dtype}> j:0 . x[i, j]"
        found.append(case(text, np.zeros((3, 0), dtype.numpy)))
    for monoid in ("argmax_first", "argmin_last"):
        text = (
            f"kernel r(in x: i8[3, 0]; out v: i8[3], out at: i64[3]) for i:3 v[i], at[i] = {monoid}<i8> j:0 . x[i, "
            f"j], #(j):i64"
        )
        found.append(case(text, np.zeros((3, 0), np.int8)))
    product = (
        "kernel r(in x: f32[4, 0], in w: f32[0, 16]; out y: f32[4, 16]) for i:4, n:16 y[i, n] = sum<f32> k:0 . "
        "mul(x[i, k], w[k, n])"
    )
    found.append(case(product, np.zeros((4, 0), np.float32), np.zeros((0, 16), np.float32)))
    nothing = (
        "kernel r(in x: f32[0, 8], in w: f32[8, 16]; out y: f32[0, 16]) for i:0, n:16 y[i, n] = sum<f32> k:8 . "
        "mul(x[i, k], w[k, n])"
    )
    found.append(case(nothing, np.zeros((0, 8), np.float32), np.ones((8, 16), np.float32)))
    return found


def test_reductions_of_nothing_and_tensors_of_nothing() -> None:
    check(empty())


def test_a_branch_that_is_not_taken_loads_nothing() -> None:
    """The guard is data, and what it guards lies far outside."""
    text = """
kernel g(in x: f32[40], in table: f32[5], in far: i64[40]; out y: f32[40])
  for i:40 y[i] = where(gt(x[i], 0.0:f32), table[[far[i] in 0..4]], neg(x[i]))
"""
    x = np.linspace(-1, 1, 40).astype(np.float32)
    far = np.where(x > 0, np.arange(40) % 5, 2**40)
    check([case(text, x, np.arange(5, dtype=np.float32), far)])


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.F64])
def test_literals_have_exactly_the_value_they_stand_for(dtype: DType) -> None:
    values = [float(value) for value in edges(dtype)] + [0.1, 1 / 3, 1e-7, 123456789.0]
    with np.errstate(over="ignore"):
        rounded = [float(np.asarray(value, dtype.numpy)) for value in values]
    assert "nan" not in ", ".join(literal(value, dtype) for value in rounded).replace("NAN", "")
    cases = []
    for exact in rounded:
        kernel = (
            f"kernel f(in x: {dtype}[1]; out y: {dtype}[1]) for i:1 y[i] = where(gt(x[i], 0.0:{dtype}), x[i], "
            f"{exact!r}:{dtype})"
        )
        cases.append(case(kernel, np.zeros(1, dtype.numpy), tolerance=0))
    check(cases)
