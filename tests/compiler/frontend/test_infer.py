from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.errors import ModelTooLarge, UnsupportedModel, VerifyError
from compiler.frontend import Limits, load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.ops.operator import Operator

Operators = Mapping[str, Operator]
Maker = Callable[..., bytes]
Runner = Callable[[Graph, Mapping[str, np.ndarray]], dict[str, np.ndarray]]
node = helper.make_node


def ops(graph: Graph) -> list[str]:
    return [entry.op for entry in graph.nodes]


def test_shape_arithmetic_folds_into_the_attribute_of_a_reshape(operators: Operators, make_model: Maker) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"], name="r"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = make_model(nodes, {"x": ["n", 3, 4]}, ["y"], initializers=constants)
    graph = load(model, CompileOptions.from_json({"dims": {"n": 2}}), operators).graph
    (reshape,) = graph.nodes
    assert reshape.attrs["shape"] == (2, -1)
    assert reshape.inputs == (0, None)
    assert reshape.source == "r"
    assert graph.type(graph.outputs[0]).dims == (2, 12)
    assert not graph.constants


def test_identity_dropout_and_constant_disappear_and_names_stay(operators: Operators, make_model: Maker) -> None:
    nodes = [
        node("Constant", [], ["c"], value_float=2.0),
        node("Identity", ["x"], ["a"]),
        node("Add", ["a", "c"], ["b"]),
        node("Dropout", ["b"], ["d", "mask"]),
        node("Identity", ["d"], ["y"]),
    ]
    graph = load(make_model(nodes, {"x": [3]}, ["y"]), CompileOptions(), operators).graph
    assert ops(graph) == ["Add"]
    assert graph.values[graph.outputs[0]].name == "y"
    assert [graph.values[id].name for id in graph.constants] == ["c"]


def test_the_mask_of_a_dropout_is_ones(operators: Operators, run_graph: Runner, make_model: Maker) -> None:
    model = make_model([node("Dropout", ["x"], ["y", "mask"])], {"x": [3]}, ["y", "mask"])
    got = run_graph(load(model, CompileOptions(), operators).graph, {"x": np.ones(3, np.float32)})
    assert got["mask"].tolist() == [True, True, True]


def test_a_dropout_of_opset_6_in_training_form_is_refused(operators: Operators, make_model: Maker) -> None:
    model = make_model([node("Dropout", ["x"], ["y"])], {"x": [3]}, ["y"], opset=6)
    with pytest.raises(UnsupportedModel, match="training form"):
        load(model, CompileOptions(), operators)


def test_outputs_that_are_inputs_constants_or_one_value_get_an_identity(
    operators: Operators, run_graph: Runner, make_model: Maker
) -> None:
    nodes = [node("Identity", ["x"], ["same"]), node("Relu", ["x"], ["r"]), node("Identity", ["r"], ["again"])]
    model = make_model(nodes, {"x": [2]}, ["same", "w", "r", "again"], initializers={"w": np.ones(1, np.float32)})
    graph = load(model, CompileOptions(), operators).graph
    assert sorted(ops(graph)) == ["Identity", "Identity", "Identity", "Relu"]
    assert [graph.values[id].name for id in graph.outputs] == ["same", "w", "r", "again"]
    got = run_graph(graph, {"x": np.array([-1, 2], np.float32)})
    assert {name: array.tolist() for name, array in got.items()} == {
        "same": [-1, 2],
        "w": [1],
        "r": [0, 2],
        "again": [0, 2],
    }


def test_an_input_that_is_an_output_itself(operators: Operators, run_graph: Runner, make_model: Maker) -> None:
    graph = load(make_model([], {"x": [2]}, ["x"]), CompileOptions(), operators).graph
    assert run_graph(graph, {"x": np.ones(2, np.float32)})["x"].tolist() == [1, 1]


def test_dead_nodes_are_never_looked_at(operators: Operators, make_model: Maker) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("FromTheFuture", ["x"], ["z"])]
    assert ops(load(make_model(nodes, {"x": [2]}, ["y"]), CompileOptions(), operators).graph) == ["Relu"]


