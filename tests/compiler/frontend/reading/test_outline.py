"""The graph of a file as it was sent: what it says of each node, also where the model is refused."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import MalformedModel, ModelTooLarge, UnsupportedModel
from compiler.frontend import Limits, load, outline
from compiler.frontend.reading.outline import MOST_BYTES, STEP
from compiler.ops import OPERATORS


def file(nodes: list[onnx.NodeProto], *, tensors: tuple[onnx.TensorProto, ...] = (), output: str = "y") -> bytes:
    """A model of input x f32[batch, 4] with these nodes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        list(tensors),
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("strange", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def test_each_node_has_its_operator_name_attributes_and_what_it_reads_and_writes() -> None:
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    reported = outline(
        file(
            [
                helper.make_node("Gemm", ["x", "w"], ["h"], alpha=0.5, transB=0),
                helper.make_node("Foo", ["h", ""], ["y"], name="last", domain="strange", mode="a", axes=[1, 2]),
            ],
            tensors=(weight,),
        )
    )
    (step,) = reported["steps"]
    assert step["name"] == STEP
    numbers = {value["name"]: int(number) for number, value in reported["values"].items()}
    assert step["nodes"] == [
        {
            "op": "Gemm",
            "name": "#0 Gemm",
            "reads": [numbers["x"], numbers["w"]],
            "writes": [numbers["h"]],
            "attributes": {"alpha": "0.5", "transB": "0"},
        },
        {
            "op": "strange::Foo",
            "name": "last",
            "reads": [numbers["h"], None],
            "writes": [numbers["y"]],
            "attributes": {"axes": "(1, 2)", "mode": "a"},
        },
    ]
    assert reported["values"][str(numbers["x"])]["type"] == "f32[batch, 4]"
    assert reported["values"][str(numbers["y"])]["type"] == "f32"
    assert reported["values"][str(numbers["w"])] == {"name": "w", "type": "f32[4, 3]", "constant": {"elements": 12}}
    assert (step["inputs"], step["outputs"]) == ([numbers["x"]], [numbers["y"]])


def test_a_refused_model_is_there_with_the_node_that_its_refusal_names() -> None:
    refused = file([helper.make_node("Relu", ["x"], ["h"]), helper.make_node("ImageDecoder", ["h"], ["y"])])
    with pytest.raises(UnsupportedModel) as error:
        load(refused, CompileOptions.from_json({"dims": {"batch": 1}}), OPERATORS)
    names = [node["name"] for node in outline(refused)["steps"][0]["nodes"]]
    assert [one.node for one in error.value.refusals] == ["#1 ImageDecoder"] == names[1:]


def test_nodes_of_subgraphs_are_named_and_what_they_capture_is_read() -> None:
    empty = [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)]
    inner = helper.make_graph([helper.make_node("Neg", ["h"], ["a"], name="deep")], "inner", [], empty)
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ]
    reported = outline(file(nodes))
    names = {int(number): value["name"] for number, value in reported["values"].items()}
    chosen = reported["steps"][0]["nodes"][-1]
    assert chosen["inside"] == ["deep", "deep"]
    assert [names[one] for one in chosen["reads"]] == ["c", "h"]
    assert chosen["attributes"]["then_branch"] == "a graph of 1 nodes"


def test_what_is_malformed_is_shown_as_far_as_it_goes_and_readers_come_after_writers() -> None:
    nodes = [
        helper.make_node("Relu", ["h"], ["y"], name="second"),
        helper.make_node("Add", ["x", "missing"], ["h"], name="first"),
        helper.make_node("Add", ["r", "x"], ["s"], name="round"),
        helper.make_node("Neg", ["s"], ["r"], name="about"),
    ]
    broken = file(nodes)
    with pytest.raises(MalformedModel):
        load(broken, CompileOptions.from_json({"dims": {"batch": 1}}), OPERATORS)
    assert [node["name"] for node in outline(broken)["steps"][0]["nodes"]] == ["first", "second", "round", "about"]


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07"])
def test_what_is_no_model_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedModel):
        outline(content)


def test_what_is_too_large_to_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = file([helper.make_node("Relu", ["x"], ["y"])])
    assert len(json.dumps(outline(one))) < MOST_BYTES
    with pytest.raises(ModelTooLarge):
        outline(one, Limits(nodes=0))
    monkeypatch.setattr(sys.modules[outline.__module__], "MOST_BYTES", 100)
    with pytest.raises(ModelTooLarge):
        outline(one)


def test_nodes_come_after_those_that_they_read_whatever_their_order_in_the_file() -> None:
    reads = {"y": ["c", "a"], "c": ["b"], "b": ["a"], "a": ["x"]}
    nodes = [helper.make_node("Sum", read, [name], name=name) for name, read in reads.items()]
    assert [node["name"] for node in outline(file(nodes))["steps"][0]["nodes"]] == ["a", "b", "c", "y"]


def test_nodes_of_a_cycle_come_last() -> None:
    reads = {"q": ["p"], "p": ["q", "a"], "y": ["a"], "a": ["x"]}
    nodes = [helper.make_node("Sum", read, [name], name=name) for name, read in reads.items()]
    assert [node["name"] for node in outline(file(nodes))["steps"][0]["nodes"]] == ["a", "y", "q", "p"]
