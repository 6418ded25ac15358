"""What every application must make smaller.

The measure of a graph is the sum of the weights of its nodes. Weights are whole numbers of at least 1, so the measure is bounded
below, and a sequence of applications that each make it smaller is finite: rewriting ends, whatever the rules are and in whatever
order they are tried. A rule that lets a view start further up, without making any node vanish, keeps the sum but makes the chains
of views shorter; the sum of their lengths is the second component of the measure, compared where the first is equal.

Weights also keep a rule from making a program dearer: what replaces a node is compared with all that dies with it. An operator that
sums products weighs what it is by itself and one more for every thousand of its operations: a node of its own (a call, a result
stored and read again) is worth a million operations.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler.ir.graph import Node
from compiler.rewrite.gain import VIEWS, TypeOf, operations

WEIGHTS = {
    "Identity": 1,
    "Reshape": 2,
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Flatten"), 3),
    **dict.fromkeys(("Transpose", "Slice", "Concat", "Expand", "Cast", "Pad"), 4),
    "Split": 12,  # more than two Slices, less than four: a Split whose parts go their ways stays one node
    **dict.fromkeys(("Relu", "Neg"), 7),
    **dict.fromkeys(("Add", "Mul"), 8),
    **dict.fromkeys(("Sub", "Div", "Clip"), 9),
    **dict.fromkeys(("HardSigmoid", "HardSwish", "Swish", "Gelu", "Softmax"), 10),
    "BatchNormalization": 40,
    "LayerNormalization": 20,
}
OTHER = 9
"""The weight of an operator that is not listed."""

PRODUCTS = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "AveragePool"), 1000),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), 4000),  # up to three products, and what joins them
}
"""Operators that sum products: what they weigh beside their operations."""
OPERATIONS = 1000
"""Operations that weigh 1."""

__all__ = ["VIEWS", "weight"]


def weight(nodes: Iterable[Node], type_of: TypeOf) -> int:
    """The sum of the weights of some nodes, whose values have the types that `type_of` tells."""
    return sum(_weight(node, type_of) for node in nodes)


def _weight(node: Node, type_of: TypeOf) -> int:
    if node.op in PRODUCTS:
        return PRODUCTS[node.op] + operations(node, type_of) // OPERATIONS
    return WEIGHTS.get(node.op, OTHER)