def test_unused_inputs_stay_inputs(operators: Operators, make_model: Maker) -> None:
    graph = load(
        make_model([node("Relu", ["x"], ["y"])], {"x": [2], "unused": [3]}, ["y"]), CompileOptions(), operators
    ).graph
    assert [graph.values[id].name for id in graph.inputs] == ["x", "unused"]


def test_nodes_without_a_name_are_told_by_their_index(operators: Operators, make_model: Maker) -> None:
    graph = load(
        make_model([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"])], {"x": [2]}, ["y"]),
        CompileOptions(),
        operators,
    ).graph
    assert [entry.source for entry in graph.nodes] == ["#0 Relu", "#1 Neg"]


def test_every_refusal_is_reported_and_followers_are_not(operators: Operators, make_model: Maker) -> None:
    nodes = [
        node("Future1", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="follower"),
        node("Future2", ["x"], ["c"], name="second"),
        node("Add", ["b", "c"], ["y"], name="follower of both"),
    ]
    with pytest.raises(UnsupportedModel) as caught:
        load(make_model(nodes, {"x": [2]}, ["y"]), CompileOptions(), operators)
    assert [reason.node for reason in caught.value.refusals] == ["first", "second"]
    assert all(reason.fix for reason in caught.value.refusals)


def test_more_refusals_than_fit_are_counted(operators: Operators, make_model: Maker) -> None:
    nodes = [node("Future", ["x"], [f"y{i}"]) for i in range(120)]
    with pytest.raises(UnsupportedModel) as caught:
        load(make_model(nodes, {"x": [2]}, [f"y{i}" for i in range(120)]), CompileOptions(), operators)
    assert len(caught.value.refusals) == 50
    assert caught.value.message.startswith("120 ")


def test_a_parameter_computed_at_run_time_is_refused_with_its_origin(make_model: Maker) -> None:
    nodes = [node("Expand", ["n", "two"], ["n2"]), node("Col2Im", ["x", "n2", "block"], ["y"], name="grow")]
    model = make_model(
        nodes,
        {"x": [1, 4, 4], "n": []},
        ["y"],
        initializers={"two": np.array([2]), "block": np.array([2, 2])},
        opset=18,
        dtypes={"n": TensorProto.INT64},
    )
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions(), OPERATORS)
    (reason,) = caught.value.refusals
    assert (reason.node, reason.operator) == ("grow", "Col2Im")
    assert "must be known when compiling" in reason.reason
    assert '{"inputs": {"n": {"value": ...}}}' in reason.fix
    graph = load(model, CompileOptions.from_json({"inputs": {"n": {"value": 3}}}), OPERATORS).graph
    assert graph.type(graph.outputs[0]).dims == (1, 1, 3, 3)


@pytest.mark.parametrize("op", ["Concat", "Tile", "Expand"])
def test_doubling_shape_data_is_refused_before_it_is_computed(op: str, operators: Operators, make_model: Maker) -> None:
    nodes = [node("Shape", ["x"], ["t0"])]
    for level in range(60):
        if op == "Concat":
            nodes.append(node("Concat", [f"t{level}", f"t{level}"], [f"t{level + 1}"], axis=0))
        elif op == "Tile":
            nodes.append(node("Tile", [f"t{level}", "two"], [f"t{level + 1}"]))
        else:
            nodes += [
                node("Unsqueeze", [f"t{level}", "zero"], [f"u{level}"]),
                node("Concat", [f"u{level}"] * 2, [f"t{level + 1}"], axis=0),
            ]
    model = make_model(nodes, {"x": [2, 2]}, ["t60"], initializers={"two": np.array([2]), "zero": np.array([0])})
    limits = Limits(fold_bytes=2**15, fold_total=2**14, tensor_bytes=2**20)
    with pytest.raises(ModelTooLarge):
        load(model, CompileOptions(), operators, limits)


def test_an_astronomic_constant_of_shape_is_refused(operators: Operators, make_model: Maker) -> None:
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])]
    for sizes in ([10**15], [10**5] * 3, [2**62, 2**62]):
        model = make_model(nodes, {"x": [1]}, ["y"], initializers={"s": np.array(sizes)})
        with pytest.raises(ModelTooLarge):
            load(model, CompileOptions(), operators)


