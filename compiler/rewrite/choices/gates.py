"""Gates of channels moved from activations to weights."""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def gate_into_weights(view: View, node: Node) -> Rewrite | No | None:
    """conv(g * x, w) = conv(x, g * w), where g is one number for each channel of one image, known at run time.

    Squeeze-and-excitation (Hu et al., CVPR 2018) scales the channels of an image right before a convolution. An image
    with more pixels than the convolution has filters is the larger of the two things that may be scaled.
    """
    gated = view.producer(node.used[0], "Mul")
    if gated is None:
        return None
    weights = view.constant(node.inputs[1])
    for x, gate in (gated.used, gated.used[::-1]):
        dims = view.dims(x)
        if view.type(x) != view.type(gated.outputs[0]) or gate in view.constants:
            continue
        if view.dims(gate) != (1, dims[1], *(1,) * (len(dims) - 2)):
            continue
        if weights is None:
            return No(f"the weights %{node.inputs[1]} of Conv are not constant")
        if node.attrs.get("group", 1) != 1:
            return No("its filters do not read all channels")
        if (refusal := view.enclosed(node, [gated])) is not None:
            return refusal
        draft = view.draft(node)
        scaled = draft.node("Mul", (node.inputs[1], gate), {}, gated.source)
        draft.node("Conv", (x, scaled, *node.inputs[2:]), node.attrs, node.source)
        return draft.done("the gate scales the weights instead of the image")
    return None


CHOICES: tuple[Rule, ...] = (Rule(REASSOCIATES, ("Conv",), gate_into_weights),)
