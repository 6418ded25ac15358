from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import MalformedModel, ModelTooLarge, OptionsError, UnboundDimension, UnsupportedModel
from compiler.frontend import load
from compiler.frontend.binding.bind import separated
from compiler.frontend.reading.model import Input
from compiler.ir.tensor import DType
from compiler.ops.operator import Operator

Operators = Mapping[str, Operator]
Maker = Callable[..., bytes]
ADD = [helper.make_node("Add", ["x", "z"], ["y"], name="sum")]


def shapes(model: bytes, operators: Operators, **options: Any) -> dict[str, tuple[int, ...]]:
    graph = load(model, CompileOptions.from_json(options), operators).graph
    return {graph.values[id].name: graph.type(id).dims for id in (*graph.inputs, *graph.outputs)}


def test_a_shape_by_input_binds_the_symbol_everywhere(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": ["n", "h"], "z": ["n", "h"]}, ["y"])
    assert shapes(model, operators, inputs={"x": [2, 5]}) == {"x": (2, 5), "z": (2, 5), "y": (2, 5)}


def test_dims_bind_by_name(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": ["n", "h"], "z": ["n", "h"]}, ["y"])
    assert shapes(model, operators, dims={"n": 3, "h": 4})["y"] == (3, 4)


def test_an_open_batch_becomes_one_with_a_notice(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": ["batch", 4], "z": ["batch", 4]}, ["y"])
    loaded = load(model, CompileOptions(), operators)
    assert loaded.graph.type(loaded.graph.outputs[0]).dims == (1, 4)
    (notice,) = loaded.notices
    assert "batch" in notice
    assert '{"dims": {"batch": 8}}' in notice


def test_a_batch_without_a_name_becomes_one(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": [None, 4], "z": [1, 4]}, ["y"])
    assert shapes(model, operators)["x"] == (1, 4)
    assert shapes(model, operators, inputs={"x": [7, 4]})["y"] == (7, 4)


def test_another_open_dimension_is_refused_naming_input_axis_name_and_option(
    operators: Operators, make_model: Maker
) -> None:
    model = make_model(ADD, {"x": ["n", "width"], "z": [None, 2, None]}, ["y"])
    with pytest.raises(UnboundDimension) as caught:
        load(model, CompileOptions(), operators)
    named, unnamed = caught.value.refusals
    assert "input 'x', axis 1: dimension 'width'" in named.reason
    assert "input 'z', axis 2" in unnamed.reason
    options = caught.value.details["options"]
    assert json.dumps(options) in caught.value.fix
    CompileOptions.from_json(options)


def test_the_option_that_the_refusal_offers_mends_it(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": ["n", "width"], "z": ["n", None]}, ["y"])
    with pytest.raises(UnboundDimension) as caught:
        load(model, CompileOptions(), operators)
    assert shapes(model, operators, **caught.value.details["options"])["y"] == (1, 224)


def test_a_lone_dimension_of_a_vector_is_no_batch(operators: Operators, make_model: Maker) -> None:
    with pytest.raises(UnboundDimension):
        load(make_model(ADD, {"x": ["n"], "z": ["n"]}, ["y"]), CompileOptions(), operators)


@pytest.mark.parametrize(
    "options",
    [
        {"inputs": {"x": [2, 6]}},
        {"inputs": {"x": [2]}},
        {"inputs": {"missing": [2, 5]}},
        {"dims": {"missing": 2}},
    ],
    ids=["a fixed dimension", "the rank", "an unknown input", "an unknown name"],
)
def test_contradictory_and_unknown_bindings_are_refused(options: Any, operators: Operators, make_model: Maker) -> None:
    with pytest.raises(OptionsError) as caught:
        load(make_model(ADD, {"x": ["n", 5], "z": ["n", 5]}, ["y"]), CompileOptions.from_json(options), operators)
    assert caught.value.fix


ALIKE = [
    helper.make_node("Conv", ["image", "w"], ["c"]),
    helper.make_node("Mul", ["c", "state"], ["y"]),
    helper.make_node("Sigmoid", ["state"], ["next"]),
]
NAMED = ["batch_size", "channels", "height", "width"]
IMAGE, STATE = [2, 3, 8, 6], [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("dims", "state"),
    [({}, STATE), ({"height": 9, "width": 6}, STATE), ({}, [2, 4, 8, 6]), ({"height": {"min": 2, "max": 9}}, STATE)],
)
def test_whole_shapes_win_over_names_that_exporters_give_alike(
    dims: dict[str, Any], state: list[int], operators: Operators, make_model: Maker
) -> None:
    weights = {"w": np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype(np.float32)}
    model = make_model(ALIKE, {"image": NAMED, "state": NAMED}, ["y", "next"], initializers=weights)
    options = {"inputs": {"image": IMAGE, "state": state}, "dims": dims}
    found = shapes(model, operators, **options)
    assert found == {"image": (2, 3, 8, 6), "state": tuple(state), "y": (2, 4, 8, 6), "next": tuple(state)}
    notices = load(model, CompileOptions.from_json(options), operators).notices
    said = [notice for notice in notices if "is no one size" in notice]
    assert {notice.split("'")[1] for notice in said} == {
        name
        for name, one, other in zip(NAMED, IMAGE, state, strict=True)
        if one != other or dims.get(name, one) not in (one,)
    }
    if state == STATE:
        assert any("8 (axis 2 of 'image')" in notice and "1 (axis 2 of 'state')" in notice for notice in said)


def test_a_range_alone_is_no_reason_to_speak_of_shapes() -> None:
    entries = [Input("x", DType.F32, ("n", 5)), Input("z", DType.F32, ("n", 5))]
    open_sizes = {"dims": {"n": {"min": 2, "max": 9}}}
    assert separated(entries, CompileOptions.from_json(open_sizes)) == (entries, ())
    _, notices = separated(entries, CompileOptions.from_json({**open_sizes, "inputs": {"x": [9, 5]}}))
    assert len(notices) == 1


def test_whole_shapes_that_do_not_go_together_are_refused_by_their_node(
    operators: Operators, make_model: Maker
) -> None:
    model = make_model(ADD, {"x": ["n", 5], "z": ["n", 5]}, ["y"])
    for options in ({"inputs": {"x": [2, 5], "z": [3, 5]}}, {"inputs": {"x": [2, 5]}, "dims": {"n": 4}}):
        with pytest.raises(UnsupportedModel) as caught:
            load(model, CompileOptions.from_json(options), operators)
        assert caught.value.refusals[0].node == "sum"


def test_an_input_without_a_shape_needs_one(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": None, "z": [2, 3]}, ["y"])
    with pytest.raises(UnboundDimension):
        load(model, CompileOptions(), operators)
    assert shapes(model, operators, inputs={"x": [2, 3]})["y"] == (2, 3)


def test_a_bound_shape_of_astronomic_size_is_refused(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": ["n", "m"], "z": ["n", "m"]}, ["y"])
    with pytest.raises(ModelTooLarge):
        load(model, CompileOptions.from_json({"dims": {"n": 10**8, "m": 10**8}}), operators)


def test_initializers_that_are_also_inputs_are_constants(operators: Operators, make_model: Maker) -> None:
    model = make_model(ADD, {"x": [2], "z": [2]}, ["y"], initializers={"z": np.ones(2, np.float32)}, ir_version=3)
    graph = load(model, CompileOptions(), operators).graph
    assert [graph.values[id].name for id in graph.inputs] == ["x"]
    assert [graph.values[id].name for id in graph.constants] == ["z"]
    with pytest.raises(OptionsError, match="initializer"):
        load(model, CompileOptions.from_json({"inputs": {"z": [2]}}), operators)


def branches(other: str = "FromTheFuture") -> list[Any]:
    def branch(op: str) -> Any:
        return helper.make_graph(
            [helper.make_node(op, ["x"], ["r"])], op, [], [helper.make_tensor_value_info("r", 1, None)]
        )

    return [
        helper.make_node("Constant", [], ["limit"], value_int=16000),
        helper.make_node("Equal", ["sr", "limit"], ["c"], name="compare"),
        helper.make_node("If", ["c"], ["y"], name="choose", then_branch=branch("Relu"), else_branch=branch(other)),
    ]


@pytest.mark.parametrize("shape", [[], [1], ["one"]])
def test_a_value_selects_a_branch_and_the_other_is_never_looked_at(
    shape: list[Any], operators: Operators, make_model: Maker
) -> None:
    model = make_model(branches(), {"x": [2], "sr": shape}, ["y"], dtypes={"sr": TensorProto.INT64})
    loaded = load(model, CompileOptions.from_json({"inputs": {"sr": {"value": 16000}}}), operators)
    assert [node.op for node in loaded.graph.nodes] == ["Relu"]
    assert [loaded.graph.values[id].name for id in loaded.graph.inputs] == ["x"]
    assert any("'sr' is fixed to 16000" in notice for notice in loaded.notices)
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions.from_json({"inputs": {"sr": {"value": 8000}}}), operators)
    assert caught.value.refusals[0].operator == "FromTheFuture"


def test_branches_of_two_ranks_are_refused_with_the_input_that_decides(operators: Operators, make_model: Maker) -> None:
    model = make_model(branches("Shape"), {"x": [2, 2], "sr": []}, ["y"], dtypes={"sr": TensorProto.INT64})
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions(), operators)
    (reason,) = caught.value.refusals
    assert (reason.node, reason.operator) == ("choose", "If")
    assert '"sr"' in reason.fix


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (TensorProto.INT64, 1.5),
        (TensorProto.INT64, float("nan")),
        (TensorProto.UINT8, -1),
        (TensorProto.INT8, 200),
        (TensorProto.BOOL, 2),
        (TensorProto.FLOAT, 10**400),
    ],
)
def test_a_value_outside_the_type_is_refused(dtype: int, value: float, operators: Operators, make_model: Maker) -> None:
    nodes = [helper.make_node("Cast", ["z"], ["c"], to=1), helper.make_node("Add", ["x", "c"], ["y"])]
    model = make_model(nodes, {"x": [2], "z": []}, ["y"], dtypes={"z": dtype})
    with pytest.raises(OptionsError):
        load(model, CompileOptions.from_json({"inputs": {"z": {"value": value}}}), operators)


def reshaped(make_model: Maker, shape: list[Any]) -> bytes:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="bend")
    return make_model([node], {"x": [2, 6], "shape": shape}, ["y"], dtypes={"shape": TensorProto.INT64})


@pytest.mark.parametrize("shape", [[2], ["n"]])
def test_a_list_of_numbers_fixes_a_vector(shape: list[Any], operators: Operators, make_model: Maker) -> None:
    """What a Reshape by an input is refused with names this option."""
    model = reshaped(make_model, shape)
    with pytest.raises((UnsupportedModel, UnboundDimension)):
        load(model, CompileOptions(), operators)
    options = CompileOptions.from_json({"inputs": {"shape": {"value": [3, 4]}}})
    graph = load(model, options, operators).graph
    assert graph.type(graph.outputs[0]).dims == (3, 4)
    assert [graph.values[id].name for id in graph.inputs] == ["x"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"value": [3, 4, 1]}, "axis 0"),
        ({"shape": [2], "value": [3, 4, 1]}, "shape \\[3\\], but its shape is \\[2\\]"),
        ({"value": [3, 4.5]}, "value 4.5, which is no i64"),
        ({"value": [3, 2**63]}, "which is no i64"),
    ],
)
def test_a_list_that_does_not_fit_the_input_is_refused(
    spec: Any, said: str, operators: Operators, make_model: Maker
) -> None:
    with pytest.raises(OptionsError, match=said):
        load(reshaped(make_model, [2]), CompileOptions.from_json({"inputs": {"shape": spec}}), operators)


def test_inputs_that_are_no_tensors_are_refused(operators: Operators) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2]))
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["y"])],
        "g",
        [helper.make_value_info("s", kind)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UnsupportedModel) as caught:
        load(bytes(model.SerializeToString()), CompileOptions(), operators)
    assert "sequence" in caught.value.refusals[0].reason


def test_two_inputs_of_one_name_are_refused(operators: Operators) -> None:
    infos = [helper.make_tensor_value_info("x", 1, [2])] * 2
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", infos, [helper.make_tensor_value_info("y", 1, [2])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(MalformedModel):
        load(bytes(model.SerializeToString()), CompileOptions(), operators)


def test_a_declared_output_shape_that_is_wrong_gives_a_notice(operators: Operators) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (notice,) = load(bytes(model.SerializeToString()), CompileOptions(), operators).notices
    assert "'y'" in notice
