from __future__ import annotations

import numpy as np
import pytest

from compiler.fuse.layouts.channels_last import choose_layouts, ties
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType, Layout
from tests.compiler.networks import Network, graph_of
from tests.compiler.rewrite.sketch import Sketch
from tests.parse import parse_graph

LAST = Layout.channels_last(4)


def network() -> Graph:
    """Two convolutions, a Relu and an addition between them, then a product of what is turned to NHWC."""
    net = Network()
    x = net.node("Conv", [net.input(1, 3, 6, 6), net.weight(8, 3, 3, 3)], (1, 8, 6, 6), pads=[1] * 4)
    y = net.node("Add", [net.node("Relu", [x], (1, 8, 6, 6)), x], (1, 8, 6, 6))
    y = net.node("Conv", [y, net.weight(8, 1, 3, 3)], (1, 8, 6, 6), pads=[1] * 4, group=8)
    y = net.node("Transpose", [y], (1, 6, 6, 8), perm=[0, 2, 3, 1])
    return graph_of(net.model([net.node("MatMul", [y, net.weight(8, 4)], (1, 6, 6, 4))]))


def made_by(graph: Graph, op: str) -> list[int]:
    return [value for node in graph.nodes if node.op == op for value in node.outputs]


def test_convolutions_and_what_maps_tie_to_them_lie_channels_last_and_all_else_plain() -> None:
    graph = network()
    layouts = choose_layouts(graph, frozenset())
    activations = {value: layout for value, layout in layouts.items() if value not in graph.constants}
    assert activations == dict.fromkeys([v for op in ("Conv", "Relu", "Add") for v in made_by(graph, op)], LAST)


def test_values_that_have_to_be_plain_are() -> None:
    graph = network()
    (relu,) = made_by(graph, "Relu")
    assert relu not in choose_layouts(graph, frozenset({relu}))


def test_weights_of_narrow_groups_have_the_output_channel_innermost() -> None:
    graph = network()
    layouts = choose_layouts(graph, frozenset())
    assert {layout.dims[-1] for value, layout in layouts.items() if value in graph.constants} == {(0, 0)}


def test_an_operator_that_keeps_axes_ties_all_that_have_them_and_a_transposition_nothing() -> None:
    graph = network()
    (relu,), (total,) = made_by(graph, "Relu"), made_by(graph, "Add")
    first = made_by(graph, "Conv")[0]
    assert sorted(map(sorted, ties(graph))) == sorted([sorted([first, relu]), sorted([first, relu, total])])


def test_images_of_a_network_that_slices_and_joins_are_tied_through_both() -> None:
    net = Network()
    x = net.node("MaxPool", [net.input(1, 8, 6, 6)], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    ends = [net.constant(np.array([end], np.int64)) for end in (0, 4, 1)]
    part = net.node("Slice", [x, *ends], (1, 4, 6, 6))
    graph = graph_of(
        net.model([net.node("Relu", [net.node("Concat", [part, x], (1, 12, 6, 6), axis=1)], (1, 12, 6, 6))])
    )
    layouts = choose_layouts(graph, frozenset())
    assert {layouts.get(value) for op in ("MaxPool", "Slice", "Concat") for value in made_by(graph, op)} == {LAST}


def test_images_of_which_regions_are_taken_lie_channels_last() -> None:
    s = Sketch(0, dtype=DType.F32)
    image, ends = s("Relu", s.x(1, 8, 6, 6)), s.x(3, 2, 2, dtype=DType.I64)
    graph = s.graph(s("Relu", s("MaxOfRegions", image, s.x(3, dtype=DType.I64), ends, ends)))
    layouts = choose_layouts(graph, frozenset())
    assert {layouts.get(value) for op in ("Relu", "MaxOfRegions") for value in made_by(graph, op)[:1]} == {LAST}
    regions, images = s.x(3, 4), s.x(3, dtype=DType.I64)
    graph = s.graph(s("Relu", s("RoiAlign", s("Relu", s.x(1, 8, 6, 6)), regions, images, sampling_ratio=2)))
    layouts = choose_layouts(graph, frozenset())
    assert {layouts.get(value) for op in ("Relu", "RoiAlign") for value in made_by(graph, op)[:1]} == {LAST}


@pytest.mark.parametrize("op", ["MatMul", "MatMulInteger"])
def test_a_product_ties_no_images(op: str) -> None:
    x = "f32" if op == "MatMul" else "u8"
    y = "f32" if op == "MatMul" else "i32"
    graph = parse_graph(
        f"graph(%0: {x}[2, 3, 4, 5], %1: {x}[2, 3, 5, 6]) -> (%9)\n  %9: {y}[2, 3, 4, 6] = {op}(%0, %1)"
    )
    graph.verify()
    assert not ties(graph)


def test_a_scalar_that_a_map_is_given_unties_nothing() -> None:
    s = Sketch(0, dtype=DType.F32)
    x, size = s.x(2, 3, 6, 6), s.x(dtype=DType.I64)
    first = s("Conv", x, s.normal(8, 3, 3, 3), s.normal(8), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    part = s("Slice", s("PadBeyond", first, size, axis=0), starts=(0,), ends=(4,), axes=(1,), steps=(1,))
    graph = s.graph(s("Sqrt", s("Mul", part, part)))
    assert (
        choose_layouts(graph, frozenset(), frozenset(graph.outputs)).items()
        >= dict.fromkeys(
            [value for op in ("Conv", "PadBeyond", "Slice", "Mul") for value in made_by(graph, op)], LAST
        ).items()
    )
