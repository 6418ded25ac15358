"""Caches that a decoder appends to by Concat, as states of an artifact: beside float64, ONNX Runtime and feeding."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from bench.generate.codes import Coding
from bench.generate.decoder import Attention
from bench.generate.decoder import decoder as bench_decoder
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from compiler.codegen.build import find_toolchain
from compiler.contract import CompileOptions
from compiler.errors import Disagreement, OptionsError
from compiler.frontend.open import appended
from compiler.pack.loader import InputError, Model
from tests.compiling import compile_file

ROOM, HEADS, SHARED, HEAD, WORDS, PIECE = 24, 4, 2, 8, 40, 5
WIDTH = HEADS * HEAD
RANDOM = np.random.default_rng(5)
SIZES = {"q": (WIDTH, WIDTH), "k": (WIDTH, SHARED * HEAD), "v": (WIDTH, SHARED * HEAD), "o": (WIDTH, WIDTH)}
WEIGHTS = {f"l{at}_{name}": RANDOM.standard_normal(size) / 4 for at in range(2) for name, size in SIZES.items()}
WEIGHTS |= {"words": RANDOM.standard_normal((WORDS, WIDTH)), "head": RANDOM.standard_normal((WIDTH, WORDS)) / 4}
TEXT = RANDOM.integers(0, WORDS, ROOM)
PAST, LENGTH = "past_sequence_length", "length:past_sequence_length"
CACHES = [f"{at}.{part}" for at in range(2) for part in ("key", "value")]


def decoder(
    path: Path, after: str = "past_sequence_length + sequence_length", *, twice: bool = False, moved: bool = False
) -> Path:
    """Two layers as Optimum exports them: a mask of all tokens, positions of new ones, heads that share keys repeated.

    after  the dimension of what is as long as the text
    twice  the values of the second layer are appended twice
    moved  what is appended to is no cache as it is, but turned round
    """
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {name: array.astype(np.float32) for name, array in WEIGHTS.items()}

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def held(name: str, *numbers: float, dtype: type = np.int64) -> str:
        constants[name] = np.array(numbers if len(numbers) != 1 or dtype is np.int64 else numbers[0], dtype)
        return name

    info, f32, i64 = helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT64
    inputs = [info("input_ids", i64, [1, "sequence_length"]), info("attention_mask", i64, [1, after])]
    inputs.append(info("position_ids", i64, [1, "sequence_length"]))
    outputs = [info("logits", f32, [1, "sequence_length", WORDS])]
    constants |= {"zero": np.array(0, np.int64), "step": np.array(1, np.int64)}
    node("Gather", [node("Shape", ["attention_mask"], "shape"), "step"], "total")
    keys = node("Range", ["zero", "total", "step"], "keys")
    rows = node("Unsqueeze", ["position_ids", held("axes", 1, 3)], "rows")
    seen = node("LessOrEqual", [keys, rows], "causal")
    asked = node("Cast", [node("Unsqueeze", ["attention_mask", held("ends", 1, 2)], "wide")], "asked", to=9)
    held("open", 0.0, dtype=np.float32)
    held("shut", -1e9, dtype=np.float32)
    mask = node("Where", [node("And", [seen, asked], "seen"), "open", "shut"], "mask")
    x = node("Gather", ["words", "input_ids"], "x")
    for at in range(2):
        heads = []
        for part, count in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
            made = node("MatMul", [x, f"l{at}_{part}"], f"{part}{at}")
            apart = node("Reshape", [made, held(f"apart{count}", 0, 0, count, HEAD)], f"{part}{at}_apart")
            heads.append(node("Transpose", [apart], f"{part}{at}_heads", perm=[0, 2, 1, 3]))
        wide = []
        for part, new in zip(("key", "value"), heads[1:], strict=True):
            past, present = f"past_key_values.{at}.{part}", f"present.{at}.{part}"
            inputs.append(info(past, f32, [1, SHARED, PAST, HEAD]))
            outputs.append(info(present, f32, [1, SHARED, after, HEAD]))
            before = node("Neg", [past], f"{past}_moved") if moved else past
            more = node("Concat", [new, new], "twice", axis=2) if twice and present == "present.1.value" else new
            grown = node("Concat", [before, more], present, axis=2)
            apart = node("Unsqueeze", [grown, held("two", 2)], f"{present}_one")
            several = node("Expand", [apart, held("groups", 1, 1, HEADS // SHARED, 1, 1)], f"{present}_several")
            wide.append(node("Reshape", [several, held("all", 0, HEADS, -1, HEAD)], f"{present}_all"))
        across = node("Transpose", [wide[0]], f"across{at}", perm=[0, 1, 3, 2])
        scale = held("scale", HEAD**-0.5, dtype=np.float32)
        scores = node("Mul", [node("MatMul", [heads[0], across], f"s{at}"), scale], f"scaled{at}")
        shares = node("Softmax", [node("Add", [scores, mask], f"masked{at}")], f"shares{at}", axis=-1)
        mixed = node("Transpose", [node("MatMul", [shares, wide[1]], f"mixed{at}")], f"back{at}", perm=[0, 2, 1, 3])
        joined = node("Reshape", [mixed, held("joined", 0, 0, WIDTH)], f"joined{at}")
        x = node("Add", [x, node("MatMul", [joined, f"l{at}_o"], f"o{at}")], f"x{at}")
    node("MatMul", [x, "head"], "logits")
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def of_tokens(tokens: np.ndarray) -> np.ndarray:
    """The logits of the last token by float64, from all tokens at once and without a cache."""
    count = len(tokens)
    x, unseen = WEIGHTS["words"][tokens], np.triu(np.full((count, count), -np.inf), 1)
    for at in range(2):
        q, k, v = ((x @ WEIGHTS[f"l{at}_{part}"]).reshape(count, -1, HEAD) for part in "qkv")
        k, v = (np.repeat(part, HEADS // SHARED, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD) + unseen
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
        x = x + mixed.reshape(count, -1) @ WEIGHTS[f"l{at}_o"]
    return np.asarray(x[-1] @ WEIGHTS["head"])


def options(**more: Any) -> CompileOptions:
    dims = {"sequence_length": [1, PIECE], PAST: ROOM}
    return CompileOptions.from_json({"tuning_budget_s": 0, "carry": "auto", "dims": dims, **more})


def given(tokens: np.ndarray, begin: int, room: int | None = ROOM) -> dict[str, np.ndarray]:
    """The inputs beside caches of a step of the last tokens, from place `begin` on."""
    end = len(tokens)
    mask = np.ones((1, end), np.int64)
    if room:
        mask = (np.arange(room) < end)[None].astype(np.int64)
    places = np.arange(begin, end)[None]
    return {"input_ids": tokens[None, begin:], "attention_mask": mask, "position_ids": places}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("growing")
    compile_file(decoder(folder / "m.onnx"), folder / "m.tw", options())
    return folder / "m.tw"


def test_tokens_are_those_of_the_whole_text_of_onnx_runtime_and_of_feeding(artifact: Path) -> None:
    session = onnxruntime.InferenceSession(artifact.with_suffix(".onnx"), providers=["CPUExecutionProvider"])
    theirs = {f"past_key_values.{name}": np.zeros((1, SHARED, 0, HEAD), np.float32) for name in CACHES}
    names = [one.name for one in session.get_outputs()]
    with Model(artifact) as model:
        assert {one.input.name: (one.axis, one.rows, one.room) for one in model.carried} == {
            **{f"past_key_values.{name}": (2, 0, 0) for name in CACHES},
            LENGTH: (None, 1, ROOM),
        }
        for binding in (1, 2):
            assert all(one.in_place for one in model.at(binding).carried if one.axis), "present lies over past"
        state, begin = model.state(), 0
        fed = {name: state[name] for name in state.names}
        for count in (PIECE, 1, PIECE, *(1,) * 8, PIECE):
            tokens = TEXT[: begin + count]
            assert len(state) == begin
            found = model.run(given(tokens, begin), state=state)
            assert [*found] == ["logits"]
            np.testing.assert_allclose(found["logits"][0, -1], of_tokens(tokens), rtol=1e-4, atol=1e-4)
            back = model.run({**given(tokens, begin), **fed})
            assert back["logits"].tobytes() == found["logits"].tobytes()
            fed = {one.input.name: back[one.output.name] for one in model.carried}
            assert all(state[name].tobytes() == array.tobytes() for name, array in fed.items())
            made = dict(zip(names, session.run(None, {**given(tokens, begin, None), **theirs}), strict=True))
            np.testing.assert_allclose(found["logits"], made["logits"], rtol=1e-3, atol=1e-4)
            theirs = {f"past_key_values.{name}": made[f"present.{name}"] for name in CACHES}
            begin += count
        assert len(state) == ROOM
        for name, array in theirs.items():
            np.testing.assert_allclose(state[name], array, rtol=1e-3, atol=1e-5)


def test_a_step_beyond_the_room_is_refused_and_the_state_stays(artifact: Path) -> None:
    with Model(artifact) as model:
        state = model.state()
        for begin in range(0, ROOM - PIECE, PIECE):
            model.run(given(TEXT[: begin + PIECE], begin), state=state)
        held = {name: state[name].tobytes() for name in state.names}
        with pytest.raises(InputError, match=f"the caches hold 20 rows of {ROOM}, and the run adds {PIECE}"):
            model.run(given(TEXT, ROOM - PIECE), state=state)
        assert held == {name: state[name].tobytes() for name in state.names}
        for at in range(20, ROOM):
            found = model.run(given(TEXT[: at + 1], at), state=state)
        np.testing.assert_allclose(found["logits"][0, -1], of_tokens(TEXT), rtol=1e-4, atol=1e-4)
        for _ in range(2):
            with pytest.raises(InputError, match="truncate or reset"):
                model.run(given(TEXT[:1], 0), state=state)
        assert len(state) == ROOM


def test_a_text_goes_back_branches_and_is_taken_up_again(artifact: Path, tmp_path: Path) -> None:
    with Model(artifact) as model:
        state = model.state()
        assert len(state) == 0
        assert state, "a state without rows is one"
        for begin in (0, PIECE):
            model.run(given(TEXT[: begin + PIECE], begin), state=state)
        state.save(tmp_path / "s")
        other = state.fork()
        for wrong in (-1, 11):
            with pytest.raises(InputError, match="the state has 10 rows"):
                other.truncate(wrong)
        other.truncate(7)
        assert (len(other), len(state)) == (7, 10)
        for one in other.carried:
            if one.axis is not None:
                assert not other[one.input.name][:, :, 7:].any(), "what is forgotten is zero"
        again = model.state(tmp_path / "s")
        assert len(again) == 10
        cases = [(state, TEXT[:10]), (other, TEXT[:7]), (again, TEXT[:10])]
        for at, (branch, tokens) in enumerate(cases):
            longer = np.concatenate([tokens, (TEXT[12:14] + at) % WORDS])
            for end in (len(tokens) + 1, len(longer)):
                found = model.run(given(longer[:end], end - 1), state=branch)
            np.testing.assert_allclose(found["logits"][0, -1], of_tokens(longer), rtol=1e-4, atol=1e-4)
        state.reset()
        assert len(state) == 0
        assert not any(state[name].any() for name in state.names)


def test_text_is_generated_from_states(artifact: Path) -> None:
    with tilewright.load(artifact) as model:
        prompt = TEXT[:7].tolist()
        made = list(tilewright.generate(model, prompt, max_tokens=100))
    text = list(prompt)
    while len(text) <= ROOM:
        text.append(int(of_tokens(np.array(text)).argmax()))
    assert made == text[7:]


def test_a_program_that_appends_at_another_place_disagrees_with_the_model_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every form of the graph with room says the same then: only the model at one length does not."""
    monkeypatch.setattr(appended, "iota", lambda values, count: values.constant(np.arange(1, count + 1)))
    asked = options(dims={"sequence_length": 1, PAST: ROOM})
    with pytest.raises(Disagreement, match=f"at {PAST}={ROOM // 2}"):
        compile_file(decoder(tmp_path / "m.onnx"), tmp_path / "m.tw", asked)


