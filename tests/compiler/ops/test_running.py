from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ops.running import OPERATORS
from tests.compiler.ops.single import Attrs, Shape, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}


@st.composite
def problems(draw: st.DrawFn) -> tuple[Shape, int, Attrs]:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return shape, axis, {"exclusive": draw(st.integers(0, 1)), "reverse": draw(st.integers(0, 1))}


@given(problems())
@settings(max_examples=80)
def test_CumSum_agrees_with_its_reference_and_with_onnxruntime(problem: tuple[Shape, int, Attrs]) -> None:
    shape, axis, attrs = problem
    compare(RECORDS["CumSum"], [normal(1, *shape), np.array(axis)], attrs)


@given(problems())
@settings(max_examples=60)
def test_CumProd_agrees_with_its_reference(problem: tuple[Shape, int, Attrs]) -> None:
    shape, axis, attrs = problem
    check(RECORDS["CumProd"], [normal(1, *shape), np.array(axis)], attrs)


@pytest.mark.parametrize(
    ("exclusive", "reverse", "expected"),
    [(0, 0, [2, 6, 30]), (1, 0, [1, 2, 6]), (0, 1, [30, 15, 5]), (1, 1, [15, 5, 1])],
)
def test_CumProd_runs_either_way_with_or_without_the_element_itself(
    exclusive: int, reverse: int, expected: list[int]
) -> None:
    arrays = [np.array([2, 3, 5], np.int32), np.array([0])]
    (result,) = check(RECORDS["CumProd"], arrays, {"exclusive": exclusive, "reverse": reverse})
    assert result.tolist() == expected


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_run_in_single_and_are_rounded_once(dtype: Any, exclusive: int) -> None:
    (result,) = check(RECORDS["CumSum"], [np.ones((1, 4096), dtype), np.array(1)], {"exclusive": exclusive}, rtol=4e-3)
    assert result.dtype == dtype
    assert float(result[0, -1]) >= 4080


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float64])
def test_other_types_run_in_their_own(dtype: Any) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    (result,) = check(RECORDS["CumSum"], [x, np.array(0)])
    np.testing.assert_array_equal(result, np.cumsum(x, 0))
    assert result.dtype == dtype


def test_an_empty_axis_gives_an_empty_result() -> None:
    assert check(RECORDS["CumSum"], [np.zeros((2, 0), np.float32), np.array(1)], {"exclusive": 1})[0].shape == (2, 0)


def test_only_the_running_axis_has_an_order() -> None:
    node, _, types = prepare(RECORDS["CumSum"], [normal(1, 2, 3, 4), np.array(1)], {}, 1)
    kernel = RECORDS["CumSum"].define(node, types, RECORDS["CumSum"].infer(node, types))
    assert isinstance(kernel, Kernel)
    assert [axis.extent for axis in kernel.shared] == [2, 4]
    assert [axis.extent for axis in kernel.blocks[0].sequential] == [3]
