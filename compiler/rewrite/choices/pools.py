"""Pools moved to where they have less to do."""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.rewrite.convolution import averages_padding, convolution, pool_geometry
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def pool_after_pointwise(view: View, node: Node) -> Rewrite | No | None:
    """W average_pool(x) + b = average_pool(W x) + b, where W is 1x1.

    The pool branches of Inception average all channels of their input, and then reduce them to few. A kernel that does
    both one after the other on a tile competes with this.
    """
    pool = view.producer(node.used[0], "AveragePool")
    if pool is None:
        return None
    conv = convolution(view, node)
    if isinstance(conv, No):
        return conv
    if not conv.geometry.keeps_positions:
        return None
    if conv.filters >= conv.channels:
        return No("the pool would average as many channels")
    if (refusal := view.enclosed(node, [pool])) is not None:
        return refusal
    draft, apart = view.draft(node), averages_padding(pool, pool_geometry(view, pool)) and conv.bias is not None
    inputs = node.inputs[1:2] if apart else node.inputs[1:]
    reduced = draft.node("Conv", (pool.used[0], *inputs), node.attrs)
    pooled = draft.node("AveragePool", (reduced,), pool.attrs, pool.source)
    if apart and conv.bias is not None:
        bias = conv.bias.reshape(-1, *(1,) * conv.geometry.rank)
        draft.node("Add", (pooled, draft.constant(bias)))
    return draft.done("the pool averages the channels that the convolution leaves")


CHOICES: tuple[Rule, ...] = (Rule(REASSOCIATES, ("Conv",), pool_after_pointwise),)
