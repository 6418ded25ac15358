"""PadBeyond, which keeps what lies beyond a size that is known while running: one is enough for a chain of maps.

The equations write it pad_beyond(x, n, v): x below n along one axis, v from there on.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Node
from compiler.ops import OPERATORS
from compiler.ops.attributes import number_of
from compiler.ops.indices import axis_of
from compiler.rewrite.maps import MAPS
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.view import No, Rewrite, View

PAD = "PadBeyond"
CHAIN = 4
"""Maps between two PadBeyonds that are looked through."""


def _value(node: Node) -> str:
    """What lies beyond, so that zeros of either sign differ and NaN equals NaN."""
    return repr(float(number_of(node, "value", 0)))


def _is_alike(view: View, one: Node | None, other: Node) -> bool:
    """Whether both keep what lies beyond the same size on the same axis."""
    if one is None or one.op != PAD or one.inputs[1] != other.inputs[1]:
        return False
    ranks = [len(view.dims(node.used[0])) for node in (one, other)]
    return ranks[0] == ranks[1] and axis_of(one, ranks[0]) == axis_of(other, ranks[1])


def pad_beyond_again(view: View, node: Node) -> Rewrite | No | None:
    """pad_beyond(pad_beyond(x, n, u), n, v) = pad_beyond(x, n, v)."""
    inner = view.producer(node.used[0], PAD)
    if inner is None or not _is_alike(view, inner, node):
        return None
    if _value(inner) == _value(node):
        return view.draft(node).same(inner.outputs[0], why="beyond the size there is that number already")
    if (refusal := view.enclosed(node, [inner])) is not None:
        return refusal
    draft = view.draft(node)
    draft.node(PAD, (inner.used[0], *node.inputs[1:]), node.attrs)
    return draft.done("what lies beyond the size is given another number at once")


def pad_beyond_of_zeros(view: View, node: Node) -> Rewrite | No | None:
    """pad_beyond(f(pad_beyond(x, n, 0), pad_beyond(y, n, 0)), n, 0) = f(pad_beyond(x, n, 0), pad_beyond(y, n, 0)),
    where f is a chain of maps and f(0, 0) = 0.
    """
    if not _is_after(view, node.used[0], node, CHAIN):
        return None
    if _value(node) != "0.0":
        return No("beyond the size there must be another number than 0")
    if not _is_zero(view, node.used[0], node, CHAIN):
        return No("beyond the size the map may give another number than 0")
    return view.draft(node).same(node.used[0], why="beyond the size there are zeros already")


def _is_after(view: View, value: int, node: Node, most: int) -> bool:
    """Whether maps make a value from what a PadBeyond of the same size on the same axis keeps."""
    above = view.producer(value)
    if above is None or above.op not in MAPS or not most or view.dims(value) != view.dims(node.used[0]):
        return False
    makers = [view.producer(operand) for operand in above.used]
    return any(
        maker is not None and (_is_alike(view, maker, node) or _is_after(view, operand, node, most - 1))
        for operand, maker in zip(above.used, makers, strict=True)
    )


def _is_zero(view: View, value: int, node: Node, most: int) -> bool:
    """Whether a value is 0 wherever a PadBeyond puts it, as zeros of operands and constants of one element say."""
    if (maker := view.producer(value)) is None:
        return False
    if _is_alike(view, maker, node):
        return _value(maker) == "0.0"
    if maker.op not in MAPS or not most or view.dims(value) != view.dims(node.used[0]) or len(maker.outputs) > 1:
        return False
    operands: list[np.ndarray | None] = []
    for operand in maker.inputs:
        known = view.constant(operand)
        if operand is None or (known is not None and known.size == 1):
            operands.append(None if known is None else known.reshape(-1))
        elif view.dims(operand) == view.dims(value) and _is_zero(view, operand, node, most - 1):
            operands.append(np.zeros(1, view.type(operand).dtype.numpy))
        else:
            return False
    with np.errstate(all="ignore"):
        (result,) = OPERATORS[maker.op].reference(maker, tuple(operands))
    return result.size == 1 and repr(float(result.reshape(-1)[0])) == "0.0"


def pad_beyond_of_map(view: View, node: Node) -> Rewrite | No | None:
    """pad_beyond(f(pad_beyond(x, n, u)), n, v) = pad_beyond(f(x), n, v), where f is a chain of maps of one operand."""
    chain = _chain_above(view, node.used[0], node, CHAIN)
    if not chain:
        return None
    if (refusal := view.enclosed(node, chain)) is not None:
        return refusal
    inner, *maps = chain
    draft, old, new = view.draft(node), inner.outputs[0], inner.used[0]
    for one in maps:
        inputs = tuple(new if value == old else value for value in one.inputs)
        old, new = one.outputs[0], draft.node(one.op, inputs, one.attrs, one.source)
    draft.node(PAD, (new, *node.inputs[1:]), node.attrs)
    return draft.done("what lies beyond the size is given its number once, at the end")


def _chain_above(view: View, value: int, node: Node, most: int) -> list[Node]:
    """A PadBeyond of the same size on the same axis, and the maps from it to a value, in order; empty if none is.

    Each has one operand that is computed and as large, so that one kernel does all of them: where several kernels
    meet, each must know what it need not compute.
    """
    above = view.producer(value)
    is_map = above is not None and (above.op in MAPS or (above.op == PAD and not _is_alike(view, above, node)))
    if above is None or not is_map or not most or len(above.outputs) > 1:
        return []
    whole = {one for one in above.used if view.dims(one) == view.dims(value) and one not in view.constants}
    if len(whole) != 1:
        return []
    (operand,) = whole
    maker = view.producer(operand, PAD)
    if maker is not None and _is_alike(view, maker, node):
        return [maker, above]
    chain = _chain_above(view, operand, node, most - 1)
    return [*chain, above] if chain else []


RULES: tuple[Rule, ...] = (
    Rule(EXACT, (PAD,), pad_beyond_again),
    Rule(EXACT, (PAD,), pad_beyond_of_zeros),
    Rule(EXACT, (PAD,), pad_beyond_of_map),
)