MAIN = """#include <stdio.h>
#include "state.h"

int main(void) {
    tw_config config = {.weights_path = "weights.bin", .spin_us = -1};
    tw_instance *model;
    tw_state *state;
    if (tw_create(&config, &model) || tw_state_create(&state)) return fprintf(stderr, "%s\\n", tw_last_error()), 3;
    int64_t id, at, mask[ROOM] = {0}, one[] = {1, 1}, room[] = {1, ROOM}, shape[] = {1, 1, WORDS};
    float logits[WORDS];
    tw_tensor in[IN] = {{0}}, out[OUT] = {{0}};
    in[0] = (tw_tensor){&id, TW_CPU, 0, TW_INT, 64, 2, one, NULL};
    in[1] = (tw_tensor){mask, TW_CPU, 0, TW_INT, 64, 2, room, NULL};
    in[2] = (tw_tensor){&at, TW_CPU, 0, TW_INT, 64, 2, one, NULL};
    out[0] = (tw_tensor){logits, TW_CPU, 0, TW_FLOAT, 32, 3, shape, NULL};
    for (int turn = 0; turn < 2; turn++) {
        for (at = tw_state_length(state); at < ROOM; at++) {
            if (fread(&id, sizeof id, 1, stdin) != 1) return 5;
            mask[at] = 1;
            if (tw_state_run(model, state, in, out)) return fprintf(stderr, "%s\\n", tw_last_error()), 7;
        }
        if (!tw_state_run(model, state, in, out) || tw_state_length(state) != ROOM) return 8;
        fwrite(logits, sizeof logits, 1, stdout);
        if (!tw_state_truncate(state, ROOM + 1) || tw_state_truncate(state, 9)) return 9;
        for (at = 9; at < ROOM; at++) mask[at] = 0;
    }
    const float *keys = tw_state_data(state, 3);
    for (int row = 0; row < ROOM; row++)
        if ((keys[row * WIDTH] != 0) != (row < 9)) return 10;
    tw_state_reset(state);
    if (tw_state_length(state)) return 11;
    tw_state_destroy(state);
    tw_destroy(model);
    return 0;
}
"""


