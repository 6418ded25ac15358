"""PadBeyond, which keeps what lies beyond a size that is known while running: one is enough for a chain of maps.

The equations write it pad_beyond(x, n, v): x below n along one axis, v from there on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod

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
MOST_NUMBERS = 8
"""That a map is tried on."""
DEPTH = 12
"""Of the maps by which a number beyond a size is found: a GELU by tanh has ten."""


def _value(node: Node) -> str:
    """What lies beyond, so that zeros of either sign differ and NaN equals NaN."""
    return repr(float(number_of(node, "value", 0)))


def _is_alike(view: View, one: Node | None, other: Node) -> bool:
    """Whether both keep what lies beyond the same size on the same axis, before which nothing differs."""
    if one is None or one.op != PAD or one.inputs[1] != other.inputs[1]:
        return False
    dims = [view.dims(node.used[0]) for node in (one, other)]
    axes = [axis_of(node, len(own)) for node, own in zip((one, other), dims, strict=True)]
    return axes[0] == axes[1] and dims[0][: axes[0] + 1] == dims[1][: axes[0] + 1]


def _keeps_axes(view: View, node: Node, other: Node) -> bool:
    """Whether a Reshape leaves the axis of a PadBeyond, and all before it, as they are."""
    if node.op != "Reshape":
        return False
    end = axis_of(other, len(view.dims(other.used[0]))) + 1
    return view.dims(node.used[0])[:end] == view.dims(node.outputs[0])[:end] == view.dims(other.used[0])[:end]


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


def pad_beyond_beside_zero(view: View, node: Node) -> Rewrite | No | None:
    """x f(pad_beyond(y, n, 0)) = x f(y), where f is a chain of maps, x = 0 beyond n, and y there a number that x f(y)
    does not show.
    """
    refused: No | None = None
    for operand in dict.fromkeys(node.used):
        chain = _chain_to_pad(view, operand, node, CHAIN)
        if not chain:
            continue
        pad, *maps = chain
        before, after = (_beyond(view, node.outputs[0], pad, DEPTH, without=each) for each in (False, True))
        if len(before) != 1 or list(before) != list(after):
            refused = refused or No("beyond the size the product would be another number")
            continue
        if (refusal := view.enclosed(node, chain)) is not None:
            refused = refused or refusal
            continue
        draft, old, new = view.draft(node), pad.outputs[0], pad.used[0]
        for one in maps:
            inputs = tuple(new if value == old else value for value in one.inputs)
            old, new = one.outputs[0], draft.node(one.op, inputs, one.attrs, one.source)
        draft.node(node.op, tuple(new if value == old else value for value in node.inputs), node.attrs)
        return draft.done("beyond the size the other factor is 0")
    return refused


def _chain_to_pad(view: View, value: int, node: Node, most: int) -> list[Node]:
    """The first PadBeyond above a value and the maps from it to the value, each of one computed operand."""
    above = view.producer(value)
    if above is None or not most or len(above.outputs) > 1 or view.dims(value) != view.dims(node.outputs[0]):
        return []
    if above.op == PAD:
        return [above]
    whole = {one for one in above.used if one not in view.constants}
    if above.op not in MAPS or len(whole) != 1:
        return []
    (operand,) = whole
    chain = _chain_to_pad(view, operand, node, most - 1)
    return [*chain, above] if chain else []


def _beyond(view: View, value: int, pad: Node, most: int, *, without: bool = False) -> Mapping[str, float]:
    """The numbers that a value may be where a PadBeyond puts its own, as constants of one element and others alike say.

    By their text, so that zeros of either sign differ; none where they are not known. `without`: what they were if that
    PadBeyond gave its operand back. There may be several where other PadBeyonds put theirs along other axes.
    """
    maker = view.producer(value)
    if maker is None or not most:
        return {}
    if without and maker is pad:
        return _beyond(view, pad.used[0], pad, most - 1, without=True)
    own = float(number_of(maker, "value", 0)) if maker.op == PAD else 0.0
    if _is_alike(view, maker, pad):
        return {repr(own): own}
    if maker.op == PAD:
        found = _beyond(view, maker.used[0], pad, most - 1, without=without)
        return {**found, repr(own): own} if found else {}
    if maker.op not in MAPS or len(maker.outputs) > 1:
        return {}
    operands: list[Sequence[np.ndarray | None]] = []
    for operand in maker.inputs:
        known = view.constant(operand)
        if operand is None or (known is not None and known.size == 1):
            operands.append([None if known is None else known.reshape(-1)])
            continue
        same = view.dims(operand) == view.dims(value)
        numbers = _beyond(view, operand, pad, most - 1, without=without) if same else {}
        operands.append([np.array([number], view.type(operand).dtype.numpy) for number in numbers.values()])
    found = {}
    for arrays in itertools.islice(itertools.product(*operands), MOST_NUMBERS + 1):
        with np.errstate(all="ignore"):
            (result,) = OPERATORS[maker.op].reference(maker, tuple(arrays))
        if result.size != 1:
            return {}
        found[repr(float(result.reshape(-1)[0]))] = float(result.reshape(-1)[0])
    return found if prod(map(len, operands)) <= MOST_NUMBERS else {}


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
    if above is None or not most or len(above.outputs) > 1:
        return []
    is_moved = _keeps_axes(view, above, node)
    if not (is_moved or above.op in MAPS or (above.op == PAD and not _is_alike(view, above, node))):
        return []
    whole = {
        one for one in above.used if (is_moved or view.dims(one) == view.dims(value)) and one not in view.constants
    }
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
    Rule(EXACT, ("Mul",), pad_beyond_beside_zero),
)
