"""The search over choices, with costs made up for it: what it takes, what it leaves and why, and that the program keeps its meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from compiler.ir.graph import Graph, Node
from compiler.ir.tile import Cost
from compiler.rewrite import EXACT, REASSOCIATES, Rule, approximate, rewrite
from compiler.rewrite.choose import MARGINS, Chosen, Verdict, choose
from compiler.rewrite.region import Region
from compiler.rewrite.view import No, Rewrite, View
from tests.compiler.rewrite.random_graphs import random_graph
from tests.compiler.rewrite.sketch import Sketch, assert_same_values
from tests.seeds import each

MICRO = 1e-6


def merged_products(view: View, node: Node) -> Rewrite | No | None:
    """x a, x b = split(x [a b])."""
    weights = view.constant(node.inputs[1])
    if weights is None or weights.ndim != 2:
        return None
    for other in view.readers(node.used[0]):
        if other.op != "MatMul" or other.outputs[0] >= node.outputs[0] or other.inputs[0] != node.inputs[0]:
            continue
        others = view.constant(other.inputs[1])
        if others is None or others.ndim != 2:
            return No("weights are not constant")
        draft = view.draft(node)
        whole = draft.node("MatMul", (node.inputs[0], draft.constant(np.concatenate([others, weights], 1))))
        axis, width = len(view.dims(node.outputs[0])) - 1, others.shape[1]
        parts = [
            draft.node(
                "Slice",
                (whole, None, None, None, None),
                {"starts": (begin,), "ends": (end,), "axes": (axis,), "steps": (1,)},
            )
            for begin, end in ((width, width + weights.shape[1]), (0, width))
        ]
        return draft.outputs(*parts, why="two products of one input", replaced=(other,))
    return None


def doubled(view: View, node: Node) -> Rewrite | None:
    """x + x = 2 x."""
    if node.inputs[0] != node.inputs[1]:
        return None
    draft = view.draft(node)
    draft.node("Mul", (node.inputs[0], draft.constant(np.asarray(2, view.type(node.used[0]).dtype.numpy))))
    return draft.done("a sum of equal values")


def inverted_twice(view: View, node: Node) -> Rewrite | None:
    """abs(x) = -(-abs(x))."""
    if any(reader.op == "Neg" for reader in view.readers(node.outputs[0])):
        return None
    draft = view.draft(node)
    draft.node("Neg", (draft.node("Neg", (draft.node("Abs", node.inputs),)),))
    return draft.done("for nothing")


def odd(view: View, node: Node) -> Rewrite | None:
    """tanh(x) = -tanh(-x), abs(x) = abs(-x)."""
    if view.producer(node.inputs[0], "Neg"):
        return None
    draft = view.draft(node)
    other = draft.node(node.op, (draft.node("Neg", node.inputs),))
    if node.op == "Tanh":
        draft.node("Neg", (other,))
    return draft.done("the other side of zero")


MERGED = Rule(REASSOCIATES, ("MatMul",), merged_products)
DOUBLED = Rule(EXACT, ("Add",), doubled)
INVERTED = Rule(EXACT, ("Abs",), inverted_twice)
ODD = Rule(EXACT, ("Tanh", "Abs"), odd)

Seconds = Callable[[Graph], float]


@dataclass
class MadeUp:
    """`GraphCosts` by a function of a region's graph."""

    seconds: Seconds
    source: str = "record"
    asked: list[str] = field(default_factory=list)

    def estimates(self, regions: Sequence[Region]) -> tuple[Cost, ...]:
        self.asked += [region.structure for region in regions]
        return tuple(Cost(self.seconds(region.graph), self.source) for region in regions)

    def verdicts(self, contests: Sequence[Sequence[Region]]) -> tuple[Verdict, ...]:
        costs = [self.estimates(contest) for contest in contests]
        return tuple(Verdict(one, tuple(one[0].seconds for _ in one)) for one in costs)


def count(graph: Graph, op: str) -> int:
    return sum(node.op == op for node in graph.nodes)


def per_product(graph: Graph) -> float:
    """Each product costs the same, however wide it is."""
    return MICRO * (1 + count(graph, "MatMul"))


def by_products(seconds: Mapping[int, float]) -> Seconds:
    """What a program with so many products takes."""
    return lambda graph: seconds[count(graph, "MatMul")]


def siblings(s: Sketch, x: int, widths: Sequence[int] = (2, 3)) -> list[int]:
    """Products of x, each with a map of its own after it."""
    return [s("Tanh", s("MatMul", x, s.normal(s.dims(x)[-1], width))) for width in widths]


def block(s: Sketch, x: int, width: int = 2) -> int:
    """Two products of x that are added up: of x's shape."""
    a, b = siblings(s, x, (width, width))
    return s("MatMul", s("Add", a, b), s.normal(width, s.dims(x)[-1]))


def chosen(graph: Graph, costs: MadeUp, *choices: Rule, slack: float = 1.05) -> Chosen:
    found = choose(graph, costs, choices, slack=slack)
    assert_same_values(graph, found.graph)
    return found


def test_a_choice_that_pays_is_made_and_told_with_both_costs() -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5)))
    found = chosen(graph, MadeUp(per_product), MERGED)
    assert count(found.graph, "MatMul") == 1
    (one,) = found.log
    assert str(one) == ("merged_products at 'n2': two products of one input; 3.0 us, 2.0 us with it (record); made")
    assert found.made == found.log


def test_a_choice_that_does_not_pay_is_left_with_both_costs() -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5)))
    found = chosen(graph, MadeUp(lambda g: MICRO * (5 - count(g, "MatMul"))), MERGED)
    assert found.graph == graph
    assert not found.made
    assert str(found.log[0]).endswith("3.0 us, 4.0 us with it (record); left: it would not be faster")


