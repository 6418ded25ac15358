from __future__ import annotations

import numpy as np
import pytest

from bench.race.spread import Ratio, Spread, geometric_mean


def test_a_spread_is_in_the_units_asked_for() -> None:
    spread = Spread.of([0.001, 0.002, 0.003], 1e3)
    assert (spread.median, spread.p10, spread.p90) == pytest.approx((2, 1.2, 2.8))
    assert spread.samples == 3


def test_the_ratio_is_that_of_the_same_rounds_so_that_a_slow_round_cancels() -> None:
    ratio = Ratio.of([1.0, 10.0, 1.0], [2.0, 20.0, 2.0])
    assert (ratio.value, ratio.low, ratio.high) == (0.5, 0.5, 0.5)


def test_the_interval_comes_out_alike_from_the_same_rounds() -> None:
    random = np.random.default_rng(1)
    ours, theirs = random.uniform(0.9, 1.1, 15), random.uniform(0.9, 1.1, 15)
    assert Ratio.of(list(ours), list(theirs)) == Ratio.of(list(ours), list(theirs))


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    held = 0
    for trial in range(200):
        ours, theirs = (np.exp(random.normal(0, 0.05, 15)) for _ in range(2))
        ratio = Ratio.of(list(0.8 * ours), list(theirs), seed=trial)
        held += ratio.low <= 0.8 <= ratio.high
    assert 0.88 <= held / 200 <= 1.0


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1)
