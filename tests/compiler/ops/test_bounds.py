from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.graph import Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops import MODEL_OPERATORS, OPERATORS
from compiler.ops.bounds import OPERATORS as OWN
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import Shape, check, normal

BEYOND, OUTSIDE, TOEPLITZ = OWN


def test_no_model_may_contain_the_compilers_own_operators() -> None:
    for operator in (BEYOND, OUTSIDE):
        assert operator.name in OPERATORS
        assert operator.name not in MODEL_OPERATORS


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    st.integers(0, 3),
    st.integers(-1, 7),
    st.sampled_from([0.0, 1.0, -np.inf]),
)
@settings(max_examples=60)
def test_elements_from_the_size_on_become_the_value(shape: Shape, axis: int, size: int, value: float) -> None:
    axis %= len(shape)
    x = normal(1, *shape)
    (found,) = check(BEYOND, [x, np.array(size)], {"axis": axis, "value": value}, rtol=0)
    expected = np.where((np.arange(shape[axis]) < size).reshape(-1, *(1,) * (len(shape) - axis - 1)), x, value)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint8, np.float64])
def test_any_type_is_padded(dtype: Any) -> None:
    (found,) = check(BEYOND, [np.ones((2, 3), dtype), np.array(1)], {"axis": 1, "value": 0})
    assert found.tolist() == [[1, 0, 0], [1, 0, 0]]


def test_a_size_that_is_no_scalar_is_refused() -> None:
    kinds = (TensorType(DType.F32, (3,)), TensorType(DType.I64, (1,)))
    with pytest.raises(Unsupported, match="its size is"):
        BEYOND.infer(Node("PadBeyond", (0, 1), (2,), {"axis": 0, "value": 0}), kinds)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, -np.inf, np.inf]),
)
@settings(max_examples=60)
def test_elements_outside_of_ranges_become_the_value(shape: Shape, axis: int, seed: int, value: float) -> None:
    axis, random = axis % len(shape), np.random.default_rng(seed)
    wide = tuple(1 if at == axis else size for at, size in enumerate(shape))
    x = normal(1, *(1 if at != axis and random.random() < 0.3 else size for at, size in enumerate(shape)))
    first, past = random.integers(-1, 5, wide), random.integers(-1, 6, wide[axis + 1 :])
    (found,) = check(OUTSIDE, [x, first, past], {"axis": axis, "value": value}, rtol=0)
    for place in np.ndindex(*shape):
        own = tuple(0 if size == 1 else at for at, size in zip(place, x.shape, strict=True))
        low = first[tuple(0 if at == axis else one for at, one in enumerate(place))]
        high = past[place[axis + 1 :]]
        assert found[place] == (x[own] if low <= place[axis] < high else value)


def test_ends_of_ranges_that_run_along_the_axis_are_refused() -> None:
    kinds = TensorType(DType.F32, (2, 3)), TensorType(DType.I64, (1, 3)), TensorType(DType.I64, (2, 1))
    with pytest.raises(Unsupported, match="an end of its range"):
        OUTSIDE.infer(Node("PadOutside", (0, 1, 2), (3,), {"axis": 1, "value": 0}), kinds)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64])
def test_a_matrix_has_one_number_on_each_diagonal(dtype: Any) -> None:
    x = np.asarray(normal(1, 2, 3, 7) * 4).astype(dtype)
    (found,) = check(TOEPLITZ, [x], {}, rtol=0)
    assert found.shape == (2, 3, 4, 4)
    for i, j in np.ndindex(4, 4):
        assert (found[..., i, j] == x[..., j - i + 3]).all()


def test_diagonals_that_are_those_of_no_square_are_refused() -> None:
    for shape in ((), (4,), (3, 2)):
        with pytest.raises(Unsupported, match="each diagonal of a square"):
            TOEPLITZ.infer(Node("Toeplitz", (0,), (1,), {}), (TensorType(DType.F32, shape),))
