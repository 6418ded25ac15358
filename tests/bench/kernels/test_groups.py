from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.engines.driver import Layer
from bench.kernels.groups import Group, Names, group
from bench.zoo.builder import GraphBuilder

OURS = frozenset(("ours",))


def chain(*operators: str) -> onnx.GraphProto:
    """Nodes `n0`, `n1`, ... one after another; node i gives the value `v{i}`."""
    nodes = [
        onnx.helper.make_node(operator, ["x" if at == 0 else f"v{at - 1}"], [f"v{at}"], name=f"n{at}")
        for at, operator in enumerate(operators)
    ]
    return onnx.helper.make_graph(nodes, "chain", [], [])


def grouped(graph: onnx.GraphProto, plans: Mapping[str, Sequence[Layer]]) -> list[Group]:
    """Of one plan for each engine."""
    return group(graph, {engine: [plan] for engine, plan in plans.items()}, OURS)


def layer(*names: str) -> Layer:
    return Layer("any", names, 1.0)


def test_engines_that_join_alike_keep_every_kernel_by_itself() -> None:
    graph = chain("Conv", "Relu", "Conv", "Relu")
    plans = {"ours": [layer("n0", "n1"), layer("n2", "n3")], "peer": [layer("n0", "n1"), layer("n2", "n3")]}
    assert grouped(graph, plans) == [
        Group((0, 1), {"ours": ((0,),), "peer": ((0,),)}),
        Group((2, 3), {"ours": ((1,),), "peer": ((1,),)}),
    ]


def test_a_layer_that_crosses_ours_brings_them_together() -> None:
    graph = chain("Conv", "Relu", "Conv", "Relu")
    plans = {"ours": [layer("n0", "n1"), layer("n2", "n3")], "peer": [layer("n0"), layer("n1", "n2"), layer("n3")]}
    assert grouped(graph, plans) == [Group((0, 1, 2, 3), {"ours": ((0, 1),), "peer": ((0, 1, 2),)})]


def test_a_layer_may_be_told_by_the_value_it_gives_and_words_behind_it() -> None:
    graph = chain("Conv", "Relu", "MaxPool")
    plans = {"ours": [layer("n0", "n1"), layer("n2")], "peer": [layer("v1_nchwc"), layer("n2/pooling")]}
    assert grouped(graph, plans) == [
        Group((0, 1), {"ours": ((0,),), "peer": ((0,),)}),
        Group((2,), {"ours": ((1,),), "peer": ((1,),)}),
    ]


def test_a_node_that_a_peer_names_nowhere_was_joined_with_its_only_reader() -> None:
    graph = chain("Conv", "Relu")
    plans = {"ours": [layer("n0"), layer("n1")], "peer": [layer("n1")]}
    assert grouped(graph, plans) == [Group((0, 1), {"ours": ((0, 1),), "peer": ((0,),)})]


def test_a_node_that_we_name_nowhere_costs_us_nothing() -> None:
    graph = chain("Conv", "Concat", "Conv")
    plans = {"ours": [layer("n0"), layer("n2")], "peer": [layer("n0"), layer("n1"), layer("n2")]}
    assert grouped(graph, plans)[1] == Group((1,), {"peer": ((1,),)})


def test_a_change_of_layout_belongs_to_the_next_layer_and_at_the_end_to_the_last() -> None:
    graph = chain("Conv", "Conv")
    plans = {"ours": [layer("n0"), layer("n1")], "peer": [layer("reorder"), layer("n0"), layer(), layer("n1"), layer()]}
    assert [found.layers["peer"] for found in grouped(graph, plans)] == [((0, 1),), ((2, 3, 4),)]


def test_a_batch_norm_is_part_of_the_convolution_before_it_whatever_the_engine_calls_it() -> None:
    graph = chain("Conv", "BatchNormalization", "Conv", "BatchNormalization")
    plans = {"ours": [layer("n0"), layer("n2")], "peer": [layer("v1_nchwc"), layer("v3_nchwc")]}
    assert grouped(graph, plans) == [
        Group((0, 1), {"ours": ((0,),), "peer": ((0,),)}),
        Group((2, 3), {"ours": ((1,),), "peer": ((1,),)}),
    ]


def test_an_engine_that_orders_its_layers_anew_keeps_each_in_its_group() -> None:
    graph = chain("Conv", "Relu")
    plans = {"ours": [[layer("n0"), layer("n1")]], "peer": [[layer("n0"), layer("n1")], [layer("n1"), layer("n0")]]}
    assert group(graph, plans, OURS) == [
        Group((0,), {"ours": ((0,),), "peer": ((0,), (1,))}),
        Group((1,), {"ours": ((1,),), "peer": ((1,), (0,))}),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("relu_1", [0]), ("relu_10", [1]), ("relu_1_nchwc", [0]), ("relu_10_nchwc", [1]), ("relu_100", []), ("relu", [])],
)
def test_a_name_is_no_longer_one_that_begins_with_it(name: str, expected: list[int]) -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], [value]) for value in ("relu_1", "relu_10")]
    assert Names(onnx.helper.make_graph(nodes, "g", [], [])).nodes(layer(name)) == expected


def test_a_nameless_node_is_told_by_its_place_and_operator() -> None:
    nodes = [onnx.helper.make_node(operator, ["x"], [operator]) for operator in ("Relu", "Tanh")]
    assert Names(onnx.helper.make_graph(nodes, "g", [], [])).nodes(layer("#1 Tanh")) == [1]


@given(st.data())
def test_every_layer_of_every_engine_is_in_just_one_group_and_so_is_every_node(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    graph = chain(
        *data.draw(st.lists(st.sampled_from(["Conv", "Relu", "BatchNormalization"]), min_size=count, max_size=count))
    )
    names = st.sampled_from([*(f"n{at}" for at in range(count)), *(f"v{at}_x" for at in range(count)), "unknown"])
    plan = st.lists(st.builds(lambda names: layer(*names), st.lists(names, max_size=3)), max_size=6)
    plans = {engine: data.draw(plan) for engine in ("ours", "peer")}
    found = grouped(graph, plans)
    for engine, layers in plans.items():
        assert Counter(at for one in found for at in one.layers.get(engine, ((),))[0]) == Counter(range(len(layers)))
    nodes = [node for one in found for node in one.nodes]
    assert len(nodes) == len(set(nodes))
    joined = {node: at for at, one in enumerate(found) for node in one.nodes}
    for layers in plans.values():
        for one in layers:
            assert len({joined[node] for node in Names(graph).nodes(one)}) <= 1


def test_the_zoo_builder_names_nodes_as_the_groups_expect() -> None:
    g = GraphBuilder("g")
    g.output("y", g.relu(g.conv(g.input("x", (1, 4, 8, 8)), 4, 3)))
    graph = g.finish().graph
    assert Names(graph).nodes(layer("node.conv_0/WithoutBiases", "y")) == [0, 1]
