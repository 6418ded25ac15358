from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ops.activation import OPERATORS
from compiler.ops.operator import Unsupported
from tests.compiler.ops.node_cases import Case, cases, run
from tests.compiler.ops.single import Attrs, Shape, check, compare, normal, prepare, scalar

RECORDS = {operator.name: operator for operator in OPERATORS}
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 100, -100, 1e-30, -1e-30, 0.5, -0.5, 3, -3], np.float32)
ATTRIBUTES: dict[str, Attrs] = {
    "LeakyRelu": {"alpha": 0.3},
    "Elu": {"alpha": 0.7},
    "Celu": {"alpha": 2.0},
    "Selu": {"alpha": 1.5, "gamma": 0.9},
    "ThresholdedRelu": {"alpha": 0.4},
    "HardSigmoid": {"alpha": 0.16666670143604279, "beta": 0.4},
    "Shrink": {"bias": 0.2, "lambd": 0.6},
    "Gelu": {"approximate": "tanh"},
}
OF_ONE = sorted(set(RECORDS) - {"PRelu", "Clip"})
NOT_IN_ONNXRUNTIME = {"Swish"}


def both(name: str, x: np.ndarray, attrs: Attrs, rtol: float = 2e-5) -> None:
    if name in NOT_IN_ONNXRUNTIME:
        check(RECORDS[name], [x], attrs, rtol=rtol)
    else:
        compare(RECORDS[name], [x], attrs, rtol=rtol)


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("defaults", [True, False])
def test_each_agrees_with_onnxruntime(name: str, defaults: bool) -> None:
    both(name, 4 * normal(1, 3, 40), {} if defaults else ATTRIBUTES.get(name, {}))


@pytest.mark.parametrize("name", OF_ONE)
def test_edge_values_agree_with_the_reference(name: str) -> None:
    check(RECORDS[name], [EDGES])
    check(RECORDS[name], [EDGES], ATTRIBUTES.get(name, {}))


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Softplus", "Softsign", "LeakyRelu", "HardSigmoid", "Elu"])
def test_edge_values_agree_with_onnxruntime(name: str) -> None:
    both(name, EDGES[1:], {})


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3), (np.float64, 1e-12)])
def test_every_float_type_is_rounded_once(name: str, dtype: Any, rtol: float) -> None:
    (result,) = check(RECORDS[name], [normal(1, 50).astype(dtype)], rtol=rtol)
    assert result.dtype == dtype


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("attrs", [{}, {"bias": 1.0, "lambd": 1.5}, {"bias": 0.5, "lambd": 2.5}])
def test_Shrink_of_integers_is_computed_in_real_numbers(dtype: Any, attrs: Attrs) -> None:
    both("Shrink", np.arange(-6 if np.issubdtype(dtype, np.signedinteger) else 0, 9).astype(dtype), attrs)


def test_Softplus_and_Mish_keep_small_values_and_do_not_overflow() -> None:
    x = np.array([-50, -20, 0, 20, 80, 3e38], np.float32)
    (soft,) = check(RECORDS["Softplus"], [x])
    np.testing.assert_allclose(soft[:2], np.exp(x[:2]), rtol=1e-6)
    assert soft[-1] == x[-1]
    assert np.isfinite(check(RECORDS["Mish"], [x])[0]).all()


@pytest.mark.parametrize("slope", [(), (1,), (3, 1, 1), (2, 3, 4, 5), (4, 1)])
def test_PRelu_broadcasts_its_slope(slope: Shape) -> None:
    compare(RECORDS["PRelu"], [normal(1, 2, 3, 4, 5), normal(2, *slope)])


def test_PRelu_refuses_a_slope_that_would_widen_its_input() -> None:
    node, _, types = prepare(RECORDS["PRelu"], [normal(1, 3), normal(2, 2, 3)], {}, 1)
    with pytest.raises(Unsupported, match="does not broadcast"):
        RECORDS["PRelu"].infer(node, types)


@given(low=st.none() | st.floats(-2, 2, width=32), high=st.none() | st.floats(-2, 2, width=32))
@settings(max_examples=40)
def test_Clip_takes_either_bound_or_both_or_none(low: float | None, high: float | None) -> None:
    x = 2 * normal(1, 20)
    bounds = [None if bound is None else scalar(bound) for bound in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    compare(RECORDS["Clip"], [x, *bounds])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_Clip_keeps_integers(dtype: Any) -> None:
    compare(RECORDS["Clip"], [np.arange(0, 100, 7).astype(dtype), np.array(10, dtype), np.array(60, dtype)])


def test_Clip_gives_the_greater_bound_where_it_lies_below_the_lesser() -> None:
    (result,) = check(RECORDS["Clip"], [normal(1, 5), scalar(2), scalar(-1)])
    assert (result == -1).all()


@pytest.mark.parametrize(("x", "bound"), [(normal(1, 3), normal(2, 3)), (scalar(3), normal(2, 1))])
def test_Clip_refuses_a_bound_that_is_no_scalar(x: np.ndarray, bound: np.ndarray) -> None:
    node, _, types = prepare(RECORDS["Clip"], [x, bound], {}, 1)
    with pytest.raises(Unsupported, match="no scalar"):
        RECORDS["Clip"].infer(node, types)


@pytest.mark.parametrize("case", [case for case in cases() if case.op in RECORDS], ids=lambda case: case.name)
def test_a_case_of_the_conformance_suite_is_computed(case: Case) -> None:
    assert not run(case, RECORDS[case.op])
