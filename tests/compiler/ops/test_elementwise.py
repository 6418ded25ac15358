from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tensor import DType, TensorType
from compiler.ops.elementwise import OPERATORS, UNARY
from compiler.ops.error_function import erf
from compiler.ops.operator import Unsupported
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import Shape, check, compare, normal, octets, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
BOOLEAN = ("And", "Or", "Xor")
BITS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
MANY = ("Sum", "Min", "Max", "Mean")
REAL_FUNCTIONS = sorted({operator.name for operator in UNARY} - {"Not", "BitwiseNot", "IsNaN", "Identity"})
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 1e-30, 80.0], np.float32)


@st.composite
def broadcasting(draw: st.DrawFn, count: int = 2) -> tuple[Shape, ...]:
    """Shapes that numpy's rules broadcast to each other, ranks and empty extents included."""
    whole = draw(st.lists(st.integers(0, 4), max_size=4))
    shapes = []
    for _ in range(count):
        own = whole[draw(st.integers(0, len(whole))) :]
        shapes.append(tuple(1 if draw(st.booleans()) else extent for extent in own))
    return tuple(shapes)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", *COMPARISONS])
@given(shapes=broadcasting())
@settings(max_examples=25)
def test_arithmetic_and_comparisons_broadcast_as_onnxruntime_does(name: str, shapes: tuple[Shape, ...]) -> None:
    compare(RECORDS[name], [np.asarray(np.round(normal(seed, *shape), 1)) for seed, shape in enumerate(shapes)])


@pytest.mark.parametrize("name", MANY)
@given(shapes=broadcasting(3), count=st.integers(1, 3))
@settings(max_examples=25)
def test_operators_of_many_inputs_agree_with_onnxruntime(name: str, shapes: tuple[Shape, ...], count: int) -> None:
    compare(RECORDS[name], [normal(seed, *shape) for seed, shape in enumerate(shapes[:count])])


@pytest.mark.parametrize("name", BOOLEAN)
@given(shapes=broadcasting())
@settings(max_examples=15)
def test_logic_agrees_with_onnxruntime(name: str, shapes: tuple[Shape, ...]) -> None:
    compare(RECORDS[name], [np.asarray(normal(seed, *shape) > 0) for seed, shape in enumerate(shapes)])


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64])
def test_bits_agree_with_onnxruntime(name: str, dtype: Any) -> None:
    compare(RECORDS[name], [octets(1, np.int8, 3, 4).astype(dtype), octets(2, np.int8, 4).astype(dtype)])
    compare(RECORDS["BitwiseNot"], [octets(1, np.int8, 9).astype(dtype)])


@given(shapes=broadcasting(3))
@settings(max_examples=25)
def test_Where_agrees_with_onnxruntime(shapes: tuple[Shape, ...]) -> None:
    condition, a, b = (normal(seed, *shape) for seed, shape in enumerate(shapes))
    compare(RECORDS["Where"], [np.asarray(condition > 0), a, b])


@pytest.mark.parametrize("name", REAL_FUNCTIONS)
def test_functions_of_one_real_argument_agree_with_onnxruntime_on_edge_values_too(name: str) -> None:
    x = np.concatenate([EDGES, 3 * normal(1, 50)])
    compare(RECORDS[name], [x[np.abs(x) < 80] if name in ("Cosh", "Sinh", "Exp") else x])


@pytest.mark.parametrize("name", REAL_FUNCTIONS)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float64, 1e-12)])
def test_every_float_type_is_computed_to_its_own_precision(name: str, dtype: Any, rtol: float) -> None:
    (result,) = check(RECORDS[name], [np.abs(normal(1, 30)).astype(dtype)], rtol=rtol)
    assert result.dtype == dtype