def test_a_c_program_appends_goes_back_and_is_told_when_there_is_no_room(artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(tmp_path)
    with Model(artifact) as model:
        numbers = {"ROOM": ROOM, "WORDS": WORDS, "WIDTH": HEAD, "IN": len(model.inputs), "OUT": len(model.outputs)}
    defined = "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    (tmp_path / "main.c").write_text(defined + MAIN)
    command = [find_toolchain().path, "-Wall", "-Werror", "main.c", "./model.so", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    second = np.concatenate([TEXT[:9], TEXT[: ROOM - 9]])
    read = np.concatenate([TEXT, second[9:]]).tobytes()
    done = subprocess.run(["./main"], cwd=tmp_path, check=False, capture_output=True, timeout=60, input=read)
    assert done.returncode == 0, done
    for found, tokens in zip(np.frombuffer(done.stdout, np.float32).reshape(2, WORDS), (TEXT, second), strict=True):
        np.testing.assert_allclose(found, of_tokens(tokens), rtol=1e-4, atol=1e-4)


def test_what_is_as_long_as_the_text_has_any_name_and_the_room_is_a_usual_one_where_none_is_given(
    tmp_path: Path,
) -> None:
    path = decoder(tmp_path / "m.onnx", after="total_sequence_length")
    compile_file(path, tmp_path / "m.tw", options(dims={"sequence_length": 1}))
    with Model(tmp_path / "m.tw") as model:
        assert {spec.name: spec.shape for spec in model.inputs}["attention_mask"] == (1, 4096)
        state = model.state()
        for at in range(3):
            found = model.run(given(TEXT[: at + 1], at, 4096), state=state)
        np.testing.assert_allclose(found["logits"][0, -1], of_tokens(TEXT[:3]), rtol=1e-4, atol=1e-4)


def test_caches_that_are_no_states_are_refused(tmp_path: Path) -> None:
    cases = [
        (
            {"moved": True},
            {"dims": {"sequence_length": 1, PAST: 9, "total": 10}},
            "names of outputs say",
            "leave carry",
        ),
        ({"twice": True}, {"dims": {"sequence_length": 1, PAST: 9}}, "2 rows to one cache and 1 to another", "alike"),
        ({}, {"dims": {"sequence_length": 1, PAST: 9, "total": 8}}, "one number of tokens", "the longest text"),
        ({}, {"dims": {"sequence_length": 9, PAST: 8}}, "have room for 8 tokens, and a run appends 9", "longest text"),
    ]
    for how, asked, said, fix in cases:
        path = decoder(tmp_path / "m.onnx", "total", **how)
        with pytest.raises(OptionsError) as raised:
            compile_file(path, tmp_path / "m.tw", options(**asked))
        assert said in raised.value.message, how
        assert fix in raised.value.fix, how


def test_a_dimension_of_outputs_alone_is_no_size_that_the_model_can_be_given(tmp_path: Path) -> None:
    """Without a mask no input is as long as the text; the program is judged at one length all the same."""
    model = bench_decoder(parts(Seeded(SHAPES["tiny"]), Coding.FP32), Attention.GROWING, 32)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    report = compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", options())
    assert report.verified
    assert any("past_sequence_length=" in case.inputs for case in report.cases)
