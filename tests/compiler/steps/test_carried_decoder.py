"""A decoder whose caches lie in the artifact at a capacity, token by token, beside float64 and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import OptionsError
from compiler.pack.loader import Model
from tests.compiling import compile_file

CAPACITY, TOKENS = 32, 20
WIDTH, HEADS, SHARED, HEAD, INNER, WORDS, LAYERS = 32, 4, 2, 16, 48, 50, 2
MS = "com.microsoft"
RANDOM = np.random.default_rng(11)
ANGLES = np.arange(CAPACITY)[:, None] / 1e4 ** (np.arange(HEAD // 2)[None] / (HEAD // 2))


def weight(*shape: int) -> np.ndarray:
    return np.asarray(RANDOM.standard_normal(shape) / np.sqrt(shape[0]), np.float32)


LAYER = {
    "q": (WIDTH, HEADS * HEAD), "k": (WIDTH, SHARED * HEAD), "v": (WIDTH, SHARED * HEAD), "o": (HEADS * HEAD, WIDTH),
    "gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH),
}  # fmt: skip
WEIGHTS = {f"l{at}_{name}": weight(*shape) for at in range(LAYERS) for name, shape in LAYER.items()}
WEIGHTS |= {"words": 3 * weight(WORDS, WIDTH), "logits_w": weight(WIDTH, WORDS)}
CACHES = [f"{at}.{part}" for at in range(LAYERS) for part in ("key", "value")]
TAKEN = RANDOM.integers(0, WORDS, TOKENS)


def decoder(path: Path, *, masked: bool, new: int | str = 1, grows: bool = False) -> Path:
    """Layers of GroupQueryAttention and SwiGLU; how many tokens there are a mask says, or two inputs do."""
    value, nodes = helper.make_tensor_value_info, []

    def node(op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))
        return output

    inputs = [value("ids", TensorProto.INT64, [1, new])]
    constants = {
        **WEIGHTS,
        "scale": np.ones(WIDTH, np.float32),
        "cos": np.cos(ANGLES).astype(np.float32),
        "sin": np.sin(ANGLES).astype(np.float32),
        "one": np.array([1], np.int64),
        "axis": np.array([1], np.int64),
    }
    if masked:
        inputs.append(value("attention_mask", TensorProto.INT64, [1, "total_sequence_length"]))
        count = node("ReduceSum", ["attention_mask", "axis"], "count", keepdims=0)
        node("Cast", [node("Sub", [count, "one"], "last")], "seqlens_k", to=TensorProto.INT32)
        whole = node("Gather", [node("Shape", ["attention_mask"], "shape"), "one"], "whole")
        node("Cast", [node("Squeeze", [whole], "number")], "total", to=TensorProto.INT32)
    else:
        inputs += [value("seqlens_k", TensorProto.INT32, [1]), value("total", TensorProto.INT32, [])]
    outputs = [value("logits", TensorProto.FLOAT, [1, new, WORDS])]
    x = node("Gather", ["words", "ids"], "x")
    for at in range(LAYERS):
        n = node("SimplifiedLayerNormalization", [x, "scale"], f"n{at}", axis=-1, epsilon=1e-6)
        q, k, v = (node("MatMul", [n, f"l{at}_{part}"], f"{part}{at}") for part in "qkv")
        pairs = [(f"past_key_values.{at}.{part}", f"present.{at}.{part}") for part in ("key", "value")]
        for past, present in pairs:
            inputs.append(value(past, TensorProto.FLOAT, [1, SHARED, "past_sequence_length", HEAD]))
            outputs.append(value(present, TensorProto.FLOAT, [1, SHARED, "total_sequence_length", HEAD]))
        if grows:
            for part, (past, present) in zip((k, v), pairs, strict=True):
                constants["heads"] = np.array([1, 1, SHARED, HEAD], np.int64)
                split = node("Reshape", [part, "heads"], f"{part}_heads")
                turned = node("Transpose", [split], f"{part}_turned", perm=(0, 2, 1, 3))
                node("Concat", [past, turned], present, axis=2)
            continue
        mixed = f"mixed{at}"
        nodes.append(
            helper.make_node(
                "GroupQueryAttention", [q, k, v, *(past for past, _ in pairs), "seqlens_k", "total", "cos", "sin"],
                [mixed, *(present for _, present in pairs)],
                domain=MS, num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1,
            )
        )  # fmt: skip
        r = node("Add", [x, node("MatMul", [mixed, f"l{at}_o"], f"o{at}")], f"r{at}")
        n = node("SimplifiedLayerNormalization", [r, "scale"], f"m{at}", axis=-1, epsilon=1e-6)
        gate, up = (node("MatMul", [n, f"l{at}_{part}"], f"{part}{at}") for part in ("gate", "up"))
        swish = node("Mul", [gate, node("Sigmoid", [gate], f"sigmoid{at}")], f"swish{at}")
        inner = node("Mul", [swish, up], f"inner{at}")
        x = node("Add", [r, node("MatMul", [inner, f"l{at}_down"], f"down{at}")], f"x{at}")
    n = node("SimplifiedLayerNormalization", [x, "scale"], "n", axis=-1, epsilon=1e-6)
    node("MatMul", [n, "logits_w"], "logits")
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def of_tokens(tokens: np.ndarray, held: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
    """The logits of the last token by float64, from all tokens at once and without a cache.

    `held` rounds keys and values [tokens, heads, width] as a cache holds them.
    """
    w = {name: array.astype(np.float64) for name, array in WEIGHTS.items()}
    count = len(tokens)
    cos, sin = np.cos(ANGLES[:count, None]), np.sin(ANGLES[:count, None])
    unseen = np.triu(np.full((count, count), -np.inf), 1)

    def normed(x: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6))

    def turned(x: np.ndarray) -> np.ndarray:
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    x = w["words"][tokens]
    for at in range(LAYERS):
        n = normed(x)
        q, k, v = ((n @ w[f"l{at}_{part}"]).reshape(count, -1, HEAD) for part in "qkv")
        q, k, v = turned(q), held(turned(k)), held(v)
        k, v = (np.repeat(part, HEADS // SHARED, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD) + unseen
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
        r = x + mixed.reshape(count, -1) @ w[f"l{at}_o"]
        n = normed(r)
        gate = n @ w[f"l{at}_gate"]
        x = r + (gate / (1 + np.exp(-gate)) * (n @ w[f"l{at}_up"])) @ w[f"l{at}_down"]
    return np.asarray(normed(x)[-1] @ w["logits_w"])


def counted(at: int, *, masked: bool) -> dict[str, np.ndarray]:
    """What says that token `at`, from 0, is the last one."""
    if masked:
        return {"attention_mask": (np.arange(CAPACITY)[None] <= at).astype(np.int64)}
    return {"seqlens_k": np.array([at], np.int32), "total": np.array(at + 1, np.int32)}


def options(*, masked: bool = False, **more: Any) -> CompileOptions:
    dims = {"past_sequence_length": CAPACITY} | ({"total_sequence_length": CAPACITY} if masked else {})
    return CompileOptions.from_json({"tuning_budget_s": 0, "carry": "auto", "dims": dims, **more})


@pytest.mark.parametrize("masked", [True, False], ids=["a mask", "lengths"])
def test_tokens_one_after_another_are_those_of_the_whole_text(tmp_path: Path, *, masked: bool) -> None:
    path = decoder(tmp_path / "m.onnx", masked=masked)
    compile_file(path, tmp_path / "m.tw", options(masked=masked))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    fed = {f"past_key_values.{name}": np.zeros((1, SHARED, CAPACITY, HEAD), np.float32) for name in CACHES}
    names = [one.name for one in session.get_outputs()]
    with Model(tmp_path / "m.tw") as model:
        assert {one.input.name for one in model.carried} == {*fed}
        assert all(one.in_place for one in model.carried), "a cache is one memory, of which a row is written"
        state, other = model.state(), model.state()
        assert state.bytes == sum(array.nbytes for array in fed.values())
        for at, token in enumerate(TAKEN):
            given = {"ids": np.array([[token]]), **counted(at, masked=masked)}
            found = model.run(given, state=state)
            model.run({**given, "ids": np.array([[(token + 1) % WORDS]])}, state=other)
            assert [*found] == ["logits"]
            wanted = of_tokens(TAKEN[: at + 1])
            np.testing.assert_allclose(found["logits"][0, 0], wanted, rtol=1e-3, atol=2e-5 * np.abs(wanted).max())
            theirs = dict(zip(names, session.run(None, {**given, **fed}), strict=True))
            np.testing.assert_allclose(found["logits"], theirs["logits"], rtol=1e-3, atol=1e-4)
            for name in CACHES:
                mine, own = state[f"present.{name}"], theirs[f"present.{name}"]
                np.testing.assert_allclose(mine[:, :, : at + 1], own[:, :, : at + 1], rtol=1e-3, atol=1e-4)
                assert not mine[:, :, at + 1 :].any()
                fed[f"past_key_values.{name}"] = own


def test_a_prompt_is_read_by_another_artifact_and_its_caches_are_handed_over(tmp_path: Path) -> None:
    prompt = 6
    for new in (1, prompt):
        compile_file(decoder(tmp_path / "m.onnx", masked=False, new=new), tmp_path / f"{new}.tw", options())
    with Model(tmp_path / f"{prompt}.tw") as reader, Model(tmp_path / "1.tw") as writer:
        read, state = reader.state(), writer.state()
        found = reader.run({"ids": TAKEN[None, :prompt], **counted(prompt - 1, masked=False)}, state=read)
        np.testing.assert_allclose(found["logits"][0, -1], of_tokens(TAKEN[:prompt]), rtol=1e-3, atol=1e-4)
        for name in read.names:
            state[name] = read[name]
        branches = [state, state.fork()]
        for at in range(prompt, TOKENS):
            for branch, fork in enumerate(branches):
                tokens = np.concatenate([TAKEN[:prompt], (TAKEN[prompt : at + 1] + branch) % WORDS])
                given = {"ids": tokens[None, at:], **counted(at, masked=False)}
                logits = writer.run(given, state=fork)["logits"][0, 0]
                np.testing.assert_allclose(logits, of_tokens(tokens), rtol=1e-3, atol=1e-4)


def test_a_text_is_taken_up_again_from_a_saved_state_and_from_an_earlier_token(tmp_path: Path) -> None:
    """Places behind the last token are not read: so going back is a smaller count."""
    compile_file(decoder(tmp_path / "m.onnx", masked=False), tmp_path / "m.tw", options(threads=1))
    with Model(tmp_path / "m.tw") as model:
        state = model.state()
        for at, token in enumerate(TAKEN[:10]):
            model.run({"ids": np.array([[token]]), **counted(at, masked=False)}, state=state)
        state.save(tmp_path / "s")
        state = model.state(tmp_path / "s")
        tokens = np.concatenate([TAKEN[:7], TAKEN[12:16]])
        for at in range(7, len(tokens)):
            found = model.run({"ids": tokens[None, at : at + 1], **counted(at, masked=False)}, state=state)
            wanted = of_tokens(tokens[: at + 1])
            np.testing.assert_allclose(found["logits"][0, 0], wanted, rtol=1e-3, atol=1e-4)


def test_of_caches_that_grow_all_are_states_or_none(tmp_path: Path) -> None:
    path = decoder(tmp_path / "m.onnx", masked=False, grows=True)
    pairs = {"present.0.key": "past_key_values.0.key"}
    with pytest.raises(OptionsError, match=r"output 'present\.0\.value' is as long as the caches") as raised:
        compile_file(path, tmp_path / "m.tw", options(carry=pairs))
    assert "name every cache that grows" in raised.value.fix
