"""Many runs of one artifact: which of them differ, and how many fit into the time."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from bench.gpu.repeated import LONGEST, PROFILED, repeated


class Played:
    """A model of which some runs give another bit."""

    def __init__(self, *differing: int) -> None:
        self.differing, self.count = differing, -1

    def random_inputs(self, seed: int) -> dict[str, np.ndarray]:
        return {"x": np.full(2, seed, np.float32)}

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.count += 1
        zero = np.float32(-0.0 if self.count in self.differing else 0.0)
        return {"y": np.array([1, zero], np.float32)}

    def profile(self, inputs: dict[str, np.ndarray], repeats: int) -> list[dict[str, Any]]:
        assert repeats == PROFILED
        return [
            {"family": "Conv", "tile": f"mma {at}", "seconds": 1e-6 * at, "predicted_s": 2e-6, "share": 0.1}
            for at in range(LONGEST + 2)
        ]


def test_runs_that_give_another_bit_are_named_also_where_numbers_are_equal() -> None:
    row = repeated(cast("Any", Played(3, 8)), 10, 60.0)
    assert (row["runs"], row["differing"]) == (10, [3, 8])
    assert [call["kernel"] for call in row["slowest"]] == [f"Conv mma {at}" for at in range(LONGEST + 1, 1, -1)]
    assert row["slowest"][0]["predicted_us"] == 2.0


def test_without_time_the_first_run_is_all_there_is() -> None:
    model = Played()
    row = repeated(cast("Any", model), 500, -1.0)
    assert (row["runs"], row["differing"], model.count) == (1, [], 0)
