from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.ops.arrays import alike, as_array, checked_indices, largest, smallest
from tests.device_arrays.stand_in import DeviceArray, uploaded


def test_numbers_become_arrays_and_arrays_stay_what_they_are() -> None:
    here: Any = np.arange(3)
    there: Any = uploaded(here)
    for array in (here, there):
        assert as_array(array) is array
    assert type(as_array(np.float64(2))) is np.ndarray
    placed: Any = alike(here, there)
    assert isinstance(placed, DeviceArray)
    assert alike(here, here) is here


@pytest.mark.parametrize("module", [np.asarray, uploaded])
def test_the_extremes_of_nothing_are_what_is_given(module: Any) -> None:
    x = module(np.array([[3.0, -1.0], [2.0, 5.0]]))
    none = module(np.zeros((2, 0)))
    for found, wanted in (
        (largest(x, 1, -np.inf), [[3], [5]]),
        (smallest(x, (0, 1), np.inf), [[-1]]),
        (largest(none, -1, -np.inf), [[-np.inf]] * 2),
        (smallest(none, (0, 1), np.inf), [[np.inf]]),
    ):
        assert isinstance(found, type(x))
        assert found.tolist() == wanted


def test_an_index_that_lies_outside_is_refused_where_the_module_would_wrap_it() -> None:
    for index in (-4, 3):
        with pytest.raises(IndexError, match=f"index {index} is out of bounds for an axis with size 3"):
            checked_indices(uploaded(np.array([0, index])), 3)  # type: ignore[arg-type]
    for indices in (np.array([-3, 2]), np.array([], np.int64)):
        checked_indices(uploaded(indices), 3)  # type: ignore[arg-type]
