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
from compiler.prove.agree import agree
from compiler.steps import proving
from compiler.steps.loading import Opened
from tests.compiling import compile_file

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
g (float[3, 8] x) => (float[3, 3, 8] y)
<float nine = {9}> {
  square = MatMul(x, turned)
  moved = Add(square, nine)
  index = Cast<to = 7>(moved)
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


def inside(model: Path) -> np.ndarray:
    """An input of COMPUTED whose indices are all 1."""
    arrays = {array.name: numpy_helper.to_array(array) for array in onnx.load(model).graph.initializer}
    row = np.linalg.lstsq(arrays["turned"].T, np.full(3, -7.5, np.float32), rcond=None)[0]
    return np.tile(row, (3, 1)).astype(np.float32)


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
    report = compile_file(model, tmp_path / "model.tw", UNMEASURED)
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
    report = compile_file(saved(tmp_path / "m.onnx", text), tmp_path / "m.tw", UNMEASURED)
    why = "Gather 'gathered' reads it as a position among 20; ScatterND 'added' reads it as a position among 20"
    assert report.input_ranges == (DemandedRange("edges", 0, 19, why),)


def test_a_model_that_computes_its_indices_asks_for_samples_and_is_compiled_with_them(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", COMPUTED)
    with pytest.raises(InputsError, match="random inputs: these inputs lead node") as caught:
        compile_file(model, tmp_path / "model.tw", UNMEASURED)
    assert "samples" in caught.value.fix
    assert not (tmp_path / "model.tw").exists()
    np.savez(tmp_path / "x.npz", x=inside(model))
    report = compile_file(model, tmp_path / "model.tw", UNMEASURED, samples={"x": tmp_path / "x.npz"})
    assert report.samples == (hashlib.sha256((tmp_path / "x.npz").read_bytes()).hexdigest(),)
    with Model(tmp_path / "model.tw") as opened:
        assert opened.manifest["samples"] == list(report.samples)


def test_a_wrong_sample_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", NETWORK)
    np.savez(tmp_path / "wrong.npz", nodes=np.ones((20, 8)), edges=np.zeros((2, 49), np.int64))
    events: list[Any] = []
    samples = {"wrong.npz": tmp_path / "wrong.npz"}
    with pytest.raises(InputsError) as caught:
        compile_file(model, tmp_path / "model.tw", UNMEASURED, observe=events.append, samples=samples)
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
    options = CompileOptions(threads=1, tuning_budget_s=600, tuning_trials=2, scheduler="sequential")
    samples = {name: tmp_path / f"{name}.npz" for name in "ab"}
    report = compile_file(model, tmp_path / "model.tw", options, samples=samples)
    assert len(report.samples) == 2
    assert raced
    assert all(np.all(given["nodes"] == 0.25) and not given["edges"].any() for given in raced)
    inputs = next(cell.cell_contents for cell in timed if isinstance(cell.cell_contents, list))
    assert np.all(inputs[0] == 0.25)


def test_the_command_takes_samples_and_names_the_file_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved(tmp_path / "model.onnx", COMPUTED)
    np.savez(tmp_path / "x.npz", x=inside(model))
    np.savez(tmp_path / "y.npz", y=np.ones(3))
    command = [str(model), "-o", str(tmp_path / "m.tw"), "--options", json.dumps({"threads": 1, "tuning_budget_s": 0})]
    assert main([*command, "--samples", str(tmp_path / "x.npz"), str(tmp_path / "y.npz")]) == 1
    assert "y.npz': input 'y' is unknown" in capsys.readouterr().err
    assert main([*command, "--json", "--samples", str(tmp_path / "x.npz")]) == 0
    assert len(json.loads(capsys.readouterr().out)["samples"]) == 1


PICKED = """<ir_version: 10, opset_import: ["": 21]>
g (float[count, 8] nodes, int64[5] picks) => (float[5, 8] y) {
  sent = Gather<axis = 0>(nodes, picks)
  y = MatMul(sent, w)
}"""
"""How far its positions reach is a matter of the binding."""
BOTH = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "dims": {"count": [4, 20]}})


