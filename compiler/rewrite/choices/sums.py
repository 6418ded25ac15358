"""Sums of convolutions and of products made one, and convolutions taken apart into sums.

    W x + V y = [W V] concat(x, y)

In memory the operands of a Concat lie side by side from the start, so neither side copies anything. On the left there
are two kernels with short sums and an addition, on the right there is one kernel with long sums (the joined separable
sums of TASO, SOSP 2019).
"""

from __future__ import annotations

from math import prod

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.convolution import (
    Convolution,
    around,
    convolution,
    stacked,
)
from compiler.rewrite.rounding import rounded
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.rules.splits import MAPS, signature
from compiler.rewrite.view import No, Rewrite, View

GROWTH = 3
"""How many times its taps a depthwise kernel may have in a larger one: a 3x3 in a 5x5."""
PARTS = 4
"""Into how many convolutions one is taken apart at most."""


def joined_convolutions(view: View, node: Node) -> Rewrite | No | None:
    """conv(x, V) + conv(y, W) = conv(concat(x, y), concat(V, W)), where the windows are equal."""
    nodes = [view.producer(value, "Conv") for value in node.used]
    if any(each is None for each in nodes) or nodes[0] is nodes[1]:
        return None
    convs = [convolution(view, each) for each in nodes if each is not None]
    for conv in convs:
        if isinstance(conv, No):
            return conv
    one, two = (conv for conv in convs if isinstance(conv, Convolution))
    if one.geometry != two.geometry or view.type(one.node.outputs[0]) != view.type(two.node.outputs[0]):
        return No("the windows of the convolutions differ")
    if one.groups != 1 or two.groups != 1:
        return No("the channels of groups would not lie side by side")
    if view.dims(one.x)[2:] != view.dims(two.x)[2:] or view.dims(one.x)[0] != view.dims(two.x)[0]:
        return No("the inputs have different extents")
    if (refusal := view.enclosed(node, [one.node, two.node])) is not None:
        return refusal
    draft = view.draft(node)
    joined = draft.node("Concat", (one.x, two.x), {"axis": 1})
    inputs = [joined, draft.constant(np.concatenate([one.weights, two.weights], 1))]
    bias = rounded(one.wide_bias + two.wide_bias, view.type(node.outputs[0]).dtype)
    if isinstance(bias, No):
        return bias
    if bias.any():
        inputs.append(draft.constant(bias))
    draft.node("Conv", tuple(inputs), {**one.geometry.attrs, "group": 1})
    return draft.done("two convolutions that are added become one over both inputs")


def joined_products(view: View, node: Node) -> Rewrite | No | None:
    """x V + y W = concat(x, y) concat(V, W), the weights constant: the two products of a recurrent cell."""
    products = [view.producer(value, "MatMul") for value in node.used]
    if any(product is None for product in products) or products[0] is products[1]:
        return None
    one, two = (product for product in products if product is not None)
    weights = [view.constant(product.used[1]) for product in (one, two)]
    if any(array is None or array.ndim != 2 for array in weights):
        return No("the weights are not constant matrices")
    x, y = view.dims(one.used[0]), view.dims(two.used[0])
    if x[:-1] != y[:-1] or view.type(one.outputs[0]) != view.type(two.outputs[0]) or len(x) < 2:
        return No("the inputs have different rows")
    if (refusal := view.enclosed(node, [one, two])) is not None:
        return refusal
    draft = view.draft(node)
    joined = draft.node("Concat", (one.used[0], two.used[0]), {"axis": len(x) - 1})
    draft.node("MatMul", (joined, draft.constant(np.concatenate([each for each in weights if each is not None]))))
    return draft.done("two products that are added become one")


def joined_branches(view: View, node: Node) -> Rewrite | No | None:
    """concat(f(conv(x, V)), f(conv(y, W))) = f(conv(concat(x, y), concat(V, W))) in groups, f a map or nothing,
    where groups have equal channels; smaller kernels are filled up by zeros.

    What `joined_convolutions` leaves of two separable convolutions that are added, and groups written as branches:
    ResNeXt and AlexNet as exporters wrote them for libraries without grouped convolutions.
    """
    makers = [maker for value in node.used if (maker := view.producer(value)) is not None]
    maps = [maker for maker in makers if maker.op in MAPS]
    if maps:
        if len({signature(map) for map in maps}) > 1 or len(maps) < len(makers):
            return None
        makers = [maker for map in maps if (maker := view.producer(map.used[0])) is not None]
    if len(makers) < len(node.used) or any(maker.op != "Conv" for maker in makers):
        return None
    if node.attrs.get("axis") not in (1, 1 - view.type(node.used[0]).rank):
        return None
    convs: list[Convolution] = []
    for maker in makers:
        conv = convolution(view, maker)
        if isinstance(conv, No):
            return conv
        convs.append(conv)
    if len({(conv.channels // conv.groups, conv.filters // conv.groups) for conv in convs}) > 1:
        return No("their groups have other channels or filters")
    geometry = convs[0].geometry
    extents, outputs = view.dims(convs[0].x)[2:], view.dims(node.outputs[0])[2:]
    for conv in convs:
        wider = around(geometry, conv.geometry, extents, outputs)
        if isinstance(wider, No) or view.dims(conv.x)[2:] != extents:
            return No("the windows do not fit into one")
        geometry = wider
    if any(prod(geometry.kernel) > GROWTH * prod(conv.geometry.kernel) for conv in convs):
        return No("a kernel would have to grow too much")
    if (refusal := view.enclosed(node, [*makers, *maps])) is not None:
        return refusal
    draft = view.draft(node)
    joined = draft.node("Concat", tuple(conv.x for conv in convs), {"axis": 1})
    constants = [draft.constant(array) for array in stacked(convs, geometry) if array is not None]
    whole = draft.node("Conv", (joined, *constants), {**geometry.attrs, "group": sum(conv.groups for conv in convs)})
    if maps:
        draft.node(maps[0].op, (whole, *maps[0].inputs[1:]), maps[0].attrs, maps[0].source)
    return draft.done(f"{len(convs)} convolutions side by side become groups of one")


def convolution_of_concat_apart(view: View, node: Node) -> Rewrite | No | None:
    """conv(concat(x, y), W) = conv(x, V) + conv(y, U), where V and U are the parts of W."""
    concat = view.producer(node.used[0], "Concat")
    if concat is None or concat.attrs.get("axis") not in (1, 1 - view.type(node.used[0]).rank):
        return None
    conv = convolution(view, node)
    if isinstance(conv, No):
        return conv
    if conv.groups != 1:
        return No("its groups are apart already")
    if len(concat.used) > PARTS:
        return No(f"the Concat joins {len(concat.used)} tensors")
    if (refusal := view.enclosed(node, [concat])) is not None:
        return refusal
    draft, begin, total = view.draft(node), 0, None
    for x in concat.used:
        end = begin + view.dims(x)[1]
        inputs = [x, draft.constant(np.ascontiguousarray(conv.weights[:, begin:end]))]
        part = draft.node("Conv", (*inputs, *(node.inputs[2:] if total is None else ())), node.attrs)
        total = part if total is None else draft.node("Add", (total, part))
        begin = end
    return draft.done(f"the convolution of a Concat becomes a sum of {len(concat.used)}")


CHOICES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Add",), joined_convolutions),
    Rule(REASSOCIATES, ("Add",), joined_products),
    Rule(REASSOCIATES, ("Concat",), joined_branches),
    Rule(REASSOCIATES, ("Conv",), convolution_of_concat_apart),
)
