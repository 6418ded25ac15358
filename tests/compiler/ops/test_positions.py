from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.evaluate import evaluate
from compiler.ir.kernel import Kernel
from compiler.ops.cast import ONNX_DTYPES
from compiler.ops.operator import Unsupported
from compiler.ops.positions import OPERATORS
from tests.compiler.ops.single import Attrs, Inputs, Shape, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple), st.integers(0, 1), st.integers(-6, 6))
@settings(max_examples=60)
def test_Trilu_agrees_with_onnxruntime(shape: Shape, upper: int, k: int) -> None:
    compare(RECORDS["Trilu"], [normal(1, *shape), np.array(k)], {"upper": upper})


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float64])
def test_Trilu_takes_the_main_diagonal_and_any_type(dtype: Any) -> None:
    x = np.ones((3, 3), dtype)
    assert check(RECORDS["Trilu"], [x])[0].sum() == 6


COMPUTED = [code for code, dtype in ONNX_DTYPES.items() if not dtype.is_small]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(-6, 6), st.sampled_from((None, *COMPUTED)))
@settings(max_examples=60)
def test_EyeLike_has_ones_on_one_diagonal(rows: int, columns: int, k: int, code: int | None) -> None:
    attrs: Attrs = {"k": k} if code is None else {"k": k, "dtype": code}
    (result,) = check(RECORDS["EyeLike"], [normal(1, rows, columns)], attrs, rtol=0)
    expected = np.eye(rows, columns, k)
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    assert result.dtype == (np.float32 if code is None else ONNX_DTYPES[code].numpy)


@given(st.integers(1, 5), st.integers(1, 4), st.lists(st.integers(1, 3), max_size=2), st.booleans(), st.data())
@settings(max_examples=60)
def test_ReverseSequence_agrees_with_onnxruntime(
    time: int, batch: int, rest: list[int], batch_first: bool, data: st.DataObject
) -> None:
    lengths = np.array([data.draw(st.integers(1, time)) for _ in range(batch)], np.int64)
    shape = (batch, time) if batch_first else (time, batch)
    attrs: Attrs = {"time_axis": int(batch_first), "batch_axis": int(not batch_first)}
    compare(RECORDS["ReverseSequence"], [normal(1, *shape, *rest), lengths], attrs)


@pytest.mark.parametrize("attrs", [{}, {"time_axis": 1, "batch_axis": 0}])
def test_a_length_beyond_the_sequence_reverses_all_of_it(attrs: Attrs) -> None:
    lengths = np.array([2, 3, 4, 21, 2**62, -1], np.int64)
    x = normal(1, 4, 6) if not attrs else normal(1, 6, 4)
    (found,) = check(RECORDS["ReverseSequence"], [x, lengths], attrs)
    (right,) = check(RECORDS["ReverseSequence"], [x, np.array([2, 3, 4, 4, 4, 0], np.int64)], attrs)
    np.testing.assert_array_equal(found, right)


def test_no_length_makes_a_ReverseSequence_leave_its_tensor() -> None:
    arrays = [normal(1, 3, 4), np.array([0, -5, 3, 99], np.int64)]
    node, _, types = prepare(RECORDS["ReverseSequence"], arrays, {}, 1)
    kernel = RECORDS["ReverseSequence"].define(node, types, RECORDS["ReverseSequence"].infer(node, types))
    assert isinstance(kernel, Kernel)
    (result,) = evaluate(kernel, arrays)
    np.testing.assert_array_equal(result[:, :2], arrays[0][:, :2])
    np.testing.assert_array_equal(result[:, 2:], arrays[0][::-1, 2:])


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "reason"),
    [
        ("Trilu", [normal(1, 3)], {}, "no matrices"),
        ("EyeLike", [normal(1, 3)], {}, "no matrices"),
        ("EyeLike", [normal(1, 2, 3, 3)], {}, "no matrix"),
        ("EyeLike", [normal(1, 3, 3)], {"dtype": 8}, "element type 8"),
        ("EyeLike", [normal(1, 3, 3)], {"dtype": 17}, "element type 17"),
        ("ReverseSequence", [normal(1, 3, 4), np.array([1, 1, 1])], {}, "do not fit"),
        ("ReverseSequence", [normal(1, 3, 4), np.array([1] * 4)], {"time_axis": 1}, "time_axis is 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(name: str, arrays: Inputs, attrs: Attrs, reason: str) -> None:
    node, _, types = prepare(RECORDS[name], arrays, attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        RECORDS[name].infer(node, types)
