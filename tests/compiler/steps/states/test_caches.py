"""Caches of fewer bits than the model's: states in bf16 and int8, beside float64 that rounds the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import Disagreement, OptionsError
from compiler.fuse import fuse
from compiler.ir.tensor import DType
from compiler.pack.loader import InputError, Model
from compiler.preflight import preflight
from compiler.request import Request
from compiler.rewrite import rewrite
from compiler.steps.loading import load_for
from tests.compiler.steps import test_growing_caches as growing
from tests.compiler.steps.test_carried_decoder import (
    CACHES,
    CAPACITY,
    HEAD,
    SHARED,
    TAKEN,
    counted,
    decoder,
    of_tokens,
    options,
)
from tests.compiling import compile_file


def in_bytes(rows: np.ndarray) -> np.ndarray:
    """Rounded as a cache in int8 holds them."""
    scales = np.abs(rows).max(-1, keepdims=True) / 127
    return np.asarray(np.rint(rows / scales) * scales)


def in_bf16(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def numbers(held: np.ndarray) -> np.ndarray:
    """What elements of a state are: bf16 comes as its bits."""
    return np.asarray((held.view(ml_dtypes.bfloat16) if held.dtype == np.uint16 else held).astype(np.float64))


ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"bf16": in_bf16, "int8": in_bytes}
ELEMENTS = len(CACHES) * SHARED * CAPACITY * HEAD
BYTES = {"bf16": 2 * ELEMENTS, "int8": ELEMENTS + 4 * ELEMENTS // HEAD}
KINDS = pytest.mark.parametrize("kind", sorted(ROUNDED))


def step(model: Model, state: Any, at: int, tokens: np.ndarray) -> np.ndarray:
    """The logits of token `at` of a text."""
    found = model.run({"ids": tokens[None, at : at + 1], **counted(at, masked=False)}, state=state)
    return np.asarray(found["logits"][0, -1])


@pytest.fixture(scope="module", params=sorted(ROUNDED))
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The kind, and a decoder with such caches: a program for a token, and one for six."""
    folder = tmp_path_factory.mktemp("caches")
    dims = {"past_sequence_length": CAPACITY, "new": [1, 6]}
    path = decoder(folder / "m.onnx", masked=False, new="new")
    compile_file(path, folder / "m.tw", options(cache=request.param, dims=dims))
    return request.param, folder / "m.tw"


def test_tokens_are_those_of_the_text_with_rounded_keys_and_values(compiled: tuple[str, Path]) -> None:
    kind, artifact = compiled
    with Model(artifact) as model:
        state = model.state()
        assert state.bytes == BYTES[kind]
        assert all(one.in_place for one in model.carried)
        for at in range(len(TAKEN)):
            found, wanted = step(model, state, at, TAKEN), of_tokens(TAKEN[: at + 1], ROUNDED[kind])
            exact = of_tokens(TAKEN[: at + 1])
            largest = np.abs(exact).max()
            assert np.abs(found - wanted).max() < 2e-3 * largest, "a row near a tie may be rounded to the other side"
            assert np.abs(found - exact).max() < 3e-2 * largest
            assert at == 0 or np.abs(found - exact).max() > 1e-5 * largest, "the cache was not rounded at all"


def test_a_prompt_of_several_tokens_leaves_the_caches_of_single_ones(compiled: tuple[str, Path]) -> None:
    with Model(compiled[1]) as model:
        one, several = model.state(), model.state()
        for at in range(6):
            last = step(model, one, at, TAKEN)
        found = model.run({"ids": TAKEN[None, :6], **counted(5, masked=False)}, state=several)["logits"][0, -1]
        np.testing.assert_allclose(found, last, atol=2e-3 * np.abs(last).max())
        for name in one.names:
            mine, theirs = numbers(one[name]), numbers(several[name])
            assert np.abs(mine - theirs).max() <= (1 if one[name].dtype == np.int8 else 1e-2 * np.abs(mine).max())


def test_states_of_such_caches_are_forked_saved_and_taken_up_again(compiled: tuple[str, Path], tmp_path: Path) -> None:
    with Model(compiled[1]) as model:
        state = model.state()
        for at in range(10):
            step(model, state, at, TAKEN)
        fork = state.fork()
        state.save(tmp_path / "s")
        wanted = [step(model, state, at, TAKEN) for at in range(10, 14)]
        for other in (fork, model.state(tmp_path / "s")):
            for name in other.names:
                assert other[name].dtype == state[name].dtype
            np.testing.assert_array_equal([step(model, other, at, TAKEN) for at in range(10, 14)], wanted)


