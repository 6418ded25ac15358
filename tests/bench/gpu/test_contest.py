from __future__ import annotations

import numpy as np
import pytest

from bench.gpu.contest import difference, judged


def test_the_best_peer_is_that_with_the_least_median_and_ratios_are_of_the_same_rounds() -> None:
    times = {
        "ours": {"alone": [1.0, 2.0, 1.0], "in_a_row": [0.8, 1.6, 0.8]},
        "graph": {"alone": [2.0, 4.0, 2.0], "in_a_row": [1.0, 2.0, 1.0]},
        "eager": {"alone": [9.0, 9.0, 9.0], "in_a_row": [9.0, 9.0, 9.0]},
    }
    samples = {name: one["alone"] for name, one in times.items()}
    row = judged(times, samples)
    assert row["best"] == "graph"
    assert row["ratio"] == [0.5, 0.5, 0.5]
    assert row["ratio_in_a_row"] == pytest.approx([0.8, 0.8, 0.8])
    assert row["ms"] == {"ours": 1000.0, "graph": 2000.0, "eager": 9000.0}


def test_without_ours_or_without_peers_there_is_no_ratio() -> None:
    one = {"alone": [1.0, 1.0], "in_a_row": [1.0, 1.0]}
    assert judged({"ours": one}, {"ours": [1.0]})["best"] is None
    assert judged({"eager": one}, {"eager": [1.0]})["ratio"] is None


def test_outputs_that_are_no_numbers_are_infinitely_far() -> None:
    one = [np.array([3.0, 4.0], np.float32)]
    assert difference(one, one) == 0.0
    assert difference([np.array([3.0, 4.5], np.float32)], one) == pytest.approx(0.1)
    assert difference([np.array([np.nan, 4.0], np.float32)], one) == np.inf
