from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.errors import OptionsError, UnsupportedModel
from compiler.frontend import load
from compiler.frontend.reading.strings import NUMBER_OF
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

Arrays = Mapping[str, np.ndarray]
ML = "ai.onnx.ml"


def words(*rows: str) -> np.ndarray:
    return np.array(rows, object)


def model_of(nodes: Sequence[onnx.NodeProto], inputs: Arrays, outputs: Sequence[str], **constants: np.ndarray) -> bytes:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, results, weights)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def computed(model: bytes, inputs: Arrays) -> list[np.ndarray]:
    """The outputs by our references, strings as such."""
    loaded = load(model, CompileOptions(), OPERATORS)
    graph, border = loaded.graph, loaded.border
    given = border.coded(inputs)
    strings = dict(enumerate(border.words))
    for name in border.inputs:
        strings |= dict(zip(given[name].ravel().tolist(), inputs[name].ravel().tolist(), strict=True))
    values = evaluate_graph(graph, {id: given[graph.values[id].name] for id in graph.inputs}, OPERATORS)
    found = []
    for id in graph.outputs:
        array = values[id].astype(graph.type(id).dtype.numpy)
        is_text = graph.values[id].name in border.outputs
        found.append(np.vectorize(strings.__getitem__, otypes=[object])(array) if is_text else array)
    return found


def agree(model: bytes, inputs: Arrays) -> None:
    """With ONNX Runtime, element by element."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for ours, theirs in zip(computed(model, inputs), session.run(None, dict(inputs)), strict=True):
        assert ours.shape == np.shape(theirs)
        assert ours.tolist() == np.asarray(theirs).tolist()


def test_strings_that_no_model_holds_are_equal_where_they_are() -> None:
    inputs = {"x": words("a", "b", "", "ä"), "y": words("a", "c", "", "a")}
    agree(model_of([helper.make_node("Equal", ["x", "y"], ["z"])], inputs, ["z"]), inputs)


def test_strings_are_moved_and_chosen() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["grid"]),
        helper.make_node("Transpose", ["grid"], ["across"]),
        helper.make_node("Gather", ["across", "places"], ["some"], axis=0),
        helper.make_node("Concat", ["some", "more"], ["joined"], axis=1),
        helper.make_node("Equal", ["joined", "known"], ["hit"]),
        helper.make_node("Where", ["hit", "joined", "other"], ["z"]),
        helper.make_node("Identity", ["other"], ["constant"]),
    ]
    inputs = {"x": words("a", "b", "c", "d", "e", "a")}
    constants: dict[str, np.ndarray] = {
        "shape": np.array([2, 3]),
        "places": np.array([2, 0]),
        "more": words("a", "z").reshape(2, 1),
        "known": words("a"),
        "other": words("other"),
    }
    model = model_of(nodes, inputs, ["z", "joined", "constant"], **constants)
    # ONNX Runtime 1.31 takes the wrong elements of strings where Where broadcasts them.
    wanted = ReferenceEvaluator(onnx.load_from_string(model)).run(None, inputs)
    assert [one.tolist() for one in computed(model, inputs)] == [np.asarray(one).tolist() for one in wanted]


@pytest.mark.parametrize(
    ("attrs", "x"),
    [
        ({"keys_strings": ["b", "a", "b"], "values_int64s": [5, 6, 7]}, words("a", "b", "c", "")),
        ({"keys_strings": ["b", "a"], "values_strings": ["B", "b"], "default_string": "?"}, words("a", "b", "c")),
        ({"keys_strings": ["b", "a"], "values_floats": [1.5, 2.5]}, words("a", "b", "c")),
        ({"keys_int64s": [3, 4], "values_strings": ["three", "four"]}, np.array([4, 3, 2])),
    ],
)
def test_keys_and_values_of_a_label_encoder_may_be_strings(attrs: dict[str, Any], x: np.ndarray) -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, **attrs)
    agree(model_of([node], {"x": x}, ["y"]), {"x": x})


@pytest.mark.parametrize("x", [words("a", "b", "z"), np.array([2, 1, 9])])
def test_a_category_mapper_goes_both_ways(x: np.ndarray) -> None:
    attrs: dict[str, Any] = {
        "cats_strings": ["a", "b"],
        "cats_int64s": [1, 2],
        "default_int64": -7,
        "default_string": "none",
    }
    node = helper.make_node("CategoryMapper", ["x"], ["y"], domain=ML, **attrs)
    agree(model_of([node], {"x": x}, ["y"]), {"x": x})


def test_categories_of_a_one_hot_encoder_may_be_strings() -> None:
    node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain=ML, cats_strings=["a", "b", "c"])
    inputs = {"x": words("c", "a", "no", "b").reshape(2, 2)}
    agree(model_of([node], inputs, ["y"]), inputs)


def test_a_condition_known_while_running_chooses_between_strings() -> None:
    def branch(name: str, word: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.STRING, [1])
        return helper.make_graph([helper.make_node("Identity", [word], [name])], name, [], [out])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "x"), else_branch=branch("e", "k"))
    for condition in (True, False):
        inputs = {"c": np.array(condition), "x": words("given")}
        agree(model_of([node], inputs, ["y"], k=words("kept")), inputs)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Cast", ["x"], {"to": TensorProto.INT64}),
        ("Clip", ["x"], {}),
        ("Add", ["x", "x"], {}),
        ("Unique", ["x"], {}),
        ("Where", ["flags", "x", "numbers"], {}),
        ("Concat", ["x", "numbers"], {"axis": 0}),
        (NUMBER_OF, ["x"], {}),
    ],
)
def test_operators_that_make_or_read_strings_are_refused(op: str, inputs: Sequence[str], attrs: dict[str, Any]) -> None:
    arrays = {"x": words("a"), "numbers": np.array([1]), "flags": np.array([True])}
    model = model_of([helper.make_node(op, inputs, ["y"], "odd", **attrs)], arrays, ["y"])
    with pytest.raises(UnsupportedModel) as caught:
        load(model, CompileOptions(), OPERATORS)
    assert [refusal.node for refusal in caught.value.refusals] == ["odd"]
    assert caught.value.refusals[0].fix


def test_options_fix_no_string() -> None:
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": words("a")}, ["y"])
    with pytest.raises(OptionsError, match="is of strings"):
        load(model, CompileOptions.from_json({"inputs": {"x": {"value": [1]}}}), OPERATORS)


def test_maps_that_another_node_reads_are_refused() -> None:
    nodes = [
        helper.make_node("ZipMap", ["x"], ["maps"], "zip", domain=ML, classlabels_strings=["a", "b"]),
        helper.make_node("Identity", ["maps"], ["y"]),
    ]
    model = model_of(nodes, {"x": np.zeros((1, 2), np.float32)}, ["y"])
    with pytest.raises(UnsupportedModel, match=r"1 of the model's nodes") as caught:
        load(model, CompileOptions(), OPERATORS)
    assert "another node reads" in caught.value.refusals[0].reason


def test_ngrams_of_strings_are_counted() -> None:
    attrs: dict[str, Any] = {
        "mode": "TFIDF",
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 1,
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4],
        "pool_strings": ["the", "cat", "sat", "the", "cat", "cat", "sat"],
        "weights": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    inputs = {"x": words("the", "cat", "then", "sat", "the", "cat").reshape(1, 6)}
    agree(model_of([helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attrs)], inputs, ["y"]), inputs)
