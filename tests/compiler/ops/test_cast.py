from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from compiler.ir.tensor import DType
from compiler.ops.cast import ONNX_DTYPES, OPERATORS
from compiler.ops.operator import Unsupported
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import by_onnxruntime, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
CODES = {dtype: code for code, dtype in ONNX_DTYPES.items()}
IN_ONNXRUNTIME = [dtype for dtype in ONNX_DTYPES.values() if dtype is not DType.BF16 and not dtype.is_small]


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.product(IN_ONNXRUNTIME, repeat=2)), ids=lambda dtype: str(dtype)
)
def test_numbers_that_fit_both_types_convert_as_in_onnxruntime(source: DType, target: DType) -> None:
    x = np.array([0, 1, 2, 5, 100], np.float64)
    x = np.append(x, [0.5, 2.7]) if source.is_float else x
    compare(RECORDS["Cast"], [x.astype(source.numpy)], {"to": CODES[target]})


def test_a_real_number_is_truncated_towards_zero() -> None:
    x = np.array([2.9, -2.9, 0.99, -0.99], np.float32)
    assert check(RECORDS["Cast"], [x], {"to": CODES[DType.I32]})[0].tolist() == [2, -2, 0, 0]


def test_everything_but_zero_is_true() -> None:
    x = np.array([0, -0.0, 0.1, np.nan, -np.inf], np.float32)
    assert check(RECORDS["Cast"], [x], {"to": CODES[DType.BOOL]})[0].tolist() == [False, False, True, True, True]


def test_integers_wrap() -> None:
    x = np.array([-1, 300, 2**31], np.int64)
    np.testing.assert_array_equal(
        check(RECORDS["Cast"], [x], {"to": CODES[DType.U8]})[0],
        by_onnxruntime("Cast", [x], {"to": CODES[DType.U8]})[0],
    )


def test_bfloat16_rounds_half_to_even() -> None:
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8)], np.float32)
    (result,) = check(RECORDS["Cast"], [x], {"to": CODES[DType.BF16]}, rtol=1e-2)
    assert result.dtype == ml_dtypes.bfloat16
    assert result.astype(np.float32).tolist() == [1, 1 + 2**-6, -1]


def test_the_reference_folds_in_the_declared_type_and_keeps_float64_for_the_oracle() -> None:
    node, _, _ = prepare(RECORDS["Cast"], [normal(1, 3)], {"to": CODES[DType.F16]}, 1)
    assert RECORDS["Cast"].reference(node, (normal(1, 3),))[0].dtype == np.float16
    assert RECORDS["Cast"].reference(node, (normal(1, 3).astype(np.float64),))[0].dtype == np.float64


def test_CastLike_reads_only_the_type_of_its_second_input() -> None:
    compare(RECORDS["CastLike"], [normal(1, 2, 3) * 9, np.zeros((7, 5), np.int32)])


@pytest.mark.parametrize("code", [8, 14, 99, None])
def test_strings_complex_numbers_and_unknown_types_are_refused(code: int | None) -> None:
    node, _, types = prepare(RECORDS["Cast"], [normal(1, 3)], {"to": code}, 1)
    with pytest.raises(Unsupported, match=f"element type {code}"):
        RECORDS["Cast"].infer(node, types)


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed(case: Case) -> None:
    assert not run(case, RECORDS[case.op])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.float32, np.int32),
        (np.uint32, np.float32),
        (np.float64, np.uint64),
        (np.int64, np.float64),
        (np.int8, np.uint8),
    ],
)
def test_bits_are_read_as_another_type(source: type, target: type) -> None:
    count = 12 * np.dtype(source).itemsize
    x: np.ndarray = np.random.default_rng(11).integers(0, 127, count, dtype=np.uint8).view(source).reshape(3, 4)
    (found,) = check(RECORDS["BitCast"], [x], {"to": CODES[DType.of(np.dtype(target))]})
    np.testing.assert_array_equal(found, x.view(target))


@pytest.mark.parametrize(
    ("source", "target"), [(np.float32, DType.F64), (np.float16, DType.I16), (np.int16, DType.F16)]
)
def test_bits_of_other_widths_and_of_halves_are_refused(source: type, target: DType) -> None:
    node, _, types = prepare(RECORDS["BitCast"], [np.zeros(2, source)], {"to": CODES[target]}, 1)
    with pytest.raises(Unsupported):
        RECORDS["BitCast"].infer(node, types)


BEYOND = (
    300,
    -300,
    3e9,
    -3e9,
    1e19,
    -1e19,
    1e30,
    -1e30,
    np.nan,
    np.inf,
    -np.inf,
    50.9,
    -50.9,
    -1.0,
    4294967295.5,
    255.99,
)


@pytest.mark.parametrize("source", [DType.F16, DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("target", [DType.U32, DType.U64], ids=str)
def test_a_float_that_an_unsigned_integer_has_not_becomes_its_nearest_end_and_nan_zero(
    source: DType, target: DType
) -> None:
    with np.errstate(all="ignore"):
        x = np.array(BEYOND, source.numpy)
    most = np.iinfo(target.numpy).max
    wanted = [0 if not number > 0 else min(int(number), most) if np.isfinite(number) else most for number in x.tolist()]
    assert check(RECORDS["Cast"], [x], {"to": CODES[target]})[0].tolist() == wanted
