from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Routine
from compiler.ops.operator import Unsupported
from compiler.ops.sorting import OPERATORS
from tests.compiler.ops.single import by_onnxruntime, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}
TOP = RECORDS["TopK"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), st.data(), st.integers(0, 1))
@settings(max_examples=60)
def test_TopK_gives_the_k_greatest_or_least_in_order(shape: tuple[int, ...], data: st.DataObject, largest: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = np.array([data.draw(st.integers(1, shape[axis]))])
    compare(TOP, [normal(1, *shape), k], {"axis": axis, "largest": largest}, 2)


@pytest.mark.parametrize("largest", [0, 1])
def test_among_equal_elements_the_lower_index_comes_first(largest: int) -> None:
    values, places = check(TOP, [np.array([1, 2, 1, 2], np.int64), np.array([4])], {"largest": largest}, 2)
    assert places.tolist() == ([1, 3, 0, 2] if largest else [0, 2, 1, 3])
    assert values.tolist() == sorted([1, 2, 1, 2], reverse=bool(largest))


def test_TopK_is_a_routine_with_its_parameters() -> None:
    node, _, types = prepare(TOP, [normal(1, 2, 5), np.array([3])], {"axis": -1}, 2)
    routine = TOP.define(node, types, TOP.infer(node, types))
    assert isinstance(routine, Routine)
    assert routine.name == "topk"
    assert dict(routine.params) == {"axis": 1, "k": 3, "largest": True}


@pytest.mark.parametrize("k", [-1, 6])
def test_TopK_refuses_a_k_beyond_its_axis(k: int) -> None:
    node, _, types = prepare(TOP, [normal(1, 2, 5), np.array([k])], {}, 2)
    with pytest.raises(Unsupported, match="k is"):
        TOP.infer(node, types)


def test_Unique_has_no_type_of_its_own() -> None:
    node, _, types = prepare(RECORDS["Unique"], [normal(1, 3)], {}, 1)
    with pytest.raises(Unsupported, match="depends on data"):
        RECORDS["Unique"].infer(node, types)


@pytest.mark.parametrize("attrs", [{}, {"sorted": 0}, {"axis": 0}, {"axis": 1, "sorted": 0}])
def test_the_reference_of_Unique_agrees_with_onnxruntime(attrs: dict[str, Any]) -> None:
    x = np.array([[2, 1, 2], [3, 1, 3], [2, 1, 2]], np.float32)
    node, inputs, _ = prepare(RECORDS["Unique"], [x], attrs, 4)
    found = RECORDS["Unique"].reference(node, inputs)
    assert len(found) == 4
    for ours, theirs in zip(found, by_onnxruntime("Unique", [x], attrs, 4), strict=True):
        np.testing.assert_array_equal(ours, theirs)
