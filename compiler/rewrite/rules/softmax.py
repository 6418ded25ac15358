"""Softmax and its logarithm that exporters write out, recognised: JAX's, whose reductions lose their axis (magika)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.rules.moments import VIEWS, Statistic, reduced, total
from compiler.rewrite.view import No, Rewrite, View


def _softmax(view: View, exp: Node | None, sum_: Statistic | None) -> tuple[int, int, tuple[Node, ...]] | No | None:
    """(x, axis, nodes) where exp(x - max(x)) is summed along the axis of the maximum."""
    sub = None if exp is None else view.producer(exp.used[0], "Sub")
    if exp is None or sub is None or sum_ is None or sum_.axes_in(view, exp.outputs[0]) is None or sum_.divisor != 1:
        return None
    nodes: tuple[Node, ...] = ()
    top = sub.used[1]
    while (above := view.producer(top, "Max", *VIEWS)) is not None:  # JAX keeps the maximum above minus infinity
        rest = [read for read in above.used if view.scalar(read) != -np.inf]
        if len(rest) != 1:
            return None
        top, nodes = rest[0], (*nodes, above)
    largest = reduced(view, top, "ReduceMax")
    if largest is None or not largest.beside(view, sub.used[1], sub.used[0]):
        return None
    axes = largest.axes_in(view, sub.used[0]) or ()
    if len(axes) != 1 or (largest.long, largest.over) != (sum_.long, sum_.over):
        return No(f"it takes the largest over axes {list(axes)}, which are not the one that it sums over")
    return sub.used[0], axes[0], (sub, *nodes, *largest.nodes, *sum_.nodes)


def softmax_by_exp(view: View, node: Node) -> Rewrite | No | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) = softmax(x), along one axis."""
    exp, sum_ = view.producer(node.used[0], "Exp"), total(view, node.used[1])
    found = _softmax(view, exp, sum_)
    if found is None or isinstance(found, No) or exp is None or sum_ is None:
        return found if isinstance(found, No) else None
    return _one_axis(view, node, "Softmax", found, (exp,)) if sum_.beside(view, node.used[1], node.used[0]) else None


def log_softmax_by_exp(view: View, node: Node) -> Rewrite | No | None:
    """x - max(x) - log(sum(exp(x - max(x)))) = log_softmax(x), along one axis."""
    log = view.producer(node.used[1], "Log", *VIEWS)
    nodes: tuple[Node, ...] = ()
    while log is not None and log.op in VIEWS:
        nodes, log = (*nodes, log), view.producer(log.used[0], "Log", *VIEWS)
    sum_ = None if log is None else total(view, log.used[0])
    exp = None if sum_ is None else view.producer(sum_.x, "Exp")
    found = _softmax(view, exp, sum_)
    if found is None or isinstance(found, No) or exp is None or log is None or sum_ is None:
        return found if isinstance(found, No) else None
    if exp.used[0] != node.used[0] or not sum_.beside(view, node.used[1], exp.outputs[0]):
        return None
    return _one_axis(view, node, "LogSoftmax", found, (exp, log, *nodes))


def log_of_softmax(view: View, node: Node) -> Rewrite | No | None:
    """log(softmax(x)) = log_softmax(x)."""
    softmax = view.producer(node.used[0], "Softmax")
    if softmax is None:
        return None
    if (refusal := view.enclosed(node, [softmax])) is not None:
        return refusal
    draft = view.draft(node)
    draft.node("LogSoftmax", (softmax.used[0],), softmax.attrs)
    return draft.done("Log after Softmax")


def _one_axis(
    view: View, node: Node, op: str, found: tuple[int, int, tuple[Node, ...]], more: Iterable[Node]
) -> Rewrite | No | None:
    x, axis, inner = found
    if view.type(x) != view.type(node.outputs[0]):
        return None
    swallowed = {one.outputs[0]: one for one in (*inner, *more)}
    if (refusal := view.enclosed(node, swallowed.values())) is not None:
        return refusal
    draft = view.draft(node)
    draft.node(op, (x,), {"axis": axis})
    return draft.done(f"{len(swallowed) + 1} nodes are a {op}")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Div",), softmax_by_exp),
    Rule(REASSOCIATES, ("Sub",), log_softmax_by_exp),
    Rule(REASSOCIATES, ("Log",), log_of_softmax),
)
