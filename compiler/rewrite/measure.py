"""What every application must make smaller.

The measure of a graph is the sum of the weights of its nodes. Weights are whole numbers of at least 1, so the measure is bounded
below, and a sequence of applications that each make it smaller is finite: rewriting ends, whatever the rules are and in whatever
order they are tried. A rule that lets a view start further up, without making any node vanish, keeps the sum but makes the chains
of views shorter; the sum of their lengths is the second component of the measure, compared where the first is equal.

Weights also keep a rule from making a program dearer: what replaces a node is compared with all that dies with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler.ir.graph import Node

VIEWS = frozenset(
    {
        "Identity",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Transpose",
        "Slice",
        "Concat",
        "Split",
        "Expand",
        "Cast",
    }
)
"""Operators whose results are the elements of their inputs, in other places."""

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
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "AveragePool"), 1000),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), 4000),  # up to three products, and what joins them
}
OTHER = 9
"""The weight of an operator that is not listed."""


def weight(nodes: Iterable[Node]) -> int:
    return sum(WEIGHTS.get(node.op, OTHER) for node in nodes)
