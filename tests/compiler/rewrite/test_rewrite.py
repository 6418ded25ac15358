from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import zoo
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ir.graph import Graph, Node
from compiler.ops import OPERATORS
from compiler.rewrite import Rewritten, Rule, approximate, rewrite
from compiler.rewrite.measure import measure
from compiler.rewrite.view import No, Rewrite, View
from tests.compiler.rewrite.random_graphs import random_graph
from tests.compiler.rewrite.sketch import Sketch, assert_same_meaning
from tests.parse import parse_graph


def count(graph: Graph, op: str) -> int:
    return sum(node.op == op for node in graph.nodes)


# Whole graphs


@settings(max_examples=250)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(1, 30))
def test_a_rewritten_graph_means_the_same_value_by_value_and_is_a_fixed_point(seed: int, nodes: int) -> None:
    graph = random_graph(Sketch(seed), nodes)
    after = rewrite(graph)
    assert_same_meaning(graph, after, seed % 1000)
    assert measure(after.graph) <= measure(graph)
    again = rewrite(after.graph)
    assert again.graph is after.graph
    assert not again.log
    assert again.refusals == after.refusals


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_rewriting_is_deterministic(seed: int) -> None:
    first, second = (rewrite(random_graph(Sketch(seed), 25)) for _ in range(2))
    assert str(first.graph) == str(second.graph)
    assert (first.log, first.refusals) == (second.log, second.refusals)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_new_values_have_ids_that_no_value_had(seed: int) -> None:
    graph = random_graph(Sketch(seed), 20)
    known = {value for node in graph.nodes for value in node.outputs} | {*graph.inputs, *graph.constants}
    for value in rewrite(graph).graph.values:
        assert value in known or value >= graph.next_id


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("mobilenet_v2", "BatchNormalization"),
        ("nasnet_a_mobile", "BatchNormalization"),
        ("efficientnet_b0", "BatchNormalization"),
        ("tiny_transformer", "Erf"),
        ("tiny_mobile", "Sigmoid"),
        ("shufflenet_v2", "Flatten"),
    ],
)
def test_networks_become_smaller(name: str, gone: str) -> None:
    graph = load(zoo.build(name).SerializeToString(), CompileOptions(), OPERATORS).graph
    after = rewrite(graph)
    assert count(graph, gone) > 0
    assert count(after.graph, gone) == 0
    assert len(after.graph.nodes) < 0.9 * len(graph.nodes)
    assert not rewrite(after.graph).log


@pytest.mark.parametrize(
    "name", ["tiny_cnn", "tiny_inception", "tiny_mobile", "tiny_transformer", "tiny_detector", "tiny_lstm"]
)
def test_small_networks_keep_the_meaning_of_every_value(name: str) -> None:
    graph = load(zoo.build(name).SerializeToString(), CompileOptions(), OPERATORS).graph
    assert_same_meaning(graph, rewrite(graph), rtol=1e-5)


def test_applications_are_logged_with_rule_node_reason_and_kind() -> None:
    s = Sketch()
    graph = s.graph(s("Neg", s("Mul", s.x(3), s.c(1.0))))
    (application,) = rewrite(graph).log
    assert str(application) == "multiply_by_one (exact) at 'n0': it is multiplied by 1; saves 1 node, 3 op, 56 B"


# Graph inputs and outputs


def texts(before: str) -> tuple[Graph, Rewritten]:
    graph = parse_graph(before)
    after = rewrite(graph)
    assert_same_meaning(graph, after)
    return graph, after


def test_an_output_that_equals_an_inner_value_is_computed_under_its_own_id_and_name() -> None:
    _, after = texts('graph(%0: f32[3]) -> (%2)\n %1: f32[3] = Relu(%0)\n %2: f32[3] "y" = Identity(%1)')
    assert str(after.graph).splitlines()[1:] == ['  %2: f32[3] "y" = Relu(%0)']


def test_an_output_that_equals_an_input_is_one_copy() -> None:
    _, after = texts("graph(%0: f32[3]) -> (%2)\n %1: f32[3] = Neg(%0)\n %2: f32[3] = Neg(%1)")
    assert [str(node) for node in after.graph.nodes] == ["%2 = Identity(%0)"]


def test_two_outputs_of_one_meaning_are_computed_once_and_copied() -> None:
    _, after = texts("graph(%0: f32[3]) -> (%1, %2)\n %1: f32[3] = Exp(%0)\n %2: f32[3] = Exp(%0)")
    assert [str(node) for node in after.graph.nodes] == ["%1 = Exp(%0)", "%2 = Identity(%1)"]


def test_an_output_that_is_also_read_keeps_its_id_when_others_are_replaced_by_it() -> None:
    _, after = texts(
        "graph(%0: f32[3]) -> (%2, %4)\n %1: f32[3] = Exp(%0)\n %2: f32[3] = Identity(%1)\n %3: f32[3] = Neg(%1)\n"
        " %4: f32[3] = Neg(%3)"
    )
    assert [str(node) for node in after.graph.nodes] == ["%2 = Exp(%0)", "%4 = Identity(%2)"]