def test_a_large_constant_of_shape_takes_no_memory(operators: Operators, make_model: Maker) -> None:
    value = numpy_helper.from_array(np.array([3.0], np.float32))
    nodes = [node("ConstantOfShape", ["s"], ["c"], value=value), node("MatMul", ["x", "c"], ["y"])]
    model = make_model(nodes, {"x": [1, 30]}, ["y"], initializers={"s": np.array([30, 20])})
    (constant,) = load(model, CompileOptions(), operators).graph.constants.values()
    assert constant.strides == (0, 0)
    assert (constant == 3).all()


@pytest.mark.parametrize(
    ("bounds", "dtype", "expected"),
    [
        ((0, 5, 2), np.int64, [0, 2, 4]),
        ((5, 0, -2), np.int32, [5, 3, 1]),
        ((0, 0, 1), np.int64, []),
        ((3, 0, 1), np.int64, []),
        ((0.0, 1.0, 0.25), np.float32, [0, 0.25, 0.5, 0.75]),
    ],
)
def test_a_constant_range_folds(
    bounds: Any, dtype: Any, expected: list[float], operators: Operators, make_model: Maker
) -> None:
    constants = {name: np.array(bound, dtype) for name, bound in zip(("a", "b", "c"), bounds, strict=True)}
    model = make_model([node("Range", ["a", "b", "c"], ["y"])], {"x": [1]}, ["y"], initializers=constants)
    (array,) = load(model, CompileOptions(), operators).graph.constants.values()
    assert array.dtype == dtype
    assert array.tolist() == expected


@pytest.mark.parametrize("bounds", [(0, 10**15, 1), (0, 5, 0)])
def test_an_endless_range_is_refused(bounds: tuple[int, ...], operators: Operators, make_model: Maker) -> None:
    constants = {name: np.array(bound) for name, bound in zip(("a", "b", "c"), bounds, strict=True)}
    model = make_model([node("Range", ["a", "b", "c"], ["y"])], {"x": [1]}, ["y"], initializers=constants)
    with pytest.raises((ModelTooLarge, UnsupportedModel)):
        load(model, CompileOptions(), operators)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, [2, 3, 4]),
        ({"start": 1}, [3, 4]),
        ({"start": -1}, [4]),
        ({"start": 0, "end": -1}, [2, 3]),
        ({"end": 99}, [2, 3, 4]),
        ({"start": 2, "end": 1}, []),
    ],
)
def test_shape_folds_from_types(
    attrs: dict[str, Any], expected: list[int], operators: Operators, make_model: Maker
) -> None:
    graph = load(
        make_model([node("Shape", ["x"], ["y"], **attrs)], {"x": [2, 3, 4]}, ["y"]), CompileOptions(), operators
    ).graph
    (array,) = graph.constants.values()
    assert array.tolist() == expected


def test_non_zero_of_a_constant_folds(operators: Operators, make_model: Maker) -> None:
    model = make_model(
        [node("NonZero", ["c"], ["y"])], {"x": [1]}, ["y"], initializers={"c": np.array([[0, 1], [2, 0]], np.float32)}
    )
    (array,) = load(model, CompileOptions(), operators).graph.constants.values()
    assert array.tolist() == [[0, 1], [1, 0]]


