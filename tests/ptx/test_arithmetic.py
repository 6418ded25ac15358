"""Instructions that compute, beside what the PTX manual says of them, worked out in whole numbers and in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.kernel import each

EDGES = np.array([0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x8000], np.uint32)
RANDOM = np.random.default_rng(4)
A = np.concatenate([np.repeat(EDGES, 8), RANDOM.integers(0, 1 << 32, 64, dtype=np.uint32)])
B = np.concatenate([np.tile(EDGES, 8), RANDOM.integers(0, 1 << 32, 64, dtype=np.uint32)])
C = RANDOM.integers(0, 1 << 32, 128, dtype=np.uint32)
MASK = 0xFFFFFFFF


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def words(compute: Callable[..., int], *given: np.ndarray) -> np.ndarray:
    return np.array([compute(*map(int, one)) & MASK for one in zip(*given, strict=True)], np.uint32)


def truncated(a: int, b: int) -> int:
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("add.s32 %r9, %r0, %r1;", lambda a, b: a + b),
        ("sub.s32 %r9, %r0, %r1;", lambda a, b: a - b),
        ("mul.lo.s32 %r9, %r0, %r1;", lambda a, b: a * b),
        ("mul.hi.u32 %r9, %r0, %r1;", lambda a, b: a * b >> 32),
        ("mul.hi.s32 %r9, %r0, %r1;", lambda a, b: signed(a) * signed(b) >> 32),
        ("mad.lo.s32 %r9, %r0, %r1, 7;", lambda a, b: a * b + 7),
        (
            "mul.wide.s32 %d9, %r0, %r1; shr.u64 %d9, %d9, 16; cvt.u32.u64 %r9, %d9;",
            lambda a, b: signed(a) * signed(b) >> 16,
        ),
        ("min.s32 %r9, %r0, %r1;", lambda a, b: min(signed(a), signed(b))),
        ("max.u32 %r9, %r0, %r1;", max),
        ("and.b32 %r9, %r0, %r1;", lambda a, b: a & b),
        ("xor.b32 %r9, %r0, %r1;", lambda a, b: a ^ b),
        ("not.b32 %r9, %r0;", lambda a, b: ~a),
        ("neg.s32 %r9, %r0;", lambda a, b: -a),
        ("abs.s32 %r9, %r0;", lambda a, b: abs(signed(a))),
        ("shl.b32 %r9, %r0, %r1;", lambda a, b: a << b if b < 32 else 0),
        ("shr.u32 %r9, %r0, %r1;", lambda a, b: a >> b if b < 32 else 0),
        ("shr.s32 %r9, %r0, %r1;", lambda a, b: signed(a) >> min(b, 31)),
        ("popc.b32 %r9, %r0;", lambda a, b: a.bit_count()),
        ("clz.b32 %r9, %r0;", lambda a, b: 32 - a.bit_length()),
        ("brev.b32 %r9, %r0;", lambda a, b: int(f"{a:032b}"[::-1], 2)),
        ("shf.l.wrap.b32 %r9, %r0, %r1, 5;", lambda a, b: (b << 32 | a) << 5 >> 32),
        ("shf.r.clamp.b32 %r9, %r0, %r1, 37;", lambda a, b: b),
        ("bfe.s32 %r9, %r0, 4, 9;", lambda a, b: signed(a >> 4 & 0x1FF, 9)),
        ("bfe.u32 %r9, %r0, 28, 9;", lambda a, b: a >> 28),
        ("bfi.b32 %r9, %r0, %r1, 4, 9;", lambda a, b: b & ~(0x1FF << 4) | (a & 0x1FF) << 4),
        (
            "prmt.b32 %r9, %r0, %r1, 0x7051;",
            lambda a, b: b >> 24 << 24 | (a & 255) << 16 | (b >> 8 & 255) << 8 | a >> 8 & 255,
        ),
        ("prmt.b32 %r9, %r0, %r1, 0xbbbb;", lambda a, b: MASK if a >> 31 else 0),
        ("lop3.b32 %r9, %r0, %r1, 0xf0f0f0f0, 0xb8;", lambda a, b: (a & ~b | 0xF0F0F0F0 & b) & MASK),
        (
            "dp4a.s32.u32 %r9, %r0, %r1, 5;",
            lambda a, b: 5 + sum(signed(a >> 8 * i, 8) * (b >> 8 * i & 255) for i in range(4)),
        ),
        ("setp.lt.s32 %p0, %r0, %r1; selp.b32 %r9, 1, 2, %p0;", lambda a, b: 1 if signed(a) < signed(b) else 2),
        ("setp.lo.u32 %p0|%p1, %r0, %r1; selp.b32 %r9, 1, 2, %p1;", lambda a, b: 2 if a < b else 1),
        ("mov.b64 %d0, {%r0, %r1}; mov.b64 {%r8, %r9}, %d0; sub.s32 %r9, %r9, %r8;", lambda a, b: b - a),
        ("cvt.s32.s8 %r9, %r0;", lambda a, b: signed(a, 8)),
        ("cvt.sat.u8.s32 %r9, %r0;", lambda a, b: min(max(signed(a), 0), 255)),
    ],
)  # fmt: skip
def test_integers(code: str, expected: Callable[[int, int], int]) -> None:
    np.testing.assert_array_equal(each(code, A, B), words(expected, A, B))


def test_quotients_and_remainders_are_cut_toward_zero() -> None:
    divisor = np.where(B == 0, np.uint32(3), B)
    divisor = np.where((A == 0x80000000) & (divisor == MASK), np.uint32(5), divisor)  # overflow: left open
    assert np.array_equal(each("div.u32 %r9, %r0, %r1;", A, divisor), words(lambda a, b: a // b, A, divisor))
    assert np.array_equal(each("rem.u32 %r9, %r0, %r1;", A, divisor), words(lambda a, b: a % b, A, divisor))
    found = each("div.s32 %r9, %r0, %r1;", A, divisor)
    assert np.array_equal(found, words(lambda a, b: truncated(signed(a), signed(b)), A, divisor))
    found = each("rem.s32 %r9, %r0, %r1;", A, divisor)
    expected = words(lambda a, b: signed(a) - truncated(signed(a), signed(b)) * signed(b), A, divisor)
    assert np.array_equal(found, expected)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3.4e38, 0.1, 2.5, -2.5], np.float32)
X = np.concatenate([np.repeat(SPECIAL, 12)[:128], RANDOM.normal(size=128).astype(np.float32) * 100])
Y = np.concatenate([np.tile(SPECIAL, 12)[:128], RANDOM.normal(size=128).astype(np.float32)])
FLOATS = "mov.b32 %f0, %r0; mov.b32 %f1, %r1;"
BACK = " mov.b32 %r9, %f9;"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("add.f32 %f9, %f0, %f1;", lambda x, y: x + y),
        ("sub.rn.f32 %f9, %f0, %f1;", lambda x, y: x - y),
        ("mul.f32 %f9, %f0, %f1;", lambda x, y: x * y),
        ("fma.rn.f32 %f9, %f0, %f1, 0f3f800000;", lambda x, y: x * y + 1),
        ("div.rn.f32 %f9, %f0, %f1;", lambda x, y: x / y),
        ("sqrt.rn.f32 %f9, %f0;", lambda x, y: np.sqrt(x)),
        ("neg.f32 %f9, %f0;", lambda x, y: -x),
        ("abs.f32 %f9, %f0;", lambda x, y: np.abs(x)),
    ],
)
def test_floats_are_rounded_once(code: str, expected: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        exact = expected(X.astype(np.float64), Y.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(each(FLOATS + code + BACK, X, Y).view(np.float32), exact)


@pytest.mark.parametrize(("word", "toward"), [("rm", -np.inf), ("rp", np.inf), ("rz", 0.0)])
def test_directed_roundings_are_next_to_what_is_exact(word: str, toward: float) -> None:
    x, y = X[128:], Y[128:]
    exact = x.astype(np.float64) * y.astype(np.float64)
    found = each(f"{FLOATS} mul.{word}.f32 %f9, %f0, %f1;{BACK}", x, y).view(np.float32).astype(np.float64)
    assert (np.abs(found - exact) < np.abs(np.spacing(exact.astype(np.float32)))).all()
    wanted = {"rm": found <= exact, "rp": found >= exact, "rz": np.abs(found) <= np.abs(exact)}[word]
    assert wanted.all()
    assert (found != exact).any()


def test_least_and_greatest_leave_nan_out_and_know_the_sign_of_zero() -> None:
    x = np.array([np.nan, 1, np.nan, 0.0, -0.0, 2], np.float32)
    y = np.array([3, np.nan, np.nan, -0.0, 0.0, 1], np.float32)
    least = each(f"{FLOATS} min.f32 %f9, %f0, %f1;{BACK}", x, y).view(np.float32)
    greatest = each(f"{FLOATS} max.f32 %f9, %f0, %f1;{BACK}", x, y).view(np.float32)
    np.testing.assert_array_equal(least, np.array([3, 1, np.nan, -0.0, -0.0, 1], np.float32))
    assert np.signbit(least[3:5]).all()
    assert not np.signbit(greatest[3:5]).any()
    assert np.isnan(each(f"{FLOATS} max.NaN.f32 %f9, %f0, %f1;{BACK}", x, y).view(np.float32))[:3].all()


@pytest.mark.parametrize("how", ["lt", "ge", "eq", "ne", "ltu", "neu", "num", "nan"])
def test_comparisons_with_nan(how: str) -> None:
    x, y = np.array([1, 2, np.nan], np.float32), np.array([2, np.nan, np.nan], np.float32)
    found = each(f"{FLOATS} setp.{how}.f32 %p0, %f0, %f1; selp.b32 %r9, 1, 0, %p0;", x, y)
    nan = {"num": 0, "nan": 1}.get(how, int(how.endswith("u")))
    assert found.tolist() == [{"ge": 0, "eq": 0, "nan": 0}.get(how, 1), nan, nan]


def test_conversions_of_halves_are_those_of_numpy() -> None:
    halves = np.concatenate([np.arange(0, 65536, 83), [0, 1, 0x3FF, 0x400, 0x7C00, 0xFC00, 0x8001]]).astype(np.uint16)
    for begin in range(0, halves.size, 512):
        part = halves[begin : begin + 512]
        found = each("cvt.f32.f16 %f9, %h0; mov.b32 %r9, %f9;", part, kind="b16").view(np.float32)
        np.testing.assert_array_equal(found, part.view(np.float16).astype(np.float32))


def test_conversions_to_narrower_floats_round_to_nearest_even() -> None:
    ties = np.array(
        [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65519, 65520, 1e-8, -6e-8], np.float32
    )
    x = np.concatenate([ties, X[128:]])
    with np.errstate(over="ignore"):
        half, brain = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    for code, expected in (("f16", half), ("bf16", brain)):
        found = each(f"mov.b32 %f0, %r0; cvt.rn.{code}.f32 %h9, %f0;", x, out="b16")
        np.testing.assert_array_equal(found, expected.view(np.uint16))
    pair = each("mov.b32 %f0, %r0; mov.b32 %f1, %r1; cvt.rn.f16x2.f32 %r9, %f0, %f1;", x, x[::-1].copy())
    np.testing.assert_array_equal(pair >> 16, half.view(np.uint16))
    np.testing.assert_array_equal(pair & 0xFFFF, half[::-1].view(np.uint16))


def test_tf32_rounds_ties_away_from_zero() -> None:
    x = np.array([1 + 2.0**-11, -(1 + 2.0**-11), 1 + 2.0**-12, np.inf], np.float32)
    found = each("mov.b32 %f0, %r0; cvt.rna.tf32.f32 %r9, %f0;", x).view(np.float32)
    np.testing.assert_array_equal(found, np.array([1 + 2.0**-10, -(1 + 2.0**-10), 1, np.inf], np.float32))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("cvt.rni.sat.s8.f32 %r9, %f0;", [2, -2, 2, 127, -128, 0, 127]),
        ("cvt.rzi.s32.f32 %r9, %f0;", [2, -2, 1, 2**31 - 1, -(2**31), 0, 300]),
        ("cvt.rmi.u32.f32 %r9, %f0;", [2, 0, 1, 2**32 - 1, 0, 0, 300]),
        ("cvt.rpi.s32.f32 %r9, %f0;", [3, -2, 2, 2**31 - 1, -(2**31), 0, 300]),
    ],
)
def test_conversions_to_integers_round_and_saturate(code: str, expected: list[int]) -> None:
    x = np.array([2.5, -2.5, 1.5, 1e20, -np.inf, np.nan, 300], np.float32)
    found = each("mov.b32 %f0, %r0;" + code, x)
    assert found.tolist() == [value & MASK for value in expected]
