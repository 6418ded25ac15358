from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.errors import OptionsError, UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.frontend.open.by_value import agree_with_fixed, fed, results

X = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
BIG, LOW = 2**62, -(2**63)
Numbers = dict[str, list[int]]
MODELS: dict[str, tuple[str, list[Numbers], list[Numbers]]] = {
    "Reshape": (
        "(float[2,3,4] x, int64[3] s) => (float y) { y = Reshape(x, s) }",
        [{"s": s} for s in ([4, 3, 2], [-1, 1, 24], [0, -1, 2], [24, 1, 1], [2, 0, 0])],
        [{"s": s} for s in ([4, 3, 3], [5, -1, 1], [-1, -1, 2], [-2, -12, 1], [-1, -1, 24])],
    ),
    "Expand": (
        "(float[3,1] x, int64[3] s) => (float y) { y = Expand(x, s) }",
        [{"s": s} for s in ([2, 3, 4], [1, 1, 1], [5, 1, 2])],
        [{"s": s} for s in ([2, 2, 4], [1, 1, 2000])],
    ),
    "Tile": (
        "(float[2,3,4] x, int64[3] r) => (float y) { y = Tile(x, r) }",
        [{"r": r} for r in ([1, 1, 1], [2, 1, 3])],
        [{"r": [1, 1, 999]}, {"r": [-1, 1, 1]}],
    ),
    "ConstantOfShape": (
        "(int64[2] s) => (int64 y) { y = ConstantOfShape<value=int64[1] {7}>(s) }",
        [{"s": s} for s in ([3, 5], [1, 1])],
        [{"s": [-1, 2]}, {"s": [5, 1025]}],
    ),
    "Range": (
        "(int64 a, int64 b, int64 c) => (int64 y) { y = Range(a, b, c) }",
        [{"a": [a], "b": [b], "c": [c]} for a, b, c in ((0, 5, 1), (2, 11, 3), (9, -2, -4), (3, 0, -3))],
        [{"a": [0], "b": [5], "c": [0]}, {"a": [0], "b": [1025], "c": [1]}],
    ),
    "Slice": (
        "(float[2,3,4] x, int64[2] b, int64[2] e, int64[2] a, int64[2] s) => (float y) { y = Slice(x, b, e, a, s) }",
        [
            {"b": [0, 1], "e": [2, 3], "a": [1, 2], "s": [1, 1]},
            {"b": [-1, -2], "e": [LOW, 0], "a": [2, 0], "s": [-2, -1]},
            {"b": [1, -3], "e": [BIG, BIG], "a": [-1, 0], "s": [3, BIG]},
            {"b": [7, 0], "e": [-9, 2], "a": [2, 1], "s": [-1, 1]},
        ],
        [
            {"b": [0, 1], "e": [2, 3], "a": [1, 1], "s": [1, 1]},
            {"b": [0, 1], "e": [2, 3], "a": [1, 3], "s": [1, 1]},
            {"b": [0, 1], "e": [2, 3], "a": [1, 2], "s": [1, 0]},
        ],
    ),
    "Split": (
        "(float[2,3,4] x, int64[2] p) => (float y, float z) { y, z = Split<axis=-1>(x, p) }",
        [{"p": p} for p in ([1, 3], [2, 2], [3, 1])],
        [{"p": p} for p in ([1, 2], [-1, 5], [3, 3])],
    ),
    "Pad": (
        "(float[2,3,4] x, int64[6] p) => (float y) { y = Pad<mode='reflect'>(x, p) }".replace("'", '"'),
        [{"p": p} for p in ([0, 1, 2, 1, 0, 3], [0, 0, -1, 0, 2, -1])],
        [{"p": [0, 0, 0, 0, 0, 2000]}],
    ),
    "OneHot": (
        "(int64[2,2] i, int64 d) => (float y) { v = Constant<value=float[2] {-1, 2}>() y = OneHot<axis=1>(i, d, v) }",
        [{"d": [d], "i": [0, 2, -1, 1]} for d in (3, 4, 7)],
        [{"d": [2000], "i": [0, 0, 0, 0]}, {"d": [-1], "i": [0, 0, 0, 0]}],
    ),
    "Trilu": (
        "(float[2,3,4] x, int64 k) => (float y) { y = Trilu<upper=0>(x, k) }",
        [{"k": [k]} for k in (-1_000_000, -3, -1, 0, 2, 3, BIG)],
        [],
    ),
}


def feeds(loaded: Any, numbers: Numbers) -> dict[str, np.ndarray]:
    graph = loaded.graph
    given = {"x": X[0, :, :1] if graph.values[graph.inputs[0]].type.dims == (3, 1) else X}
    for id in graph.inputs:
        value = graph.values[id]
        if value.name in numbers:
            given[value.name] = np.array(numbers[value.name], value.type.dtype.numpy).reshape(value.type.dims)
    return given


