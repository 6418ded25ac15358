from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import VerifyError
from compiler.ir import evaluate as evaluation
from compiler.ir.evaluate import evaluate
from compiler.ir.expr import Const
from compiler.ir.tensor import DType
from tests.parse import parse_kernel

SOFTMAX = """
kernel Softmax(in x: f32[5, 7]; temp m: f32[5], temp s: f32[5]; out y: f32[5, 7])
  for i:5
    m[i] = max<f32> j:7 . x[i, j]
    s[i] = sum<f32> j:7 . exp(sub(x[i, j], m[i]))
    for k:7: y[i, k] = div(exp(sub(x[i, k], m[i])), s[i])
"""

PADDED_CONVOLUTION = """
kernel Conv(in x: f32[2, 3, {h}, 5], in w: f32[4, 3, 3, 3], in b: f32[4]; temp t: f32[2, 4, {h}, 5]; \
out y: f32[2, 4, {h}, 5])
  for n:2, k:4, oy:{h}, ox:5
    t[n, k, oy, ox] = sum<f32> c:3, r:3, s:3 . mul(
      where(and(and(ge(#(oy + r - 1):i64, 0:i64), lt(#(oy + r - 1):i64, {h}:i64)),
                and(ge(#(ox + s - 1):i64, 0:i64), lt(#(ox + s - 1):i64, 5:i64))),
            x[n, c, oy + r - 1, ox + s - 1], 0.0:f32), w[k, c, r, s])
    y[n, k, oy, ox] = add(t[n, k, oy, ox], b[k])
"""


def run(text: str, *inputs: np.ndarray) -> np.ndarray:
    (output,) = evaluate(parse_kernel(text), inputs)
    return output


def unary(function: str, dtype: str, values: np.ndarray, to: str = "") -> np.ndarray:
    call = f"{function}(x[i])" + (f":{to}" if function in ("cast", "saturate") else "")
    return run(
        f"kernel f(in x: {dtype}[{len(values)}]; out y: {to or dtype}[{len(values)}]) "
        f"for i:{len(values)} y[i] = {call}",
        values,
    )


