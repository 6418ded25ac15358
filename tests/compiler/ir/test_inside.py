from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import VerifyError
from compiler.ir.evaluate import evaluate
from compiler.ir.kernel import Kernel
from tests.parse import parse_kernel


def kernel(text: str) -> Kernel:
    slots = "in x: f32[4], in at: i64[4], in z: f32[0], in p: f32[4]; out y: f32[4]"
    return parse_kernel(f"kernel f({slots}) for i:4 {text}")


@pytest.mark.parametrize(
    "text",
    [
        "y[i] = x[i]",
        "y[i] = x[-i + 3]",
        "y[i] = where(gt(#(i):i64, 0:i64), x[i - 1], 0.0:f32)",
        "y[i] = where(not(le(#(i):i64, 0:i64)), x[i - 1], 0.0:f32)",
        "y[i] = where(and(ge(#(i):i64, 1:i64), lt(#(i):i64, 3:i64)), add(x[i - 1], x[i + 1]), 0.0:f32)",
        "y[i] = where(or(lt(#(i):i64, 1:i64), ge(#(i):i64, 3:i64)), 0.0:f32, add(x[i - 1], x[i + 1]))",
        "y[i] = where(eq(#((i)%2):i64, 0:i64), x[4*((i)%2)], x[0])",
        "y[i] = where(lt(#(0):i64, 0:i64), x[9], x[0])",
        "y[i] = sum<f32> j:3 . where(and(ge(#(i + j - 1):i64, 0:i64), lt(#(i + j - 1):i64, 4:i64)), x[i + j - 1],"
        " 0.0:f32)",
        "y[i] = sum<f32> j:0 . x[i + 9]",
        "y[i] = x[[min(max(at[i], 0:i64), 3:i64) in 0..3]]",
        "y[i] = x[[mod(at[i], 4:i64) in 0..3]]",
        "y[i] = x[[saturate(min(max(floor(p[i]), 0.0:f32), 3.0:f32)):i64 in 0..3]]",
        "y[i] = where(and(ge(at[i], 0:i64), lt(at[i], 4:i64)), x[[min(max(at[i], 0:i64), 3:i64) in 0..3]], 0.0:f32)",
        "y[i] = x[[where(lt(#(i):i64, min(at[i], 4:i64)), sub(sub(min(at[i], 4:i64), 1:i64), #(i):i64), #(i):i64)"
        " in 0..3]]",
    ],
)
def test_what_is_read_inside_passes(text: str) -> None:
    kernel(text).verify_inside()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("y[i] = x[i + 1]", "at 1..4 of axis 0"),
        ("y[i + 1] = x[i]", "at 1..4 of axis 0"),
        ("y[i] = x[-i]", "at -3..0 of axis 0"),
        ("y[i] = z[0]", "at 0..0 of axis 0"),
        ("y[i] = where(ge(#(i):i64, 0:i64), x[i - 1], 0.0:f32)", "at -1..2"),
        ("y[i] = where(gt(#(i):i64, 0:i64), 0.0:f32, x[i - 1])", "at -1..-1"),
        ("y[i] = where(gt(#(i):i64, 0:i64), x[i - 2], 0.0:f32)", "at -1..1"),
        ("y[i] = where(ne(#(i):i64, 0:i64), x[i + 3], 0.0:f32)", "at 3..6"),
        ("y[i] = where(or(ge(#(i):i64, 1:i64), lt(#(i):i64, 3:i64)), x[i - 1], 0.0:f32)", "at -1..2"),
        ("y[i] = where(lt(x[i + 1], 0.0:f32), 1.0:f32, 0.0:f32)", "at 1..4"),
        ("y[i] = where(lt(#(100*i + 100):i8, 0:i8), x[i + 2], 0.0:f32)", "at 2..5"),
        (
            "y[i] = where(lt(add(at[i], 1:i64), #(0):i64), x[[sub(min(at[i], 0:i64), at[i]) in 0..3]], 0.0:f32)",
            "axis 0",
        ),
        ("y[i] = x[[at[i] in 0..3]]", "as `[at[i] in 0..3]` is -9223372036854775808"),
        ("y[i] = x[[at[i + 1] in 0..0]]", "axis 0"),
        ("y[i] = x[[min(max(at[i], 0:i64), 4:i64) in 0..3]]", "is 0..4"),
        ("y[i] = x[[max(min(at[i], 3:i64), -1:i64) in 0..3]]", "is -1..3"),
        ("y[i] = x[[add(min(max(at[i], 0:i64), 3:i64), 1:i64) in 0..3]]", "is 1..4"),
        ("y[i] = x[[min(add(max(at[i], 0:i64), 1:i64), 3:i64) in 0..3]]", "is -9223372036854775808..3"),
        ("y[i] = x[[saturate(min(p[i], 3.0:f32)):i64 in 0..3]]", "axis 0"),
        ("y[i] = x[[sub(saturate(min(max(p[i], 1.0:f32), 3.0:f32)):i64, 1:i64) in 0..3]]", "is -1..2"),
    ],
)
def test_what_may_be_outside_is_named(text: str, where: str) -> None:
    with pytest.raises(VerifyError) as raised:
        kernel(text).verify_inside()
    assert where in str(raised.value)


def test_what_passes_leaves_no_tensor_at_any_point() -> None:
    """Random indices under random conditions: of those that pass, evaluation finds none that leaves."""
    random = np.random.default_rng(46)
    arrays = [np.ones(4, np.float32), np.array([-(2**63), -1, 2, 2**63 - 1]), np.ones(0, np.float32)]
    arrays.append(np.array([np.nan, -np.inf, 2.5, np.inf], np.float32))

    def number() -> int:
        return int(random.integers(-3, 6))

    def position() -> str:
        inner = f"{random.integers(1, 4)}*i + {random.integers(0, 3)}*j + {number()}".replace("+ -", "- ")
        return str(random.choice([inner, f"({inner})//2", f"({inner})%3", f"2*(({inner})//2) + i"]))

    def condition(*, deep: bool) -> str:
        if deep:
            return (
                f"{random.choice(['and', 'or'])}({condition(deep=False)}, {condition(deep=bool(random.integers(2)))})"
            )
        compared = random.choice(["lt", "le", "gt", "ge", "eq", "ne"])
        left = random.choice([f"#({places[0]}):i64", f"#({position()}):i64", "at[i]", "sub(#(j):i64, at[i])"])
        return f"{compared}({left}, {number()}:i64)"

    passed, refused = 0, 0
    for _ in range(150):
        places = [position(), position()]
        clamped = f"[min(max(add(at[i], {number()}:i64), {number()}:i64), {number()}:i64) in 0..3]"
        read = str(random.choice([places[0], places[0], clamped]))
        tried = kernel(f"y[i] = sum<f32> j:3 . where({condition(deep=True)}, x[{read}], x[0])")
        try:
            tried.verify_inside()
        except VerifyError:
            refused += 1
            continue
        passed += 1
        evaluate(tried, arrays)
    assert passed > 20
    assert refused > 20
