from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.engines import onnxruntime
from bench.engines.driver import Task
from bench.engines.openvino import PRECISIONS, layers, open_model
from bench.zoo import build

pytest.importorskip("openvino", reason="openvino is not installed (the extra `bench` brings it)")


@pytest.fixture
def task(tmp_path: Path) -> Task:
    file = tmp_path / "m.onnx"
    file.write_bytes(build("tiny_inception").SerializeToString())
    return Task(file, {"image": np.random.default_rng(0).standard_normal((1, 3, 33, 33), np.float32)}, 1)


def test_its_outputs_are_those_of_onnx_runtime_to_the_precision_of_float32(task: Task) -> None:
    opened, other = open_model(task), onnxruntime.open_session(task)
    assert opened.outputs == other.outputs
    for ours, theirs in zip(opened.run(), other.run(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_every_run_reads_the_inputs_anew(task: Task) -> None:
    opened = open_model(task)
    first = [array.copy() for array in opened.run()]
    task.inputs["image"][:] *= 2
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(first, opened.run(), strict=True))


def test_its_layers_are_those_it_runs_with_the_nodes_they_were_made_from(task: Task) -> None:
    found = layers(task, 0.0)
    assert any("Convolution" in layer.kind for layer in found)
    assert any(name.startswith("node.") for layer in found for name in layer.names)
    assert all(layer.seconds >= 0 for layer in found)


def test_each_precision_of_the_command_has_a_name_here() -> None:
    from bench import asked

    assert set(PRECISIONS) == set(asked.PRECISIONS)