def binary(function: str, dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    n = len(a)
    text = (
        f"kernel f(in a: {dtype}[{n}], in b: {dtype}[{n}]; out y: {dtype}[{n}]) for i:{n} y[i] = {function}(a[i], b[i])"
    )
    return run(text, a, b)


def reduction(monoid: str, dtype: str, x: np.ndarray) -> np.ndarray:
    rows, columns = x.shape
    text = (
        f"kernel r(in x: {dtype}[{rows}, {columns}]; out y: {dtype}[{rows}]) "
        f"for i:{rows} y[i] = {monoid}<{dtype}> j:{columns} . x[i, j]"
    )
    return run(text, x)


def arg(monoid: str, dtype: str, x: np.ndarray) -> tuple[np.ndarray, ...]:
    rows, columns = x.shape
    text = (
        f"kernel r(in x: {dtype}[{rows}, {columns}]; out v: {dtype}[{rows}], out at: i64[{rows}]) for i:{rows} "
        f"v[i], at[i] = {monoid}<{dtype}> j:{columns} . x[i, j], #(j):i64"
    )
    return evaluate(parse_kernel(text), (x,))


def correlate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Same-padded 3x3 cross-correlation in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.asarray(np.einsum("nchwrs,kcrs->nkhw", windows, w.astype(np.float64)))


@pytest.mark.parametrize("piece", [2**22, 64, 1])
def test_a_padded_convolution_in_pieces_of_any_size(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PIECE", piece)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((2, 3, 4, 5), (4, 3, 3, 3), (4,)))
    y = run(PADDED_CONVOLUTION.format(h=4), x, w, b)
    np.testing.assert_allclose(y, correlate(x, w) + b[:, None, None], rtol=1e-5, atol=1e-5)


def test_a_convolution_of_depth_has_a_batch_axis_in_its_contraction() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((6, 8), np.float32), rng.standard_normal((6, 3), np.float32)
    y = run(
        "kernel Conv(in x: f32[6, 8], in w: f32[6, 3]; out y: f32[6, 1, 6])"
        " for g:6, k:1, o:6 y[g + k, 0, o] = sum<f32> c:1, r:3 . mul(x[g, c + o + r], w[g, r])",
        x,
        w,
    )
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)
    np.testing.assert_allclose(y[:, 0], (windows * w[:, None, :]).sum(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("piece", [2**22, 5])
def test_a_sum_of_products_whose_axes_are_missing_from_one_factor_or_both(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PIECE", piece)
    a, b = np.arange(6, dtype=np.int64).reshape(2, 3), np.arange(12, dtype=np.int64).reshape(3, 4)
    head = "kernel f(in a: i64[2, 3], in b: i64[3, 4]; out y: i64[2]) for i:2 "
    assert run(head + "y[i] = sum<i64> j:3, k:4 . mul(a[i, j], b[j, k])", a, b).tolist() == (a @ b).sum(1).tolist()
    assert (
        run(head + "y[i] = sum<i64> j:3, k:4 . mul(a[i, j], b[0, k])", a, b).tolist()
        == (a.sum(1) * b[0].sum()).tolist()
    )
    assert run(head + "y[i] = sum<i64> j:3, k:4 . mul(a[i, j], b[j, 1])", a, b).tolist() == (4 * (a @ b[:, 1])).tolist()


def test_integer_products_wrap_before_they_are_summed_in_a_wider_accumulator() -> None:
    a = np.array([100, 100], np.int8)
    text = "kernel f(in a: i8[2]; out y: i32[]) y[] = sum<i32> j:2 . {}"
    assert run(text.format("mul(a[j], a[j])"), a) == 2 * np.int32(np.int8(10000 - 39 * 256))
    assert run(text.format("mul(cast(a[j]):i32, cast(a[j]):i32)"), a) == 20000


@pytest.mark.parametrize("piece", [2**22, 3])
def test_softmax_in_three_blocks(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PIECE", piece)
    x = np.random.default_rng(2).standard_normal((5, 7), np.float32) * 10
    exponentials = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(SOFTMAX, x), exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5)


def test_a_temporary_without_a_shared_axis_is_private_to_its_points() -> None:
    text = """
    kernel Softmax(in x: f32[5, 7]; temp m: f32[], temp e: f32[7], temp s: f32[]; out y: f32[5, 7])
      for i:5
        m[] = max<f32> j:7 . x[i, j]
        for j:7: e[j] = exp(sub(x[i, j], m[]))
        s[] = sum<f32> j:7 . e[j]
        for k:7: y[i, k] = div(e[k], s[])
    """
    x = np.random.default_rng(7).standard_normal((5, 7), np.float32)
    np.testing.assert_allclose(run(text, x), run(SOFTMAX, x), rtol=1e-6)


@pytest.mark.parametrize("piece", [2**22, 2])
def test_the_softmax_monoid_gives_maximum_and_scaled_sum(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PIECE", piece)
    x = np.array([[1, 5, 3, 500], [-np.inf, 2, -np.inf, 2], [-np.inf] * 4, [np.inf, 0, 0, 0]], np.float32)
    text = (
        "kernel s(in x: f32[4, 4]; out m: f32[4], out s: f32[4]) for i:4 m[i], s[i] = softmax<f32> j:4 . x[i, j], "
        "1.0:f32"
    )
    m, s = evaluate(parse_kernel(text), (x,))
    assert m.tolist() == [500, 2, -np.inf, np.inf]
    assert s.tolist() == [1, 2, 4, 1]


@pytest.mark.parametrize("piece", [2**22, 2])
def test_argmax_and_argmin_break_ties_by_their_name(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PIECE", piece)
    x = np.array([[3, 1, 3, 1, 2], [0, 0, 0, 0, 0]], np.int32)
    assert arg("argmax_first", "i32", x)[1].tolist() == [0, 0]
    assert arg("argmax_last", "i32", x)[1].tolist() == [2, 4]
    assert arg("argmin_first", "i32", x)[1].tolist() == [1, 0]
    assert arg("argmin_last", "i32", x)[1].tolist() == [3, 4]
    assert arg("argmin_last", "i32", x)[0].tolist() == [1, 0]


def test_argmax_takes_a_nan_for_the_greatest_and_finds_an_infinity() -> None:
    x = np.array([[1, np.nan, 5, np.nan], [-np.inf] * 4], np.float32)
    value, at = arg("argmax_first", "f32", x)
    assert np.isnan(value[0])
    assert at.tolist() == [1, 0]
    assert arg("argmax_last", "f32", x)[1].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("monoid", "dtype", "expected"),
    [
        ("sum", "f32", 0),
        ("prod", "i32", 1),
        ("max", "f32", -np.inf),
        ("min", "i8", 127),
        ("max", "u8", 0),
        ("min", "f16", np.inf),
        ("and", "bool", True),
        ("or", "bool", False),
    ],
)
def test_an_empty_reduction_gives_the_identity(monoid: str, dtype: str, expected: float) -> None:
    numpy = {"f32": np.float32, "i32": np.int32, "i8": np.int8, "u8": np.uint8, "f16": np.float16, "bool": np.bool_}[
        dtype
    ]
    assert reduction(monoid, dtype, np.zeros((2, 0), numpy)).tolist() == [expected, expected]


def test_an_empty_argmax_gives_the_least_value_and_index_zero() -> None:
    value, at = arg("argmax_last", "f32", np.zeros((1, 0), np.float32))
    assert (value.tolist(), at.tolist()) == ([-np.inf], [0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_max_and_min_pass_a_nan_on(dtype: type) -> None:
    x: np.ndarray = np.array([[1, np.nan, 3], [1, 2, 3]], dtype)
    name = str(DType.of(dtype))
    assert np.isnan(reduction("max", name, x).astype(np.float64)[0])
    assert np.isnan(reduction("min", name, x).astype(np.float64)[0])
    assert reduction("max", name, x).astype(np.float64)[1] == 3
    assert np.isnan(binary("max", name, x[0], x[1]).astype(np.float64)).tolist() == [False, True, False]


def test_a_sum_of_halves_is_carried_out_in_the_accumulator() -> None:
    x = np.full((1, 4096), 1.0, np.float16)
    text = "kernel s(in x: f16[1, 4096]; out y: f16[1]) for i:1 y[i] = sum<f32> j:4096 . x[i, j]"
    assert run(text, x).tolist() == [4096.0]


def test_integer_division_truncates_and_modulo_takes_the_sign_it_says() -> None:
    a, b = np.array([7, -7, 7, -7, 6], np.int32), np.array([2, 2, -2, -2, -3], np.int32)
    assert binary("div", "i32", a, b).tolist() == [3, -3, -3, 3, -2]
    assert binary("mod", "i32", a, b).tolist() == [1, 1, -1, -1, 0]
    assert binary("fmod", "i32", a, b).tolist() == [1, -1, 1, -1, 0]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(-128, 127), st.integers(-127, 127).filter(bool)), min_size=1, max_size=8))
def test_small_integers_divide_as_in_c(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(column, np.int8) for column in zip(*pairs, strict=True))
    expected = [np.int8((abs(x) // abs(y) * (1 if x * y >= 0 else -1) + 128) % 256 - 128) for x, y in pairs]
    assert binary("div", "i8", a, b).tolist() == expected


def test_integers_to_a_negative_power_truncate() -> None:
    a, b = np.array([2, 1, -1, -1, 3], np.int64), np.array([-1, -5, -3, -2, 4], np.int64)
    assert binary("pow", "i64", a, b).tolist() == [0, 1, -1, 1, 81]


def test_round_goes_half_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    assert unary("round", "f32", x).tolist() == [0, 2, 2, 0, -2]


def test_integer_arithmetic_wraps_in_its_own_dtype() -> None:
    assert binary("add", "i8", np.array([127], np.int8), np.array([1], np.int8)).tolist() == [-128]
    assert binary("sub", "u8", np.array([0], np.uint8), np.array([1], np.uint8)).tolist() == [255]


def test_float_functions_stay_in_their_dtype() -> None:
    x = np.array([0.1, 3.0, -2.0], np.float32)
    np.testing.assert_allclose(unary("sigmoid", "f32", x), 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6)
    np.testing.assert_allclose(unary("erf", "f32", x), [0.1124629160, 0.9999779095, -0.9953222650], rtol=1e-6)
    assert unary("exp", "f16", x.astype(np.float16)).dtype == np.float16
    assert unary("tanh", "bf16", x.astype(ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


def test_every_bfloat16_product_is_the_rounded_exact_one() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(500).astype(ml_dtypes.bfloat16) for _ in range(2))
    exact = (a.astype(np.float64) * b.astype(np.float64)).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert binary("mul", "bf16", a, b).tobytes() == exact.tobytes()


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("i8", [-128, -1, 0, 0, 1, 127, 127, 0]),
        ("u8", [0, 0, 0, 0, 1, 200, 255, 0]),
        ("i32", [-(2**31), -1, 0, 0, 1, 200, 2**31 - 1, 0]),
        ("i64", [-(2**63), -1, 0, 0, 1, 200, 2**63 - 1, 0]),
        ("u64", [0, 0, 0, 0, 1, 200, 2**64 - 1, 0]),
    ],
)
def test_a_saturating_cast_clamps_truncates_and_makes_nan_zero(to: str, expected: list[int]) -> None:
    x = np.array([-np.inf, -1.9, -0.9, 0.9, 1.9, 200.9, 1e30, np.nan], np.float32)
    assert unary("saturate", "f32", x, to).tolist() == expected


def test_saturating_casts_between_integers_and_to_a_short_float() -> None:
    assert unary("saturate", "i32", np.array([-5, 300, 7], np.int32), "u8").tolist() == [0, 255, 7]
    assert unary("saturate", "u64", np.array([2**63, 5], np.uint64), "i64").tolist() == [2**63 - 1, 5]
    assert unary("saturate", "i8", np.array([-5, 100], np.int8), "u64").tolist() == [0, 100]
    short = unary("saturate", "f32", np.array([1e9, -np.inf, np.nan, 2], np.float32), "f16").astype(np.float64)
    np.testing.assert_array_equal(short, [65504, -65504, np.nan, 2])


def test_a_plain_cast_wraps_integers_and_tells_zero_from_the_rest() -> None:
    assert unary("cast", "i32", np.array([300, -1], np.int32), "u8").tolist() == [44, 255]
    assert unary("cast", "f32", np.array([0.0, 0.25, np.nan], np.float32), "bool").tolist() == [False, True, True]
    assert unary("cast", "f32", np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32), "bf16").astype(
        np.float64
    ).tolist() == [
        1.0,
        1.015625,
    ]


def test_a_recurrence_reads_what_a_later_block_stored_before() -> None:
    text = """
    kernel Scan(in x: f32[6, 2]; temp u: f32[6, 2]; out y: f32[6, 2])
      for seq t:6, c:2
        u[t, c] = where(eq(#(t):i64, 0:i64), 0.0:f32, y[t - 1, c])
        y[t, c] = add(mul(u[t, c], 0.5:f32), x[t, c])
    """
    x = np.random.default_rng(4).standard_normal((6, 2), np.float32)
    expected, state = [], np.zeros(2, np.float32)
    for row in x:
        state = state * np.float32(0.5) + row
        expected.append(state)
    np.testing.assert_allclose(run(text, x), expected, rtol=1e-6)


def test_a_block_may_run_along_an_axis_of_its_own_in_order() -> None:
    text = """
    kernel CumSum(in x: i64[3, 5]; out y: i64[3, 5])
      for i:3
        for seq j:5: y[i, j] = add(x[i, j], where(gt(#(j):i64, 0:i64), y[i, j - 1], 0:i64))
    """
    x = np.arange(15).reshape(3, 5)
    assert run(text, x).tolist() == np.cumsum(x, axis=1).tolist()


def test_gather_counts_negative_indices_from_the_end() -> None:
    text = """
    kernel Gather(in x: f32[5, 3], in at: i64[4]; out y: f32[4, 3])
      for i:4, j:3
        y[i, j] = x[[where(lt(at[i], 0:i64), add(at[i], 5:i64), at[i]) in 0..4], j]
    """
    x, at = np.random.default_rng(5).standard_normal((5, 3), np.float32), np.array([4, -1, 0, -5])
    assert run(text, x, at).tolist() == x[at].tolist()


def test_scatter_stores_at_loaded_places() -> None:
    text = """
    kernel ScatterElements(in x: f32[5], in at: i64[2], in u: f32[2]; out y: f32[5])
      for i:5: y[i] = x[i]
      for j:2: y[[at[j] in 0..4]] = u[j]
    """
    y = run(text, np.zeros(5, np.float32), np.array([3, 1]), np.array([1, 2], np.float32))
    assert y.tolist() == [0, 2, 0, 1, 0]


def test_max_pooling_with_padding_and_stride() -> None:
    text = """
    kernel MaxPool(in x: f32[1, 2, 6, 6]; out y: f32[1, 2, 3, 3])
      for n:1, c:2, oy:3, ox:3
        y[n, c, oy, ox] = max<f32> r:3, s:3 . where(and(ge(#(2*oy + r - 1):i64, 0:i64), ge(#(2*ox + s - 1):i64, 0:i64)),
                                                    x[n, c, 2*oy + r - 1, 2*ox + s - 1], -inf:f32)
    """
    x = np.random.default_rng(6).standard_normal((1, 2, 6, 6), np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (1, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    assert run(text, x).tolist() == windows.max((4, 5)).tolist()


def test_a_view_reads_through_division_and_modulo() -> None:
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    text = "kernel Reshape(in x: i32[4, 6]; out y: i32[3, 8]) for a:3, b:8 y[a, b] = x[(8*a + b)//6, (8*a + b)%6]"
    assert run(text, x).tolist() == x.reshape(3, 8).tolist()
    text = "kernel Slice(in x: i32[4, 6]; out y: i32[6, 2]) for a:6, b:2 y[a, b] = x[-2*b + 3, a]"
    assert run(text, x).tolist() == x[::-2].T.tolist()
    text = "kernel Slice(in x: i32[4, 6]; out y: i32[2, 4]) for a:2, b:4 y[a, b] = x[b, 3*a + 1]"
    assert run(text, x).tolist() == x[:, 1::3].T.tolist()
    text = "kernel Diagonal(in x: i32[4, 6]; out y: i32[4]) for a:4 y[a] = x[a, a]"
    assert run(text, x).tolist() == np.diagonal(x).tolist()


def test_concat_is_one_block_for_each_operand() -> None:
    text = """
    kernel Concat(in a: f32[2, 2], in b: f32[2, 3]; out y: f32[2, 5])
      for i:2
        for j:2: y[i, j] = a[i, j]
        for k:3: y[i, k + 2] = b[i, k]
    """
    a, b = np.ones((2, 2), np.float32), np.full((2, 3), 2, np.float32)
    assert run(text, a, b).tolist() == np.concatenate((a, b), axis=1).tolist()


def test_a_stored_constant_is_spread_over_axes_it_does_not_mention() -> None:
    assert run("kernel Fill(out y: f32[2, 3]) for i:2, j:3 y[i, j] = 4.0:f32").tolist() == [[4] * 3] * 2
    assert run("kernel One(out y: i64[]) y[] = 7:i64").tolist() == 7
    assert run("kernel Range(out y: i64[4]) for i:4 y[i] = #(3*i - 1):i64").tolist() == [-1, 2, 5, 8]


def test_a_tensor_with_no_elements_is_left_alone() -> None:
    text = "kernel Relu(in x: f32[0, 3]; out y: f32[0, 3]) for i:0, j:3 y[i, j] = max(x[i, j], 0.0:f32)"
    assert run(text, np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_a_load_that_is_taken_outside_its_tensor_is_named() -> None:
    text = "kernel Shift(in x: f32[4]; out y: f32[4]) for i:4 y[i] = where(gt(#(i):i64, {}:i64), x[i - 1], 0.0:f32)"
    assert run(text.format(0), np.ones(4, np.float32)).tolist() == [0, 1, 1, 1]
    with pytest.raises(VerifyError, match=r"`x\[i - 1\]` leaves `x: f32\[4\]` at -1 of axis 0"):
        run(text.format(-1), np.ones(4, np.float32))


def test_a_loaded_index_outside_its_range_is_named() -> None:
    text = "kernel Gather(in x: f32[4], in at: i64[2]; out y: f32[2]) for i:2 y[i] = x[[at[i] in 0..3]]"
    with pytest.raises(VerifyError, match=r"`\[at\[i\] in 0\.\.3\]` leaves its range"):
        run(text, np.ones(4, np.float32), np.array([0, 4]))


def test_a_store_outside_its_tensor_is_named() -> None:
    with pytest.raises(VerifyError, match=r"`y\[i \+ 1\]` leaves `y: f32\[4\]` at 4"):
        run("kernel f(out y: f32[4]) for i:4 y[i + 1] = 1.0:f32")


def test_reading_or_returning_what_was_never_stored_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"`t\[i\]` reads an element that no block has stored"):
        run("kernel f(temp t: f32[4]; out y: f32[4]) for j:2: t[j] = 1.0:f32 for i:4: y[i] = t[i]")
    with pytest.raises(VerifyError, match=r"no block stores y\[2\]"):
        run("kernel f(out y: f32[4]) for i:2 y[i] = 1.0:f32")


def test_inputs_that_do_not_fit_their_slots_are_refused() -> None:
    kernel = parse_kernel("kernel f(in x: f32[4]; out y: f32[4]) for i:4 y[i] = x[i]")
    with pytest.raises(VerifyError, match="takes 1 inputs, 0 were given"):
        evaluate(kernel, ())
    with pytest.raises(VerifyError, match=r"slot `x: f32\[4\]` was given float64\[4\]"):
        evaluate(kernel, (np.zeros(4),))
    with pytest.raises(VerifyError, match=r"was given float32\[3\]"):
        evaluate(kernel, (np.zeros(3, np.float32),))


def test_a_constant_that_does_not_fit_its_dtype_is_refused() -> None:
    assert Const(300, DType.U8).dtype is DType.U8
    with pytest.raises(VerifyError, match="constant `300:u8` does not fit"):
        run("kernel f(out y: u8[1]) for i:1 y[i] = 300:u8")


def test_an_input_is_never_changed_by_what_is_computed_from_it() -> None:
    x = np.arange(4, dtype=np.float32)
    y = run("kernel Identity(in x: f32[4]; out y: f32[4]) for i:4 y[i] = x[i]", x)
    y[0] = 9
    assert x.tolist() == [0, 1, 2, 3]
