"""Programs at which equations fail that forget a case.

Empty tensors, broadcasting, integers, attributes that say the same otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.rewrite import rewrite
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning


def cut(s: Sketch, x: int, axis: int, begin: int, end: int, step: int = 1) -> int:
    return s("Slice", x, *(None,) * 4, starts=(begin,), ends=(end,), axes=(axis,), steps=(step,))


def pad(s: Sketch, x: int, *pads: int) -> int:
    return s("Pad", x, *(None,) * 3, pads=pads)


def unfolded_for_a_convolution_with_automatic_padding(s: Sketch) -> Graph:
    """A 1x1 kernel needs no padding, the kernel of three taps that comes of it would get some."""
    windows = s("Gather", s.x(1, 2, 1, 8), s.c(np.arange(3)[:, None] + np.arange(4), DType.I64), axis=3)
    columns = s("Reshape", windows, None, shape=(1, 6, 1, 4))
    return s.graph(s("Conv", columns, s.normal(2, 6, 1, 1), auto_pad="SAME_UPPER"))


def a_mean_of_means_of_integers(s: Sketch) -> Graph:
    """Each mean is rounded."""
    rows = s("ReduceMean", s.x(3, 5, dtype=DType.I32), None, axes=(0,), keepdims=1)
    return s.graph(s("ReduceMean", rows, None, axes=(1,), keepdims=0))


def a_norm_whose_scale_differs_from_line_to_line(s: Sketch) -> Graph:
    x = s("Reshape", s.x(6, 4), None, shape=(2, 3, 4))
    norms = [s(op, x, s.positive(3, 4), axis=-1) for op in ("LayerNormalization", "RMSNormalization")]
    return s.graph(*(s("Reshape", norm, None, shape=(6, 4)) for norm in norms))


def a_part_of_a_norm_whose_scale_differs_from_line_to_line(s: Sketch) -> Graph:
    x = s("MatMul", s.x(2, 3, 5), s.normal(5, 4))
    norms = [s(op, x, s.positive(3, 4), axis=-1) for op in ("LayerNormalization", "RMSNormalization")]
    return s.graph(*(cut(s, norm, 1, 0, 1) for norm in norms))


def a_sum_of_convolutions_of_which_one_is_broadcast(s: Sketch) -> Graph:
    x = s.x(1, 2, 5, 5)
    whole = s("Conv", x, s.normal(2, 2, 2, 2), strides=(4, 4), pads=(0, 0, 1, 1))
    return s.graph(s("Add", whole, s("Conv", x, s.normal(2, 2, 2, 2), strides=(4, 4))))


def a_resize_that_names_its_axes(s: Sketch) -> Graph:
    resized = s("Resize", s.x(1, 4, 30, 30), *(None,) * 3, axes=(2, 3), sizes=(66, 60), mode="linear")
    return s.graph(s("Conv", resized, s.normal(2, 4, 1, 1), s.normal(2)))


def a_resize_that_names_its_axes_backwards(s: Sketch) -> Graph:
    resized = s("Resize", s.x(1, 4, 30, 30), *(None,) * 3, axes=(3, 2, 1), sizes=(60, 66, 4), mode="nearest")
    return s.graph(s("Conv", resized, s.normal(2, 4, 1, 1), s.normal(2)))


def a_scale_before_channels_that_are_moved_by_a_pad(s: Sketch) -> Graph:
    """As many channels as before, each in the place of the one before it."""
    scaled = s("Mul", s.x(1, 3, 2, 2), s.positive(3, 1, 1))
    return s.graph(s("Conv", pad(s, scaled, 0, 1, 0, 0, 0, -1, 0, 0), s.normal(2, 3, 1, 1)))


def a_scale_before_rows_that_are_padded(s: Sketch) -> Graph:
    rows = s("Reshape", pad(s, s("Mul", s.x(2, 3), s.positive(2, 3)), 1, 0, 0, 0), None, shape=(9, 1))
    return s.graph(s("MatMul", rows, s.normal(1, 2)))


def a_scale_after_the_reshape_of_an_empty_tensor(s: Sketch) -> Graph:
    x = s("Reshape", s("MatMul", s.x(0, 2, 3, 3), s.normal(3, 3)), None, shape=(0, 2, 9), allowzero=1)
    return s.graph(s("Mul", x, s.positive(2, 1)))


def a_scale_of_a_sum_of_constants_that_is_too_large_to_be_kept(s: Sketch) -> Graph:
    total = s("Add", s.c(np.ones((600, 1))), s.c(np.ones((1, 6000))))
    return s.graph(s("Add", s("Mul", total, s.c(2.0)), s.x(1)))


def a_join_with_an_empty_tensor(s: Sketch) -> Graph:
    parts = [s("Transpose", x, perm=(1, 0)) for x in (s.x(2, 3), s.x(0, 3))]
    return s.graph(s("Transpose", s("Concat", *parts, axis=1), perm=(1, 0)))


def a_join_of_empty_parts(s: Sketch) -> Graph:
    joined = s("Concat", s.x(3), s.x(2), axis=0)
    return s.graph(s("Concat", cut(s, joined, 0, 0, 0), cut(s, joined, 0, 5, 5), axis=0))


def an_attention_over_nothing(s: Sketch) -> Graph:
    x = s.x(3, 0, 2)
    scores = s("Transpose", s("MatMul", x, s("Transpose", x, perm=(0, 2, 1))), perm=(0, 2, 1))
    return s.graph(s("Neg", s("MatMul", s("Softmax", scores, axis=-1), s.x(0, 3))))


def a_shift_after_a_norm_of_nothing(s: Sketch) -> Graph:
    norm = s("LayerNormalization", s.x(2, 0, 3), s.positive(3), axis=-1)
    return s.graph(s("Sub", norm, s.c(np.ones((0, 1)))))


def a_sum_over_nothing(s: Sketch) -> Graph:
    moved = s("Reshape", s.x(6, 0), None, shape=(2, 3, 0), allowzero=1)
    return s.graph(s("Reshape", s("MatMul", moved, s.x(0, 5)), None, shape=(6, 5)))


def slices_with_negative_steps_and_ends_beyond_the_axis(s: Sketch) -> Graph:
    joined = s("Concat", s.x(1, 2), s.x(0, 2), s.x(6, 2), axis=-2)
    return s.graph(cut(s, cut(s, joined, -2, 99, -99, -2), 0, 3, -9, -1), cut(s, joined, 0, -1, 0, -1))


def slices_of_pads_that_cut(s: Sketch) -> Graph:
    before, after = pad(s, s.x(5, 3), -1, 0, 2, 0), pad(s, s.x(5, 3), 2, 1, -2, 0)
    return s.graph(cut(s, before, 0, 1, 4), cut(s, before, 0, 2, 5), cut(s, after, 0, 1, 5), cut(s, after, 1, 1, 9))


def a_mean_over_four_axes_of_space(s: Sketch) -> Graph:
    return s.graph(s("ReduceMean", s.x(2, 3, 2, 2, 1, 2), None, axes=(2, 3, 4, 5)))


def a_scale_after_many_residual_sums(s: Sketch) -> Graph:
    """Two ways upwards at each of them, none of which ends."""
    x = s("Tanh", s.x(1, 2, 3, 3))
    for _ in range(16):
        x = s("Add", x, s("Relu", x))
    return s.graph(s("Add", s("Mul", x, s.positive(2, 1, 1)), s.normal(2, 1, 1)))


def a_pool_of_single_elements_that_counts_a_last_window(s: Sketch) -> Graph:
    pooled = s("MaxPool", s.x(1, 2, 4, 4), kernel_shape=(1, 1), strides=(2, 2), ceil_mode=1)
    return s.graph(s("Conv", pooled, s.normal(3, 2, 1, 1)))


EDGES: Mapping[str, Callable[[Sketch], Graph]] = {
    program.__name__: program
    for program in (
        unfolded_for_a_convolution_with_automatic_padding,
        a_mean_of_means_of_integers,
        a_norm_whose_scale_differs_from_line_to_line,
        a_part_of_a_norm_whose_scale_differs_from_line_to_line,
        a_sum_of_convolutions_of_which_one_is_broadcast,
        a_resize_that_names_its_axes,
        a_resize_that_names_its_axes_backwards,
        a_scale_before_channels_that_are_moved_by_a_pad,
        a_scale_before_rows_that_are_padded,
        a_scale_after_the_reshape_of_an_empty_tensor,
        a_scale_of_a_sum_of_constants_that_is_too_large_to_be_kept,
        a_join_with_an_empty_tensor,
        a_join_of_empty_parts,
        an_attention_over_nothing,
        a_shift_after_a_norm_of_nothing,
        a_sum_over_nothing,
        slices_with_negative_steps_and_ends_beyond_the_axis,
        slices_of_pads_that_cut,
        a_mean_over_four_axes_of_space,
        a_scale_after_many_residual_sums,
        a_pool_of_single_elements_that_counts_a_last_window,
    )
}


@pytest.mark.parametrize("name", EDGES)
def test_rewriting_keeps_the_meaning_of(name: str) -> None:
    for seed in range(4):
        graph = EDGES[name](Sketch(seed))
        after = rewrite(graph)
        assert_same_meaning(graph, after, seed)
        assert not rewrite(after.graph).log


@pytest.mark.parametrize("c", [(), (1,), (5,), (1, 5), (3, 1), (1, 1), (3, 5)], ids=str)
@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_scales_shifts_and_slices_pass_a_gemm_however_its_operands_lie(
    transposed: tuple[int, int], c: tuple[int, ...]
) -> None:
    s, (a, b) = Sketch(len(c)), transposed
    x = s("Mul", s.x(*((4, 3) if a else (3, 4))), s.positive(*((4, 1) if a else (4,))))
    weights = s.normal(*((5, 4) if b else (4, 5)))
    y = s("Gemm", x, weights, s.normal(*c), transA=a, transB=b, alpha=0.5, beta=-2.0)
    y = s("Div", s("Mul", s("Add", y, s.normal(5)), s.normal(1, 5)), s.c([[4.0]]))
    graph = s.graph(s("Relu", cut(s, cut(s, y, 0, -2, 9), 1, 1, 4, 2)))
    after = rewrite(graph)
    assert_same_meaning(graph, after)
    assert not {"Mul", "Add", "Div"} & {node.op for node in after.graph.nodes}


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_what_changes_nothing_changes_no_bit_of_a_half(dtype: DType) -> None:
    for seed in range(4):
        s = Sketch(seed, dtype)
        x = s.x(64)
        same = s("Mul", s("Sub", s("Add", x, s.c(-0.0)), s.c(0.0)), s.c([1.0]))
        negated = s("Neg", s("Mul", same, s.c(-1.0)))
        sums = s("Sub", negated, s("Neg", s("Div", x, s.c(8.0))))
        graph = s.graph(s("Neg", s("Mul", sums, s.c(3.0))))
        after = rewrite(graph)
        assert_same_meaning(graph, after, seed, exact=True)
        assert len(after.graph.nodes) < len(graph.nodes) - 4


def test_a_node_that_a_rule_writes_in_vain_is_not_kept() -> None:
    """A GRU from a state of zeros does not need its reset gate."""
    s = Sketch()
    s.many("GRU", s.x(1, 2, 3), s.normal(1, 6, 3), s.normal(1, 6, 2), *(None,) * 3, outputs=2, hidden_size=2)
    graph = s.graph()
    after = rewrite(graph)
    assert_same_meaning(graph, after)
    read = {value for node in after.graph.nodes for value in node.used} | {*after.graph.outputs}
    assert all(read & {*node.outputs} for node in after.graph.nodes)
