from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import Loaded, load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import agree_at, opened
from tests.compiler.frontend.open.at_sizes import model_of as opened_model

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(24, dtype=np.float32).reshape(4, 6)
Nodes = Sequence[onnx.NodeProto]


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, f"{op} {outputs[0]}", **attrs)


def number(name: str, value: int | list[int]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(value, np.int64)))


def model_of(nodes: Nodes, outputs: Sequence[Any], extra: Sequence[Any] = ()) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, X.shape)
    graph = helper.make_graph(nodes, "g", [x, *extra], list(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def tensor(name: str) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, None)


def sequence(name: str) -> Any:
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def agree(nodes: Nodes, outputs: Sequence[Any], results: Sequence[Any] | None = None) -> Loaded:
    """With these results, else with those of onnx's reference evaluator; elements of sequences one by one."""
    model = model_of(nodes, outputs)
    loaded = load(model.SerializeToString(), CompileOptions(), OPERATORS)
    graph = loaded.graph
    values = evaluate_graph(graph, dict.fromkeys(graph.inputs, X), OPERATORS)
    want: list[np.ndarray] = []
    names: list[str] = []
    results = ReferenceEvaluator(model).run(None, {"x": X}) if results is None else results  # type: ignore[assignment]
    assert results is not None
    for info, result in zip(outputs, results, strict=True):
        parts = result if isinstance(result, list) else [result]
        want += parts
        names += [f"{info.name}.{at}" for at in range(len(parts))] if isinstance(result, list) else [info.name]
    assert [graph.values[id].name for id in graph.outputs] == names
    for id, theirs in zip(graph.outputs, want, strict=True):
        assert values[id].shape == np.shape(theirs)
        np.testing.assert_allclose(values[id], theirs, rtol=1e-6)
    return loaded


@pytest.mark.parametrize("place", [-3, -1, 0, 2, 3])
def test_a_position_of_an_insertion_may_count_from_behind(place: int) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0),
        node("Neg", ["x"], ["other"]),
        number("place", place),
        node("SequenceInsert", ["rows", "other", "place"], ["more"]),
    ]
    loaded = agree(nodes, [sequence("more")])
    assert "output 'more' is a sequence: its 5 elements are outputs" in " ".join(loaded.notices)


@pytest.mark.parametrize("place", [-4, -1, 0, 3])
def test_elements_are_found_and_erased_by_their_position(place: int) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        number("place", place),
        node("SequenceAt", ["rows", "place"], ["row"]),
        node("SequenceErase", ["rows", "place"], ["fewer"]),
        node("SequenceErase", ["fewer"], ["fewest"]),
        node("SequenceLength", ["fewest"], ["count"]),
        node("ConcatFromSequence", ["fewest"], ["joined"], axis=1, new_axis=1),
    ]
    agree(nodes, [tensor("row"), helper.make_tensor_value_info("count", INT, []), tensor("joined")])


@pytest.mark.parametrize("sizes", [4, 2, [1, 2, 3], [6]])
def test_parts_have_one_size_or_their_own(sizes: int | list[int]) -> None:
    nodes = [
        number("sizes", sizes),
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=-1),
        node("ConcatFromSequence", ["parts"], ["joined"], axis=-1),
    ]
    agree(nodes, [sequence("parts"), tensor("joined")])


def test_a_body_is_mapped_over_sequences_and_tensors() -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("ReduceSum", ["c"], ["d"], keepdims=0)],
        "body",
        [tensor("a"), tensor("b")],
        [tensor("c"), tensor("d")],
    )
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=1),
        node("SequenceMap", ["rows", "x"], ["products", "sums"], body=body),
    ]
    agree(nodes, [sequence("products"), sequence("sums")])


