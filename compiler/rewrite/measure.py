"""What every application must make smaller.

The measure of a graph is the sum of the weights of its nodes, and ALONE more for every map that follows no sum (see
`maps`): that is what moves a view behind the maps that follow it. Weights are whole numbers of at least 1, so the
measure is bounded below, and a sequence of applications that each make it smaller is finite. So rewriting ends,
whatever the rules are and in whatever order they are tried. A rule that lets a view start further up, without making
any node vanish, keeps the sum but makes the chains of views shorter. The sum of their lengths is the second component
of the measure, compared where the first is equal.

Weights also keep a rule from making a program dearer: what replaces a node is compared with all that dies with it. An
operator that sums products weighs what it is by itself and one more for every thousand of its operations: a node of its
own (a call, a result stored and read again) is worth a million operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from compiler.ir.graph import Graph, Node
from compiler.rewrite.gain import VIEWS, TypeOf, operations
from compiler.rewrite.maps import alone

ConstantOf = Callable[[int], np.ndarray | None]

WEIGHTS = {
    "Identity": 1,
    "Reshape": 2,
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Flatten"), 3),
    **dict.fromkeys(("Transpose", "Slice", "Expand", "Cast", "Pad"), 4),
    "Concat": 6,  # what it joins is stored, where a view of one tensor need not be
    "Split": 12,  # more than two Slices, less than four: a Split whose parts go their ways stays one node
    **dict.fromkeys(("Relu", "Neg"), 7),
    **dict.fromkeys(("Add", "Mul"), 8),
    **dict.fromkeys(("Sub", "Div", "Clip"), 9),
    **dict.fromkeys(("HardSigmoid", "HardSwish", "Swish", "Gelu", "Softmax"), 10),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), 7),
    "GlobalAveragePool": 7,
    "QuantizeLinear": 8,
    **dict.fromkeys(("ReduceMean", "Pow", "Max", "Min"), 10),
    "ScatterND": 20,  # a join of two slices and what lies between them is less
    "BatchNormalization": 40,
    "LayerNormalization": 20,
}
OTHER = 9
"""The weight of an operator that is not listed."""

PRODUCTS = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "AveragePool"), 1000),
    "ConvTranspose": 1500,  # more than the Conv that it is where its stride is 1, which reads padding as well
    **dict.fromkeys(("RNN", "GRU", "LSTM"), 4000),  # up to three products, and what joins them
}
"""Operators that sum products: what they weigh apart from their operations."""
OPERATIONS = 1000
"""Operations that weigh 1."""
OF_BYTES = {"Resize": OTHER - 1}
"""What an operator weighs that gives elements of one byte, where it is less than otherwise."""
DIVIDES = 1
"""What a QuantizeLinear weighs more whose scale is not known to be 1: it divides."""
ALONE = 3
"""What a map weighs more that no kernel before it runs on its results: more than the Reshape that brings an operand
into place."""

__all__ = ["ALONE", "VIEWS", "measure", "weight"]


def weight(nodes: Iterable[Node], type_of: TypeOf, constant_of: ConstantOf) -> int:
    """The sum of the weights of some nodes.

    `type_of` gives the types of their values, `constant_of` the arrays of those that are constants.
    """
    return sum(_weight(node, type_of, constant_of) for node in nodes)


def measure(graph: Graph) -> int:
    """The first component of a graph's measure."""
    made = {value: node for node in graph.nodes for value in node.outputs}
    return weight(graph.nodes, graph.type, graph.constants.get) + ALONE * sum(
        alone(node, made.get, graph.type) for node in graph.nodes
    )


def _weight(node: Node, type_of: TypeOf, constant_of: ConstantOf) -> int:
    if node.op in PRODUCTS:
        return PRODUCTS[node.op] + operations(node, type_of) // OPERATIONS
    if node.op == "QuantizeLinear":
        scale = constant_of(node.used[1])
        return WEIGHTS[node.op] + (0 if scale is not None and bool((scale == 1).all()) else DIVIDES)
    if node.op in OF_BYTES and type_of(node.outputs[0]).dtype.bytes == 1:
        return OF_BYTES[node.op]
    return WEIGHTS.get(node.op, OTHER)
