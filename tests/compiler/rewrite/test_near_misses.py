"""Programs that differ from a left side in one thing: whatever rules make of them, they compute what they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.rewrite import Rewritten, rewrite
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning, assert_same_values, feeds

Drawing = Callable[[Sketch], Graph]
F16, F32, BF16, I8, U8 = DType.F16, DType.F32, DType.BF16, DType.I8, DType.U8
HIDDEN = 4


def names(after: Rewritten) -> set[str]:
    return {application.rule for application in after.log}


def softplus_of_the_largest_of_three(s: Sketch) -> Graph:
    x, y = s.x(6), s.x(6)
    return s.graph(s("Add", s("Max", x, s.c(0), y), s("Softplus", s("Neg", s("Abs", x)))))


def largest_of_three(s: Sketch) -> Graph:
    x, y = s.x(6), s.x(6)
    return s.graph(s("Max", x, s("Mul", x, s.c(0.1)), y))


def clip_with_bounds_in_reverse(s: Sketch) -> Graph:
    """The upper bound holds, so it is -6 everywhere."""
    return s.graph(s("Mul", s("Clip", s("Add", s.x(6), s.c(3)), s.c(0), s.c(-6)), s.c(-1 / 6)))


def relus_of_infinite_slope(s: Sketch) -> Graph:
    x = s.x(6)
    return s.graph(s("Sub", s("Relu", x), s("Mul", s.c(np.inf), s("Relu", s("Neg", x)))))


def _normalised(s: Sketch, variance_of: Callable[[int], int], root_of: Callable[[int], int]) -> Graph:
    x = s.x(4, 4)
    d = s("Sub", x, s("ReduceMean", x, None, axes=(1,)))
    return s.graph(s("Div", d, root_of(variance_of(s("Mul", d, d)))))


def norm_of_variance_below_a_bound(s: Sketch) -> Graph:
    bound = s("Abs", s.x())
    return _normalised(
        s,
        lambda square: s("Clip", s("ReduceMean", square, None, axes=(1,)), s.c(0), bound),
        lambda variance: s("Sqrt", s("Add", variance, s.c(1e-5))),
    )


def norm_of_epsilon_outside_of_the_root(s: Sketch) -> Graph:
    return _normalised(
        s,
        lambda square: s("ReduceMean", square, None, axes=(1,)),
        lambda variance: s("Add", s("Sqrt", variance), s.c(1e-3)),
    )


def norm_by_the_variance_of_other_rows(s: Sketch) -> Graph:
    """Without its axis the variance of a row meets a column."""
    return _normalised(
        s,
        lambda square: s("ReduceMean", square, None, axes=(1,), keepdims=0),
        lambda variance: s("Sqrt", s("Add", variance, s.c(1e-5))),
    )


def softmax_by_the_sum_of_other_rows(s: Sketch) -> Graph:
    x = s.x(4, 4)
    e = s("Exp", s("Sub", x, s("ReduceMax", x, None, axes=(1,))))
    return s.graph(s("Div", e, s("ReduceSum", e, None, axes=(1,), keepdims=0)))


def softmax_over_two_axes(s: Sketch) -> Graph:
    x = s.x(2, 3, 4)
    e = s("Exp", s("Sub", x, s("ReduceMax", x, None, axes=(1, 2))))
    return s.graph(s("Div", e, s("ReduceSum", e, None, axes=(1, 2))))


@pytest.mark.parametrize(
    "drawing",
    [
        softplus_of_the_largest_of_three,
        largest_of_three,
        clip_with_bounds_in_reverse,
        norm_of_variance_below_a_bound,
        norm_of_epsilon_outside_of_the_root,
        norm_by_the_variance_of_other_rows,
        softmax_by_the_sum_of_other_rows,
        softmax_over_two_axes,
    ],
)
def test_what_only_looks_like_a_form_stays_and_keeps_its_meaning(drawing: Drawing) -> None:
    for seed in range(5):
        graph = drawing(Sketch(seed))
        after = rewrite(graph)
        assert not names(after) & {
            *("softplus_by_exp", "leaky_relu_by_where", "hard_sigmoid_by_clip", "layer_norm_by_moments"),
            *("rms_norm_by_squares", "softmax_by_exp", "standardised_by_moments"),
        }
        assert_same_meaning(graph, after, seed)


def test_relus_of_an_infinite_slope_have_a_reason_to_stay() -> None:
    after = rewrite(relus_of_infinite_slope(Sketch()))
    assert not after.log
    assert any("slope is not finite" in refusal.reason for refusal in after.refusals)


def test_a_norm_whose_input_was_rounded_to_a_third_type_keeps_its_casts() -> None:
    s = Sketch()
    rounded = s("Cast", s.x(2, 4, dtype=F16), to=16)
    norm = s("RMSNormalization", rounded, s.c(np.full(4, 0.5), F32), axis=-1)
    graph = s.graph(s("Cast", norm, to=10))
    assert "norm_between_casts" not in names(rewrite(graph))


@pytest.mark.parametrize("both", [True, False], ids=["queries too", "queries of one batch"])
def test_attention_keeps_its_whole_batch_where_keys_are_repeated(both: bool) -> None:
    """Keys stand for several heads.

    Queries that are the same tensor, or are broadcast, cannot bring these heads back.
    """
    s = Sketch(1)
    q, k, v = s.x(2, 1, 5, 2) if not both else None, s.x(2, 1, 5, 2), s.x(2, 4, 5, 2)
    keys = s("Expand", k, None, shape=(2, 4, 5, 2))
    scores = s("MatMul", keys if q is None else q, s("Transpose", keys, perm=(0, 1, 3, 2)))
    graph = s.graph(s("MatMul", s("Softmax", scores, axis=-1), v))
    assert_same_meaning(graph, rewrite(graph), 0)


def _cells(s: Sketch, starts: Sequence[int], state_first: bool) -> Graph:
    """LSTM cells whose inputs are as wide as their states.

    They go over the elements of a sequence from `starts` to one more.
    """
    sequence, h, c = s.x(4, 2, HIDDEN), s.x(2, HIDDEN), s.x(2, HIDDEN)
    w, r = s.normal(4 * HIDDEN, HIDDEN), s.normal(4 * HIDDEN, HIDDEN)
    for start in starts:
        where = {"starts": (start,), "ends": (start + 1,), "axes": (0,), "steps": (1,)}
        x = s("Reshape", s("Slice", sequence, None, None, None, None, **where), None, shape=(2, HIDDEN))
        products = (s("Gemm", x, w, transB=1), s("Gemm", h, r, transB=1))
        sums = s("Add", *(products[::-1] if state_first else products))
        i, o, f, g = s.many("Split", sums, None, outputs=4, axis=1, split=(HIDDEN,) * 4)
        c = s("Add", s("Mul", s("Sigmoid", f), c), s("Mul", s("Sigmoid", i), s("Tanh", g)))
        h = s("Mul", s("Sigmoid", o), s("Tanh", c))
    return s.graph(h, c)


@pytest.mark.parametrize("state_first", [False, True])
def test_inputs_as_wide_as_states_are_told_from_them(state_first: bool) -> None:
    graph = _cells(Sketch(2), (0, 1, 2), state_first)
    after = rewrite(graph)
    assert [node.op for node in after.graph.nodes].count("LSTM") == 1
    assert_same_meaning(graph, after, 2)


@pytest.mark.parametrize("starts", [(2, 1, 0), (0, 2, 3), (0, 0, 0)])
def test_cells_over_elements_in_another_order_stay_cells(starts: Sequence[int]) -> None:
    graph = _cells(Sketch(2), starts, False)
    after = rewrite(graph)
    assert "LSTM" not in [node.op for node in after.graph.nodes] or starts == (0, 2, 3)
    assert_same_meaning(graph, after, 2)


# Bytes


def _through_bytes(s: Sketch, dtype: DType, scale: float, floats: DType, between: Callable[[int], int]) -> Graph:
    parameters = s.c(scale, floats), s.c(3, dtype)
    x = s("DequantizeLinear", s.x(1, 2, 16, 16, dtype=dtype), *parameters)
    return s.graph(s("QuantizeLinear", between(x), *parameters))


@pytest.mark.parametrize(
    ("scale", "floats", "reason"),
    [(0.1, BF16, "tell all bytes apart"), (300.0, F16, "may be infinite"), (3e36, F32, "may be infinite")],
)
def test_bytes_that_floats_do_not_hold_go_through_floats(scale: float, floats: DType, reason: str) -> None:
    s = Sketch()
    after = rewrite(_through_bytes(s, U8, scale, floats, lambda x: s("Transpose", x, perm=(0, 1, 3, 2))))
    assert "bytes_between" not in names(after)
    assert any(reason in refusal.reason for refusal in after.refusals)


@pytest.mark.parametrize("dtype", [U8, I8], ids=str)
@pytest.mark.parametrize("scale", [6e-8, 0.1, 250.0])
def test_all_bytes_of_half_precision_come_out_as_they_went_in(dtype: DType, scale: float) -> None:
    s = Sketch()
    graph = _through_bytes(s, dtype, scale, F16, lambda x: s("Relu", s("Transpose", x, perm=(0, 1, 3, 2))))
    after = rewrite(graph)
    assert "bytes_between" in names(after)
    every = np.resize(np.arange(256).astype(dtype.numpy), (1, 2, 16, 16))
    (given,), (result,) = graph.inputs, graph.outputs
    found, wanted = (evaluate_graph(one, {given: every}, OPERATORS, wide=False)[result] for one in (after.graph, graph))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [U8, I8], ids=str)
def test_a_pool_of_bytes_is_padded_with_the_lowest_one(dtype: DType) -> None:
    """Also where the zero point is above it, and a window begins in the padding."""
    pool = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1}
    s = Sketch()
    graph = _through_bytes(s, dtype, 0.1, F32, lambda x: s("MaxPool", x, **pool))
    after = rewrite(graph)
    assert names(after) == {"bytes_between"}
    assert_same_values(graph, after.graph, exact=True)
    low = {graph.inputs[0]: np.full_like(feeds(graph, 0)[graph.inputs[0]], np.iinfo(dtype.numpy).min)}
    result = evaluate_graph(after.graph, low, OPERATORS, wide=False)[graph.outputs[0]]
    assert (result == np.iinfo(dtype.numpy).min).all()


def test_scales_that_differ_by_one_unit_in_the_last_place_are_two_scales() -> None:
    s = Sketch()
    x = s("DequantizeLinear", s.x(2, 3, dtype=U8), s.c(0.1, F32), s.c(3, U8))
    near = s.c(np.nextafter(np.float32(0.1), np.float32(1)), F32)
    assert not rewrite(s.graph(s("QuantizeLinear", s("Transpose", x, perm=(1, 0)), near, s.c(3, U8)))).log
