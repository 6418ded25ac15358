from __future__ import annotations

import numpy as np
import pytest

from compiler.quantize.ranges import METHODS, Observed, _least, range_of
from compiler.quantize.scheme import affine


def observed(*arrays: np.ndarray | list[float]) -> Observed:
    made = Observed()
    for array in arrays:
        made.add(np.asarray(array), len(arrays))
    return made


def error(values: np.ndarray, low: float, high: float) -> float:
    return float(np.square(affine(low, high, np.uint8).rounded(values) - values).mean())


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_of_one_value_keeps_it(method: str) -> None:
    for value in (0.0, 3.25, -2.0):
        low, high = range_of(observed(np.full((4, 4), value)), method, 99.9)
        assert (low, high) == (min(value, 0), max(value, 0))


@pytest.mark.parametrize("method", METHODS)
def test_a_range_holds_zero_and_stays_within_the_values(method: str) -> None:
    random = np.random.default_rng(0)
    for values in (random.normal(size=5000), np.abs(random.normal(size=5000)), -1 - random.random(5000)):
        low, high = range_of(observed(values), method, 99.9)
        assert min(values.min(), 0) * 1.001 - 1e-6 <= low <= 0 <= high <= max(values.max(), 0) * 1.001 + 1e-6
        assert high - low > 0.5 * np.abs(values).mean()


def test_minmax_is_of_all_samples() -> None:
    assert range_of(observed([1.0, 2.0], [-7.0, 0.5]), "minmax", 50.0) == (-7.0, 2.0)


def test_a_percentile_leaves_out_what_lies_outside() -> None:
    values = np.append(np.linspace(0, 1, 9999), 1000.0)
    low, high = range_of(observed(values), "percentile", 99.9)
    assert low == 0
    assert 0.99 < high < 1.01


@pytest.mark.parametrize("method", ["entropy", "mse"])
def test_a_search_cuts_off_outliers_that_cost_more_than_they_are_worth(method: str) -> None:
    random = np.random.default_rng(0)
    values = np.insert(random.normal(size=1_000_000), 1, [12.0, -11.0])
    low, high = range_of(observed(values), method, 99.9)
    assert 3 < high < 8
    assert error(values, low, high) < error(values, -11.0, 12.0)


def test_the_least_error_is_no_greater_than_that_of_any_range_on_a_grid() -> None:
    random = np.random.default_rng(1)
    for values in (random.normal(size=4000), random.exponential(size=4000), random.laplace(size=4000)):
        values = values.astype(np.float32)
        found = error(values, *range_of(observed(values), "mse", 99.9))
        grid = [
            error(values, min(values.min(), 0) * a, values.max() * b)
            for a in np.linspace(0.3, 1, 15)
            for b in np.linspace(0.3, 1, 15)
        ]
        assert found <= 1.1 * min(grid)


def test_ends_are_kept_however_few_values_are() -> None:
    values = np.zeros(1 << 20, np.float32)
    values[12345] = 9.0
    assert range_of(observed(values), "minmax", 99.9) == (0.0, 9.0)
    assert observed(values).values.size < 1 << 17


@pytest.mark.parametrize("kind", ["spread", "many zeros", "zeros", "few large", "descending"])
def test_values_at_both_ends_are_kept_each_for_itself(kind: str) -> None:
    random = np.random.default_rng(2)
    values = random.normal(size=60_000).astype(np.float32)
    values = {
        "spread": values,
        "many zeros": values.clip(0),
        "zeros": 0 * values,
        "few large": np.where(np.arange(60_000) % 9999 == 1, 1e4, 1e-3 * values).astype(np.float32),
        "descending": np.sort(values)[::-1],
    }[kind]
    for count in (1, 100, 4096):
        assert np.array_equal(np.sort(_least(values, count)), np.sort(values)[:count])
    made = observed(values)
    assert np.isclose(made.weights.sum(), values.size)
    assert np.isclose((made.values * made.weights).sum(), values.sum(dtype=np.float64), atol=0.02 * values.size)
