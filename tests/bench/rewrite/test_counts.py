from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from bench.cache import Cache
from bench.rewrite.counts import bound, count
from bench.stages import stages, text_of
from bench.subject import Subject
from bench.subjects import from_zoo
from compiler.contract import CompileOptions


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return from_zoo("tiny_mobile", tmp_path_factory.mktemp("models"))


def test_layers_that_a_peer_executes_are_counted_and_views_are_not(tiny: Subject, tmp_path: Path) -> None:
    found = count(tiny, ("onnxruntime",), Cache(tmp_path))
    kinds = found.peers["onnxruntime"]
    assert kinds["Conv"] == 9, "as many as the network has"
    assert {"Flatten", "Reshape"} <= set(kinds)
    assert found.views("onnxruntime") == kinds["Flatten"] + kinds["Reshape"]
    assert found.layers("onnxruntime") + found.views("onnxruntime") == sum(kinds.values())
    reported = found.to_json()
    assert reported["operators"] > reported["nodes"] >= reported["kernels"]
    assert reported["kernels"] == sum(reported["families"].values())
    assert reported["kernels"] < reported["peers"]["onnxruntime"]["layers"]


def test_a_peer_that_cannot_run_the_model_is_told_and_ours_is_counted_all_the_same(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    file = tmp_path / "m.onnx"
    model = helper.make_model(helper.make_graph([node], "g", shape[:1], shape[1:]), ir_version=10)
    onnx.save(model, file)
    one = Subject("m", "file", file, inputs={})  # nothing for x
    found = count(one, ("onnxruntime",), Cache(tmp_path)).to_json()
    assert (found["kernels"], found["peers"]) == (1, {})
    assert "onnxruntime cannot run the model" in found["failed"]["onnxruntime"]


def test_peers_get_the_dimensions_that_the_subject_binds(tmp_path: Path) -> None:
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    file = tmp_path / "open.onnx"
    onnx.save(
        helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [shape], [result])), file
    )
    into = tmp_path / "bound"
    into.mkdir()
    found = onnx.load(bound(Subject("open", "file", file, {"inputs": {"x": [2, 3]}}), into))
    assert [dim.dim_value for dim in found.graph.input[0].type.tensor_type.shape.dim] == [2, 3]
    assert bound(Subject("open", "file", file), into) == file


def test_programs_are_the_same_whatever_ids_their_values_have(tiny: Subject) -> None:
    whole = text_of(stages(tiny, CompileOptions()))
    assert text_of(stages(tiny, CompileOptions(without=("recurrence",)))) == whole
    assert text_of(stages(tiny, CompileOptions(without=("weights",)))) != whole
