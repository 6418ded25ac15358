from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported
from compiler.ops.softmax import OPERATORS
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import Shape, agree, by_onnxruntime, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
NAMES = pytest.mark.parametrize("name", sorted(RECORDS))


@st.composite
def lines(draw: st.DrawFn) -> tuple[Shape, int]:
    """A shape, empty extents included, and an axis of it that is not empty."""
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] = max(shape[axis], 1)
    return tuple(shape), axis


@NAMES
@given(problem=lines(), seed=st.integers(0, 100))
@settings(max_examples=40)
def test_each_agrees_with_its_reference_and_with_onnxruntime(name: str, problem: tuple[Shape, int], seed: int) -> None:
    shape, axis = problem
    compare(RECORDS[name], [10 * normal(seed, *shape)], {"axis": axis})


@NAMES
def test_huge_values_do_not_overflow(name: str) -> None:
    compare(RECORDS[name], [np.array([[3e38, 3e38, 0], [-3e38, -1, -2], [88, 89, 90]], np.float32)], {})


@NAMES
@pytest.mark.parametrize("row", [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 1, 2], [-0.0, 0.0, 0.0]])
def test_edge_values_give_what_onnxruntime_gives(name: str, row: list[float]) -> None:
    if name == "Hardmax" and np.isnan(row).any():  # ONNX Runtime promises nothing of it
        check(RECORDS[name], [np.array([row], np.float32)])
    else:
        compare(RECORDS[name], [np.array([row], np.float32)])


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_line_of_minus_infinities_has_no_softmax(name: str) -> None:
    (result,) = check(RECORDS[name], [np.full((2, 3), -np.inf, np.float32)])
    assert np.isnan(result).all()


@NAMES
def test_an_empty_axis_gives_an_empty_result(name: str) -> None:
    (result,) = check(RECORDS[name], [np.zeros((2, 0), np.float32)], {"axis": 1})
    assert result.shape == (2, 0)


@NAMES
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float64, 1e-12)])
def test_every_float_type_is_computed_to_its_own_precision(name: str, dtype: Any, rtol: float) -> None:
    (result,) = check(RECORDS[name], [normal(1, 3, 40).astype(dtype)], {"axis": 1}, rtol=rtol)
    assert result.dtype == dtype


def test_sums_over_halves_are_carried_out_in_single() -> None:
    """2048 ones have a sum that half precision reaches, and 4096 one that it cannot count to."""
    (result,) = check(RECORDS["Softmax"], [np.zeros((1, 4096), np.float16)], rtol=1e-3)
    assert (result == np.float16(1 / 4096)).all()


def test_Hardmax_marks_the_first_of_equal_values() -> None:
    (result,) = check(RECORDS["Hardmax"], [np.array([[1, 7, 7], [2, 2, 2]], np.float32)])
    agree(result, np.array([[0, 1, 0], [1, 0, 0]], np.float32), 0)


def test_the_default_axis_is_the_last() -> None:
    x = normal(3, 2, 3, 4)
    agree(check(RECORDS["Softmax"], [x])[0], by_onnxruntime("Softmax", [x], {"axis": 2})[0], 1e-5)


@NAMES
@pytest.mark.parametrize(("shape", "axis"), [((), -1), ((3,), 1), ((2, 3), -3)])
def test_an_axis_that_is_not_there_is_refused(name: str, shape: Shape, axis: int) -> None:
    node, _, _ = prepare(RECORDS[name], [np.zeros(shape, np.float32)], {"axis": axis}, 1)
    with pytest.raises(Unsupported, match=f"axis is {axis}"):
        RECORDS[name].infer(node, (TensorType(DType.F32, shape),))


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed(case: Case) -> None:
    assert not run(case, RECORDS[case.op])