def test_what_is_too_large_to_fold_stays_a_node(operators: Operators, make_model: Maker) -> None:
    nodes = [node("Neg", ["w"], ["n"]), node("Add", ["x", "n"], ["y"])]
    model = make_model(nodes, {"x": [100]}, ["y"], initializers={"w": np.ones(100, np.float32)})
    assert ops(load(model, CompileOptions(), operators).graph) == ["Add"]
    assert ops(load(model, CompileOptions(), operators, Limits(fold_bytes=200)).graph) == ["Neg", "Add"]
    assert ops(load(model, CompileOptions(), operators, Limits(fold_total=50)).graph) == ["Neg", "Add"]


def test_too_many_nodes_are_refused(operators: Operators, make_model: Maker) -> None:
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(30)]
    with pytest.raises(ModelTooLarge, match="more than 20"):
        load(make_model(nodes, {"t0": [1]}, ["t30"]), CompileOptions(), operators, Limits(nodes=20))


def test_random_nodes_over_constants_are_not_folded(make_model: Maker) -> None:
    nodes = [node("RandomUniformLike", ["w"], ["r"]), node("Add", ["x", "r"], ["y"])]
    model = make_model(nodes, {"x": [2]}, ["y"], initializers={"w": np.ones(2, np.float32)})
    found = ops(load(model, CompileOptions(), OPERATORS).graph)
    assert (found[0], found[-1]) == ("RandomBits", "Add")


def test_optional_outputs_in_the_middle_may_be_absent(operators: Operators, make_model: Maker) -> None:
    constants = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    nodes = [node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=2)]
    graph = load(make_model(nodes, {"x": [4, 1, 3]}, ["h"], initializers=constants), CompileOptions(), operators).graph
    (lstm,) = graph.nodes
    assert len(lstm.outputs) == 2
    assert graph.outputs == (lstm.outputs[1],)


def test_a_reference_that_disagrees_with_its_inference_is_our_fault(operators: Operators, make_model: Maker) -> None:
    wrong = {**operators, "Neg": replace(operators["Neg"], reference=lambda entry, arrays: (np.zeros(5, np.float32),))}
    model = make_model([node("Neg", ["w"], ["y"])], {"x": [2]}, ["y"], initializers={"w": np.ones(2, np.float32)})
    with pytest.raises(VerifyError, match="Neg"):
        load(model, CompileOptions(), wrong)


def test_nested_branches_see_names_around_them(operators: Operators, run_graph: Runner, make_model: Maker) -> None:
    inner = helper.make_graph(
        [node("Add", ["x", "twice"], ["r"])], "inner", [], [helper.make_tensor_value_info("r", 1, None)]
    )
    outer = helper.make_graph(
        [node("Add", ["x", "x"], ["twice"]), node("If", ["yes"], ["o"], then_branch=inner, else_branch=inner)],
        "outer",
        [],
        [helper.make_tensor_value_info("o", 1, None)],
    )
    nodes = [node("If", ["yes"], ["y"], then_branch=outer, else_branch=outer)]
    graph = load(
        make_model(nodes, {"x": [1]}, ["y"], initializers={"yes": np.array(True)}), CompileOptions(), operators
    ).graph
    assert run_graph(graph, {"x": np.ones(1, np.float32)})["y"].tolist() == [3]


@pytest.mark.parametrize(
    ("attrs", "k", "dtype"), [({}, 0, "float32"), ({"k": 1}, 1, "float32"), ({"k": -2, "dtype": 7}, -2, "int64")]
)
def test_eye_like_folds_from_types(
    attrs: dict[str, Any], k: int, dtype: str, operators: Operators, make_model: Maker
) -> None:
    model = make_model([node("EyeLike", ["x"], ["y"], **attrs)], {"x": [3, 4]}, ["y"])
    (array,) = load(model, CompileOptions(), operators).graph.constants.values()
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.eye(3, 4, k))


def test_an_eye_of_astronomic_offset_is_zero(operators: Operators, make_model: Maker) -> None:
    model = make_model([node("EyeLike", ["x"], ["y"], k=2**62)], {"x": [3, 4]}, ["y"])
    (array,) = load(model, CompileOptions(), operators).graph.constants.values()
    assert not array.any()
