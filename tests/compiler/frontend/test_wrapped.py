"""Sequences and optionals as inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import Loaded, bind_what_is_open, load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

LIST = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 2]))


def model_of(kind: onnx.TypeProto, nodes: list[onnx.NodeProto], outputs: list[str]) -> bytes:
    x = helper.make_value_info("x", kind)
    beside = helper.make_tensor_value_info("k", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, "g", [x, beside], [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def loaded(model: bytes, inputs: dict[str, Any]) -> Loaded:
    return load(model, CompileOptions.from_json({"inputs": inputs}), OPERATORS)


JOINED = [
    helper.make_node("ConcatFromSequence", ["x"], ["all"], axis=0),
    helper.make_node("Add", ["all", "k"], ["y"]),
]


@pytest.mark.parametrize("counted", [True, False])
def test_elements_of_a_sequence_are_inputs_each_of_its_own_size(counted: bool) -> None:
    shapes: dict[str, Any] = {"x.0": [3, 2], "x.1": [1, 2]}
    found = loaded(model_of(LIST, JOINED, ["y"]), {**shapes, **({"x": [2]} if counted else {})})
    assert found.border.outside.sequences == {"x": 2}
    graph = found.graph
    assert [graph.values[id].name for id in graph.inputs] == ["x.0", "x.1", "k"]
    arrays = [np.arange(6.0).reshape(3, 2), np.array([[7.0, 8.0]]), np.array([10.0, 20.0])]
    (result,) = graph.outputs
    values = evaluate_graph(graph, dict(zip(graph.inputs, arrays, strict=True)), OPERATORS)
    np.testing.assert_array_equal(values[result], np.concatenate(arrays[:2]) + arrays[2])


def test_elements_that_options_leave_open_get_ranges_of_their_own() -> None:
    model = model_of(LIST, JOINED, ["y"])
    options, _ = bind_what_is_open(model, CompileOptions.from_json({"inputs": {"x": [2]}}), OPERATORS)
    assert "x" in options.inputs
    found = load(model, options, OPERATORS)
    assert [found.graph.type(id).rank for id in found.graph.inputs[:2]] == [2, 2]


def test_a_sequence_without_a_count_is_refused() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        loaded(model_of(LIST, JOINED, ["y"]), {})
    assert '{"inputs": {"x": [2]}}' in caught.value.refusals[0].fix


def test_a_sequence_may_be_empty() -> None:
    nodes = [helper.make_node("SequenceInsert", ["x", "k"], ["s"]), helper.make_node("SequenceLength", ["s"], ["y"])]
    found = loaded(model_of(LIST, nodes, ["s", "y"]), {"x": [0]})
    assert found.border.outside.sequences == {"x": 0}
    assert found.border.outside.returned == {"s": 1}


def test_an_optional_is_there_where_options_name_it() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    nodes = [helper.make_node("OptionalHasElement", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    model = model_of(kind, [*nodes, helper.make_node("Neg", ["k"], ["w"])], ["y", "z", "w"])
    there, absent = loaded(model, {"x": [2]}), loaded(model, {})
    assert there.border.outside.missing == ()
    assert absent.border.outside.absent == ("x",)
    assert absent.border.outside.missing == ("z",)
    for found, wanted in ((there, True), (absent, False)):
        graph = found.graph
        given = {id: np.zeros(2) for id in graph.inputs}
        assert bool(evaluate_graph(graph, given, OPERATORS)[graph.outputs[0]]) is wanted


def test_an_optional_sequence_is_a_sequence() -> None:
    found = loaded(model_of(helper.make_optional_type_proto(LIST), JOINED_OPTIONAL, ["y"]), {"x.0": [1, 2]})
    assert found.border.outside.sequences == {"x": 1}


JOINED_OPTIONAL = [
    helper.make_node("OptionalGetElement", ["x"], ["s"]),
    helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
]
