from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import tilewright
from bench.generate.__main__ import main
from bench.generate.codes import Coding
from bench.generate.decoder import PAST, SEQUENCE, TOTAL, Attention, decoder
from bench.generate.reference import reference_logits
from bench.generate.shapes import SHAPES, Shape
from bench.generate.weights import Parts, Seeded, parts
from compiler.contract import CompileOptions
from tests.compiling import compile_file

TINY = SHAPES["tiny"]
TEXT = (5, 6, 7, 300, 0, 319, 12, 9, 4, 17, 17, 230)
ROOM = 24
PROMPT = 7
"""Tokens that are read in one step; the others come one by one."""


def steps(attention: Attention, shape: Shape, run: Any) -> np.ndarray:
    """Logits of the last token of the prompt, and of each after it, with caches that are handed on."""
    grows = attention is Attention.GROWING
    size = (1, shape.shared, 0 if grows else ROOM, shape.head_width)
    caches = {
        f"past_key_values.{at}.{part}": np.zeros(size, np.float32)
        for at in range(shape.layers)
        for part in ("key", "value")
    }
    found = []
    for begin, end in [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, len(TEXT)))]:
        feeds: dict[str, Any] = {"input_ids": np.array([TEXT[begin:end]]), **caches}
        if attention is Attention.GROUPED:
            feeds["attention_mask"] = (np.arange(ROOM) < end).astype(np.int64)[None]
        else:
            feeds["position_ids"] = np.arange(begin, end)[None]
        given = run(feeds)
        caches = {name: given[name.replace("past_key_values", "present")] for name in caches}
        found.append(given["logits"][0, 0])
    return np.array(found)


def in_onnxruntime(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def difference(found: np.ndarray, held: Parts) -> float:
    wanted = reference_logits(held, TEXT, PROMPT - 1)
    assert wanted.shape == found.shape
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("coding", list(Coding))
@pytest.mark.parametrize("attention", list(Attention))
def test_a_decoder_computes_what_the_float64_reference_does(coding: Coding, attention: Attention) -> None:
    held = parts(Seeded(TINY), coding)
    model = decoder(held, attention, 64)
    assert difference(steps(attention, TINY, in_onnxruntime(model)), held) < 2e-6


def test_heads_that_are_normalised_are_so_in_both() -> None:
    shape = Shape(1, 32, 4, 2, 16, 32, 320, normed_heads=True)
    held = parts(Seeded(shape, 3), Coding.NBITS4)
    found = steps(Attention.GROUPED, shape, in_onnxruntime(decoder(held, Attention.GROUPED, 64)))
    assert difference(found, held) < 2e-6


GEMMA = replace(SHAPES["gemma-3-270m"], layers=6, width=32, head_width=16, hidden=32, words=320, window=5)
"""Six layers, the last of which sees the whole text, as Gemma 3 has them."""


@pytest.mark.parametrize("attention", list(Attention))
def test_a_decoder_with_windows_and_norms_of_sums_is_so_in_both(attention: Attention) -> None:
    held = parts(Seeded(GEMMA, 3), Coding.NBITS4)
    found = steps(attention, GEMMA, in_onnxruntime(decoder(held, attention, 64)))
    assert difference(found, held) < 5e-6
    everywhere = replace(held, shape=replace(GEMMA, window=0))
    assert difference(found, everywhere) > 1e-3


def test_the_last_token_of_a_text_changes_no_logits_before_it() -> None:
    held = parts(Seeded(TINY), Coding.INT8)
    whole, other = reference_logits(held, TEXT), reference_logits(held, (*TEXT[:-1], 3))
    np.testing.assert_array_equal(whole[:-1], other[:-1])
    assert np.abs(whole[-1] - other[-1]).max() > 0.1


DIMS: dict[Attention, Any] = {
    Attention.GROUPED: {PAST: ROOM, TOTAL: ROOM},
    Attention.PLAIN: {PAST: ROOM},
    Attention.GROWING: {PAST: {"min": 0, "max": ROOM - 1}},
}


@pytest.mark.parametrize(("attention", "shape"), [*((one, TINY) for one in Attention), (Attention.GROUPED, GEMMA)])
def test_the_artifact_generates_the_tokens_of_the_reference(attention: Attention, shape: Shape, tmp_path: Path) -> None:
    held = parts(Seeded(shape), Coding.NBITS4)
    file, artifact = tmp_path / "model.onnx", tmp_path / "model.tw"
    file.write_bytes(decoder(held, attention, 64).SerializeToString())
    dims = {SEQUENCE: [1, 5], **DIMS[attention]}
    compile_file(file, artifact, CompileOptions(dims=dims, tuning_budget_s=0, threads=1))
    prompt = list(TEXT[:PROMPT])
    with tilewright.load(artifact) as model:
        found = list(tilewright.generate(model, prompt, max_tokens=100))
        assert difference(steps_of_one(attention, model), held) < 1e-5
    assert len(found) == ROOM - PROMPT + 1
    wanted = reference_logits(held, [*prompt, *found], PROMPT - 1)[:-1].argmax(1)
    assert found == wanted.tolist()
    assert len(set(found)) > 3


@pytest.mark.parametrize("attention", [Attention.GROUPED, Attention.PLAIN])
def test_an_artifact_that_keeps_its_caches_generates_the_same_tokens_from_the_same_bits(
    attention: Attention, tmp_path: Path
) -> None:
    held = parts(Seeded(TINY), Coding.NBITS4)
    file, prompt = tmp_path / "model.onnx", list(TEXT[:PROMPT])
    file.write_bytes(decoder(held, attention, 64).SerializeToString())
    dims = {SEQUENCE: [1, 5], **DIMS[attention]}
    options = CompileOptions(dims=dims, tuning_budget_s=0, threads=1)
    compile_file(file, tmp_path / "fed.tw", options)
    compile_file(file, tmp_path / "kept.tw", replace(options, carry="auto"))
    with tilewright.load(tmp_path / "fed.tw") as fed, tilewright.load(tmp_path / "kept.tw") as kept:
        assert len(kept.carried) == 2 * TINY.layers
        found = [list(tilewright.generate(model, prompt, max_tokens=100)) for model in (fed, kept)]
        assert found[0] == found[1]
        assert len(found[0]) == ROOM - PROMPT + 1
        by_hand = steps_of_one(attention, fed)
        assert steps_of_one(attention, kept).tobytes() == by_hand.tobytes()
    assert difference(by_hand, held) < 1e-5


def steps_of_one(attention: Attention, model: tilewright.Model) -> np.ndarray:
    """As `steps`, where a step has one token or five: the prompt is read in three."""
    from tilewright.generation.ports import ports
    from tilewright.generation.text import Text

    text = Text(model, ports(model))
    first = text.read(TEXT[:PROMPT]).copy()
    return np.array([first, *(text.read([token]).copy() for token in TEXT[PROMPT:])])


@pytest.mark.parametrize("coding", [Coding.INT8, Coding.FP16])
def test_weights_may_lie_in_a_file_beside_the_model(coding: Coding, tmp_path: Path) -> None:
    whole, apart = tmp_path / "whole.onnx", tmp_path / "apart.onnx"
    for out, more in ((whole, []), (apart, ["--external"])):
        assert main(["tiny", "--coding", coding, "--positions", "32", "--out", str(out), *more]) == 0
    assert apart.stat().st_size < whole.stat().st_size / 2
    one, other = (onnx.load(out).graph for out in (whole, apart))
    assert one.node == other.node
    for first, second in zip(one.initializer, other.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(first), numpy_helper.to_array(second), first.name)
