"""Many runs of one artifact: which of them differ, and how many fit into the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, cast

import numpy as np
import pytest

from bench.gpu import repeated as module
from bench.gpu.repeated import LONGEST, PROFILED, repeated


class Played:
    """A model of which some runs give another bit; of a GPU alone every second one is in the caller's memory there."""

    manifest: Mapping[str, Any] = {}

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

    def stream(self, frames: Iterable[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        for inputs in frames:
            yield self.run(inputs)


class There:
    """Stands for the caller's memory."""

    def __init__(self, model: Played, inputs: dict[str, np.ndarray]) -> None:
        self.model, self.inputs, self.runs = model, inputs, list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        THERE.append(self)

    def run(self) -> dict[str, np.ndarray]:
        found = self.model.run(self.inputs)
        self.runs.append(self.model.count)
        return found


THERE: list[There] = []


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OnDevice", There)
    THERE.clear()


def test_every_second_run_is_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    row = repeated(cast("Any", Played()), 10, 60.0)
    (there,) = THERE
    assert there.runs == [2, 4, 6, 8]
    assert row["in_place_us"]["median"] > 0


def test_frames_in_flight_of_a_model_in_parts_are_compared_too() -> None:
    model = Played(4)
    model.manifest = {"stream": {}}
    row = repeated(cast("Any", model), 10, 60.0)
    assert not THERE, "a model in parts takes no tensors of a GPU"
    assert (row["runs"], row["differing"]) == (10, [4])


def test_runs_that_give_another_bit_are_named_also_where_numbers_are_equal() -> None:
    row = repeated(cast("Any", Played(3, 8)), 10, 60.0)
    assert (row["runs"], row["differing"]) == (10, [3, 8])
    assert [call["kernel"] for call in row["slowest"]] == [f"Conv mma {at}" for at in range(LONGEST + 1, 1, -1)]
    assert row["slowest"][0]["predicted_us"] == 2.0


def test_without_time_the_first_run_is_all_there_is() -> None:
    model = Played()
    row = repeated(cast("Any", model), 500, -1.0)
    assert (row["runs"], row["differing"], model.count) == (1, [], 0)