def picked(path: Path, count: int, first: int = 0) -> Path:
    """A sample for a binding of PICKED; its positions are `first` and those behind it."""
    np.savez(path, nodes=np.full((count, 8), 0.5, np.float32), picks=np.arange(first, first + 5))
    return path


def test_each_binding_has_its_own_ranges_and_its_random_inputs_are_drawn_from_there(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", PICKED)
    report = compile_file(model, tmp_path / "model.tw", BOTH)
    assert [[(one.input, one.low, one.high) for one in each.input_ranges] for each in report.bindings] == [
        [("picks", 0, 3)],
        [("picks", 0, 19)],
    ]
    with Model(tmp_path / "model.tw") as ours:
        listed = [{one["name"]: one.get("range") for one in each["inputs"]} for each in ours.manifest["bindings"]]
        assert listed == [{"nodes": None, "picks": [0, 3]}, {"nodes": None, "picks": [0, 19]}]
        assert ours.manifest["inputs"] == ours.manifest["bindings"][0]["inputs"]
        for number, high in ((1, 3), (2, 19)):
            drawn = np.concatenate([ours.at(number).random_inputs(seed)["picks"] for seed in range(40)])
            assert (drawn.min(), drawn.max()) == (0, high)


def test_a_sample_is_judged_at_the_binding_that_has_its_shapes_and_the_others_draw_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path / "model.onnx", PICKED)
    sample = picked(tmp_path / "large.npz", 20, 15)
    cases: list[list[str]] = []
    timed: list[dict[str, np.ndarray]] = []
    judge, timed_inputs = agree, Opened.timed_inputs

    def noted(*arguments: Any, samples: Any, **named: Any) -> Any:
        cases.append([*samples])
        return judge(*arguments, samples=samples, **named)

    def on(opened: Opened, seed: int) -> dict[str, np.ndarray]:
        timed.append(timed_inputs(opened, seed))
        return timed[-1]

    monkeypatch.setattr(proving, "agree", noted)
    monkeypatch.setattr(Opened, "timed_inputs", on)
    compile_file(model, tmp_path / "without.tw", BOTH)
    without = [given for given in timed if len(given["nodes"]) == 4]
    assert cases == [[], []]
    cases.clear()
    timed.clear()
    report = compile_file(model, tmp_path / "model.tw", BOTH, samples={"large.npz": sample})
    digest = hashlib.sha256(sample.read_bytes()).hexdigest()
    assert cases == [[], ["sample 'large.npz'"]]
    assert report.samples == (digest,)
    assert [one.samples for one in report.bindings] == [(), (digest,)]
    with zipfile.ZipFile(tmp_path / "model.tw") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["samples"] == [digest]
    assert [one.get("samples") for one in manifest["bindings"]] == [None, [digest]]
    small, large = ([given for given in timed if len(given["nodes"]) == count] for count in (4, 20))
    assert small
    assert large
    assert all(np.array_equal(given[name], without[0][name]) for given in small for name in given)
    assert all(np.array_equal(given["picks"], np.arange(15, 20)) for given in large)


def test_samples_that_fit_no_binding_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", PICKED)
    (tmp_path / "torn.npz").write_bytes(b"no archive")
    samples = {
        "fits": picked(tmp_path / "fits.npz", 4),
        "seven": picked(tmp_path / "seven.npz", 7),
        "torn": tmp_path / "torn.npz",
    }
    events: list[Any] = []
    with pytest.raises(InputsError) as caught:
        compile_file(model, tmp_path / "model.tw", BOTH, observe=events.append, samples=samples)
    said = str(caught.value)
    assert "sample 'seven', sample 'torn' cannot be used: the inputs fit none of the model's 2 bindings" in said
    assert "sample 'seven': input 'nodes' has shape [7, 8], not [4, 8]" in said
    assert "sample 'torn': the inputs are not a whole .npz archive" in said
    assert "[4, 8]" in caught.value.fix
    assert "[20, 8]" in caught.value.fix
    assert {event.phase for event in events} == {"load"}
    assert not (tmp_path / "model.tw").exists()
    torn = {"torn": tmp_path / "torn.npz"}
    with pytest.raises(InputsError, match=r"not a whole \.npz archive"):
        compile_file(model, tmp_path / "model.tw", BOTH, samples=torn)
