"""Loop and Scan: what they compute beside ONNX Runtime, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions, InputSpec
from compiler.errors import ModelTooLarge, UnsupportedModel
from compiler.frontend import Limits, load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def info(name: str, kind: int = FLOAT, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def body(nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> onnx.GraphProto:
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, arrays)


def model(nodes: list[Any], inputs: list[Any], outputs: Sequence[str], **constants: Any) -> bytes:
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [info(name) for name in outputs], arrays)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )


def loaded(data: bytes, **options: Any) -> Graph:
    return load(data, CompileOptions(**options), OPERATORS).graph


def assert_as_onnxruntime_says(data: bytes, feeds: Mapping[str, np.ndarray], **options: Any) -> Graph:
    """The graph, which gives what ONNX Runtime does for these inputs."""
    graph = loaded(data, **options)
    given = {id: feeds[graph.values[id].name] for id in graph.inputs}
    found = evaluate_graph(graph, given, OPERATORS, wide=False)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(data, quiet, providers=["CPUExecutionProvider"]).run(None, dict(feeds))
    for id, array in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[id], array, rtol=1e-6)
    return graph


STEP = body(
    [
        node("Cast", ["i"], ["number"], to=FLOAT),
        node("Add", ["state", "number"], ["moved"]),
        node("MatMul", ["moved", "w"], ["next"]),
        node("Identity", ["on"], ["still"]),
        node("ReduceSum", ["next"], ["row"], keepdims=0),
    ],
    [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[1, 3])],
    [info("still", BOOL, []), info("next", shape=[1, 3]), info("row", shape=[])],
    w=np.arange(9, dtype=np.float32).reshape(3, 3) / 9,
)
X = np.array([[1, -2, 3]], np.float32)


def test_a_loop_of_known_trip_count_is_its_body_that_often() -> None:
    data = model(
        [node("Loop", ["trips", "", "x"], ["y", "rows"], body=STEP)], [info("x", shape=[1, 3])], ["y", "rows"], trips=4
    )
    graph = assert_as_onnxruntime_says(data, {"x": X})
    assert [n.op for n in graph.nodes].count("MatMul") == 4


def test_all_iterations_read_the_constants_of_the_body_once() -> None:
    data = model([node("Loop", ["trips", "", "x"], ["y"], body=STEP)], [info("x", shape=[1, 3])], ["y"], trips=5)
    graph = loaded(data)
    assert len({n.inputs[1] for n in graph.nodes if n.op == "MatMul"}) == 1


def test_nodes_of_an_iteration_are_named_after_the_loop_and_its_number() -> None:
    loop = node("Loop", ["trips", "", "x"], ["y"], body=STEP, name="decoder")
    graph = loaded(model([loop], [info("x", shape=[1, 3])], ["y"], trips=2))
    sources = [n.source for n in graph.nodes if n.op == "MatMul"]
    assert [source.split("/")[:2] for source in sources] == [["decoder", "0"], ["decoder", "1"]]


def test_a_condition_that_the_body_computes_from_known_values_ends_the_loop() -> None:
    halves = body(
        [
            node("Mul", ["state", "half"], ["next"]),
            node("Less", ["i", "last"], ["still"]),
        ],
        [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[2])],
        [info("still", BOOL, []), info("next", shape=[2])],
        half=np.float32(0.5),
        last=2,
    )
    data = model([node("Loop", ["", "yes", "x"], ["y"], body=halves)], [info("x", shape=[2])], ["y"], yes=True)
    graph = assert_as_onnxruntime_says(data, {"x": np.array([8, 16], np.float32)})
    assert [n.op for n in graph.nodes] == ["Mul"] * 3


def test_a_carried_value_may_grow() -> None:
    grows = body(
        [node("Concat", ["state", "state"], ["next"], axis=0), node("Identity", ["on"], ["still"])],
        [info("i", INT64, []), info("on", BOOL, []), info("state")],
        [info("still", BOOL, []), info("next")],
    )
    data = model([node("Loop", ["trips", "", "x"], ["y"], body=grows)], [info("x", shape=[2])], ["y"], trips=3)
    graph = loaded(data)
    assert graph.type(graph.outputs[0]).dims == (16,)


def test_a_loop_that_never_runs_gives_what_it_was_given() -> None:
    negated = body(
        [node("Identity", ["on"], ["still"]), node("Neg", ["state"], ["next"])],
        [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[1, 3])],
        [info("still", BOOL, []), info("next", shape=[1, 3])],
    )
    data = model([node("Loop", ["n", "", "x"], ["y"], body=negated)], [info("x", shape=[1, 3])], ["y"], n=0)
    assert_as_onnxruntime_says(data, {"x": X})


def test_a_body_sees_the_names_around_it_and_loops_may_stand_in_loops() -> None:
    inner = body(
        [node("Add", ["state", "x"], ["next"]), node("Identity", ["on"], ["still"])],
        [info("j", INT64, []), info("on", BOOL, []), info("state", shape=[2])],
        [info("still", BOOL, []), info("next", shape=[2])],
    )
    outer = body(
        [node("Loop", ["two", "", "outer_state"], ["inner"], body=inner), node("Identity", ["c"], ["go"])],
        [info("i", INT64, []), info("c", BOOL, []), info("outer_state", shape=[2])],
        [info("go", BOOL, []), info("inner", shape=[2])],
    )
    data = model([node("Loop", ["two", "", "x"], ["y"], body=outer)], [info("x", shape=[2])], ["y"], two=2)
    graph = assert_as_onnxruntime_says(data, {"x": np.array([1, 2], np.float32)})
    assert len(graph.nodes) == 4


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"scan_input_directions": [1, 0]},
        {"scan_output_directions": [1]},
        {"scan_input_axes": [1, 1], "scan_output_axes": [-1]},
    ],
)
def test_a_scan_reads_slices_and_stacks_results(attrs: dict[str, Any]) -> None:
    length, width = (2, 3) if "scan_input_axes" in attrs else (3, 2)
    cell = body(
        [
            node("Mul", ["a", "b"], ["product"]),
            node("Add", ["state", "product"], ["next"]),
            node("Neg", ["next"], ["row"]),
        ],
        [info("state", shape=[2]), info("a", shape=[2]), info("b", shape=[2])],
        [info("next", shape=[2]), info("row", shape=[2])],
    )
    shape = [length, width]
    inputs = [info("s", shape=[2]), info("a0", shape=shape), info("b0", shape=shape)]
    data = model(
        [node("Scan", ["s", "a0", "b0"], ["y", "rows"], body=cell, num_scan_inputs=2, **attrs)], inputs, ["y", "rows"]
    )
    rng = np.random.default_rng(0)
    assert_as_onnxruntime_says(
        data,
        {
            one.name: rng.normal(size=[d.dim_value for d in one.type.tensor_type.shape.dim]).astype(np.float32)
            for one in inputs
        },
    )


# What is refused


def reason(data: bytes, **options: Any) -> str:
    with pytest.raises(UnsupportedModel) as caught:
        loaded(data, **options)
    (refusal,) = caught.value.refusals
    return f"{refusal.reason}: {refusal.fix}"


def test_a_trip_count_from_an_input_has_a_bound_where_rows_are_stacked_and_the_target_can_decide_that() -> None:
    inputs = [info("n", INT64, []), info("x", shape=[1, 3])]
    stacked = model([node("Loop", ["n", "", "x"], ["y", "rows"], body=STEP)], inputs, ["y", "rows"])
    assert reason(stacked, target="npu:ethos-u55-128").startswith("its trip count is not known when compiling")
    assert '"n": {"value": ...}' in reason(stacked, target="npu:ethos-u55-128")
    shapes = load(stacked, CompileOptions(bounds={"#0 Loop": 7}), OPERATORS).open_shapes
    assert shapes is not None
    (limit,) = shapes.limits
    assert limit.says.startswith("the number of iterations of Loop '#0 Loop' must lie between 0 and 7")
    assert (limit.low, limit.high) == (0, 7)
    state, still = [info("next", shape=[1, 3])], [info("still", BOOL, [])]
    given = [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[1, 3])]
    alone = body([node("Sin", ["state"], ["next"]), node("Identity", ["on"], ["still"])], given, [*still, *state])
    data = model([node("Loop", ["n", "", "x"], ["y"], body=alone)], inputs, ["y"])
    for turns in (0, 5):
        assert_as_onnxruntime_says(data, {"x": X, "n": np.array(turns)})
    graph = loaded(stacked, inputs={"n": InputSpec(value=3)})
    assert [n.op for n in graph.nodes].count("MatMul") == 3


def test_a_condition_that_depends_on_data_ends_a_loop_where_the_target_can_decide_that() -> None:
    until = body(
        [
            node("Add", ["state", "state"], ["next"]),
            node("ReduceSum", ["next"], ["sum"], keepdims=0),
            node("Less", ["sum", "most"], ["still"]),
        ],
        [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[2])],
        [info("still", BOOL, []), info("next", shape=[2])],
        most=np.float32(100),
    )
    data = model([node("Loop", ["", "yes", "x"], ["y"], body=until)], [info("x", shape=[2])], ["y"], yes=True)
    assert_as_onnxruntime_says(data, {"x": np.array([1, 2], np.float32)})
    found = reason(data, target="npu:ethos-u55-128")
    assert found.startswith("data decide how often it runs, which may be more than 256 times")


def test_a_loop_without_end_is_too_large() -> None:
    forever = body(
        [node("Identity", ["on"], ["still"]), node("Neg", ["state"], ["next"])],
        [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[2])],
        [info("still", BOOL, []), info("next", shape=[2])],
    )
    data = model([node("Loop", ["", "yes", "x"], ["y"], body=forever)], [info("x", shape=[2])], ["y"], yes=True)
    with pytest.raises(ModelTooLarge, match="more than 200 nodes"):
        load(data, CompileOptions(), OPERATORS, Limits(nodes=200))


def test_stacked_results_of_no_iteration_have_no_shape() -> None:
    data = model([node("Loop", ["n", "", "x"], ["y", "rows"], body=STEP)], [info("x", shape=[1, 3])], ["rows"], n=0)
    assert "no shape" in reason(data)


def test_a_node_of_the_body_that_cannot_be_compiled_is_named_once() -> None:
    bad = body(
        [node("StringNormalizer", ["state"], ["next"], name="draw"), node("Identity", ["on"], ["still"])],
        [info("i", INT64, []), info("on", BOOL, []), info("state")],
        [info("still", BOOL, []), info("next")],
    )
    data = model([node("Loop", ["n", "", "x"], ["y"], body=bad, name="power")], [info("x", shape=[2, 2])], ["y"], n=9)
    with pytest.raises(UnsupportedModel) as caught:
        loaded(data)
    (refusal,) = caught.value.refusals
    assert refusal.node == "power/0/draw"


def test_slices_of_different_number_are_refused() -> None:
    cell = body([node("Add", ["a", "b"], ["row"])], [info("a"), info("b")], [info("row")])
    data = model(
        [node("Scan", ["p", "q"], ["rows"], body=cell, num_scan_inputs=2)],
        [info("p", shape=[2, 1]), info("q", shape=[3, 1])],
        ["rows"],
    )
    assert "have [2, 3] slices" in reason(data)


def test_a_trip_count_that_is_no_whole_number_is_refused() -> None:
    data = model(
        [node("Loop", ["n", "", "x"], ["y"], body=STEP)], [info("x", shape=[1, 3])], ["y"], n=np.float32(np.nan)
    )
    assert reason(data).startswith("its trip count is no whole number")


@pytest.mark.parametrize(
    ("shape", "attrs", "said"),
    [
        ([], {}, "axis 0 is none of a tensor of 0 dimensions"),
        ([2, 3], {"scan_input_axes": [2]}, "axis 2 is none of a tensor of 2 dimensions"),
        ([2, 3], {"scan_input_axes": [-3]}, "axis -3 is none of a tensor of 2 dimensions"),
        ([2, 3], {"scan_output_axes": [2]}, "axis 2 is none of a tensor of 2 dimensions"),
    ],
)
def test_an_axis_that_a_scanned_tensor_does_not_have_is_refused(
    shape: Sequence[int], attrs: Mapping[str, Any], said: str
) -> None:
    cell = body([node("Neg", ["a"], ["row"])], [info("a")], [info("row")])
    scan = node("Scan", ["p"], ["rows"], body=cell, num_scan_inputs=1, **attrs)
    assert said in reason(model([scan], [info("p", shape=shape)], ["rows"]))


def test_a_body_of_many_constants_is_not_entered_without_end() -> None:
    constants = {f"c{place}": np.float32(place) for place in range(500)}
    many = body(
        [node("Sum", ["state", *constants], ["next"])],
        [info("i", INT64, []), info("on", BOOL, []), info("state", shape=[2])],
        [info("on", BOOL, []), info("next", shape=[2])],
        **constants,
    )
    data = model([node("Loop", ["n", "", "x"], ["y"], body=many)], [info("x", shape=[2])], ["y"], n=10**12)
    with pytest.raises(ModelTooLarge, match="read more than 20000 tensors"):
        load(data, CompileOptions(target="npu:ethos-u55-128"), OPERATORS, Limits(reads=20_000))


def test_a_body_may_give_back_what_it_was_given() -> None:
    swap = body(
        [],
        [info("i", INT64, []), info("on", BOOL, []), info("a", shape=[2]), info("b", shape=[2])],
        [info("on", BOOL, []), info("b", shape=[2]), info("a", shape=[2])],
    )
    inputs = [info("x", shape=[2]), info("z", shape=[2])]
    data = model([node("Loop", ["n", "", "x", "z"], ["p", "q"], body=swap)], inputs, ["p", "q"], n=3)
    graph = assert_as_onnxruntime_says(data, {"x": np.ones(2, np.float32), "z": np.zeros(2, np.float32)})
    assert {n.op for n in graph.nodes} == {"Identity"}


def test_names_of_a_body_are_not_those_around_it_although_they_are_spelled_alike() -> None:
    """The body's x is its state and its w another constant; what the graph calls y the body calls so as well."""
    inner = body(
        [node("Add", ["x", "w"], ["y"])],
        [info("i", INT64, []), info("on", BOOL, []), info("x", shape=[2])],
        [info("on", BOOL, []), info("y", shape=[2])],
        w=np.array([5, 6], np.float32),
    )
    calls = [
        node("Neg", ["x"], ["q"]),
        node("Loop", ["n", "", "q"], ["r"], body=inner),
        node("Add", ["r", "w"], ["y"]),
    ]
    graph = loaded(model(calls, [info("x", shape=[2])], ["y"], n=2, w=np.array([100, 200], np.float32)))
    x = np.array([1, -2], np.float32)
    found = evaluate_graph(graph, {graph.inputs[0]: x}, OPERATORS, wide=False)[graph.outputs[0]]
    np.testing.assert_array_equal(found, -x + np.array([110, 212], np.float32))