def growing_list(condition: str = "on") -> onnx.GraphProto:
    """A body that adds row i of x to the sequence it carries, as long as the condition holds."""
    i, on, off = (helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", INT), ("on", 9), ("off", 9)))
    return helper.make_graph(
        [
            helper.make_node("Identity", [condition], ["off"]),
            helper.make_node("Gather", ["x", "i"], ["row"]),
            helper.make_node("SequenceInsert", ["held", "row"], ["longer"]),
        ],
        "body",
        [i, on, sequence("held")],
        [off, sequence("longer")],
    )


def test_loops_and_branches_carry_sequences() -> None:
    def branch(name: str, source: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node("Identity", [source], [name])], name, [], [sequence(name)])

    nodes = [
        EMPTY,
        number("trips", 3),
        node("Loop", ["trips", "", "none"], ["rows"], body=growing_list()),
        number("chosen", 1),
        node("Cast", ["chosen"], ["condition"], to=TensorProto.BOOL),
        node("SequenceConstruct", ["x", "x"], ["twice"]),
        node("If", ["condition"], ["taken"], then_branch=branch("t", "rows"), else_branch=branch("e", "twice")),
    ]
    agree(nodes, [sequence("taken")], [[X[0], X[1], X[2]]])


def test_an_optional_holds_what_it_was_given() -> None:
    nodes = [
        node("Optional", ["x"], ["held"]),
        node("OptionalHasElement", ["held"], ["there"]),
        node("OptionalGetElement", ["held"], ["y"]),
    ]
    agree(nodes, [helper.make_tensor_value_info("there", TensorProto.BOOL, []), tensor("y")], [np.array(True), X])


def run_time(name: str, kind: int, shape: Sequence[int] = ()) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


EMPTY = node("SequenceEmpty", [], ["none"])
ROWS = node("SplitToSequence", ["x"], ["rows"], axis=0)


@pytest.mark.parametrize(
    ("nodes", "extra", "said"),
    [
        ([ROWS, node("SequenceAt", ["rows", "p"], ["y"])], [run_time("p", INT)], "position is not known"),
        ([ROWS, number("p", 4), node("SequenceAt", ["rows", "p"], ["y"])], [], "position is 4 in a sequence of 4"),
        ([node("SplitToSequence", ["x", "p"], ["y"])], [run_time("p", INT)], "sizes of its parts are not known"),
        ([ROWS, node("Relu", ["rows"], ["y"])], [], "which the operator does not take"),
        ([node("SequenceLength", ["x"], ["y"])], [], "is given a tensor"),
        (
            [EMPTY, number("trips", 3), node("Loop", ["trips", "", "none"], ["y"], body=growing_list("p"))],
            [run_time("p", TensorProto.BOOL)],
            "carries a sequence, and data decide",
        ),
        ([node("SequenceEmpty", [], ["y"])], [], "no output of the model has an element"),
        ([node("Relu", ["x"], ["y"])], [sequence("s")], "kind sequence"),
    ],
)
def test_what_is_only_known_while_running_is_refused(nodes: Nodes, extra: Sequence[Any], said: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        load(model_of(nodes, [onnx.ValueInfoProto(name="y")], extra).SerializeToString(), CompileOptions(), OPERATORS)
    assert said in caught.value.refusals[0].reason
    assert caught.value.refusals[0].fix


def test_a_tensor_of_open_sizes_is_split_along_an_axis_that_is_known() -> None:
    text = """m (float[n,4] x) => (float[n,4] y) <int64[2] pair = {1, 3}, int64 one = {1}, int64 zero = {0}> {
        s = SplitToSequence<axis=AXIS>(x, pair) a = SequenceAt(s, one) b = SequenceAt(s, zero)
        y = Concat<axis=1>(a, b)
    }"""
    model = opened_model(text.replace("AXIS", "1"))
    loaded = opened(model, {"n": (1, 5)})
    for size in (1, 3, 5):
        agree_at(loaded, model, {"n": size}, seed=size)
    with pytest.raises(UnsupportedModel, match="no rule for an open dimension") as caught:
        opened(opened_model(text.replace("AXIS", "0")), {"n": (1, 5)})
    assert caught.value.refusals[0].operator == "SplitToSequence"
