from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import MalformedModel, ModelTooLarge, UnsupportedModel
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops.operator import Operator

Operators = Mapping[str, Operator]
Maker = Callable[..., bytes]
Runner = Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]]
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]


def function(
    name: str, nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], **more: Any
) -> onnx.FunctionProto:
    return helper.make_function("local", name, inputs, outputs, nodes, OPSETS, **more)


def call(name: str, inputs: list[str], outputs: list[str], **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, domain="local", name=f"call {outputs[0]}", **attrs)


def referring(op: str, inputs: list[str], outputs: list[str], kind: int, **references: str) -> onnx.NodeProto:
    node = helper.make_node(op, inputs, outputs, name=f"inner {op}")
    for name, reference in references.items():
        node.attribute.append(AttributeProto(name=name, ref_attr_name=reference, type=kind))  # type: ignore[arg-type]
    return node


def test_a_function_is_inlined_with_names_and_sources_of_its_own(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    twice = function("Twice", [helper.make_node("Add", ["x", "x"], ["y"], name="double")], ["x"], ["y"])
    nodes = [call("Twice", ["x"], ["a"]), call("Twice", ["a"], ["y"])]
    graph = load(
        make_model(nodes, {"x": [3]}, ["y"], functions=[twice], domains=["local"]), CompileOptions(), operators
    ).graph
    assert [node.op for node in graph.nodes] == ["Add", "Add"]
    assert [node.source for node in graph.nodes] == ["call a/double", "call y/double"]
    assert [graph.values[node.outputs[0]].name for node in graph.nodes] == ["a", "y"]
    np.testing.assert_array_equal(run_graph(graph, {"x": np.ones(3, np.float32)})["y"], [4, 4, 4])


def test_attributes_of_a_call_reach_the_body_and_defaults_stand_in(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    leaky = function(
        "Leaky",
        [referring("LeakyRelu", ["x"], ["y"], AttributeProto.FLOAT, alpha="slope")],
        ["x"],
        ["y"],
        attribute_protos=[helper.make_attribute("slope", 0.5)],
    )
    nodes = [call("Leaky", ["x"], ["y"]), call("Leaky", ["x"], ["z"], slope=0.25)]
    graph = load(
        make_model(nodes, {"x": [1]}, ["y", "z"], functions=[leaky], domains=["local"]), CompileOptions(), operators
    ).graph
    got = run_graph(graph, {"x": np.array([-8], np.float32)})
    assert (got["y"][0], got["z"][0]) == (-4, -2)


def test_a_reference_to_an_attribute_that_is_not_given_leaves_the_default(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    body = [referring("LeakyRelu", ["x"], ["y"], AttributeProto.FLOAT, alpha="slope")]
    leaky = function("Leaky", body, ["x"], ["y"], attributes=["slope"])
    model = make_model([call("Leaky", ["x"], ["y"])], {"x": [1]}, ["y"], functions=[leaky], domains=["local"])
    graph = load(model, CompileOptions(), operators).graph
    np.testing.assert_allclose(run_graph(graph, {"x": np.array([-8], np.float32)})["y"], [-0.08], rtol=1e-6)


def test_absent_inputs_and_unused_outputs_of_a_function_are_absent_inside(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    body = [helper.make_node("Clip", ["x", "low", "high"], ["y"]), helper.make_node("Neg", ["x"], ["n"])]
    clip = function("Clamp", body, ["x", "low", "high"], ["y", "n"])
    model = make_model(
        [call("Clamp", ["x", "", "top"], ["y"])],
        {"x": [2]},
        ["y"],
        initializers={"top": np.array(1, np.float32)},
        functions=[clip],
        domains=["local"],
    )
    graph = load(model, CompileOptions(), operators).graph
    assert [node.op for node in graph.nodes] == ["Clip"]
    np.testing.assert_array_equal(run_graph(graph, {"x": np.array([-9, 9], np.float32)})["y"], [-9, 1])


def test_references_inside_a_branch_of_a_function_are_resolved(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    then = helper.make_graph(
        [referring("LeakyRelu", ["x"], ["r"], AttributeProto.FLOAT, alpha="slope")],
        "t",
        [],
        [onnx.ValueInfoProto(name="r")],
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "e", [], [onnx.ValueInfoProto(name="r")])
    body = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    pick = function("Pick", body, ["c", "x"], ["y"], attributes=["slope"])
    model = make_model(
        [call("Pick", ["yes", "x"], ["y"], slope=0.5), call("Pick", ["no", "x"], ["z"], slope=0.5)],
        {"x": [1]},
        ["y", "z"],
        initializers={"yes": np.array(True), "no": np.array(False)},
        functions=[pick],
        domains=["local"],
    )
    got = run_graph(load(model, CompileOptions(), operators).graph, {"x": np.array([-8], np.float32)})
    assert (got["y"][0], got["z"][0]) == (-4, 8)


def test_doubling_functions_are_refused_by_counting(operators: Operators, make_model: Maker) -> None:
    functions = [function("F0", [helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"])]
    for level in range(1, 31):
        inner = f"F{level - 1}"
        functions.append(function(f"F{level}", [call(inner, ["x"], ["a"]), call(inner, ["a"], ["y"])], ["x"], ["y"]))
    model = make_model([call("F30", ["x"], ["y"])], {"x": [2]}, ["y"], functions=functions, domains=["local"])
    assert len(model) < 6000
    with pytest.raises(ModelTooLarge, match="expands to"):
        load(model, CompileOptions(), operators)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_chain_of_functions_is_refused(reverse: bool, operators: Operators, make_model: Maker) -> None:
    functions = [function("F0", [helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"])]
    functions += [function(f"F{level}", [call(f"F{level - 1}", ["x"], ["y"])], ["x"], ["y"]) for level in range(1, 500)]
    calls = (
        [call(f"F{level}", [f"t{level}"], [f"t{level + 1}"]) for level in range(500)]
        if reverse
        else [call("F499", ["t0"], ["t500"])]
    )
    model = make_model(calls, {"t0": [2]}, ["t500"], functions=functions, domains=["local"])
    with pytest.raises(ModelTooLarge):
        load(model, CompileOptions(), operators)


@pytest.mark.parametrize("names", [["F"], ["F", "G"]])
def test_recursive_functions_are_refused(names: list[str], operators: Operators, make_model: Maker) -> None:
    nexts = [*names[1:], names[0]]
    functions = [
        function(name, [call(after, ["x"], ["y"])], ["x"], ["y"]) for name, after in zip(names, nexts, strict=True)
    ]
    model = make_model([call("F", ["x"], ["y"])], {"x": [2]}, ["y"], functions=functions, domains=["local"])
    with pytest.raises(MalformedModel, match="calls itself"):
        load(model, CompileOptions(), operators)


def test_a_function_defined_twice_is_refused(operators: Operators, make_model: Maker) -> None:
    one = function("F", [helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"])
    model = make_model([call("F", ["x"], ["y"])], {"x": [2]}, ["y"], functions=[one, one], domains=["local"])
    with pytest.raises(MalformedModel, match="defined twice"):
        load(model, CompileOptions(), operators)


@pytest.mark.parametrize(
    "calls",
    [
        [call("F", ["x", "x"], ["y"])],
        [call("F", ["x"], ["y", "z"])],
        [call("F", ["x"], ["y"], alpha=1.0)],
        [call("G", ["x"], ["y"])],
    ],
)
def test_calls_that_fit_no_function_are_refused(
    calls: list[onnx.NodeProto], operators: Operators, make_model: Maker
) -> None:
    one = function("F", [helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(UnsupportedModel):
        load(make_model(calls, {"x": [2]}, ["y"], functions=[one], domains=["local"]), CompileOptions(), operators)


def test_an_undefined_name_inside_a_function_is_refused(operators: Operators, make_model: Maker) -> None:
    one = function("F", [helper.make_node("Relu", ["x"], ["y"])], ["z"], ["y"])
    with pytest.raises(MalformedModel, match="never defined"):
        load(
            make_model([call("F", ["x"], ["y"])], {"x": [2]}, ["y"], functions=[one], domains=["local"]),
            CompileOptions(),
            operators,
        )


@pytest.mark.parametrize(("op", "zero"), [("QLinearAdd", -3), ("QLinearMul", 2)])
def test_quantised_contrib_operators_are_composed(
    op: str, zero: int, operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    node = helper.make_node(op, ["a", "s", "", "b", "s", "zp", "t", "zp"], ["y"], domain="com.microsoft")
    constants = {"s": np.array(0.5, np.float32), "t": np.array(0.25, np.float32), "zp": np.array(zero, np.int8)}
    dtypes = {"a": TensorProto.INT8, "b": TensorProto.INT8}
    model = make_model(
        [node], {"a": [4], "b": [4]}, ["y"], initializers=constants, domains=["com.microsoft"], dtypes=dtypes
    )
    a, b = np.array([1, -7, 100, 3], np.int8), np.array([5, 9, 100, zero], np.int8)
    real = (np.add if op == "QLinearAdd" else np.multiply)(a * 0.5, (b.astype(float) - zero) * 0.5)
    got = run_graph(load(model, CompileOptions(), operators).graph, {"a": a, "b": b})["y"]
    np.testing.assert_array_equal(got, np.clip(np.round(real / 0.25) + zero, -128, 127))


def test_the_constants_of_a_schema_body_take_the_type_of_the_input(operators: Operators, make_model: Maker) -> None:
    model = make_model(
        [helper.make_node("Elu", ["x"], ["y"], name="e")], {"x": [2]}, ["y"], dtypes={"x": TensorProto.DOUBLE}
    )
    graph = load(model, CompileOptions(), operators).graph
    assert "CastLike" not in {node.op for node in graph.nodes}
    assert {str(graph.type(id).dtype) for id in graph.constants} == {"f64"}
    assert {node.source for node in graph.nodes} == {"e"}


def test_a_tensor_attribute_survives_inlining(operators: Operators, run_graph: Runner, make_model: Maker) -> None:
    body = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([5.0], np.float32))),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = make_model(
        [call("F", ["x"], ["y"])], {"x": [1]}, ["y"], functions=[function("F", body, ["x"], ["y"])], domains=["local"]
    )
    assert run_graph(load(model, CompileOptions(), operators).graph, {"x": np.ones(1, np.float32)})["y"][0] == 6


def test_outputs_that_a_schema_body_leaves_out_may_stay_unused(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    without = {name: record for name, record in operators.items() if name != "SoftmaxCrossEntropyLoss"}
    nodes = [helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], name="loss", reduction="sum")]
    model = make_model(nodes, {"x": [2, 3]}, ["y"], opset=13, initializers={"labels": np.array([2, 0])})
    x = np.array([[1, 2, 3], [4, 5, 7]], np.float32)
    expected = -(x[0, 2] - np.log(np.exp(x[0]).sum())) - (x[1, 0] - np.log(np.exp(x[1]).sum()))
    bodies = {name: record for name, record in without.items() if name != "NegativeLogLikelihoodLoss"}
    for mapping in (without, bodies):
        graph = load(model, CompileOptions(), mapping).graph
        np.testing.assert_allclose(run_graph(graph, {"x": x})["y"], expected, rtol=1e-5)


def test_a_part_of_a_composed_operator_that_is_refused_names_the_whole(operators: Operators, make_model: Maker) -> None:
    without = {name: record for name, record in operators.items() if name not in ("Softmax", "ReduceMax")}
    model = make_model([helper.make_node("Softmax", ["x"], ["y"], name="probabilities")], {"x": [2, 3]}, ["y"])
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions(), without)
    (reason,) = caught.value.refusals
    assert (reason.node, reason.operator) == ("probabilities", "ReduceMax")
    assert "part of Softmax" in reason.reason
