from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ops.operator import Unsupported
from compiler.ops.reduction import OPERATORS
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import Attrs, Inputs, Shape, check, compare, normal, octets, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
REDUCTIONS = sorted(name for name in RECORDS if name.startswith("Reduce"))
POSITIONS = ("ArgMax", "ArgMin")


def axes(values: tuple[int, ...]) -> np.ndarray:
    return np.array(values, np.int64)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Shape, tuple[int, ...] | None, int]:
    """A shape, axes (negative ones among them) or none, and keepdims."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    chosen = draw(st.none() | st.sets(st.integers(0, len(shape) - 1), min_size=1))
    if chosen is None:
        return shape, None, draw(st.integers(0, 1))
    order = draw(st.permutations(sorted(chosen)))
    signed = tuple(axis - len(shape) if draw(st.booleans()) else axis for axis in order)
    return shape, signed, draw(st.integers(0, 1))


@pytest.mark.parametrize("name", REDUCTIONS)
@given(problem=problems())
@settings(max_examples=30)
def test_each_reduction_agrees_with_its_reference_and_with_onnxruntime(name: str, problem: Any) -> None:
    shape, over, keepdims = problem
    x = np.abs(normal(1, *shape)) if name == "ReduceLogSum" else normal(1, *shape)
    compare(RECORDS[name], [x, None if over is None else axes(over)][: 1 + (over is not None)], {"keepdims": keepdims})


@pytest.mark.parametrize("name", REDUCTIONS)
def test_without_axes_a_reduction_may_be_told_to_reduce_nothing(name: str) -> None:
    x, attrs = np.abs(normal(1, 2, 3)), {"noop_with_empty_axes": 1}
    for inputs in ([x], [x, axes(())]):
        assert check(RECORDS[name], inputs, attrs)[0].shape == (2, 3)
    assert check(RECORDS[name], [x, axes(())])[0].shape == (1, 1)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_scalar_reduces_to_itself_and_no_elements_to_the_identity(name: str) -> None:
    assert check(RECORDS[name], [np.array(2.0, np.float32)])[0].shape == ()
    (nothing,) = check(RECORDS[name], [np.zeros((2, 0), np.float32), axes((1,))], {"keepdims": 0})
    assert nothing.shape == (2,)
    expected = {"ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceMean": np.nan}
    logs = {"ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf}
    np.testing.assert_array_equal(nothing, np.float32({**expected, **logs}.get(name, 0)))


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceSumSquare"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_stay_integers(name: str, dtype: Any) -> None:
    x = octets(1, np.int8, 3, 4).astype(dtype)
    compare(RECORDS[name], [np.abs(x) if name == "ReduceMean" else x, axes((1,))])


@pytest.mark.parametrize("name", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_real_functions_of_integers_are_truncated(name: str) -> None:
    (result,) = check(RECORDS[name], [np.array([[3, 4], [1, 7]], np.int32), axes((1,))], {"keepdims": 0})
    assert result.tolist() == {"ReduceL2": [5, 7], "ReduceLogSum": [1, 2], "ReduceLogSumExp": [4, 7]}[name]


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float64])
def test_extremes_take_small_types(name: str, dtype: Any) -> None:
    compare(RECORDS[name], [octets(1, np.int8, 4, 9).astype(dtype), axes((1,))])


def test_extremes_of_booleans_are_or_and_and() -> None:
    x = np.array([[True, True], [True, False], [False, False]])
    assert check(RECORDS["ReduceMax"], [x, axes((1,))], {"keepdims": 0})[0].tolist() == [True, True, False]
    assert check(RECORDS["ReduceMin"], [x, axes((1,))], {"keepdims": 0})[0].tolist() == [True, False, False]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_edge_values_spread_only_where_they_stand(name: str, value: float) -> None:
    x = np.abs(normal(1, 3, 4))
    x[1, 2] = value
    check(RECORDS[name], [x, axes((1,))])


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float64, 1e-12)])
def test_every_float_type_is_computed_to_its_own_precision(name: str, dtype: Any, rtol: float) -> None:
    (result,) = check(RECORDS[name], [(np.abs(normal(1, 3, 20)) + 0.5).astype(dtype), axes((1,))], rtol=rtol)
    assert result.dtype == dtype


def test_halves_are_summed_in_single() -> None:
    assert check(RECORDS["ReduceSum"], [np.ones(4096, np.float16)])[0].tolist() == [4096]


def test_the_logarithm_of_a_sum_of_exponentials_does_not_overflow() -> None:
    compare(RECORDS["ReduceLogSumExp"], [np.array([[1000, 1000], [-1000, -1001]], np.float32), axes((1,))])
    inf = np.inf
    x = np.array([[-inf, -inf], [inf, 1], [inf, -inf]], np.float32)
    assert check(RECORDS["ReduceLogSumExp"], [x, axes((1,))], {"keepdims": 0})[0].tolist() == [-inf, inf, inf]


def test_a_plain_sum_is_one_block_and_a_mean_two() -> None:
    for name, blocks in (("ReduceSum", 1), ("ReduceMean", 2)):
        node, _, types = prepare(RECORDS[name], [normal(1, 2, 3), axes((1,))], {}, 1)
        kernel = RECORDS[name].define(node, types, RECORDS[name].infer(node, types))
        assert isinstance(kernel, Kernel)
        assert len(kernel.blocks) == blocks
        assert [axis.extent for axis in kernel.shared] == [2]


@pytest.mark.parametrize("name", POSITIONS)
@given(problem=problems(), last=st.integers(0, 1), axis=st.integers(-4, 3))
@settings(max_examples=40)
def test_positions_of_extremes_agree_with_onnxruntime(name: str, problem: Any, last: int, axis: int) -> None:
    shape, _, keepdims = problem
    attrs: Attrs = {
        "axis": max(min(axis, len(shape) - 1), -len(shape)),
        "keepdims": keepdims,
        "select_last_index": last,
    }
    compare(RECORDS[name], [np.round(normal(1, *shape))], attrs)


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("last", [0, 1])
def test_a_nan_is_beyond_every_number_and_infinities_count(name: str, last: int) -> None:
    x = np.array([[1, np.nan, 2, np.nan], [np.inf, -np.inf, np.inf, -np.inf]], np.float32)
    (result,) = check(RECORDS[name], [x], {"axis": 1, "select_last_index": last, "keepdims": 0})
    assert result[0] == (3 if last else 1)


def refused(name: str, arrays: Inputs, attrs: Attrs) -> str:
    node, _, types = prepare(RECORDS[name], arrays, attrs, 1)
    with pytest.raises(Unsupported) as refusal:
        RECORDS[name].infer(node, types)
    return refusal.value.reason


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    x = normal(1, 2, 3)
    assert "are not all axes" in refused("ReduceSum", [x, axes((2,))], {})
    assert "twice" in refused("ReduceSum", [x, axes((1, -1))], {})
    assert "axis is 2" in refused("ArgMax", [x], {"axis": 2})
    assert "no elements" in refused("ArgMin", [np.zeros((2, 0), np.float32)], {"axis": 1})
    assert "axis is 2" in refused("CumSum", [x, np.array(2)], {})
    assert "axis is None" in refused("CumProd", [x], {})


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed(case: Case) -> None:
    assert not run(case, RECORDS[case.op])
