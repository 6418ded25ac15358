from __future__ import annotations

import numpy as np
import pytest

from bench.race.outputs import largest_difference


def test_the_difference_is_relative_to_the_largest_value_of_the_worst_output() -> None:
    ours = {"a": np.array([1.0, 2.0]), "b": np.array([[10.0, -40.0]])}
    theirs = {"a": np.array([1.0, 2.1]), "b": np.array([[10.0, -41.0]])}
    assert largest_difference(ours, theirs) == pytest.approx(0.1 / 2.1)
    assert largest_difference(ours, ours) == 0


def test_a_value_that_is_not_finite_in_one_engine_only_differs_without_limit() -> None:
    assert largest_difference({"a": np.array([1.0, np.nan])}, {"a": np.array([1.0, 2.0])}) == float("inf")
    assert largest_difference({"a": np.array([1.0, np.inf])}, {"a": np.array([1.0, np.inf])}) == 0
