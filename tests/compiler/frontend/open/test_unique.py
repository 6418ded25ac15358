"""Unique, of which data decide how many elements there are, against ONNX's reference and ONNX Runtime."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import model_of, opened
from tests.compiler.frontend.open.test_control_flow import agree, results_of

OUTPUTS = "int64[n] first, int64[m] which, int64[n] often"
KINDS = {"float": np.float32, "int64": np.int64, "int8": np.int8, "double": np.float64}


def unique(kind: str, shape: str, attributes: str = "") -> bytes:
    return model_of(
        f"m ({kind}[{shape}] x) => ({kind}[n] y, {OUTPUTS}) {{ y, first, which, often = Unique{attributes}(x) }}"
    )


def agree_with_onnxruntime(model: bytes, x: np.ndarray) -> None:
    """All four results."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found, wanted = results_of(model, x=x), session.run(None, {"x": x})
    assert len(found) == len(wanted) == 4
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@given(st.lists(st.integers(-2, 2), min_size=6, max_size=6), st.sampled_from([0, 1]), st.sampled_from(sorted(KINDS)))
@settings(max_examples=60, deadline=None)
def test_all_four_results_are_those_of_onnxruntime(numbers: list[int], ascending: int, kind: str) -> None:
    x = np.array(numbers, KINDS[kind]).reshape(2, 3)
    model = unique(kind, "2,3", f"<sorted={ascending}>")
    agree_with_onnxruntime(model, x)


def test_no_number_is_equal_to_itself_and_comes_last() -> None:
    x = np.array([np.nan, 1, np.nan, -np.inf, np.inf, 1, 0, -0.0], np.float32)
    y, first, which, often = results_of(unique("float", "8"), x=x)
    np.testing.assert_array_equal(y, np.array([-np.inf, 0, 1, np.inf, np.nan], np.float32))
    assert first.tolist() == [3, 6, 1, 4, 0]
    assert which.tolist() == [4, 2, 4, 0, 3, 2, 1, 1]
    assert often.tolist() == [1, 2, 2, 1, 2]


@pytest.mark.parametrize("attributes", ["<axis=0>", "<axis=-1, sorted=0>"])
def test_an_axis_of_a_vector_is_all_of_it(attributes: str) -> None:
    agree(unique("float", "5", attributes), x=np.array([3, 1, 3, 2, 1], np.float32))


def test_of_one_element_and_of_none() -> None:
    agree(unique("float", "1"), x=np.array([3], np.float32))
    assert [array.shape for array in results_of(unique("float", "0"), x=np.zeros(0, np.float32))] == [(0,)] * 4


def test_results_that_nobody_asks_for_are_not_computed() -> None:
    model = model_of("m (float[5] x) => (float[n] y, int64[n] c) { y, , , c = Unique(x) }")
    agree(model, x=np.array([3, 1, 3, 2, 1], np.float32))
    one = load(model_of("m (float[5] x) => (float[n] y) { y = Unique(x) }"), CompileOptions(), OPERATORS)
    assert "ScatterElements" in {node.op for node in one.graph.nodes}
    assert sum(node.op == "TopK" for node in one.graph.nodes) == 1


def test_of_constants_it_is_a_constant() -> None:
    model = model_of("m () => (float[n] y) <float[4] x = {3, 1, 3, 2}> { y = Unique<sorted=0>(x) }")
    loaded = load(model, CompileOptions(), OPERATORS)
    assert loaded.open_shapes is None
    assert results_of(model)[0].tolist() == [3, 1, 2]


@pytest.mark.parametrize("ascending", [0, 1])
@pytest.mark.parametrize("numbers", [[-1, -2], [0, 3, 0, -1], [5, 5, 5, 5, 5, 5, 5], [2, 0, -3, 0, 2, 2]])
def test_elements_of_an_open_axis_are_told_from_what_lies_beyond(numbers: list[int], ascending: int) -> None:
    model = unique("float", "k", f"<sorted={ascending}>")
    loaded = opened(model, {"k": (2, 7)})
    graph, shapes = loaded.graph, loaded.open_shapes
    assert shapes is not None
    x = np.zeros(7, np.float32)
    x[: len(numbers)] = numbers
    found = evaluate_graph(graph, dict(zip(graph.inputs, (x, np.array(len(numbers))), strict=True)), OPERATORS)
    outputs = [found[id] for id in graph.outputs]
    wanted: Any = ReferenceEvaluator(onnx.load(io.BytesIO(model))).run(None, {"x": np.array(numbers, np.float32)})
    for output, axes, right in zip(outputs, shapes.outputs, wanted, strict=False):
        (of,) = axes
        assert of is not None
        size = int(outputs[of])
        np.testing.assert_array_equal(output[:size], right)
        assert not output[size:].any()


@given(st.lists(st.integers(0, 1), min_size=24, max_size=24), st.sampled_from([0, 1, 2, -1]), st.sampled_from([0, 1]))
@settings(max_examples=40, deadline=None)
def test_slices_along_an_axis_are_compared_element_by_element(numbers: list[int], axis: int, ascending: int) -> None:
    x = np.array(numbers, np.float32).reshape(2, 4, 3)
    dims = ["2", "4", "3"]
    dims[axis] = "n"
    model = model_of(
        f"m (float[2,4,3] x) => (float[{','.join(dims)}] y, {OUTPUTS})"
        f"{{ y, first, which, often = Unique<axis={axis}, sorted={ascending}>(x) }}"
    )
    agree_with_onnxruntime(model, x)


def test_slices_along_an_open_axis_are_told_from_what_lies_beyond() -> None:
    model = model_of("m (float[2,k] x) => (float[2,n] y) { y = Unique<axis=1>(x) }")
    loaded = opened(model, {"k": (1, 5)})
    graph = loaded.graph
    x = np.zeros((2, 5), np.float32)
    x[:, :3] = [[1, -1, 1], [2, 0, 2]]
    found = evaluate_graph(graph, dict(zip(graph.inputs, (x, np.array(3)), strict=True)), OPERATORS)
    y, count = (found[id] for id in graph.outputs)
    assert (y[:, :2].tolist(), int(count)) == ([[-1, 1], [0, 2]], 2)
    assert not y[:, 2:].any()


@pytest.mark.parametrize(("shape", "why"), [("2,65", "slices of 65 elements"), ("2,k", "slices along an axis")])
def test_slices_that_are_long_or_open_are_refused(shape: str, why: str) -> None:
    model = model_of(f"m (float[{shape}] x) => (float[n,m] y) {{ y = Unique<axis=0>(x) }}")
    with pytest.raises(UnsupportedModel, match=why):
        opened(model, {"k": (1, 3)} if "k" in shape else {})
