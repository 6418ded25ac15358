from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.tile import Level, Tile
from compiler.tuning.belief import (
    ALGORITHM_OFF,
    KERNEL_OFF,
    NOISE,
    SHAPE_OFF,
    Belief,
    expected_improvement,
    rank_correlation,
)


def tile(rows: int, columns: int, algorithm: str = "contraction") -> Tile:
    return Tile(algorithm, (Level("register", (("m", rows), ("n", columns))),))


def test_nothing_measured_leaves_the_model_as_it_is() -> None:
    means, deviations = Belief([tile(4, 32), tile(8, 32)], [1.0, 2.0]).given({})
    assert means.tolist() == [1.0, 2.0]
    assert deviations == pytest.approx([math.sqrt(KERNEL_OFF**2 + ALGORITHM_OFF**2 + SHAPE_OFF**2)] * 2)


def test_a_measured_tile_is_known_and_says_most_of_those_like_it() -> None:
    tiles = [tile(8, 32), tile(8, 64), tile(1, 256), tile(8, 32, "winograd")]
    means, deviations = Belief(tiles, [0.0, 0.0, 0.0, 0.0]).given({0: 0.5})
    assert means[0] == pytest.approx(0.5, abs=0.01)
    assert deviations[0] == pytest.approx(NOISE, rel=0.1)
    assert 0.5 > means[1] > means[2] > means[3] > 0
    assert deviations[0] < deviations[1] < deviations[2] < deviations[3]


def test_beliefs_are_those_of_the_normal_distribution_conditioned_by_hand() -> None:
    """Two tiles of different algorithms share only the kernel's part."""
    shared, whole = KERNEL_OFF**2, KERNEL_OFF**2 + ALGORITHM_OFF**2 + SHAPE_OFF**2
    means, deviations = Belief([tile(4, 32), tile(4, 32, "winograd")], [0.0, 1.0]).given({0: 0.3})
    assert means[1] == pytest.approx(1.0 + 0.3 * shared / (whole + NOISE**2))
    assert deviations[1] ** 2 == pytest.approx(whole - shared**2 / (whole + NOISE**2))


@given(st.floats(0.1, 10.0), st.floats(-2.0, 2.0), st.floats(0.01, 1.0))
def test_expected_improvement_is_the_mean_over_what_the_tile_may_cost(
    best: float, mean: float, deviation: float
) -> None:
    z = np.linspace(-8, 8, 80_001)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    saved = np.maximum(best - np.exp(mean + deviation * z), 0.0)
    want = float(np.sum(saved * density) * (z[1] - z[0]))
    assert expected_improvement(best, mean, deviation) == pytest.approx(want, rel=1e-3, abs=1e-5)


def test_a_tile_that_is_known_improves_by_what_it_saves() -> None:
    assert expected_improvement(2.0, 0.0, 0.0) == 1.0
    assert expected_improvement(0.5, 0.0, 0.0) == 0.0


def test_ranks_correlate_as_spearman_says() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 400]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # 1 - 6 sum(d^2) / (n (n^2 - 1)) with d = 0, 1, -1, 0
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    # Ties share their mean rank: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert rank_correlation([1, 1], [1, 2]) == rank_correlation([], []) == 0.0