@pytest.mark.parametrize("source", ["model", "record"])
def test_a_choice_has_to_save_more_than_its_costs_may_be_wrong_by(source: str) -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5)))
    for part, is_made in ((0.9, False), (1.1, True)):
        found = chosen(graph, MadeUp(by_products({2: 1.0, 1: 1 - part * MARGINS[source]}), source), MERGED)
        assert bool(found.made) == is_made
        assert is_made or "by which the costs may be wrong" in found.log[0].reason


def test_a_choice_that_costs_something_is_made_where_another_one_then_gains_more() -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5), (2, 3, 4)))
    costs = MadeUp(by_products({3: 1.0, 2: 1.03, 1: 0.8}))
    assert not chosen(graph, costs, MERGED, slack=1.0).made, "plain greedy sees no gain in the first step"
    found = chosen(graph, costs, MERGED)
    assert count(found.graph, "MatMul") == 1
    assert found.made[0].choice == "merged_products + merged_products"


def test_of_choices_that_exclude_each_other_the_cheapest_is_made() -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5), (2, 3, 4)))

    def wants_six(graph: Graph) -> float:
        """Six columns are fast, as if a vector had so many lanes; more than that is slow."""
        widths = [graph.type(node.outputs[0]).dims[-1] for node in graph.nodes if node.op == "MatMul"]
        return sum(1.0 if width <= 6 else 4.0 for width in widths) - 0.2 * widths.count(6)

    found = chosen(graph, MadeUp(wants_six), MERGED)
    widths = sorted(found.graph.type(node.outputs[0]).dims[-1] for node in found.graph.nodes if node.op == "MatMul")
    assert widths == [3, 6]


def test_equal_regions_are_weighed_once_and_decided_alike() -> None:
    s = Sketch()
    x = s.x(4, 5)
    for _ in range(6):
        x = s("Softmax", s("Sigmoid", s("Cos", s("Tanh", block(s, x)))), axis=1)
    graph = s.graph(x)
    costs = MadeUp(per_product)
    found = chosen(graph, costs, MERGED)
    assert count(found.graph, "MatMul") == 12
    assert len(found.made) == 6
    assert len({one.where for one in found.made}) == 6
    assert len({*costs.asked}) < 12, "the first block and the last lie at the program's ends, the others are equal"


def test_the_greedy_rules_run_after_a_choice() -> None:
    s = Sketch()
    x = s.x(4)
    graph = s.graph(s("Mul", s("Add", x, x), s.c(3.0)))
    found = chosen(graph, MadeUp(lambda g: MICRO * len(g.nodes)), DOUBLED)
    assert [node.op for node in found.graph.nodes] == ["Mul"]
    assert rewrite(found.graph).graph == found.graph


def test_a_choice_that_the_rules_undo_is_none() -> None:
    s = Sketch()
    graph = s.graph(s("Abs", s.x(4)))
    found = chosen(graph, MadeUp(lambda g: 1.0 / len(g.nodes)), INVERTED)
    assert found.graph == graph
    assert not found.log


def test_a_choice_that_approximates_is_not_made() -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5)))
    assert not chosen(graph, MadeUp(per_product), Rule(approximate(0.01), ("MatMul",), merged_products)).log


def test_where_nothing_is_offered_nothing_is_costed_and_the_reason_is_told() -> None:
    s = Sketch()
    x, w = s.x(4, 5), s.x(5, 3)
    s("MatMul", x, w)
    graph = s.graph(2, s("MatMul", x, s.normal(5, 3)))
    costs = MadeUp(per_product)
    found = chosen(graph, costs, MERGED)
    assert not costs.asked
    assert [str(one) for one in found.refusals] == ["merged_products at 'n1': weights are not constant"]


def test_long_chains_of_offers_are_decided_piece_by_piece() -> None:
    s = Sketch()
    graph = s.graph(*siblings(s, s.x(4, 5), (1,) * 20))
    found = chosen(graph, MadeUp(per_product), MERGED)
    assert count(found.graph, "MatMul") <= 3


@each(range(20))
def test_random_programs_keep_their_meaning_whatever_the_costs_say(seed: int) -> None:
    s = Sketch(seed)
    x = s.x(2, 4)
    parts = [x]
    for _ in range(5):
        value = int(s.rng.choice(parts))
        parts += siblings(s, value, tuple(s.rng.integers(1, 4, int(s.rng.integers(1, 4)))))
        parts.append(s("Add", parts[-1], parts[-1]))
        parts.append(s("MatMul", parts[-1], s.normal(s.dims(parts[-1])[-1], 4)))
    graph = rewrite(s.graph(*parts[-3:])).graph

    def noise(g: Graph) -> float:
        return 1.0 + ((seed * 31 + len(g.nodes) * 7 + count(g, "Slice") * 5 + count(g, "MatMul") * 11) % 97) / 97

    found = chosen(graph, MadeUp(noise), MERGED, DOUBLED)
    again = choose(graph, MadeUp(noise), (MERGED, DOUBLED))
    assert (str(again.graph), again.log) == (str(found.graph), found.log)


@each(range(10))
def test_random_programs_of_all_operators_keep_their_meaning(seed: int) -> None:
    graph = rewrite(random_graph(Sketch(seed), 60)).graph
    found = chosen(graph, MadeUp(lambda g: 1.0 / (1 + count(g, "Neg"))), ODD, DOUBLED)
    assert found.made or not {"Tanh", "Abs"} & {node.op for node in graph.nodes}
