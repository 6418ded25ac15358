from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.engines.child import LEAST
from bench.engines.driver import EngineFailed, Task
from bench.engines.onnxruntime import open_session
from bench.engines.process import Engine
from bench.zoo import build
from tilewright.arrays import read_npz, write_npz

pytestmark = pytest.mark.processes


@pytest.fixture
def given(tmp_path: Path) -> tuple[Path, Path]:
    """A tiny model and its inputs."""
    (tmp_path / "m.onnx").write_bytes(build("tiny_mobile").SerializeToString())
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    write_npz(tmp_path / "x.npz", {"image": image})
    return tmp_path / "m.onnx", tmp_path / "x.npz"


def engine(name: str, given: tuple[Path, Path], folder: Path, *, layers: bool = False) -> Engine:
    model, inputs = given
    return Engine(name, model, inputs, None if layers else folder / "y.npz", folder / "log", 1, "fp32")


def test_an_engine_runs_in_a_process_of_its_own_and_answers_turn_by_turn(
    given: tuple[Path, Path], tmp_path: Path
) -> None:
    with engine("onnxruntime", given, tmp_path) as running:
        for _ in range(2):
            turn = running.turn(0.0)
            assert len(turn.seconds) >= LEAST
            assert min(turn.seconds) > 0
            assert turn.waited >= 0
    opened = open_session(Task(given[0], read_npz(given[1]), 1))
    np.testing.assert_array_equal(read_npz(tmp_path / "y.npz")[opened.outputs[0]], opened.run()[0])


def test_an_engine_that_is_asked_for_layers_tells_what_they_carry_out(given: tuple[Path, Path], tmp_path: Path) -> None:
    with engine("onnxruntime", given, tmp_path, layers=True) as running:
        layers = running.layers(0.0)
        assert len(running.layers(0.0)) == len(layers)
    assert "Conv" in {layer.kind for layer in layers}
    assert all(layer.names and layer.seconds >= 0 for layer in layers)
    assert not (tmp_path / "y.npz").exists()


def test_an_engine_that_cannot_run_the_model_says_why(given: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="is not a"), engine("tilewright", given, tmp_path):
        pass


def test_an_engine_that_died_is_told_by_its_log(given: tuple[Path, Path], tmp_path: Path) -> None:
    with engine("onnxruntime", given, tmp_path) as running:
        running._process.kill()
        running._process.wait()
        with pytest.raises(EngineFailed, match="onnxruntime cannot run the model"):
            running.turn(0.0)
