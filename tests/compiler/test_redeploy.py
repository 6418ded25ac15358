"""The program of an artifact is made again with other weights: nothing is measured, and what differs is told."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from bench import subjects
from compiler import redeploy as command
from compiler.contract import CompileOptions, Event
from compiler.errors import ArtifactUnusable
from compiler.ir.graph import Graph
from compiler.pack.alike import difference
from compiler.pack.graphs import Step, steps_json
from compiler.pack.loader import Model
from compiler.redeploy import redeploy
from tests.compiling import compile_file
from tests.parse import parse_graph

OPTIONS = {"tuning_budget_s": 600, "tuning_trials": 3, "threads": 1}
OF_VALUES = {"manifest.json", "graph.json", "report.html", "weights.bin"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return subjects.from_zoo("tiny_cnn", tmp_path_factory.mktemp("model")).file


@pytest.fixture(scope="module")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "model.tw"
    assert compile_file(model, path, CompileOptions.from_json(OPTIONS)).records_measured
    return path


def tuned(model: Path, path: Path, change: Callable[[str, np.ndarray], np.ndarray]) -> Path:
    """The model with other values of what it holds in floats."""
    loaded = onnx.load(model)
    for tensor in loaded.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(change(tensor.name, array).astype(np.float32), tensor.name))
    onnx.save(loaded, path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_other_weights_give_the_same_program_with_nothing_measured(artifact: Path, model: Path, tmp_path: Path) -> None:
    drawn = np.random.default_rng(7)
    other = tuned(model, tmp_path / "tuned.onnx", lambda _, array: array * drawn.uniform(0.9, 1.1, array.shape))
    events: list[Event] = []
    found = redeploy(artifact, other, tmp_path / "tuned.tw", observe=events.append)
    assert found.is_same_program, str(found)
    assert (found.changed, found.calls, found.reasons) == ((), (), ())
    assert found.measured > 0
    assert not [event for event in events if event.kind == "record"]
    assert max(one.max_relative for one in found.errors) <= found.tolerance
    before, now = members(artifact), members(tmp_path / "tuned.tw")
    assert {name for name in before if before[name] != now[name]} <= OF_VALUES
    assert before["weights.bin"] != now["weights.bin"]
    assert {"model.so", "plan.json", "replay.jsonl"} <= before.keys()
    with Model(tmp_path / "tuned.tw") as opened:
        given = opened.random_inputs(3)
        results = list(opened.run(given).values())
    expected = ReferenceEvaluator(onnx.load(other)).run(None, given)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_where_values_decide_it_is_told_which_kernels_are_others(
    artifact: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tuned(model, tmp_path / "zeros.onnx", most_zero)
    assert command.main([str(artifact), str(other), "-o", str(tmp_path / "zeros.tw"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["same_program"] is False
    assert {"model.so", "plan.json"} <= {*said["differing"]}
    assert said["changed"]
    assert len(said["changed"]) < said["kernels"], "kernels of weights without zeros are the same"
    assert any(": sparse" in call and "by the cost model" in call for call in said["calls"]), said["calls"]
    assert said["reasons"] == []


def most_zero(name: str, array: np.ndarray) -> np.ndarray:
    """Of each convolution all filters but two are zero."""
    return (
        np.where(np.arange(len(array)).reshape(-1, *[1] * (array.ndim - 1)) < 2, array, 0) if array.ndim == 4 else array
    )


def test_a_model_of_another_graph_is_refused_by_the_node_that_differs(
    artifact: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = onnx.load(model)
    node = next(node for node in loaded.graph.node if node.op_type == "Relu")
    node.op_type = "Sigmoid"
    onnx.save(loaded, tmp_path / "other.onnx")
    arguments = [str(artifact), str(tmp_path / "other.onnx"), "-o", str(tmp_path / "other.tw"), "--json"]
    assert command.main(arguments) == 1
    said = json.loads(capsys.readouterr().out)["error"]
    assert said["code"] == ArtifactUnusable.code
    assert said["fix"]
    (refusal,) = said["refusals"]
    assert (refusal["operator"], refusal["node"]) == ("Sigmoid", node.name)
    assert "Relu" in refusal["reason"]
    assert not (tmp_path / "other.tw").exists()


GRAPH = """graph(%0: f32[2, 3]) -> (%4)
  %1: f32[3] = const {2, 3, 5}
  %2: f32[2, 3] = Add(%0, %1)
  %3: f32[2, 3] = Softmax(%2) axis=1
  %4: f32[2, 3] = Mul(%3, %2)"""


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ("axis=1", "axis=0", "its axis is 0, and 1 in the artifact"),
        ("Mul(%3, %2)", "Mul(%2, %3)", "tensor 0 that it reads is another one of the graph"),
        ("Mul(%3, %2)", "Div(%3, %2)", "in the artifact it is Mul"),
        ("Mul(%3, %2)", "Mul(%3, %1)", "tensor 1 that it reads is f32[3], and f32[2, 3] in the artifact"),
        ("%4: f32[2, 3] = Mul(%3, %2)", "%4: f32[2, 3] = Mul(%3, %2)\n  %5: f32[2, 3] = Relu(%4)", "has such a node"),
        ("(%4)\n", "(%4, %3)\n", "2 outputs, and the artifact 1"),
    ],
)
def test_each_difference_of_two_graphs_is_found(written: str, instead: str, expected: str) -> None:
    packed = steps_json([Step("load", parse_graph(GRAPH))])
    found = difference(packed, parse_graph(GRAPH.replace(written, instead)))
    assert found is not None
    assert expected in found.reason


def test_values_of_constants_and_names_inside_may_differ_and_names_of_ports_may_not() -> None:
    graph = parse_graph(GRAPH)
    packed = steps_json([Step("load", graph)])
    assert difference(packed, parse_graph(GRAPH.replace("{2, 3, 5}", "{7, 8, 9}"))) is None
    assert difference(packed, named(graph, 2, "inner")) is None
    found = difference(packed, named(graph, 0, "image"))
    assert found is not None
    assert "'image'" in found.reason


def named(graph: Graph, id: int, name: str) -> Graph:
    return replace(graph, values={**graph.values, id: replace(graph.values[id], name=name)})
