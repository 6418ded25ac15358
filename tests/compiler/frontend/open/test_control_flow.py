"""Branches, loops and kept elements that data decide, against onnx's reference evaluator."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened


def results_of(model: bytes, **inputs: Any) -> list[np.ndarray]:
    """What the graph gives for these inputs, each output cut to its real size."""
    loaded = load(model, CompileOptions(), OPERATORS)
    graph, shapes = loaded.graph, loaded.open_shapes
    given = {id: np.asarray(inputs[graph.values[id].name]) for id in graph.inputs}
    found = evaluate_graph(graph, given, OPERATORS)
    outputs = [found[id] for id in graph.outputs]
    if shapes is None:
        return outputs
    assert not shapes.dimensions
    return [
        output[tuple(slice(int(outputs[of]) if of is not None else None) for of in axes)]
        for output, axes in zip(outputs, shapes.outputs, strict=False)
    ]


def agree(model: bytes, **inputs: Any) -> None:
    expected: Any = ReferenceEvaluator(onnx.load(io.BytesIO(model))).run(None, inputs)
    for found, wanted in zip(results_of(model, **inputs), expected, strict=True):
        assert found.shape == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


BRANCHES = model_of("""m (float[3] x, bool c, bool d) => (float[3] y) {
    y = If<then_branch = t () => (float[3] a) {
             a = If<then_branch = tt () => (float[3] p) { p = Exp(x) },
                    else_branch = te () => (float[3] q) { q = Neg(x) }>(d)
           },
           else_branch = e () => (float[3] b) { b = Abs(x) }>(c)
}""")


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_a_branch_that_data_choose_gives_its_result(taken: bool, inner: bool) -> None:
    x = np.array([-1.5, 0.25, 2.0], np.float32)
    agree(BRANCHES, x=x, c=np.array(taken), d=np.array(inner))


@pytest.mark.parametrize("taken", [True, False])
def test_branches_may_differ_in_their_sizes(taken: bool) -> None:
    model = model_of("""m (float[5] x, bool c) => (float[n] y) <int64[1] two = {2}, int64[1] zero = {0}> {
        z = If<then_branch = t () => (float[5] a) { a = Exp(x) },
               else_branch = e () => (float[2] b) { b = Slice(x, zero, two, zero) }>(c)
        y = Softmax(z)
    }""")
    agree(model, x=np.arange(5, dtype=np.float32), c=np.array(taken))


def test_branches_of_different_ranks_are_refused() -> None:
    model = model_of("""m (float[1,5] x, bool c) => (float[n] y) <int64[1] zero = {0}> {
        y = If<then_branch = t () => (float[5] a) { a = Squeeze(x, zero) },
               else_branch = e () => (float[1,5] b) { b = Exp(x) }>(c)
    }""")
    with pytest.raises(UnsupportedModel, match="as a condition says that is known at run time only"):
        load(model, CompileOptions(), OPERATORS)


HALVING = model_of("""m (float[2] x, float limit) => (float[2] y, float[n,2] rows)
<int64 most = {9}, float half = {0.5}> {
    s0 = ReduceMax<keepdims=0>(x)
    on = Greater(s0, limit)
    y, rows = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w, float[2] row) {
        w = Mul(v, half) row = Identity(w) s = ReduceMax<keepdims=0>(w) again = Greater(s, limit)
    }>(most, on, x)
}""")


@pytest.mark.parametrize("limit", [0.4, 3.0, 0.0])
def test_a_loop_ends_when_data_say_so_and_keeps_its_rows(limit: float) -> None:
    agree(HALVING, x=np.array([7.0, 10.0], np.float32), limit=np.array(limit, np.float32))


def test_a_loop_that_data_end_at_once_gives_what_it_was_given_and_no_rows() -> None:
    x = np.array([7.0, 10.0], np.float32)
    y, rows = results_of(HALVING, x=x, limit=np.array(100, np.float32))
    assert y.tolist() == x.tolist()
    assert rows.shape == (0, 2)


def test_a_loop_without_a_bound_ends_where_data_say_or_is_refused_where_it_would_have_to_be_written_out() -> None:
    model = model_of("""m (float[2] x, float limit) => (float[2] y) <float half = {0.5}, bool on = {1}> {
        y = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w) {
            w = Mul(v, half) s = ReduceMax<keepdims=0>(w) again = Greater(s, limit)
        }>(, on, x)
    }""")
    agree(model, x=np.array([7.0, 10.0], np.float32), limit=np.array(0.01, np.float32))
    with pytest.raises(UnsupportedModel, match="more than 256 times"):
        load(model, CompileOptions(target="npu:ethos-u55-128"), OPERATORS)


COUNTED = model_of("""m (float[n,3] x) => (float[3] y, float[n,3] rows)
<int64 zero = {0}, bool on = {1}, float[3] start = {0.0, 0.0, 0.0}> {
    s = Shape(x) n_ = Gather(s, zero)
    y, rows = Loop<body = b (int64 i, bool c, float[3] v) => (bool again, float[3] w, float[3] row) {
        again = Identity(c) e = Gather<axis=0>(x, i) w = Add(v, e) row = Exp(w)
    }>(n_, on, start)
}""")
SCANNED = model_of("""m (float[n,3] x, float[3] start) => (float[3] y, float[n,3] rows) {
    y, rows = Scan<num_scan_inputs = 1, body = b (float[3] v, float[3] e) => (float[3] w, float[3] row) {
        w = Add(v, e) row = Exp(w)
    }>(start, x)
}""")


@pytest.mark.parametrize("model", [COUNTED, SCANNED], ids=["Loop", "Scan"])
def test_a_loop_runs_once_for_each_row_of_an_open_axis(model: bytes) -> None:
    loaded = opened(model, {"n": (2, 6)})
    for size in (2, 3, 6):
        agree_at(loaded, model, {"n": size}, seed=size)


@given(st.lists(st.integers(-1, 1), min_size=12, max_size=12))
@settings(max_examples=30)
def test_NonZero_gives_the_positions_in_order(values: list[int]) -> None:
    x = np.array(values, np.float32).reshape(2, 3, 2)
    agree(model_of("m (float[2,3,2] x) => (int64[3,n] y) { y = NonZero(x) }"), x=x)


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.sampled_from(["", "<axis=1>", "<axis=-1>"]))
@settings(max_examples=30)
def test_Compress_keeps_what_a_condition_says(kept: list[bool], attribute: str) -> None:
    places, shape = (3, "2,n,4") if attribute == "<axis=1>" else (4, "2,3,n" if attribute else "n")
    model = model_of(f"m (float[2,3,4] x, bool[{places}] c) => (float[{shape}] y) {{ y = Compress{attribute}(x, c) }}")
    agree(model, x=np.arange(24, dtype=np.float32).reshape(2, 3, 4), c=np.array(kept[:places]))


def test_what_is_kept_goes_on_as_an_open_axis() -> None:
    model = model_of("""m (float[8] x, float[8,3] table) => (float[n,3] y, float s)
        <float zero = {0.0}, int64[1] one = {1}> {
        c = Greater(x, zero) p = NonZero(c) t = Transpose(p) i = Squeeze(t, one) r = Gather(table, i)
        y = Softmax<axis=0>(r) s = ReduceMean<keepdims=0>(r)
    }""")
    chance = np.random.default_rng(1)
    for _ in range(5):
        agree(
            model,
            x=chance.normal(size=8).astype(np.float32),
            table=chance.normal(size=(8, 3)).astype(np.float32),
        )


@pytest.mark.parametrize("ends", [(0, 3), (-4, -1), (2, 99), (5, 2), (-99, 4)])
def test_a_slice_may_begin_and_end_where_data_say(ends: tuple[int, int]) -> None:
    model = model_of("""m (float[2,6] x, int64[1] a, int64[1] b) => (float[2,n] y) <int64[1] one = {1}> {
        z = Slice(x, a, b, one) y = Exp(z)
    }""")
    x = np.arange(12, dtype=np.float32).reshape(2, 6) / 5
    agree(model, x=x, a=np.array(ends[:1]), b=np.array(ends[1:]))


def test_TopK_takes_as_many_as_data_say() -> None:
    model = model_of("m (float[6] x, int64[1] k) => (float[n] y, int64[n] i) { y, i = TopK(x, k) }")
    for count in (1, 4, 6):
        agree(model, x=np.array([3, -1, 5, 2, 9, 0], np.float32), k=np.array([count]))


def test_as_many_elements_are_scattered_as_there_are_places_kept() -> None:
    """Updates of a fixed number, and places that have room for more."""
    model = model_of("""m (float[6] x, float[2] u) => (float[6] y) <int64[1] flat = {-1}> {
        p = NonZero(x) i = Reshape(p, flat) y = ScatterElements<axis=0>(x, i, u)
    }""")
    agree(model, x=np.array([0, 4, 0, 0, 7, 0], np.float32), u=np.array([-1, -2], np.float32))
    agree(model, x=np.array([3, 0, 0, 0, 0, 9], np.float32), u=np.array([-3, -4], np.float32))


@pytest.mark.parametrize("taken", [True, False])
def test_a_scalar_or_one_element_is_a_scalar(taken: bool) -> None:
    """As branches give them that both declare one, where an export made a vector of one of them."""
    model = model_of("""m (float[3] x, float s, bool c) => (float[3] y) <float[1] two = {2}> {
        f = If<then_branch = t () => (float a) { a = Neg(s) }, else_branch = e () => (float b) { b = Add(s, two) }>(c)
        y = Mul(x, f)
    }""")
    agree(model, x=np.array([1, 2, -3], np.float32), s=np.array(5, np.float32), c=np.array(taken))