def test_an_output_of_a_node_with_several_outputs_takes_its_place_among_them() -> None:
    _, after = texts(
        "graph(%0: f32[4]) -> (%3, %4)\n %1: f32[1], %2: f32[3] = Split(%0, _) axis=0 split=(1, 3)\n"
        " %3: f32[1] = Identity(%1)\n %4: f32[3] = Exp(%2)"
    )
    assert [str(node) for node in after.graph.nodes] == ["%3, %2 = Split(%0, _) axis=0 split=(1, 3)", "%4 = Exp(%2)"]


# Duplicates and the dead


def test_equal_nodes_over_equal_constants_are_one() -> None:
    _, after = texts(
        "graph(%0: f32[3]) -> (%5)\n %1: f32[] = const {0.5}\n %2: f32[] = const {0.5}\n"
        " %3: f32[3] = Mul(%0, %1)\n %4: f32[3] = Mul(%2, %0)\n %5: f32[3] = Sub(%3, %4)"
    )
    assert count(after.graph, "Mul") == 1
    assert after.graph.nodes[-1].inputs == (3, 3)
    assert {application.rule for application in after.log} == {"duplicate_node"}


def test_zeros_of_different_sign_are_different_constants() -> None:
    text = (
        "graph(%0: f32[3]) -> (%5)\n %1: f32[] = const {0.0}\n %2: f32[] = const {-0.0}\n"
        " %3: f32[3] = Div(%0, %1)\n %4: f32[3] = Div(%0, %2)\n %5: f32[3] = Sub(%3, %4)"
    )
    assert not rewrite(parse_graph(text)).log


def test_nodes_that_differ_in_an_attribute_are_not_duplicates() -> None:
    text = (
        "graph(%0: f32[3]) -> (%3)\n %1: f32[3] = LeakyRelu(%0) alpha=0.0\n %2: f32[3] = LeakyRelu(%0) alpha=-0.0\n"
        " %3: f32[3] = Sub(%1, %2)"
    )
    assert not rewrite(parse_graph(text)).log


def test_what_nothing_reads_is_dropped_with_all_that_only_it_read() -> None:
    _, after = texts("graph(%0: f32[3]) -> (%1)\n %1: f32[3] = Exp(%0)\n %2: f32[3] = Tanh(%0)\n %3: f32[3] = Tan(%2)")
    assert [node.op for node in after.graph.nodes] == ["Exp"]
    assert [application.rule for application in after.log] == ["dead_node", "dead_node"]


# Which rules may be applied


def sine_is_small(view: View, node: Node) -> Rewrite | No | None:
    """sin(x) = x, for small x."""
    return view.draft(node).same(node.used[0], why="small")


def grow(view: View, node: Node) -> Rewrite | No | None:
    """exp(x) = exp(x) * 1."""
    draft = view.draft(node)
    draft.node("Mul", (draft.node("Exp", node.inputs), draft.constant(Sketch().constants.get(0, view.constants[1]))))
    return draft.done("larger")


SINES = (
    "graph(%0: f32[3]) -> (%4)\n %1: f32[3] = Sin(%0)\n %2: f32[3] = Exp(%1)\n %3: f32[3] = Sin(%2)\n"
    " %4: f32[3] = Exp(%3)"
)


@pytest.mark.parametrize(("budget", "left"), [(0.0, 2), (1e-3, 1), (1.5e-3, 1), (2e-3, 0)])
def test_approximations_are_applied_while_the_error_budget_lasts(budget: float, left: int) -> None:
    after = rewrite(parse_graph(SINES), budget, (Rule(approximate(1e-3), ("Sin",), sine_is_small),))
    assert count(after.graph, "Sin") == left
    assert len(after.refusals) == left
    assert all("left of the error budget" in refusal.reason for refusal in after.refusals)


def test_an_approximation_without_a_bound_is_no_approximation() -> None:
    with pytest.raises(ValueError, match="above 0"):
        approximate(0.0)


def test_a_rule_that_makes_programs_larger_is_refused_and_rewriting_ends() -> None:
    graph = parse_graph("graph(%0: f32[3]) -> (%2)\n %1: f32[] = const {1.0}\n %2: f32[3] = Exp(%0)")
    after = rewrite(graph, rules=(Rule(approximate(1e-9), ("Exp",), grow),), budget=1.0)
    assert after.graph is graph
    assert tuple(map(str, after.refusals)) == (
        "grow at Exp %2: the program would not become smaller, since what it replaces is needed elsewhere",
    )


def test_a_view_of_a_view_starts_further_up_even_where_the_first_one_stays() -> None:
    _, after = texts(
        "graph(%0: f32[2, 3, 4]) -> (%1, %2)\n %1: f32[3, 2, 4] = Transpose(%0) perm=(1, 0, 2)\n"
        " %2: f32[4, 3, 2] = Transpose(%1) perm=(2, 0, 1)"
    )
    assert [node.inputs for node in after.graph.nodes] == [(0,), (0,)]


def test_constants_near_enough_to_the_real_ones_are_taken_for_them() -> None:
    for alpha, known in ((0.16666670143604279, True), (0.1666666716337204, True), (0.166667, False), (0.2, False)):
        s = Sketch()
        x = s.x(3)
        after = rewrite(s.graph(s("Mul", x, s("HardSigmoid", x, alpha=alpha))))
        assert (count(after.graph, "HardSwish") == 1) is known
