"""Explicit Pads that a window's own padding can do."""

from __future__ import annotations

from compiler.ir.graph import Attr, Node
from compiler.ops import having
from compiler.ops.attributes import ints
from compiler.ops.traits import Trait
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def pads_of(node: Node, rank: int) -> tuple[tuple[int, int], ...]:
    """What a Pad adds before and after each axis."""
    pads = ints(node, "pads") or ()
    axes = ints(node, "axes") or tuple(range(rank))
    found = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        found[axis % rank] = (pads[place], pads[place + len(axes)])
    return tuple(found)


def pad_of_nothing(view: View, node: Node) -> Rewrite | No | None:
    """pad(x, 0) = x."""
    if any(pad != (0, 0) for pad in pads_of(node, view.type(node.used[0]).rank)):
        return None
    return view.draft(node).same(node.used[0], why="nothing is padded")


def _constant_of(pad: Node) -> float | None:
    """The number that a Pad puts around its operand; None where it repeats elements instead."""
    value = pad.attrs.get("constant_value", 0.0)
    value = value[0] if isinstance(value, tuple) and value else value
    if pad.attrs.get("mode", "constant") != "constant" or not isinstance(value, int | float):
        return None
    return float(value)


def pad_of_pad(view: View, node: Node) -> Rewrite | No | None:
    """pad(pad(x, p), q) = pad(x, p + q), where both pad with the same number."""
    inner = view.producer(node.used[0], "Pad")
    if inner is None:
        return None
    if (refusal := view.enclosed(node, [inner])) is not None:
        return refusal
    number = _constant_of(node)
    if number is None or repr(_constant_of(inner)) != repr(number) or len(inner.used) > 1 or len(node.used) > 1:
        return No("they do not pad with the same number")
    rank = view.type(node.used[0]).rank
    both = list(zip(pads_of(inner, rank), pads_of(node, rank), strict=True))
    if any(extent < 0 for pair in both for begin_end in pair for extent in begin_end):
        return No("a negative pad cuts instead")
    pads = (*(a[0] + b[0] for a, b in both), *(a[1] + b[1] for a, b in both))
    draft = view.draft(node)
    attrs = {name: value for name, value in node.attrs.items() if name != "axes"}
    draft.node("Pad", (inner.used[0], *node.inputs[1:]), {**attrs, "pads": pads})
    return draft.done("two Pads become one")


def _zeros_around(view: View, node: Node) -> tuple[Node, tuple[tuple[int, int], ...]] | No | None:
    """The Pad that makes the node's input, and its pads of the spatial axes."""
    pad = view.producer(node.used[0], "Pad")
    if pad is None:
        return None
    pads = pads_of(pad, view.type(pad.used[0]).rank)
    value = pad.attrs.get("constant_value")
    value = value[0] if isinstance(value, tuple) and value else value
    if pad.attrs.get("mode", "constant") != "constant" or value:
        return No("it pads with something else than zeros")
    if any(extent for begin_end in pads[:2] for extent in begin_end):
        return No("it pads the batch or the channels")
    if any(extent < 0 for begin_end in pads for extent in begin_end):
        return No("a negative pad cuts instead")
    return view.enclosed(node, [pad]) or (pad, pads[2:])


def _with_pads(node: Node, more: tuple[tuple[int, int], ...]) -> dict[str, Attr] | No:
    """The node's attributes with wider explicit pads."""
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return No(f"auto_pad {node.attrs['auto_pad']} depends on the extent that the Pad changes")
    own = (ints(node, "pads") if node.attrs.get("auto_pad", "NOTSET") == "NOTSET" else None) or (0,) * (2 * len(more))
    added = (*(begin for begin, _ in more), *(end for _, end in more))
    return {**node.attrs, "auto_pad": "NOTSET", "pads": tuple(a + b for a, b in zip(own, added, strict=True))}


def pad_into_conv(view: View, node: Node) -> Rewrite | No | None:
    """conv(pad(x, p), pads=q) = conv(x, pads=p + q), where p pads spatial axes with zeros."""
    found = _zeros_around(view, node)
    if found is None or isinstance(found, No):
        return found
    pad, more = found
    attrs = _with_pads(node, more)
    if isinstance(attrs, No):
        return attrs
    draft = view.draft(node)
    draft.node("Conv", (pad.used[0], *node.inputs[1:]), attrs)
    return draft.done("the Conv pads its input itself")


def pad_into_average_pool(view: View, node: Node) -> Rewrite | No | None:
    """average_pool(pad(x, p), pads=q) = average_pool(x, pads=p + q), where both count zeros and p is spatial."""
    found = _zeros_around(view, node)
    if found is None or isinstance(found, No):
        return found
    pad, more = found
    if node.attrs.get("ceil_mode", 0):
        return No("with ceil_mode a window may reach past the padding")
    if not node.attrs.get("count_include_pad", 0) and (
        any(ints(node, "pads") or ()) or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    ):
        return No("the pool counts the zeros of the Pad, but not its own")
    attrs = _with_pads(node, more)
    if isinstance(attrs, No):
        return attrs
    draft = view.draft(node)
    draft.node("AveragePool", (pad.used[0],), {**attrs, "count_include_pad": 1})
    return draft.done("the pool pads its input itself")


NOT_NEGATIVE = having(Trait.NOT_NEGATIVE)


def pad_into_max_pool(view: View, node: Node) -> Rewrite | No | None:
    """max_pool(pad(x, p, c), pads=q) = max_pool(x, pads=p + q), where c is -inf, or 0 and no x is below it, and p is spatial.

    Keras pads between the Relu and the pool of its ResNets. Every window must hold an element of x.
    """
    pad = view.producer(node.used[0], "Pad")
    if pad is None or len(node.outputs) > 1:
        return None
    number, x = _constant_of(pad), pad.used[0]
    if number != float("-inf") and not (number == 0 and view.producer(x, *NOT_NEGATIVE)):
        return No("it pads with what may be the greatest of a window")
    pads = pads_of(pad, view.type(x).rank)
    if any(extent for begin_end in pads[:2] for extent in begin_end):
        return No("it pads the batch or the channels")
    if any(extent < 0 for begin_end in pads for extent in begin_end):
        return No("a negative pad cuts instead")
    if (refusal := view.enclosed(node, [pad])) is not None:
        return refusal
    attrs = _with_pads(node, pads[2:])
    if isinstance(attrs, No):
        return attrs
    kernel, whole = ints(node, "kernel_shape") or (), ints(Node("", (), (), attrs), "pads") or ()
    if node.attrs.get("ceil_mode", 0) or any(
        extent >= kernel[place % len(kernel)] for place, extent in enumerate(whole)
    ):
        return No("a window may lie in the padding")
    if any(dilation != 1 for dilation in ints(node, "dilations") or ()):
        return No("a dilated window may miss what lies beside the padding")
    draft = view.draft(node)
    draft.node("MaxPool", (x,), attrs)
    return draft.done("the pool pads its input itself")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Pad",), pad_of_nothing),
    Rule(EXACT, ("Pad",), pad_of_pad),
    Rule(EXACT, ("Conv",), pad_into_conv),
    Rule(EXACT, ("AveragePool",), pad_into_average_pool),
    Rule(REASSOCIATES, ("MaxPool",), pad_into_max_pool),
)