@pytest.mark.parametrize(("negative", "positive"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_IsInf_looks_for_the_signs_that_are_asked_for(negative: int, positive: int) -> None:
    compare(RECORDS["IsInf"], [EDGES], {"detect_negative": negative, "detect_positive": positive})


def test_IsNaN_and_Not_and_Identity_agree_with_onnxruntime() -> None:
    compare(RECORDS["IsNaN"], [EDGES])
    compare(RECORDS["Not"], [EDGES > 0])
    compare(RECORDS["Identity"], [EDGES])


@pytest.mark.parametrize("name", ["Min", "Max"])
def test_an_extreme_with_a_nan_is_one(name: str) -> None:
    x = np.array([np.nan, 1, np.nan, -np.inf], np.float32)
    assert np.isnan(check(RECORDS[name], [x, np.array([1, np.nan, np.nan, 2], np.float32)])[0])[:3].all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_integers_divide_towards_zero(dtype: Any) -> None:
    a, b = octets(1, np.int8, 200).astype(dtype), octets(2, np.int8, 200).astype(dtype)
    b[b == 0] = 1
    (quotient,) = check(RECORDS["Div"], [a, b])
    expected = [abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(a, b, strict=True)]
    wide = np.int64 if np.dtype(dtype).kind == "i" else np.uint64
    np.testing.assert_array_equal(quotient, np.array(expected, wide).astype(dtype))


def test_the_least_integer_divides_exactly() -> None:
    least = np.array([-128, -128, -7, 7], np.int8)
    assert check(RECORDS["Div"], [least, np.array([2, 3, 2, -2], np.int8)])[0].tolist() == [-64, -42, -3, -3]


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_Mod_takes_the_sign_of_the_divisor_and_fmod_that_of_the_dividend(fmod: int, dtype: Any) -> None:
    a, b = octets(1, np.int8, 100).astype(dtype), octets(2, np.int8, 100).astype(dtype)
    b[b == 0] = 3
    compare(RECORDS["Mod"], [a, b], {"fmod": fmod})


def test_Mod_of_reals_is_fmod() -> None:
    compare(RECORDS["Mod"], [10 * normal(1, 100), normal(2, 100)], {"fmod": 1}, rtol=1e-5)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
def test_BitShift_agrees_with_onnxruntime(direction: str, dtype: Any) -> None:
    a, by = octets(1, np.uint8, 3, 4).astype(dtype), np.array([0, 1, 3, 7], dtype)
    compare(RECORDS["BitShift"], [a, by], {"direction": direction})


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_BitShift_by_no_amount_within_the_type_leaves_at_most_the_sign(direction: str, dtype: Any) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.array([low, low + 1, 0, 1, 5, high - 1, high], dtype)
    amounts = [0, 1, bits - 1, bits, bits + 1, 100, *((-1, -bits, low) if low else ())]
    a, by = np.repeat(values, len(amounts)), np.tile(np.array(amounts, dtype), len(values))
    (found,) = check(RECORDS["BitShift"], [a, by], {"direction": direction})
    for x, amount, got in zip(a.tolist(), by.tolist(), found.tolist(), strict=True):
        shifted = x >> amount if direction == "RIGHT" and 0 <= amount < bits else -int(x < 0)
        if direction == "LEFT":
            shifted = (x << amount) % 2**bits if 0 <= amount < bits else 0
            shifted -= 2**bits if low and shifted > high else 0
        assert got == shifted, (x, amount)


@pytest.mark.parametrize("exponent", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("base", [np.float32, np.float64, np.int32, np.int64])
def test_Pow_has_the_type_of_its_base(base: Any, exponent: Any) -> None:
    a, b = np.arange(1, 6).astype(base), np.array([[0], [1], [2], [3]]).astype(exponent)
    compare(RECORDS["Pow"], [a, b])


def test_Pow_of_real_numbers_agrees_with_onnxruntime_on_edge_values() -> None:
    base = np.array([0, 0, -2, -2, 2, np.inf, 1, np.nan], np.float32)
    exponent = np.array([0, 2, 3, 0.5, -1, 0, np.nan, 0], np.float32)
    compare(RECORDS["Pow"], [base, exponent])


def test_an_integer_to_a_negative_power_truncates_the_real_result() -> None:
    base, exponent = np.array([1, -1, -1, 2, -3], np.int32), np.array([-2, -3, -2, -1, -2], np.int64)
    assert check(RECORDS["Pow"], [base, exponent])[0].tolist() == [1, -1, 1, 0, 0]


def test_erf_of_the_reference_is_that_of_the_c_library_up_to_rounding() -> None:
    x = np.concatenate([10 * normal(1, 100).astype(np.float64), EDGES])
    np.testing.assert_allclose(erf(x), [math.erf(value) for value in x], rtol=5e-16, atol=0)
    assert erf(np.zeros((2, 0, 3))).shape == (2, 0, 3)
    assert erf(np.array(0.5)).shape == ()


@pytest.mark.parametrize("name", ["Add", "Where", "Max", "Equal"])
def test_shapes_that_do_not_broadcast_are_refused(name: str) -> None:
    types = [TensorType(DType.F32, shape) for shape in ((2, 3), (4, 3), (3,))]
    types[0] = TensorType(DType.BOOL, (2, 3)) if name == "Where" else types[0]
    node, _, _ = prepare(RECORDS[name], [np.zeros(type.dims, type.dtype.numpy) for type in types], {}, 1)
    with pytest.raises(Unsupported, match="do not broadcast"):
        RECORDS[name].infer(node, tuple(types))


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed(case: Case) -> None:
    assert not run(case, RECORDS[case.op])
