"""Models whose shapes, lengths and branches vary, over HTTP: sent, compiled, downloaded, run at several sizes.

What an artifact gives is what ONNX Runtime gives for the model that was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilewright
from tests.compiler.pipelines import LABELS, people
from tests.end_to_end import architectures as made
from tilewright.client import Client
from tilewright.loading import Model
from tilewright.wire import Job

SEED = 16
RELATIVE = 1e-5
"""Of the largest value of an output; a quantised model's numbers are exact up to the same."""
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Pair:
    """An artifact as downloaded, and ONNX Runtime's session of the model that it was compiled from."""

    model: Model
    peer: onnxruntime.InferenceSession

    def both(self, feeds: Feeds) -> Feeds:
        """What both give, which must be the same; the artifact's."""
        found, names = self.model.run(feeds), [output.name for output in self.peer.get_outputs()]
        assert list(found) == names
        for name, wanted in zip(names, self.peer.run(None, dict(feeds)), strict=True):
            if isinstance(wanted, list):
                continue
            array, wanted = found[name], np.asarray(wanted)
            assert (array.shape, array.dtype.kind) == (wanted.shape, wanted.dtype.kind), name
            if wanted.dtype.kind != "f":
                np.testing.assert_array_equal(array, wanted, name)
            elif wanted.size:
                np.testing.assert_allclose(array, wanted, rtol=0, atol=RELATIVE * np.abs(wanted).max(), err_msg=name)
        return found


SENT: Mapping[str, tuple[Callable[[Path], bytes], Mapping[str, Any]]] = {
    "decoder": (lambda _: made.cached_decoder(), {"p": {"min": 0, "max": 512}, "s": {"min": 1, "max": 4}}),
    "transcriber": (lambda _: made.transcriber(), {"frames": {"min": 8, "max": 64}}),
    "detector": (lambda _: made.detector(), {}),
    "voice": (lambda _: made.voice_activity(), {"samples": {"min": 256, "max": 512}}),
    "graph": (lambda _: made.graph_network(), {"n": {"min": 1, "max": 64}, "m": {"min": 1, "max": 200}}),
    "text": (lambda _: made.text_detector(), {"h": {"min": 32, "max": 96}, "w": {"min": 32, "max": 128}}),
    "churn": (lambda _: made.churn(), {"rows": {"min": 1, "max": 32}}),
    "quantised": (made.quantised_block, {"b": {"min": 1, "max": 3}, "s": {"min": 1, "max": 32}}),
    "brevitas": (lambda _: made.brevitas_network(), {"n": {"min": 1, "max": 4}}),
}
"""By name: the model, and its open dimensions."""


@pytest.fixture(scope="module")
def jobs(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[bytes, Job]]:
    """All of them, sent at once."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name, (build, dims) in SENT.items():
        model = build(folder)
        options = {"threads": 1, "tuning_budget_s": 0, "scheduler": "sequential", "dims": dims}
        found[name] = model, client.compile(model, options)
    return found


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, client: Client, jobs: Mapping[str, tuple[bytes, Job]], tmp_path: Path
) -> Iterator[Pair]:
    model, job = jobs[request.param]
    client.wait(job).require_success()
    if request.param == "brevitas":  # ONNX Runtime does not know Quant, but what it means
        model = made.brevitas_network(defined=True)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 4, 1
    peer = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])
    with tilewright.load(client.download(job, tmp_path / "model.tw")) as loaded:
        yield Pair(loaded, peer)


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", [name], indirect=True)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng((SEED, *shape)).standard_normal(shape).astype(np.float32)


def below(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng((SEED, *shape)).integers(0, high, shape)


@of("decoder")
def test_a_decoder_writes_on_from_nothing_and_its_cache_grows_to_the_end(pair: Pair) -> None:
    nothing = np.zeros((1, 2, 0, 8), np.float32)
    found = pair.both({"tokens": below(24, 1, 4), "past_k": nothing, "past_v": nothing})
    for length in range(5, 10):
        token = found["logits"][:, -1:].argmax(-1)
        found = pair.both({"tokens": token, "past_k": found["present_k"], "past_v": found["present_v"]})
        assert found["present_k"].shape == (1, 2, length, 8)
    for past, new in ((512, 1), (509, 3)):
        cache = normal(1, 2, past, 8)
        pair.both({"tokens": below(24, 1, new), "past_k": cache, "past_v": cache[:, ::-1].copy()})


@of("transcriber")
def test_sound_of_any_length_is_written_down_by_a_loop_that_ends_itself(pair: Pair) -> None:
    lengths = {len(pair.both({"mel": scale * normal(1, 8, frames)})["tokens"]) for frames, scale in SOUNDS}
    assert len(lengths) > 1


SOUNDS = ((64, 1.0), (8, 1.0), (21, 3.0), (33, 0.3), (40, 1.0), (17, 8.0), (50, 0.1))


@of("detector")
def test_boxes_are_chosen_by_the_limits_of_the_run(pair: Pair) -> None:
    image = normal(1, 3, 64, 64)
    counts = []
    for most, overlap, least in ((5, 0.5, 0.6), (40, 0.3, 0.5), (40, 0.9, 0.5), (3, 0.5, 2.0), (0, 0.5, 0.1)):
        limits = {
            "most": np.array([most]),
            "iou": np.array([overlap], np.float32),
            "least": np.array([least], np.float32),
        }
        counts.append(len(pair.both({"image": image, **limits})["boxes"]))
    assert len(set(counts)) == 4
    assert counts[-2:] == [0, 0]


@of("voice")
def test_a_stream_is_listened_to_piece_by_piece_at_two_rates(pair: Pair) -> None:
    state = np.zeros((2, 1, 8), np.float32)
    for rate, samples, loudness in (
        (16000, 512, 1),
        (16000, 512, 1),
        (16000, 512, 200),
        (8000, 256, 1),
        (8000, 300, 99),
    ):
        x = loudness * normal(1, samples)
        state = pair.both({"x": x, "state": state, "sr": np.array(rate)})["next"]


@of("graph")
def test_graphs_of_any_size_are_given_as_edges(pair: Pair) -> None:
    for nodes, edges in ((12, 30), (64, 200), (1, 3), (40, 1)):
        pair.both({"x": normal(nodes, 6), "edges": below(nodes, 2, edges)})


@of("text")
def test_text_is_looked_for_in_images_of_any_size(pair: Pair) -> None:
    for high, wide in ((64, 64), (32, 128), (96, 96), (64, 96)):
        assert pair.both({"image": normal(1, 3, high, wide)})["chances"].shape == (1, 1, high, wide)


@of("churn")
def test_a_pipeline_with_categories_takes_any_number_of_rows(pair: Pair) -> None:
    for rows in (8, 1, 32, 5):
        feeds = people(rows, seed=rows)
        found = pair.both(feeds)
        maps = pair.peer.run(None, feeds)[1]
        scores = np.array([[one[label] for label in LABELS] for one in maps], np.float32)
        np.testing.assert_allclose(found["probabilities"], scores, rtol=1e-5, atol=1e-6)


@of("quantised")
def test_an_encoder_that_tools_quantised_takes_any_batch_of_sentences(pair: Pair) -> None:
    for batch, length in ((1, 16), (3, 32), (2, 5), (1, 1)):
        mask = (np.arange(length) <= length - 1 - np.arange(batch)[:, None]).astype(np.int64)
        pair.both({"ids": below(24, batch, length), "mask": mask})


@of("brevitas")
def test_a_network_of_four_bits_takes_any_batch(pair: Pair) -> None:
    for batch in (1, 4, 3):
        pair.both({"x": normal(batch, 1, 12, 12)})
