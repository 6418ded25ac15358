from __future__ import annotations

import itertools

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.frontend.open.by_value import agree_with_fixed, fed, results

X = np.random.default_rng(7).normal(size=(2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("ReduceSum(x, a)", "[?,?,?]"),
        ("ReduceMax<keepdims=0>(x, a)", "[?]"),
        ("ReduceMean<noop_with_empty_axes=1>(x, a)", "[?,?,?]"),
        ("ReduceLogSumExp<keepdims=0>(x, a)", "[?]"),
    ],
)
def test_axes_that_data_say_are_those_of_a_constant(call: str, result: str) -> None:
    del result
    model = model_of(f"m (float[2,3,4] x, int64[2] a) => (float y) {{ y = {call} }}")
    loaded = fed(model)
    for axes in itertools.permutations((-3, 1, 2), 2):
        agree_with_fixed(model, loaded, {"x": X, "a": np.array(axes)}, ("a",))


@pytest.mark.parametrize("axes", [(0, 0), (1, -2), (0, 3), (-4, 1)])
def test_axes_that_are_none_are_no_answer(axes: tuple[int, int]) -> None:
    loaded = fed(model_of("m (float[2,3,4] x, int64[2] a) => (float y) { y = ReduceSum(x, a) }"))
    said, _ = results(loaded, {"x": X, "a": np.array(axes)})
    assert "input 'axes' of ReduceSum" in said
    assert "must be one of [0, 1], [0, 2], [1, 2]" in said


def test_one_axis_is_one_of_the_tensor() -> None:
    model = model_of("m (float[2,3,4] x, int32 a) => (float[2,3,4] y) { y = CumSum<exclusive=1>(x, a) }")
    loaded = fed(model)
    for axis in range(-3, 3):
        agree_with_fixed(model, loaded, {"x": X, "a": np.array(axis, np.int32)}, ("a",))
    for axis in (-4, 3):
        said, _ = results(loaded, {"x": X, "a": np.array(axis, np.int32)})
        assert "input 'axis' of CumSum" in said
        assert said.endswith(f"must be an axis of a tensor of rank 3: {axis}")


def test_axes_may_be_squeezed_and_put_in() -> None:
    model = model_of(
        "m (float[2,1,4,1] x, int64[1] a, int64[2] b) => (float y, float z) { y = Squeeze(x, a) z = Unsqueeze(x, b) }"
    )
    loaded = fed(model)
    x = X[:, :1, :, None]
    for one, two in itertools.product(([1], [-1]), ([0, 1], [5, 2], [-1, 3])):
        agree_with_fixed(model, loaded, {"x": x, "a": np.array(one), "b": np.array(two)}, ("a", "b"))
    said, _ = results(loaded, {"x": x, "a": np.array([0]), "b": np.array([0, 1])})
    assert "input 'axes' of Squeeze" in said


def test_no_axes_at_all_are_known() -> None:
    model = model_of("m (float[2,3,4] x, int64[0] a) => (float y) { y = ReduceSum<noop_with_empty_axes=1>(x, a) }")
    loaded = fed(model)
    assert loaded.open_shapes is None
    assert [node.op for node in loaded.graph.nodes] == ["ReduceSum"]
    _, (found,) = results(loaded, {"x": X, "a": np.zeros(0, np.int64)})
    np.testing.assert_allclose(found, X, rtol=1e-6)


def test_axes_of_a_branch_that_is_not_taken_may_be_anything() -> None:
    loaded = fed(
        model_of(
            "m (float[2,3] x, int64[1] a, bool c) => (float y) { y = If(c) <"
            "then_branch = t () => (float t) { t = ReduceSum(x, a) },"
            "else_branch = e () => (float e) { e = Identity(x) }> }"
        )
    )
    feeds = {"x": X[0], "a": np.array([5])}
    said, (found,) = results(loaded, {**feeds, "x": X[:, :, 0], "c": np.array(False)})
    assert not said
    np.testing.assert_allclose(found, X[:, :, 0], rtol=1e-6)
    said, _ = results(loaded, {**feeds, "x": X[:, :, 0], "c": np.array(True)})
    assert "ReduceSum" in said


def test_drawn_inputs_are_legal() -> None:
    loaded = fed(
        model_of("m (float[2,3,4] x, int64[2] a, int32 b) => (float y) { s = ReduceSum(x, a) y = CumSum(s, b) }")
    )
    shapes = loaded.open_shapes
    assert shapes is not None
    drawn = [sample_inputs(loaded.graph, seed, shapes) for seed in range(3)]
    assert len({tuple(one[loaded.graph.inputs[1]]) for one in drawn}) == 3
    for inputs in drawn:
        assert not shapes.broken(loaded.graph.outputs, evaluate_graph(loaded.graph, inputs, OPERATORS))


def test_too_many_values_side_by_side_are_refused_with_the_input_to_fix() -> None:
    dims = ",".join("2" * 12)
    model = model_of(f"m (float[{dims}] x, int64[6] a) => (float y) {{ y = ReduceSum(x, a) }}")
    with pytest.raises(UnsupportedModel) as refused:
        load(model, CompileOptions(), OPERATORS)
    (refusal,) = refused.value.refusals
    assert "input 'axes' must be known when compiling" in refusal.reason
    assert '"a": {"value": ...}' in refusal.fix
