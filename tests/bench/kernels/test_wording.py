from __future__ import annotations

import pytest

from bench.kernels.wording import describe, gflop
from bench.zoo.builder import GraphBuilder
from bench.zoo.flops import static_shapes


def test_a_convolution_is_told_by_window_stride_groups_channels_and_extents() -> None:
    g = GraphBuilder("g")
    g.output("y", g.relu(g.conv(g.input("x", (1, 8, 16, 12)), 8, (1, 7), 2, groups=4)))
    model = g.finish()
    shapes = static_shapes(model)
    assert describe(model.graph.node, shapes) == "Conv 1x7/2 g4 8->8, 16x12 -> 8x6 + Relu"
    assert gflop(model.graph.node, shapes) == pytest.approx(2e-9 * 8 * 8 * 6 * 2 * 7)


def test_what_counts_most_comes_first_and_the_others_are_counted() -> None:
    g = GraphBuilder("g")
    x = g.input("x", (5, 6))
    g.output("y", g.relu(g.relu(g.dense(x, 7))))
    model = g.finish()
    assert describe(model.graph.node, static_shapes(model)) == "MatMul 5x6 by 6x7 + Add + 2 Relu"


def test_an_operator_without_arithmetic_is_told_by_its_result() -> None:
    g = GraphBuilder("g")
    g.output("y", g.max_pool(g.input("x", (1, 2, 8, 8)), 2, 2))
    model = g.finish()
    assert describe(model.graph.node, static_shapes(model)) == "MaxPool 1x2x4x4"
    assert gflop(model.graph.node, static_shapes(model)) == 0
