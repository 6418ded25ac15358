from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from bench.zoo import build
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.prove.effort import PRODUCT_S, STEP_S, reference_effort
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from tests.compiler.networks import graph_of
from tests.parse import parse_graph

PRODUCTS = """graph(%0: f32[200, 300], %1: f32[300, 400]) -> (%3)
  %2: f32[200, 400] = MatMul(%0, %1) from "large"
  %3: f32[200, 400] = Relu(%2) from "small"
"""


def peak_of(graph: Graph) -> int:
    """Bytes that numpy holds at most, beside the inputs as they are given, while a graph is evaluated."""
    inputs = sample_inputs(graph, 0)
    tracemalloc.start()
    try:
        evaluate_graph(graph, inputs, OPERATORS)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_products_take_the_time_of_multiplications_and_the_slowest_node_is_named() -> None:
    effort = reference_effort(parse_graph(PRODUCTS))
    products = 200 * 300 * 400 * PRODUCT_S
    assert products < effort.node_s[0] < 1.2 * products
    assert effort.node_s[1] < 0.2 * products
    assert effort.seconds == sum(effort.node_s)
    assert effort.before() == (0.0, effort.node_s[0])
    assert effort.slowest is not None
    assert effort.slowest.source == "large"


def test_a_sequence_takes_the_time_of_its_steps() -> None:
    text = """graph(%0: f32[{n}, 1, 2], %1: f32[1, 4, 2], %2: f32[1, 4, 4]) -> (%3)
  %3: f32[{n}, 1, 1, 4] = RNN(%0, %1, %2) hidden_size=4 direction="forward" layout=0 from "rnn"
"""
    short, long = (reference_effort(parse_graph(text.format(n=steps))).seconds for steps in (10, 1010))
    assert long - short == pytest.approx(1000 * STEP_S, rel=0.1)


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_mobile", "tiny_transformer", "tiny_inception"])
def test_no_more_memory_is_held_than_estimated_and_not_much_less(name: str) -> None:
    graph = graph_of(build(name))
    assert peak_of(graph) < reference_effort(graph).bytes < 40 * peak_of(graph)


def test_the_peak_is_at_the_node_that_needs_most() -> None:
    graph = parse_graph(
        """graph(%0: f32[10, 10]) -> (%4)
      %1: f32[10, 10] = Relu(%0) from "first"
      %2: f32[1000, 1000] = Expand(%1) shape=(1000, 1000) from "swell"
      %3: f32[1000, 1000] = Relu(%2) from "large"
      %4: f32[] = ReduceMax(%3) keepdims=0 from "shrink"
"""
    )
    effort = reference_effort(graph)
    assert effort.largest is not None
    assert effort.largest.source == "large"
    assert 2 * 8e6 < effort.bytes < 10 * 8e6


def test_a_graph_without_nodes_takes_nothing() -> None:
    effort = reference_effort(parse_graph("graph(%0: f32[3]) -> (%0)"))
    assert (effort.seconds, effort.slowest, effort.before()) == (0.0, None, ())
    assert effort.bytes == 2 * np.dtype(np.float32).itemsize * 3


def test_rows_and_columns_of_regions_are_as_many_as_data_leave() -> None:
    """Of an image of 100 x 100 no region is taken to have more than 16 x 16 places in a bin; of one of 10 x 10, all."""

    def seconds(size: int) -> float:
        ends = "%2: i64[4, 7, 2], %3: i64[4, 7, 2]"
        return reference_effort(
            parse_graph(f"""graph(%0: f32[1, 8, {size}, {size}], %1: i64[4], {ends}) -> (%4)
  %4: f32[4, 8, 7, 7] = MaxOfRegions(%0, %1, %2, %3) from "regions"
""")
        ).node_s[0]

    assert 2 < seconds(100) / seconds(10) < 3
    assert seconds(100) / seconds(50) < 1.1