@KINDS
def test_caches_that_grow_are_cut_and_go_on(tmp_path: Path, kind: str) -> None:
    """The float64 reference of the model as it is for one length proves these too (`Case.room`)."""
    text = growing.TEXT
    compile_file(growing.decoder(tmp_path / "m.onnx"), tmp_path / "m.tw", growing.options(cache=kind))
    with Model(tmp_path / "m.tw") as model:
        state = model.state()
        for at in range(12):
            found = model.run(growing.given(text[: at + 1], at), state=state)["logits"][0, -1]
            wanted = growing.of_tokens(text[: at + 1])
            assert np.abs(found - wanted).max() < 5e-2 * np.abs(wanted).max()
        assert len(state) == 12
        again = state.fork()
        state.truncate(5)
        assert len(state) == 5
        assert not any(state[name][..., 5:, :].astype(bool).any() for name in state.names if state[name].ndim == 4)
        for at in range(5, 12):
            last = model.run(growing.given(text[: at + 1], at), state=state)["logits"]
        np.testing.assert_array_equal(last[0, -1], found)
        for name in state.names:
            np.testing.assert_array_equal(state[name], again[name])
        model.run(growing.given(text[:13], 12), state=state)
        state.truncate(12)
        for name in state.names:
            np.testing.assert_array_equal(state[name], again[name])


@KINDS
@pytest.mark.parametrize("new", [1, 6])
def test_no_kernel_stores_a_cache_in_fp32(tmp_path: Path, kind: str, new: int) -> None:
    path = decoder(tmp_path / "m.onnx", masked=False, new=new)
    chosen = options(cache=kind)
    graph = load_for(Request(path, tmp_path / "m.tw", chosen), chosen).graph
    kernels = fuse(rewrite(graph).graph).kernels
    floats = [
        buffer
        for buffer in kernels.buffers.values()
        if buffer.type.dtype is DType.F32 and buffer.type.elements >= SHARED * CAPACITY * HEAD
    ]
    assert [buffer for buffer in floats if CAPACITY in buffer.type.dims and HEAD in buffer.type.dims] == []


def stepping(path: Path) -> Path:
    """A recurrent network: a state that is no cache."""
    info, f32 = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [helper.make_node("Add", ["x", "h"], ["sum"]), helper.make_node("Tanh", ["sum"], ["hn"])]
    nodes.append(helper.make_node("Identity", ["hn"], ["y"]))
    shapes = [info(name, f32, [1, 2, 8]) for name in ("x", "h", "y", "hn")]
    graph = helper.make_graph(nodes, "g", shapes[:2], shapes[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_a_state_that_is_no_cache_is_refused_before_and_when_compiling(tmp_path: Path) -> None:
    path = stepping(tmp_path / "m.onnx")
    chosen = CompileOptions.from_json({"carry": "auto", "cache": "int8"})
    with pytest.raises(OptionsError, match="cache is int8, and no state is a cache in fp32"):
        compile_file(path, tmp_path / "m.tw", chosen)
    assert "no state is a cache" in preflight(path, chosen)["problem"]["message"]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"cache": "int8"}, "applies to caches that are states"), ({"cache": "fp8", "carry": "auto"}, "is unknown")],
)
def test_options_without_a_meaning_are_refused(given: Mapping[str, Any], said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        CompileOptions.from_json(given)


@KINDS
def test_what_the_cache_costs_is_said_and_counts_for_a_stated_tolerance(tmp_path: Path, kind: str) -> None:
    path, said = decoder(tmp_path / "m.onnx", masked=False), []
    compile_file(path, tmp_path / "m.tw", options(cache=kind), observe=lambda event: said.append(event.message))
    (notice,) = [text for text in said if text.startswith("caches lie in")]
    assert f"caches lie in {kind}: {BYTES[kind] / 1e6:.3g} MB instead of {4 * ELEMENTS / 1e6:.3g} MB" in notice
    with pytest.raises(Disagreement, match=rf"caches lie in {kind}.*1e-05 is accepted") as raised:
        compile_file(path, tmp_path / "m.tw", options(cache=kind, tolerance=1e-5))
    assert "leave cache out" in raised.value.fix


def test_a_state_takes_elements_of_its_own_type_alone(compiled: tuple[str, Path]) -> None:
    with Model(compiled[1]) as model:
        state = model.state()
        name = "past_key_values.0.key"
        with pytest.raises(InputError):
            state[name] = np.zeros(state[name].shape, np.float32)
