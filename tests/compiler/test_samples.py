"""Models whose inputs are indices, from their bytes to an artifact; with samples of inputs, and without."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from compiler.__main__ import main
from compiler.contract import CompileOptions, DemandedRange
from compiler.devices import whole
from compiler.errors import InputsError
from compiler.measure.latency import model_latency
from compiler.pack.loader import Model
from compiler.pipeline import compile_model
from compiler.steps import proving

UNMEASURED = CompileOptions(threads=1, tuning_budget_s=0)

NETWORK = """<ir_version: 10, opset_import: ["": 21]>
g (float[20, 8] nodes, int64[2, 50] edges) => (float[20, 8] y)
<int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}> {
  begins = Gather<axis = 0>(edges, zero)
  ends = Gather<axis = 0>(edges, one)
  sent = Gather<axis = 0>(nodes, begins)
  message = MatMul(sent, w)
  rows = Unsqueeze(ends, last)
  received = ScatterND<reduction = "add">(silence, rows, message)
  y = Relu(received)
}"""
"""A layer of a graph network: nodes send along edges, and add what they receive."""

EMBEDDING = """<ir_version: 10, opset_import: ["": 21]>
g (int64[2, 7] tokens, int64[1, 7] position_ids, int64[2, 7] attention_mask) => (float[2, 7, 8] y)
<int64 two = {2}, float one = {1}, float far = {-10000}> {
  words = Gather<axis = 0>(table, tokens)
  shifted = Add(position_ids, two)
  places = Gather<axis = 0>(positions, shifted)
  embedded = Add(words, places)
  mask = Cast<to = 1>(attention_mask)
  hidden = Sub(one, mask)
  bias = Mul(hidden, far)
  weights = Softmax<axis = 1>(bias)
  last = Unsqueeze(weights, axes)
  y = Mul(embedded, last)
}"""

COMPUTED = """<ir_version: 10, opset_import: ["": 21]>
g (float[3, 8] x) => (float[3, 3, 8] y) {
  square = MatMul(x, turned)
  index = Cast<to = 7>(square)
  y = Gather<axis = 0>(few, index)
}"""
"""What it reads is computed: nothing says which inputs lead inside its table of four rows."""


def saved(path: Path, text: str) -> Path:
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(3)
    arrays = {
        "w": random.standard_normal((8, 8)).astype(np.float32),
        "silence": np.zeros((20, 8), np.float32),
        "table": random.standard_normal((31, 8)).astype(np.float32),
        "positions": random.standard_normal((9, 8)).astype(np.float32),
        "axes": np.array([2]),
        "turned": random.standard_normal((8, 3)).astype(np.float32),
        "few": random.standard_normal((4, 8)).astype(np.float32),
    }
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in arrays if name in read)
    onnx.save(model, path)
    return path


def judged(model: Path, artifact: Path) -> dict[str, Any]:
    """The artifact's own random inputs, on which it gives what another runtime gives."""
    with Model(artifact) as ours:
        inputs = ours.random_inputs(5)
        theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, inputs)
        for got, want in zip(ours.run(inputs).values(), theirs, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        return inputs


@pytest.mark.parametrize("text", [NETWORK, EMBEDDING], ids=["graph network", "embedding"])
def test_inputs_that_are_indices_are_drawn_from_their_ranges_by_compiler_and_artifact(
    text: str, tmp_path: Path
) -> None:
    model = saved(tmp_path / "model.onnx", text)
    report = compile_model(model, tmp_path / "model.tw", UNMEASURED)
    assert report.samples == ()
    wanted = (
        {"edges": (0, 19)}
        if text is NETWORK
        else {"tokens": (0, 30), "position_ids": (-2, 6), "attention_mask": (0, 1)}
    )
    assert {one.input: (one.low, one.high) for one in report.input_ranges} == wanted
    with zipfile.ZipFile(tmp_path / "model.tw") as archive:
        manifest, page = json.loads(archive.read("manifest.json")), archive.read("report.html").decode()
    assert "samples" not in manifest
    assert {one["name"]: tuple(one["range"]) for one in manifest["inputs"] if "range" in one} == wanted
    first = report.input_ranges[0]
    assert f"{first.low} to {first.high}: {first.why.split()[0]}" in page
    drawn = judged(model, tmp_path / "model.tw")
    for name, (low, high) in wanted.items():
        assert low <= drawn[name].min() <= drawn[name].max() <= high


def test_an_artifact_says_which_nodes_demand_a_range(tmp_path: Path) -> None:
    text = NETWORK.replace("sent = Gather", "[gathered] sent = Gather").replace(
        "received = Sc", "[added] received = Sc"
    )
    report = compile_model(saved(tmp_path / "m.onnx", text), tmp_path / "m.tw", UNMEASURED)
    why = "Gather 'gathered' reads it as a position among 20; ScatterND 'added' reads it as a position among 20"
    assert report.input_ranges == (DemandedRange("edges", 0, 19, why),)


def test_a_model_that_computes_its_indices_asks_for_samples_and_is_compiled_with_them(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", COMPUTED)
    with pytest.raises(InputsError, match="random inputs: these inputs lead node") as caught:
        compile_model(model, tmp_path / "model.tw", UNMEASURED)
    assert "samples" in caught.value.fix
    assert not (tmp_path / "model.tw").exists()
    np.savez(tmp_path / "x.npz", x=np.full((3, 8), 0.01, np.float32))
    report = compile_model(model, tmp_path / "model.tw", UNMEASURED, samples={"x": tmp_path / "x.npz"})
    assert report.samples == (hashlib.sha256((tmp_path / "x.npz").read_bytes()).hexdigest(),)
    with Model(tmp_path / "model.tw") as opened:
        assert opened.manifest["samples"] == list(report.samples)


def test_a_wrong_sample_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", NETWORK)
    np.savez(tmp_path / "wrong.npz", nodes=np.ones((20, 8)), edges=np.zeros((2, 49), np.int64))
    events: list[Any] = []
    samples = {"wrong.npz": tmp_path / "wrong.npz"}
    with pytest.raises(InputsError) as caught:
        compile_model(model, tmp_path / "model.tw", UNMEASURED, observe=events.append, samples=samples)
    assert "sample 'wrong.npz': input 'edges' has shape [2, 49], not [2, 50]" in str(caught.value)
    assert {event.phase for event in events} == {"load"}


def test_whole_runs_are_timed_on_the_first_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of plans that are raced, and those of the artifact."""
    model = saved(tmp_path / "model.onnx", NETWORK)
    for at, name in enumerate("ab"):
        edges = np.full((2, 50), at, np.int64)
        np.savez(tmp_path / f"{name}.npz", nodes=np.full((20, 8), 0.25 + at, np.float32), edges=edges)
    raced: list[Any] = []
    bound = whole._bound

    def noted(opened: Any, given: Any) -> Any:
        raced.append(given)
        return bound(opened, given)

    monkeypatch.setattr(whole, "_bound", noted)
    timed: list[Any] = []

    def latency(run: Any, seconds: float) -> Any:
        timed.extend(run.__closure__)
        return model_latency(run, seconds)

    monkeypatch.setattr(proving, "model_latency", latency)
    options = CompileOptions(threads=1, tuning_budget_s=4, scheduler="sequential")
    samples = {name: tmp_path / f"{name}.npz" for name in "ab"}
    report = compile_model(model, tmp_path / "model.tw", options, samples=samples)
    assert len(report.samples) == 2
    assert raced
    assert all(np.all(given["nodes"] == 0.25) and not given["edges"].any() for given in raced)
    inputs = next(cell.cell_contents for cell in timed if isinstance(cell.cell_contents, list))
    assert np.all(inputs[0] == 0.25)


def test_the_command_takes_samples_and_names_the_file_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved(tmp_path / "model.onnx", COMPUTED)
    np.savez(tmp_path / "x.npz", x=np.full((3, 8), 0.01, np.float32))
    np.savez(tmp_path / "y.npz", y=np.ones(3))
    command = [str(model), "-o", str(tmp_path / "m.tw"), "--options", json.dumps({"threads": 1, "tuning_budget_s": 0})]
    assert main([*command, "--samples", str(tmp_path / "x.npz"), str(tmp_path / "y.npz")]) == 1
    assert "y.npz': input 'y' is unknown" in capsys.readouterr().err
    assert main([*command, "--json", "--samples", str(tmp_path / "x.npz")]) == 0
    assert len(json.loads(capsys.readouterr().out)["samples"]) == 1
