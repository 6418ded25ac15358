"""Convolutions with larger kernels or fewer groups than they need: more operations, in fewer or better kernels."""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.composition import composed
from compiler.rewrite.convolution import convolution, with_groups
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View

MOST = 4.0
"""How many times its operations a program may have that is offered."""
FILTERS = 16
"""Filters of a group that fill the vectors of every target."""


def convolutions_in_a_row(view: View, node: Node) -> Rewrite | No | None:
    """W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2), where that takes more operations:
    a linear bottleneck passed in one step.
    """
    return composed(view, node, MOST, 1.0)


def joined_groups(view: View, node: Node) -> Rewrite | No | None:
    """conv(x, W, groups g) = conv(x, W', groups g / n), where W' has W on its diagonal of blocks, and zeros beside it.

    ResNeXt's groups of 4 channels leave most of a vector, or of a tensor core's tile, empty.
    """
    conv = convolution(view, node)
    if isinstance(conv, No):
        return conv
    if conv.groups == 1:
        return None
    if conv.groups in (conv.channels, conv.filters):
        return No("it works channel by channel")
    filters = conv.filters // conv.groups
    joined = next((n for n in range(2, conv.groups + 1) if conv.groups % n == 0 and n * filters >= FILTERS), None)
    if joined is None or joined > MOST:
        return No(f"{FILTERS} filters in a group would take more than {MOST:g} times the operations")
    if filters >= FILTERS:
        return No(f"a group has {filters} filters already")
    draft = view.draft(node)
    weights = with_groups(conv.weights, conv.groups, conv.groups // joined)
    constant = draft.constant(np.ascontiguousarray(weights))
    draft.node("Conv", (conv.x, constant, *node.inputs[2:]), {**node.attrs, "group": conv.groups // joined})
    return draft.done(f"{conv.groups} groups become {conv.groups // joined}")


CHOICES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Conv",), convolutions_in_a_row),
    Rule(REASSOCIATES, ("Conv",), joined_groups),
)
