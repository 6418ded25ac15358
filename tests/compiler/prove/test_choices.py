from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.prove.agree import ModelRunner, agree
from compiler.prove.choices import is_torn
from compiler.prove.reference import evaluate_graph
from tests.parse import parse_graph

BOXES = [[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]]


def chooser() -> Graph:
    """Three boxes apart from each other, in the order of the scores."""
    text = """graph(%0: f32[1, 3, 4], %1: f32[1, 1, 3]) -> (%5, %6)
      %2: i64[] = const {3}
      %3: i64[] = const {3}
      %4: f32[] = const {0.5}
      %5: i64[1, 1, 3] "found", %6: i64[1, 1] "count" = SelectBoxes(%0, %1, %2, %3, %4) most=3 from "choice"
    """
    graph = parse_graph(text)
    graph.verify()
    return graph


def program(graph: Graph, swap: bool = False) -> ModelRunner:
    """The graph in float32; of scores that nearly tie the other may win."""

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = dict(zip(graph.inputs, inputs, strict=True))
        if swap:
            scores = given[graph.inputs[1]].copy()
            scores[..., 1] *= np.float32(1 - 2e-6)
            given[graph.inputs[1]] = scores
        found = evaluate_graph(graph, given, OPERATORS, wide=False)
        return [found[value] for value in graph.outputs]

    return run


@pytest.mark.parametrize(
    ("scores", "torn"),
    [((0.5, 0.5 + 3e-7, 0.1), True), ((0.5, 0.5, 0.1), True), ((0.5, 0.5 + 3e-5, 0.1), True), ((0.5, 0.6, 0.1), False)],
)
def test_scores_that_tie_leave_the_choice_to_rounding(scores: tuple[float, ...], torn: bool) -> None:
    graph = chooser()
    inputs = {0: np.array(BOXES, np.float32), 1: np.array([[scores]], np.float32)}
    evaluate = partial(evaluate_graph, graph, operators=OPERATORS)
    assert is_torn(graph, evaluate, inputs, 1e-4, 0) == torn


def test_a_model_without_choices_is_never_torn() -> None:
    graph = parse_graph('graph(%0: f32[2]) -> (%1)\n  %1: f32[2] "y" = Tanh(%0) from "t"\n')
    evaluate = partial(evaluate_graph, graph, operators=OPERATORS)
    assert not is_torn(graph, evaluate, {0: np.ones(2, np.float32)}, 1e-4, 0)


@pytest.mark.parametrize("tolerance", [None, 1e-4])
def test_a_case_in_which_rounding_chooses_decides_nothing_and_others_still_do(tolerance: float | None) -> None:
    graph = chooser()
    near = {0: np.array(BOXES, np.float32), 1: np.array([[[0.5, 0.5 + 3e-7, 0.1]]], np.float32)}
    verdict = agree(program(graph, swap=True), graph, OPERATORS, tolerance, 0, samples={"near": near})
    assert verdict.passed
    assert "near" in verdict.undecided
    assert verdict.cases


def test_a_wrong_choice_is_a_fault_all_the_same() -> None:
    graph = chooser()
    apart = {0: np.array(BOXES, np.float32), 1: np.array([[[0.5, 0.6, 0.1]]], np.float32)}

    def wrong(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found, count = program(graph)(inputs)
        return [found[..., ::-1], count]

    verdict = agree(wrong, graph, OPERATORS, None, 0, samples={"apart": apart})
    assert not verdict.passed
