"""What an operator gives lies in the range that is foreseen for it, whatever lies in the ranges of its inputs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from compiler.ir.graph import Graph
from compiler.legalise.ranges import EVERYTHING, Range, of_array, transfer
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.legalise.graphs import chain, drawn, single

ABOVE = ((0.1, 0.5), (0.5, 3.0), (2.0, 9.0))
"""Ranges of positive numbers."""
RANGES = (*ABOVE, (-3.0, 2.0), (-5.0, -1.0), (-0.5, 0.0), (0.0, 4.0))
CURVES = ("Sigmoid", "Tanh", "Erf", "Softplus", "Gelu", "Mish", "HardSwish", "Elu")
MAPS = {
    **{name: single(name) for name in (*CURVES, "Neg", "Relu", "Abs", "Exp", "HardSigmoid", "Softmax", "Identity")},
    "Gelu tanh": single("Gelu", approximate="tanh"),
    "Swish": single("Swish"),
    "Elu of 2": single("Elu", alpha=2.0),
    **{f"LeakyRelu {alpha}": single("LeakyRelu", alpha=alpha) for alpha in (0.1, 1.5, -0.5)},
    "Clip": single("Clip", others=[np.float32(-1.0), np.float32(2.5)]),
    "Clip above": single("Clip", others=[None, np.float32(0.5)]),
    "Clip crossed": single("Clip", others=[np.float32(3.0), np.float32(1.0)]),
    **{f"{name} two": single(name, two=True) for name in ("Add", "Sub", "Mul", "Max", "Min")},
    "Concat": single("Concat", two=True, axis=1),
    "Square": chain([helper.make_node("Mul", ["x", "x"], ["y"], name="n")], (1, 4, 6, 6), {}),
    "Div": single("Div", others=[np.float32(0.25)]),
    **{
        name: chain([helper.make_node(name, ["x", "axes"], ["y"], name="n")], (1, 4, 6, 6), {"axes": np.array([1, 3])})
        for name in ("ReduceSum", "ReduceMean")
    },
    "LayerNormalization": single("LayerNormalization", others=[drawn(6), drawn(6)]),
    "Conv": single("Conv", others=[drawn(3, 4, 3, 3), drawn(3)]),
    "Conv padded": single("Conv", others=[drawn(3, 4, 3, 3)], pads=[1, 1, 1, 1]),
    "Conv same": single("Conv", others=[drawn(3, 4, 3, 3)], auto_pad="SAME_UPPER"),
    "MatMul": single("MatMul", others=[drawn(6, 5)]),
    "Gemm": single("Gemm", (3, 6), [drawn(5, 6), drawn(5)], transB=1, alpha=0.5, beta=2.0),
    "AveragePool": single("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool padding": single("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "MaxPool": single("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "GlobalAveragePool": single("GlobalAveragePool"),
    "Transpose": single("Transpose", perm=[0, 2, 3, 1]),
}
POSITIVE = {name: single(name) for name in ("Sqrt", "Reciprocal")}
POSITIVE |= {"Pow": single("Pow", others=[np.float32(-0.5)]), "Div two": single("Div", two=True)}


def within(low: float, high: float, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a range, its ends among them."""
    found = random.uniform(low, high, shape)
    found.reshape(-1)[:2] = random.permutation([low, high])
    return found


def judge(graph: Graph, ranges: Range, others: Range) -> None:
    """Random inputs of these ranges, and inputs that are all at an end."""
    (node,) = graph.nodes
    said = dict(zip(graph.inputs, (ranges, others), strict=False))
    known = said | {value: of_array(array) for value, array in graph.constants.items()}
    given = tuple(None if one is None else known[one] for one in node.inputs)
    low, high = transfer(node, given, lambda value: graph.type(value).dims, graph.constants)
    assert low <= high
    random = np.random.default_rng(7)
    for number in range(6):
        arrays = {
            value: within(*said[value], random, graph.type(value).dims)
            if number < 4
            else np.full(graph.type(value).dims, said[value][number - 4])
            for value in graph.inputs
        }
        (found,) = evaluate_graph(graph, arrays, OPERATORS).values()
        room = 1e-6 * (1 + np.abs(found).max())  # constants are stored in float32
        assert low - room <= found.min()
        assert found.max() <= high + room


@pytest.mark.parametrize("name", MAPS)
def test_results_lie_in_the_range_that_is_foreseen(name: str) -> None:
    for at, ranges in enumerate(RANGES):
        judge(MAPS[name], ranges, RANGES[at - 2])


@pytest.mark.parametrize("name", POSITIVE)
def test_of_numbers_above_zero_they_do_as_well(name: str) -> None:
    for at, ranges in enumerate(ABOVE):
        judge(POSITIVE[name], ranges, ABOVE[at - 1])


@pytest.mark.parametrize("name", MAPS)
def test_a_range_without_ends_is_foreseen_as_one_that_holds_every_other(name: str) -> None:
    graph = MAPS[name]
    (node,) = graph.nodes
    constants = {value: of_array(array) for value, array in graph.constants.items()}

    def foreseen(ranges: Range) -> Range:
        known = dict.fromkeys(graph.inputs, ranges) | constants
        given = tuple(None if one is None else known[one] for one in node.inputs)
        return transfer(node, given, lambda value: graph.type(value).dims, graph.constants)

    everything = foreseen(EVERYTHING)
    for ranges in RANGES:
        low, high = foreseen(ranges)
        assert everything[0] <= low
        assert high <= everything[1]
