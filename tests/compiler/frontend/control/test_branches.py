"""Branches that do not take every size: left out where data choose, and a narrower range where sizes do."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions, DimRange
from compiler.errors import UnsupportedModel
from compiler.frontend import bind_what_is_open, load
from compiler.frontend.load import Loaded
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened

RATES = model_of("""m (float[1,samples] x, int64 rate) => (float[1,1] y)
<int64 high = {16000}, float[1,1,8] coarse = {1,2,3,4,5,6,7,8}, float[1,1,4] fine = {4,3,2,1}, int64[1] two = {2}> {
    s = Unsqueeze(x, two) t = Transpose<perm=[0,2,1]>(s)
    c = Equal(rate, high)
    y = If<then_branch = a () => (float[1,1] p) { f = Conv<strides=[4]>(t, coarse) p = Squeeze(f, two) },
           else_branch = b () => (float[1,1] q) { g = Conv<strides=[6]>(t, fine) q = Squeeze(g, two) }>(c)
}""")
"""Two sampling rates: the one takes 8 to 11 samples, the other 4 to 9, each for one result."""


def limits_of(loaded: Loaded, **inputs: Any) -> list[bool]:
    """Whether each thing that is demanded of data holds for these inputs."""
    graph, shapes = loaded.graph, loaded.open_shapes
    assert shapes is not None
    given = {id: np.asarray(inputs[graph.values[id].name]) for id in graph.inputs}
    found = evaluate_graph(graph, given, OPERATORS)
    return [one.low <= int(found[graph.outputs[one.output]]) <= one.high for one in shapes.limits]


@pytest.mark.parametrize(("samples", "rate", "other"), [(10, 16000, 8000), (4, 8000, 16000)])
def test_a_branch_that_does_not_take_the_shapes_is_left_out_and_the_condition_is_demanded(
    samples: int, rate: int, other: int
) -> None:
    loaded = load(RATES, CompileOptions(dims={"samples": samples}), OPERATORS)
    x = np.arange(samples, dtype=np.float32).reshape(1, samples)
    wanted: Any = ReferenceEvaluator(onnx.load(io.BytesIO(RATES))).run(None, {"x": x, "rate": np.array(rate)})
    graph = loaded.graph
    given = dict(zip(graph.inputs, (x, np.array(rate)), strict=True))
    assert evaluate_graph(graph, given, OPERATORS)[graph.outputs[0]].tolist() == wanted[0].tolist()
    assert limits_of(loaded, x=x, rate=rate) == [True]
    assert limits_of(loaded, x=x, rate=other) == [False]
    (notice,) = loaded.notices
    assert "must be" in notice
    assert "else a run is an error" in notice
    assert '{"inputs": {"rate": {"value": ...}}}' in notice


def test_the_number_that_a_condition_compares_with_is_an_example() -> None:
    shapes = load(RATES, CompileOptions(dims={"samples": 10}), OPERATORS).open_shapes
    assert shapes is not None
    assert dict(shapes.examples) == {1: ((16000,),)}


def test_a_range_is_that_of_the_branch_that_takes_more_of_it() -> None:
    loaded = opened(RATES, {"samples": (8, 40)})
    assert loaded.open_shapes is not None
    (dimension,) = loaded.open_shapes.dimensions
    assert (dimension.low, dimension.high) == (8, 11)
    assert any("does not take the sizes" in notice for notice in loaded.notices)
    assert [one.low for one in loaded.open_shapes.limits] == [1]


def test_of_usual_sizes_one_that_all_branches_take_comes_first() -> None:
    both = model_of("""m (float[1,tokens] x, bool c) => (float[1,n] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] four = {4}> {
        y = If<then_branch = a () => (float[1,n] p) { p = Identity(x) },
               else_branch = b () => (float[1,n] q) {
                   s = Unsqueeze(x, zero) q_ = MaxPool<kernel_shape=[4]>(s) q = Squeeze(q_, zero)
               }>(c)
    }""")
    options, _ = bind_what_is_open(both, CompileOptions(), OPERATORS)
    assert options.dims == {"tokens": DimRange(4, 128, 512)}


def test_both_branches_are_kept_where_both_take_the_shapes() -> None:
    same = model_of("""m (float[4] x, bool c) => (float[4] y) {
        y = If<then_branch = a () => (float[4] p) { p = Exp(x) }, else_branch = b () => (float[4] q) { q = Neg(x) }>(c)
    }""")
    assert load(same, CompileOptions(), OPERATORS).open_shapes is None


SQUEEZED = model_of("""m (float[2,n] x) => (float[a] y) <int64[1] one = {1}, int64 at = {1}, int64[1] flat = {-1}> {
    s = Shape(x) k = Gather(s, at) i = Squeeze(one) c = Equal(k, i)
    y = If<then_branch = a () => (float[a] p) { p = Squeeze(x, one) },
           else_branch = b () => (float[a] q) { e = Exp(x) q = Reshape(e, flat) }>(c)
}""")
"""As PyTorch exports a squeeze of an axis that may have one element: the size decides."""


def test_where_a_size_decides_the_range_is_one_in_which_it_decides_alike() -> None:
    loaded = opened(SQUEEZED, {"n": (1, 9)})
    assert loaded.open_shapes is not None
    (dimension,) = loaded.open_shapes.dimensions
    assert (dimension.low, dimension.high) == (2, 9)
    assert not loaded.open_shapes.limits
    for size in (2, 5, 9):
        agree_at(loaded, SQUEEZED, {"n": size})


def test_an_axis_that_is_squeezed_has_the_sizes_at_which_it_has_one_element() -> None:
    model = model_of("""m (float[1,1,n] x) => (float[1,2] y) <float[2,1,4] w = {1,2,3,4,5,6,7,8}, int64[1] last = {2}> {
        c = Conv<strides=[4]>(x, w) y = Squeeze(c, last)
    }""")
    loaded = opened(model, {"n": (4, 32)})
    assert loaded.open_shapes is not None
    (dimension,) = loaded.open_shapes.dimensions
    assert (dimension.low, dimension.high) == (4, 7)
    for size in (4, 6, 7):
        agree_at(loaded, model, {"n": size})


def test_a_branch_with_an_operator_that_nobody_knows_is_no_branch_to_leave_out() -> None:
    model = onnx.load_from_string(RATES)
    model.graph.node[-1].attribute[0].g.node[0].op_type = "Mystery"
    with pytest.raises(UnsupportedModel, match="Mystery"):
        load(model.SerializeToString(), CompileOptions(dims={"samples": 9}), OPERATORS)


def test_where_neither_branch_takes_the_shapes_the_nodes_of_both_are_named() -> None:
    with pytest.raises(UnsupportedModel) as refused:
        load(RATES, CompileOptions(dims={"samples": 3}), OPERATORS)
    assert [one.operator for one in refused.value.refusals] == ["Conv", "Conv"]
