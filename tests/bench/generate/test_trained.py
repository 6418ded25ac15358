from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.generate.__main__ import main
from bench.generate.trained import Trained
from tilewright.errors import UsageError

FACTS = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 16,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.rope.freq_base": 1e5,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|endoftext|>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
}


def package(facts: dict[str, Any]) -> Any:
    """What stands for the package gguf: a reader of one file, whose tensors are in fp32."""
    chance = np.random.default_rng(0)
    shapes = {"token_embd": (4, 8), "blk.0.attn_q": (8, 8), "blk.0.attn_norm": (8,)}
    tensors = [
        SimpleNamespace(
            name=f"{name}.weight",
            shape=np.array(shape[::-1]),
            data=chance.standard_normal(shape).astype(np.float32),
            tensor_type=0,
        )
        for name, shape in shapes.items()
    ]
    reader = SimpleNamespace(
        tensors=tensors,
        get_field=lambda name: SimpleNamespace(contents=lambda: facts[name]) if name in facts else None,
    )
    return SimpleNamespace(GGUFReader=lambda file: reader, dequantize=lambda data, kind: data)


@pytest.fixture
def gguf(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    facts = dict(FACTS)
    monkeypatch.setitem(sys.modules, "gguf", package(facts))
    return facts


def test_the_shape_is_what_the_file_states(gguf: dict[str, Any]) -> None:
    shape = Trained(Path("model.gguf")).shape
    assert (shape.layers, shape.width, shape.heads, shape.shared, shape.head_width) == (1, 8, 2, 1, 4)
    assert (shape.hidden, shape.words, shape.base, shape.epsilon) == (16, 4, 1e5, 1e-5)


def test_pairs_of_a_head_become_its_halves_and_the_table_is_the_head_where_there_is_no_other(
    gguf: dict[str, Any],
) -> None:
    weights = Trained(Path("model.gguf"))
    held = {tensor.name: tensor.data for tensor in weights._reader.tensors}
    queries = held["blk.0.attn_q.weight"]
    np.testing.assert_array_equal(weights.array("blk.0.attn_q"), queries[[0, 2, 1, 3, 4, 6, 5, 7]])
    np.testing.assert_array_equal(weights.array("output"), held["token_embd.weight"])
    np.testing.assert_array_equal(weights.array("blk.0.attn_norm"), held["blk.0.attn_norm.weight"])


def test_of_gemma_heads_have_a_width_of_their_own_and_rows_are_in_halves(gguf: dict[str, Any]) -> None:
    gguf |= {name.replace("llama", "gemma3"): value for name, value in gguf.items()}
    gguf |= {
        "general.architecture": "gemma3",
        "gemma3.attention.key_length": 16,
        "gemma3.attention.sliding_window": 512,
    }
    weights = Trained(Path("model.gguf"))
    shape = weights.shape
    assert (shape.head_width, shape.window, shape.scale) == (16, 512, 8**0.5)
    assert shape.normed_heads
    assert shape.normed_sums
    assert shape.gelu
    held = {tensor.name: tensor.data for tensor in weights._reader.tensors}
    np.testing.assert_array_equal(weights.array("blk.0.attn_q"), held["blk.0.attn_q.weight"])


def test_the_tokenizer_has_the_words_merges_and_tokens_apart(gguf: dict[str, Any]) -> None:
    weights = Trained(Path("model.gguf"))
    text = json.loads(weights.tokenizer())
    assert text["model"]["vocab"] == {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}
    assert text["model"]["merges"] == ["a b"]
    assert [(one["id"], one["content"]) for one in text["added_tokens"]] == [(0, "<|endoftext|>")]
    assert weights.end == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("general.architecture", "qwen3", "is of the architecture qwen3"),
        ("llama.block_count", None, "states no llama.block_count"),
    ],
)
def test_another_architecture_and_a_missing_fact_are_refused(
    gguf: dict[str, Any], name: str, value: Any, said: str
) -> None:
    gguf.pop(name)
    if value:
        gguf[name] = value
    with pytest.raises(UsageError, match=said) as refusal:
        _ = Trained(Path("model.gguf")).shape
    assert "llama" in refusal.value.fix


def test_another_way_of_cutting_text_is_refused(gguf: dict[str, Any]) -> None:
    gguf["tokenizer.ggml.pre"] = "qwen2"
    with pytest.raises(UsageError, match="a tokenizer gpt2/qwen2, which is not written here"):
        Trained(Path("model.gguf")).tokenizer()


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert main(["--weights", "model.gguf"]) == 2
    assert capsys.readouterr().err == "what reads GGUF files is not installed\nFix: pip install gguf\n"


def test_a_decoder_is_written_with_the_command_that_compiles_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tiny", "--attention", "growing", "--out", str(tmp_path / "m.onnx")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{tmp_path / 'm.onnx'}: ")
    assert said[1] == f"tilewright compile {tmp_path / 'm.onnx'} --carry auto --dim past_sequence_length=1024"
    assert (tmp_path / "m.onnx").stat().st_size > 10_000


@pytest.mark.parametrize("words", [[], ["tiny", "--weights", "x"], ["tiny", "--tokenizer", "t"], ["huge"]])
def test_arguments_that_make_no_sense_end_it(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
