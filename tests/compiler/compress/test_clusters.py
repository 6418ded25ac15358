from __future__ import annotations

import numpy as np
import pytest

from compiler.compress.clusters import LEVELS, Clusterer, means, nearest
from compiler.compress.prune import Method
from tests.compiler.compress.test_prune import correlated


@pytest.mark.parametrize("method", ["obs", "wanda", "magnitude"])
@pytest.mark.parametrize("share", LEVELS)
def test_weights_share_as_many_values_as_a_level_has(share: float, method: Method) -> None:
    weights, gram = correlated(columns=128)
    level = LEVELS[share]
    found = Clusterer(weights, gram, method).at(share)
    lines = found if level.own else found.reshape(1, -1)
    assert max(len(np.unique(line)) for line in lines) <= 1 << level.bits
    assert len(np.unique(found)) > 1 << level.bits - 1
    assert found.shape == weights.shape


def test_fewer_bits_lose_more_and_moving_what_remains_loses_less() -> None:
    weights, gram = correlated(columns=128)
    errors = {}
    for method in ("obs", "wanda", "magnitude"):
        one = Clusterer(weights, gram, method)
        errors[method] = [one.error(one.at(share)) for share in (0.0, *LEVELS)]
        assert errors[method] == sorted(errors[method])
        assert errors[method][0] == 0
    assert errors["obs"][2] < 0.7 * errors["magnitude"][2]
    assert errors["obs"][3] < 0.7 * errors["wanda"][3]


def test_values_are_means_of_what_is_nearest_to_them() -> None:
    rng = np.random.default_rng(3)
    weights, counts = rng.normal(size=4000), rng.uniform(0.1, 1, 4000)
    values = means(weights, counts, 16)
    assert (np.diff(values) > 0).all()
    places = np.abs(weights[:, None] - values).argmin(1)
    np.testing.assert_array_equal(nearest(weights[None], values[None])[0], values[places])
    even = np.quantile(weights, (np.arange(16) + 0.5) / 16)

    def lost(book: np.ndarray) -> float:
        return float((counts * np.square(weights[:, None] - book).min(1)).sum())

    assert lost(values) < 0.8 * lost(even)


def test_numbers_of_few_values_keep_these() -> None:
    weights = np.array([0.5, -2.0, 0.5, 0.0, -2.0])
    values = means(weights, np.ones(5), 4)
    assert set(values) == {-2.0, 0.0, 0.5}
    assert (np.diff(values) >= 0).all()
    np.testing.assert_array_equal(nearest(weights[None], values[None])[0], weights)


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    weights, gram = correlated()
    gram[3, :] = gram[:, 3] = 0
    for method in ("obs", "wanda"):
        found = Clusterer(weights, gram, method).at(0.875)
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= 2 * np.abs(weights).max()
