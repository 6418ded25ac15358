"""Recurrent layers that are pruned: as matrices, in a small network from end to end, and what is left dense."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from compiler.compress import compress
from compiler.compress.alone import model_of
from compiler.compress.layers import layers_of
from compiler.compress.parts import parts_of
from compiler.compress.prune import Matrices, Pruner
from compiler.compress.recurrent import apart, inputs_of, joined
from compiler.contract import CompileOptions, CompressOptions
from compiler.ir.graph import Node
from compiler.ops import OPERATORS
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.network import open_network
from tests.compiler.quantize.models import Drawn, saved
from tests.compiling import compile_file

STEPS, WIDE, HIDDEN = 12, 32, 48
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def network(operator: str = "LSTM", directions: int = 1) -> onnx.ModelProto:
    """A recurrent layer between two products, over a sequence of 12 steps."""
    d = Drawn(5)
    rows = GATES[operator] * HIDDEN
    weights = [d.constant(name, d.random.normal(size=(directions, rows, wide)) * 0.3)
               for name, wide in (("w", WIDE), ("r", HIDDEN))]  # fmt: skip
    bias = d.constant("b", d.random.normal(size=(directions, 2 * rows)) * 0.1)
    direction = "bidirectional" if directions == 2 else "forward"
    d.node("MatMul", ["x", d.weights("w0", 16, WIDE)], "a", "first")
    d.node(operator, ["a", *weights, bias], "h", "recurrent", hidden_size=HIDDEN, direction=direction)
    d.constant("shape", [STEPS, directions * HIDDEN], np.int64)
    d.node("Reshape", ["h", "shape"], "flat")
    d.node("MatMul", ["flat", d.weights("w1", directions * HIDDEN, 8)], "y", "last")
    return d.model({"x": (STEPS, 1, 16)}, {"y": (STEPS, 8)})


def smooth(path: Path) -> Path:
    """An archive of 8 sequences whose neighbouring steps and features are alike."""
    drawn = np.random.default_rng(2).normal(size=(8, STEPS, 1, 16))
    for axis in (1, 3):
        drawn = drawn + np.roll(drawn, 1, axis) + np.roll(drawn, 2, axis)
    np.savez(path, x=drawn.astype(np.float32))
    return path


def pruned(folder: Path, model: onnx.ModelProto, **options: Any) -> tuple[Path, dict[str, Any]]:
    source, out = saved(model, folder), folder / "pruned.onnx"
    report = compress(source, out, CompressOptions(tuning_budget_s=0.0, **options), {"s": smooth(folder / "s.npz")})
    onnx.checker.check_model(out, full_check=True)
    return out, report.to_json()


def stored(path: Path) -> dict[str, np.ndarray]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}


def of_runtime(file: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(("operator", "directions"), [("LSTM", 2), ("GRU", 1), ("RNN", 1)])
def test_a_recurrent_layer_is_pruned_and_its_zeros_are_left_out(operator: str, directions: int, tmp_path: Path) -> None:
    out, report = pruned(tmp_path, network(operator, directions), sparsity=0.85)
    assert [row["node"] for row in report["layers"]] == ["first", "recurrent", "last"]
    row = report["layers"][1]
    assert row["weights"] == (directions, GATES[operator] * HIDDEN, WIDE + HIDDEN)
    assert row["sparsity"] >= 0.85
    assert row["us"] < row["dense_us"]
    assert [len(one["levels"]) for one in report["layers"]] == [0, 7, 0]
    before, after = stored(tmp_path / "model.onnx"), stored(out)
    assert {name for name in before if not np.array_equal(before[name], after[name])} == {"w", "r"}
    zeros = sum(np.count_nonzero(after[name] == 0) for name in "wr")
    assert zeros / sum(after[name].size for name in "wr") == pytest.approx(row["sparsity"], abs=1e-4)
    unseen = np.load(tmp_path / "s.npz")["x"][6:]
    both = [np.stack([of_runtime(file, x) for x in unseen]) for file in (tmp_path / "model.onnx", out)]
    assert np.linalg.norm(both[1] - both[0]) / np.linalg.norm(both[0]) == pytest.approx(report["error"], rel=1e-3)
    compile_file(out, tmp_path / "pruned.tw", CompileOptions(tuning_budget_s=0.0, threads=1))
    with zipfile.ZipFile(tmp_path / "pruned.tw") as artifact:
        tiles = {call["tile"].split()[0] for call in json.loads(artifact.read("plan.json"))["calls"]}
    assert "sparse_picked_recurrent" in tiles


def test_what_remains_makes_up_for_what_became_zero(tmp_path: Path) -> None:
    errors = {
        method: pruned(tmp_path, network(), sparsity=0.8, method=method)[1]["error"] for method in ("magnitude", "obs")
    }
    assert errors["obs"] < 0.7 * errors["magnitude"]


def test_blocks_of_one_input_by_sixteen_gates_hold_in_the_file(tmp_path: Path) -> None:
    out, report = pruned(tmp_path, network(directions=2), sparsity=0.8, form="1x16")
    for name in "wr":
        kept = stored(out)[name] != 0
        groups = kept.reshape(2, -1, 16, kept.shape[2])
        assert np.array_equal(groups.any(2), groups.all(2))
    assert report["layers"][1]["sparsity"] == pytest.approx(0.8, abs=0.02)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.sampled_from(["forward", "reverse", "bidirectional"]), st.booleans(), st.booleans(), st.booleans(),
    st.integers(0, 2**16),
)  # fmt: skip
def test_columns_times_rows_are_what_the_activation_is_given(
    direction: str, batch_first: bool, shorter: bool, begun: bool, seed: int
) -> None:
    random, count = np.random.default_rng(seed), 2 if direction == "bidirectional" else 1
    x, w, r = random.normal(size=(5, 3, 6)), random.normal(size=(count, 4, 6)), random.normal(size=(count, 4, 4))
    lengths = random.integers(1, 6, 3) if shorter else None
    initial = random.normal(size=(count, 3, 4)) if begun else None
    if batch_first:
        x, initial = x.swapaxes(0, 1), None if initial is None else initial.swapaxes(0, 1)
    node = Node("RNN", (0, 1, 2, None, 3, 4), (5,), {"direction": direction, "layout": int(batch_first)})
    read = (x, w, r, None, lengths, initial)
    (y,) = OPERATORS["RNN"].reference(node, read)
    whole = joined(w, r)
    assert all(np.array_equal(*pair) for pair in zip(apart("RNN", whole), (w, r), strict=True))
    inside = np.arange(5)[:, None] < (np.full(3, 5) if lengths is None else lengths)
    found = [*inputs_of(node, read, y)]
    assert len(found) == count
    for at, columns in enumerate(found):
        states = (y.transpose(1, 2, 0, 3) if batch_first else y)[:, at][inside]
        np.testing.assert_allclose(np.tanh(columns @ whole[at].T), states, atol=1e-12)


def test_each_direction_is_pruned_by_what_it_meets() -> None:
    random = np.random.default_rng(3)
    weights = random.normal(size=(2, 8, 12))
    grams = [one.T @ one for one in random.normal(size=(2, 40, 12))]
    both = Matrices(weights.reshape(16, 12), grams, lambda own, gram: Pruner(own, gram, "obs", "unstructured")).at(0.5)
    each = [Pruner(own, gram, "obs", "unstructured").at(0.5) for own, gram in zip(weights, grams, strict=True)]
    np.testing.assert_array_equal(both.reshape(weights.shape), each)


def test_a_layer_alone_computes_what_its_operator_does_without_what_depends_on_the_network(tmp_path: Path) -> None:
    d = Drawn()
    weights = [d.weights("w", 1, 4 * 16, 20), d.weights("r", 1, 4 * 16, 16), d.weights("b", 1, 8 * 16)]
    d.constant("lengths", [4, 2], np.int32)
    state = [d.weights("h", 1, 2, 16), d.weights("c", 1, 2, 16), d.weights("p", 1, 3 * 16)]
    d.node("LSTM", ["x", *weights, "lengths", *state], "y", "one", hidden_size=16)
    d.nodes[-1].output[:] = ["", "y"]
    path = saved(d.model({"x": (5, 2, 20)}, {"y": (1, 2, 16)}), tmp_path)
    sample = {"x": np.zeros((5, 2, 20), np.float32)}
    loaded = Evaluated(path, CompressOptions(sparsity=0.5)).loaded(sample)
    ((layer,), left) = layers_of(open_network(path)[1], loaded.graph, (), ends=True)
    assert (layer.result, left) == ("y", [])
    assert np.array_equal(layer.shaped(layer.rows(layer.weights)), layer.weights)
    file = tmp_path / "alone.onnx"
    file.write_bytes(model_of(layer, (5, 2, 20), parts_of(layer, layer.weights, None), in_bytes=False))
    assert of_runtime(file, sample["x"]).shape == (5, 1, 2, 16)
    made = onnx.load(file)
    (node,) = made.graph.node
    assert [bool(name) for name in node.input] == [True, True, True, True, False, False, False, True]
    constants = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    assert np.array_equal(joined(constants[node.input[1]], constants[node.input[2]]), layer.weights)
    assert constants[node.input[7]].shape == (1, 48)


def test_weights_that_two_layers_share_stay_and_the_ends_do(tmp_path: Path) -> None:
    d = Drawn()
    for at, (read, taken) in enumerate((("x", "a"), ("b", "c"))):
        d.node("RNN", [read, d.weights("w", 1, 32, 32), d.weights("r", 1, 32, 32)], taken, f"r{at}", hidden_size=32)
        d.constant("axes", [1], np.int64)
        d.node("Squeeze", [taken, "axes"], "b" if at == 0 else "e")
    d.node("RNN", ["e", d.weights("v", 1, 32, 32), d.weights("u", 1, 32, 32)], "f", "r2", hidden_size=32)
    d.node("Squeeze", ["f", "axes"], "y")
    path = saved(d.model({"x": (4, 1, 32)}, {"y": (4, 1, 32)}), tmp_path)
    graph = Evaluated(path, CompressOptions(sparsity=0.5)).loaded({"x": np.zeros((4, 1, 32), np.float32)}).graph
    layers, left = layers_of(open_network(path)[1], graph, (), ends=True)
    assert ([one.name for one in layers], [one.reason for one in left]) == (["r2"], ["its weights are shared"] * 2)
    d.nodes[2].input[1:3] = [d.weights("w2", 1, 32, 32), d.weights("r2", 1, 32, 32)]
    path = saved(d.model({"x": (4, 1, 32)}, {"y": (4, 1, 32)}), tmp_path)
    graph = Evaluated(path, CompressOptions(sparsity=0.5)).loaded({"x": np.zeros((4, 1, 32), np.float32)}).graph
    layers, left = layers_of(open_network(path)[1], graph, (), ends=False)
    assert [one.name for one in layers] == ["r1"]
    assert [one.reason.split(":")[0] for one in left] == ["it is the first", "it is the last"]