@pytest.mark.parametrize("op", MODELS)
def test_what_data_say_is_what_a_constant_says_and_beyond_the_bounds_there_is_no_answer(op: str) -> None:
    text, legal, illegal = MODELS[op]
    model = model_of(f"m {text}")
    loaded = fed(model)
    for numbers in legal:
        names = tuple(name for name in numbers if name != "i")
        agree_with_fixed(model, loaded, feeds(loaded, numbers), names)
    for numbers in illegal:
        said, _ = results(loaded, feeds(loaded, numbers))
        assert op in said
    shapes = loaded.open_shapes
    assert shapes is not None
    for seed in range(4):
        inputs = sample_inputs(loaded.graph, seed, shapes)
        assert not shapes.broken(loaded.graph.outputs, evaluate_graph(loaded.graph, inputs, OPERATORS))


def test_zero_elements_keep_their_shape() -> None:
    loaded = fed(model_of("m (float[0,3,4] x, int64[3] s) => (float y) { y = Reshape<allowzero=1>(x, s) }"))
    said, (found,) = results(loaded, {"x": np.zeros((0, 3, 4), np.float32), "s": np.array([3, 4, 0])})
    assert not said
    assert found.shape == (3, 4, 0)


def test_floats_are_counted_as_numpy_counts_them() -> None:
    loaded = fed(model_of("m (float a, float b, float c) => (float y) { y = Range(a, b, c) }"))
    for a, b, c in ((1.0, 5.0, 1.5), (0.0, 1.0, 0.1), (3.0, -1.0, -0.75)):
        given = {name: np.array(number, np.float32) for name, number in (("a", a), ("b", b), ("c", c))}
        said, (found,) = results(loaded, given)
        assert not said
        np.testing.assert_allclose(
            found, np.arange(*(given[name].item() for name in "abc"), dtype=np.float32), rtol=1e-5, atol=1e-6
        )


def test_an_assumed_bound_is_told_and_another_may_be_given() -> None:
    text = "m (float[3,1] x, int64[2] s) => (float y) { [grow] y = Expand(x, s) }"
    model = model_of(text)
    (notice,) = fed(model).notices
    assert "'grow' 1024; for others give" in notice
    loaded = fed(model, {"grow": 2})
    assert loaded.notices == ()
    said, _ = results(loaded, {"x": X[0, :, :1], "s": np.array([3, 3])})
    assert said.startswith("a size of Expand 'grow' must lie between 0 and 2; for more compile with the option bounds")
    assert loaded.graph.type(loaded.graph.outputs[0]).dims == (3, 2)
    with pytest.raises(OptionsError, match=r"bounds\['shrink'\] names no node"):
        load(model, CompileOptions(bounds={"shrink": 3}), OPERATORS)


def test_examples_are_tried_where_no_rule_knows_any() -> None:
    model = model_of("m (float[4] x, int64[1] n) => (float y) { d = Mul(n, n) s = Expand(x, d) y = Reshape(s, n) }")
    loaded = fed(model)
    shapes = loaded.open_shapes
    assert shapes is not None
    for seed in range(3):
        inputs = sample_inputs(loaded.graph, seed, shapes)
        assert not shapes.broken(loaded.graph.outputs, evaluate_graph(loaded.graph, inputs, OPERATORS))


def test_what_an_iteration_reads_that_does_not_run_may_be_anything() -> None:
    loaded = fed(
        model_of(
            "m (float[2,3] x, int64[2] s, bool on) => (float y) <int64 t = {2}> { y = Loop(t, on, x) <"
            "body = b (int64 i, bool c, float[2,3] v) => (bool d, float[a,b] w)"
            " { d = Identity(c) w = Reshape(v, s) }> }"
        )
    )
    x = X[:, :, 0]
    for runs, shape, legal in ((False, (5, 5), True), (True, (5, 5), False), (True, (6, 1), True)):
        said, (found,) = results(loaded, {"x": x, "s": np.array(shape), "on": np.array(runs)})
        assert ("Reshape" not in said) == legal
        if legal:
            np.testing.assert_allclose(found, x.reshape(shape) if runs else x, rtol=1e-6)


def test_a_refusal_about_sizes_that_data_say_offers_to_fix_their_input() -> None:
    model = model_of("m (float[2,3] x, int64[2] s) => (float y) { v = Reshape(x, s) y = Det(v) }")
    with pytest.raises(UnsupportedModel) as refused:
        fed(model)
    (refusal,) = refused.value.refusals
    assert "it has no rule for an open dimension" in refusal.reason
    assert '{"inputs": {"s": {"value": ...}}}' in refusal.fix
