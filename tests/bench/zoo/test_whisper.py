"""Whisper at small sizes: our reference says what ONNX Runtime says, at each number of frames and tokens."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.zoo import whisper
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph


def agree(model: onnx.ModelProto, **given: np.ndarray) -> dict[str, np.ndarray]:
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    graph = load(data, CompileOptions(), OPERATORS).graph
    values = evaluate_graph(graph, {id: given[graph.values[id].name] for id in graph.inputs}, OPERATORS)
    names = [one.name for one in session.get_outputs()]
    assert names == [graph.values[id].name for id in graph.outputs]
    wanted = session.run(names, given)
    for id, right in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(values[id], right, rtol=1e-4, atol=1e-5 * np.abs(right).max())
    return dict(zip(names, wanted, strict=True))


@pytest.mark.parametrize("frames", [1, 20])
def test_an_encoder_gives_a_state_for_two_frames(frames: int) -> None:
    mel = np.random.default_rng(0).standard_normal((1, whisper.MELS, frames), np.float32)
    found = agree(whisper.encoder(128, 2, frames), mel=mel)
    assert found["states"].shape == (1, (frames + 1) // 2, 128)
    assert 0.5 < found["states"].std() < 2


@pytest.mark.parametrize("past", [1, 9])
def test_a_step_reads_what_was_said_and_adds_a_token(past: int) -> None:
    random, words, width, layers = np.random.default_rng(1), 50, 128, 2
    sizes = {"past_key_values": past, "cross": whisper.POSITIONS}
    given = {
        f"{kind}.{layer}.{name}": random.standard_normal((1, width // whisper.HEAD, size, whisper.HEAD), np.float32)
        for kind, size in sizes.items()
        for layer in range(layers)
        for name in ("key", "value")
    }
    model = whisper.decoder(width, layers, words, past)
    found = agree(model, input_ids=np.array([[7]]), **given)
    assert found["logits"].shape == (1, 1, words)
    assert found["present.1.key"].shape == (1, 2, past + 1, whisper.HEAD)
    for name in ("past_key_values.0.value", "cross.1.key"):
        other = agree(model, input_ids=np.array([[7]]), **{**given, name: -given[name]})
        assert np.abs(other["logits"] - found["logits"]).max() > 1e-3, name
