"""What rules and choices make of blocks as they are in networks."""

from __future__ import annotations

import pytest

from bench import zoo
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.choose import alternatives, applied, each
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning, assert_same_values


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def chosen(graph: Graph, *names: str) -> Graph:
    """The program after choices of these names, each wherever it is offered, and rules after each."""
    for name in names:
        (choice,) = (choice for choice in CHOICES if choice.name == name)
        after = rewrite(applied(graph, alternatives(graph, (choice,))[0])).graph
        assert len(after.nodes) != len(graph.nodes), name
        assert_same_values(graph, after)
        graph = after
    return graph


def batch_norm(s: Sketch, x: int) -> int:
    n = s.dims(x)[1]
    return s("BatchNormalization", x, s.positive(n), s.normal(n), s.normal(n), s.positive(n))


def conv(s: Sketch, x: int, filters: int, kernel: int = 1, groups: int = 1, **attrs: object) -> int:
    weights = s.normal(filters, s.dims(x)[1] // groups, kernel, kernel)
    return s("Conv", x, weights, s.normal(filters), group=groups, pads=(kernel // 2,) * 4, **attrs)


def test_a_block_of_repvgg_becomes_one_convolution() -> None:
    """As it is trained: a 3x3, a 1x1 and the input itself, each normalised, are added."""
    s = Sketch()
    x = s.x(1, 8, 9, 9)
    for _ in range(2):
        branches = batch_norm(s, conv(s, x, 8, 3)), batch_norm(s, conv(s, x, 8)), batch_norm(s, x)
        x = s("Relu", s("Add", s("Add", *branches[:2]), branches[2]))
    graph = s.graph(x)
    after = rewrite(graph)
    assert ops(after.graph) == ["Conv", "Relu"] * 2
    assert_same_meaning(graph, after)


def test_a_normalisation_after_a_concat_goes_into_the_convolutions_before_it() -> None:
    """The factorised reduction of NASNet: every second position, taken from two offsets."""
    s = Sketch()
    x = s.x(1, 6, 9, 9)
    subsampled = (s("AveragePool", x, kernel_shape=(1, 1), strides=(2, 2)) for _ in range(2))
    graph = s.graph(s("Relu", batch_norm(s, s("Concat", *(conv(s, part, 3) for part in subsampled), axis=1))))
    after = rewrite(graph)
    assert ops(after.graph) == ["Conv", "Conv", "Concat", "Relu"]
    assert_same_meaning(graph, after)


def test_two_normalisations_in_a_row_become_one() -> None:
    s = Sketch()
    x = s("Relu", s.x(1, 4, 5, 5))
    for _ in range(3):
        x = batch_norm(s, x)
    graph = s.graph(x)
    after = rewrite(graph)
    assert ops(after.graph) == ["Relu", "Mul", "Add"]
    assert_same_meaning(graph, after)


def test_the_expansion_of_a_fire_module_becomes_one_convolution() -> None:
    s = Sketch()
    x = s.x(1, 4, 6, 6)
    expanded = s("Concat", s("Relu", conv(s, x, 5)), s("Relu", conv(s, x, 6, 3)), axis=1)
    after = chosen(s.graph(expanded), "widened_convolutions")
    assert ops(after) == ["Conv", "Relu"]


def test_the_reductions_of_an_inception_block_become_one_convolution() -> None:
    """The branch that the Concat takes as it is stays apart, else it would be copied."""
    s = Sketch()
    x = s.x(1, 8, 6, 6)
    direct, first, second = (s("Relu", conv(s, x, n)) for n in (3, 4, 5))
    graph = s.graph(s("Concat", direct, s("Relu", conv(s, first, 4, 3)), s("Relu", conv(s, second, 4, 3)), axis=1))
    after = chosen(graph, "merged_convolutions")
    assert [ops(after).count(op) for op in ("Conv", "Relu", "Split")] == [4, 4, 1]


def test_the_heads_of_a_detector_become_one_separable_convolution() -> None:
    s = Sketch()
    x = s.x(1, 8, 6, 6)
    heads = (conv(s, conv(s, x, n), n, 3, groups=n) for n in (1, 4, 10))
    after = chosen(s.graph(*heads), "merged_convolutions")
    assert ops(after) == ["Conv", "Conv", "Split"]


def test_queries_keys_and_values_become_one_product() -> None:
    s = Sketch()
    x = s.x(1, 5, 8)
    graph = s.graph(*(s("Add", s("MatMul", x, s.normal(8, 8)), s.normal(8)) for _ in range(3)))
    assert ops(chosen(graph, "merged_products")) == ["MatMul", "Add", "Split"]


def test_separable_convolutions_that_are_added_become_one() -> None:
    s = Sketch()
    terms = (conv(s, conv(s, s("Relu", s.x(1, 4, 7, 7)), 4, kernel, groups=4), 6) for kernel in (3, 5))
    after = chosen(s.graph(s("Add", *terms)), "joined_convolutions", "joined_branches")
    assert ops(after) == ["Relu", "Relu", "Concat", "Conv", "Conv"]


def test_groups_that_are_written_as_branches_become_one_convolution() -> None:
    s = Sketch()
    x = s("Relu", s.x(1, 4, 7, 7))
    branches = (s("Relu", conv(s, s("Relu", conv(s, x, 2)), 3, 3)) for _ in range(4))
    after = chosen(s.graph(conv(s, s("Concat", *branches, axis=1), 4)), "merged_convolutions", "joined_branches")
    assert ops(after) == ["Relu", "Conv", "Relu", "Conv", "Relu", "Conv"]


@pytest.mark.parametrize(
    ("maps", "filters", "groups"),
    [(("Relu", "Sigmoid"), (4, 4), (1, 1)), (("Relu", "Relu"), (4, 2), (1, 1)), (("Relu", "Relu"), (4, 4), (1, 2))],
    ids=["other maps", "other filters of a group", "other channels of a group"],
)
def test_branches_that_are_no_groups_of_one_convolution_stay_apart(
    maps: tuple[str, str], filters: tuple[int, int], groups: tuple[int, int]
) -> None:
    s = Sketch()
    one, two = (conv(s, s("Relu", s.x(1, 2, 5, 5)), *each) for each in zip(filters, (3, 3), groups, strict=True))
    graph = s.graph(s("Concat", s(maps[0], one), s(maps[1], two), axis=1))
    assert "joined_branches" not in {choice.rule.name for choice in alternatives(graph)[0]}


def test_the_separable_branches_of_one_input_become_one() -> None:
    s = Sketch()
    x = s("Relu", s.x(1, 4, 7, 7))
    graph = s.graph(*(s("Relu", conv(s, conv(s, x, 4, kernel, groups=4), 4)) for kernel in (3, 5, 3)))
    assert ops(chosen(graph, "merged_separables")) == ["Relu", "Conv", "Conv", "Relu", "Split"]


@pytest.mark.parametrize("name", ["tiny_inception", "tiny_mobile", "tiny_detector", "tiny_transformer"])
def test_every_choice_that_a_network_offers_keeps_its_values(name: str) -> None:
    graph = rewrite(load(zoo.build(name).SerializeToString(), CompileOptions(), OPERATORS).graph).graph
    offered = list(each(graph))
    assert offered
    for other in offered:
        assert_same_values(graph, other, rtol=1e-5)
