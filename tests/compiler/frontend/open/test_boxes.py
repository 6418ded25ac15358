"""NonMaxSuppression, of which data decide how many rows there are, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import model_of, opened
from tests.compiler.frontend.open.test_control_flow import results_of
from tests.compiler.ops.test_boxes import lattices

NAMES = ("boxes", "scores", "limit", "overlap", "least")
TYPES = ("float[2,7,4]", "float[2,2,7]", "int64[1]", "float[1]", "float[1]")


def suppression(arrays: dict[str, np.ndarray], constant: frozenset[str], centred: int) -> bytes:
    """A model of one node, in which some of the inputs are constants."""
    given = [f"{kind} {name}" for kind, name in zip(TYPES, NAMES, strict=True) if name not in constant]
    node = f"NonMaxSuppression<center_point_box={centred}>({', '.join(NAMES)})"
    text = f"m ({', '.join(given)}) => (int64[n,3] y) {{ y = {node} }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in sorted(constant))
    return bytes(model.SerializeToString())


def by_onnxruntime(model: bytes, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


@given(lattices(), st.sampled_from([0, 1]), st.frozensets(st.sampled_from(NAMES)))
@settings(max_examples=60, deadline=None)
def test_any_of_its_inputs_may_be_constants(arrays: dict[str, Any], centred: int, constant: frozenset[str]) -> None:
    model = suppression(arrays, constant, centred)
    inputs = {name: array for name, array in arrays.items() if name not in constant}
    (found,) = results_of(model, **inputs)
    np.testing.assert_array_equal(found, by_onnxruntime(model, inputs))


def test_of_constants_it_is_a_constant() -> None:
    boxes, scores = np.zeros((2, 7, 4), np.float32), np.ones((2, 2, 7), np.float32)
    scalars = {"limit": np.array([2]), "overlap": np.zeros(1, np.float32), "least": np.zeros(1, np.float32)}
    model = suppression({"boxes": boxes, "scores": scores, **scalars}, frozenset(NAMES), 0)
    loaded = load(model, CompileOptions(), OPERATORS)
    assert loaded.open_shapes is None
    assert loaded.graph.type(loaded.graph.outputs[0]).dims == (8, 3)
    np.testing.assert_array_equal(results_of(model)[0], by_onnxruntime(model, {}))


OPEN = model_of("""m (float[b,n,4] boxes, float[b,2,n] scores) => (int64[k,3] y)
<int64 limit = {3}, float overlap = {0.3}> { y = NonMaxSuppression(boxes, scores, limit, overlap) }""")


@pytest.mark.parametrize(("batches", "count"), [(1, 2), (2, 5), (3, 4), (3, 9)])
def test_what_lies_beyond_open_sizes_is_never_chosen(batches: int, count: int) -> None:
    """Without a least score zeros of the padding would be."""
    loaded = opened(OPEN, {"b": (1, 3), "n": (2, 9)})
    graph, shapes = loaded.graph, loaded.open_shapes
    assert shapes is not None
    chance = np.random.default_rng(count)
    arrays = {
        "boxes": chance.uniform(0, 1, (batches, count, 4)).astype(np.float32),
        "scores": chance.uniform(-1, 0, (batches, 2, count)).astype(np.float32),
    }
    sizes = {"b": batches, "n": count}
    inputs = {}
    for id in graph.inputs[: len(arrays)]:
        array = arrays[graph.values[id].name]
        inputs[id] = np.zeros(graph.type(id).dims, np.float32)
        inputs[id][tuple(map(slice, array.shape))] = array
    for id, dimension in zip(graph.inputs[len(arrays) :], shapes.dimensions, strict=True):
        inputs[id] = np.array(sizes[dimension.name])
    found = evaluate_graph(graph, inputs, OPERATORS)
    rows, total = (found[id] for id in graph.outputs)
    np.testing.assert_array_equal(rows[: int(total)], by_onnxruntime(OPEN, arrays))
    assert not rows[int(total) :].any()


def test_a_limit_that_follows_from_sizes_bounds_the_rows() -> None:
    model = model_of("""m (float[1,6,4] boxes, float[1,1,6] scores, float[2] two) => (int64[k,3] y) {
        limit = Shape(two) y = NonMaxSuppression(boxes, scores, limit)
    }""")
    graph = load(model, CompileOptions(), OPERATORS).graph
    assert graph.type(graph.outputs[0]).dims == (2, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(float[1,6,4] b, float[1,1,5] s) => (int64[k,3] y) { y = NonMaxSuppression(b, s) }", "put side by side"),
        ("(float[1,6,5] b, float[1,1,6] s) => (int64[k,3] y) { y = NonMaxSuppression(b, s) }", "boxes are"),
        ("(float[6,4] b, float[1,1,6] s) => (int64[k,3] y) { y = NonMaxSuppression(b, s) }", "boxes are"),
        (
            "(float[1,6,4] b, float[1,1,6] s) => (int64[k,3] y) <int64 l = {1}, float t = {1.5}>"
            "{ y = NonMaxSuppression(b, s, l, t) }",
            "iou_threshold is 1.5",
        ),
        (
            "(float[1,6,4] b, float[1,1,6] s, int64[2] l) => (int64[k,3] y) { y = NonMaxSuppression(b, s, l) }",
            "'max_output_boxes_per_class' has 2 elements",
        ),
    ],
)
def test_what_does_not_fit_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsupportedModel, match=why):
        load(model_of(f"m {text}"), CompileOptions(), OPERATORS)
