"""Convolutions of convolutions, sums of convolutions of one input, and what is a convolution by another name.

All are linear, so two of them in a row, or two that are added, are one with other weights. Whether that one is cheaper
is decided by the measure, which counts operations: a small kernel disappears in a large one, but a narrow tensor
between two wide ones stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from compiler.ir.graph import Node
from compiler.ops.attributes import ints
from compiler.rewrite.composition import composed
from compiler.rewrite.convolution import (
    Geometry,
    around,
    averages_padding,
    convolution,
    embedded,
    pool_geometry,
    with_groups,
    write_convolution,
)
from compiler.rewrite.gain import operations
from compiler.rewrite.passage import spread
from compiler.rewrite.rounding import wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def conv_of_conv(view: View, node: Node) -> Rewrite | No | None:
    """W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2), where one of the kernels is 1x1, and operations are not more.

    A kernel after a 1x1 may not read padding, which holds zeros and not b1. Low-rank factors of a layer are exported
    like this, and the branches of a diverse branch block (arXiv 2103.13425).
    """
    return composed(view, node, 1.0)


@dataclass(frozen=True)
class _Branch:
    """W x + b as a branch of a sum computes it, in float64, and the nodes that do."""

    x: int
    weights: np.ndarray
    bias: np.ndarray
    groups: int
    geometry: Geometry
    nodes: tuple[Node, ...]


def sum_of_convolutions(view: View, node: Node) -> Rewrite | No | None:
    """(V x + a) + (W x + b) = (V + W) x + (a + b),
    where branches are convolutions, average pools, scales and shifts of x, and x itself.

    Networks trained with parallel branches are exported like this: RepVGG (arXiv 2101.03697), MobileOne, ACNet.
    """
    if view.type(node.outputs[0]).rank < 3 or not view.type(node.outputs[0]).dtype.is_float:
        return None
    if len({view.type(value) for value in (*node.used, *node.outputs)}) > 1:
        return No("one branch is broadcast to the other")
    for one, other in (node.used, node.used[::-1]):
        main = view.producer(one, "Conv")
        conv = None if main is None else convolution(view, main)
        if main is None or conv is None or isinstance(conv, No):
            continue
        first = _Branch(conv.x, wide(conv.weights), conv.wide_bias, conv.groups, conv.geometry, (main,))
        second = _branch(view, other, first)
        if second is not None:
            return _added(view, node, first, second)
    return None


def _branch(view: View, value: int, main: _Branch) -> _Branch | None:
    """A value as a branch that reads what `main` reads; None where it is no such branch."""
    node = view.producer(value)
    if value == main.x:
        return _identity(view, value)
    if node is None:
        return None
    if node.op == "Conv":
        conv = convolution(view, node)
        if isinstance(conv, No) or conv.x != main.x:
            return None
        return _Branch(conv.x, wide(conv.weights), conv.wide_bias, conv.groups, conv.geometry, (node,))
    if node.op == "AveragePool" and node.used[0] == main.x:
        geometry = pool_geometry(view, node)
        if node.attrs.get("ceil_mode", 0) or (geometry.is_padded and not averages_padding(node, geometry)):
            return None
        channels = view.dims(main.x)[1]
        weights = np.full((channels, 1, *geometry.kernel), 1 / prod(geometry.kernel))
        return _Branch(main.x, weights, np.zeros(channels), channels, geometry, (node,))
    if node.op in ("Mul", "Add"):
        return _scaled_or_shifted(view, node, main)
    return None


def _identity(view: View, x: int) -> _Branch:
    channels, rank = view.dims(x)[1], len(view.dims(x)) - 2
    ones, zeros = (1,) * rank, (0,) * rank
    geometry = Geometry(ones, ones, ones, zeros, zeros)
    return _Branch(x, np.ones((channels, 1, *ones)), np.zeros(channels), channels, geometry, ())


def _scaled_or_shifted(view: View, node: Node, main: _Branch) -> _Branch | None:
    """s * x or x + t, with one number for each channel."""
    for value, array in view.operands(node):
        inner = _branch(view, value, main) if view.type(value) == view.type(node.outputs[0]) else None
        factor = spread(array, view.dims(node.outputs[0]))
        if inner is None or isinstance(factor, No) or factor.size != factor.shape[1]:
            continue
        factor = np.broadcast_to(factor.reshape(-1), (len(inner.bias),))
        nodes = (*inner.nodes, node)
        if node.op == "Add":
            return replace(inner, bias=inner.bias + factor, nodes=nodes)
        rows = factor.reshape(-1, *(1,) * (inner.weights.ndim - 1))
        return replace(inner, weights=inner.weights * rows, bias=inner.bias * factor, nodes=nodes)
    return None


def _added(view: View, node: Node, first: _Branch, second: _Branch) -> Rewrite | No:
    """The convolution of which the kernel holds those of both."""
    if len(first.bias) != len(second.bias) or view.dims(node.outputs[0]) != view.dims(first.nodes[0].outputs[0]):
        return No("the branches have different numbers of channels")
    geometry = around(first.geometry, second.geometry, view.dims(first.x)[2:], view.dims(node.outputs[0])[2:])
    if isinstance(geometry, No):
        return geometry
    if (refusal := view.enclosed(node, [*first.nodes, *second.nodes])) is not None:
        return refusal
    groups = gcd(first.groups, second.groups)
    apart = sum(operations(each, view.type) for each in (*first.nodes, *second.nodes))
    together = 2 * view.type(node.outputs[0]).elements * view.dims(first.x)[1] // groups * prod(geometry.kernel)
    if together > apart:
        return No("one convolution in the place of the two would take more operations")
    total = np.zeros(1)
    for branch in (first, second):
        weights = with_groups(branch.weights, branch.groups, groups)
        ahead = zip(geometry.before, branch.geometry.before, geometry.dilations, strict=True)
        at = tuple((most - own) // step for most, own, step in ahead)
        total = total + embedded(weights, geometry.kernel, at)
    draft = view.draft(node)
    written = write_convolution(draft, first.x, total, first.bias + second.bias, groups, geometry)
    return written if isinstance(written, No) else draft.done("branches of one input become one convolution")


def transposed_convolution_of_stride_one(view: View, node: Node) -> Rewrite | No | None:
    """conv_transpose(x, W) = conv(x, W mirrored), where the stride is 1: most of the decoder of GTCRN."""
    weights = view.constant(node.inputs[1])
    rank = view.type(node.used[0]).rank - 2
    if set(ints(node, "strides") or (1,)) != {1}:
        return None
    if weights is None:
        return No("the weights are not constant")
    if any(ints(node, "output_padding") or ()) or node.attrs.get("output_shape") is not None:
        return No("its extent is asked for, and not what follows from the kernel")
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return No(f"auto_pad is {node.attrs['auto_pad']}")
    dilations = ints(node, "dilations") or (1,) * rank
    pads = (ints(node, "pads") if node.attrs.get("auto_pad", "NOTSET") == "NOTSET" else None) or (0,) * (2 * rank)
    taps = weights.shape[2:]
    beyond = [step * (extent - 1) - pad for step, extent, pad in zip(dilations * 2, taps * 2, pads, strict=True)]
    if min(beyond) < 0:
        return No("it cuts off more than the kernel adds")
    groups = node.attrs.get("group", 1)
    assert isinstance(groups, int)
    blocks = weights.reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)
    mirrored = np.flip(blocks, tuple(range(3, 3 + rank))).reshape(-1, weights.shape[0] // groups, *taps)
    geometry = Geometry(taps, (1,) * rank, dilations, tuple(beyond[:rank]), tuple(beyond[rank:]))
    draft = view.draft(node)
    constant = draft.constant(np.ascontiguousarray(mirrored))
    draft.node("Conv", (node.used[0], constant, *node.inputs[2:]), {**geometry.attrs, "group": groups})
    return draft.done("a transposed convolution of stride 1 is a convolution")


def conv_of_space_to_depth(view: View, node: Node) -> Rewrite | No | None:
    """W space_to_depth(x, b) = W' x, with a kernel and strides b times as large.

    The Focus stem of YOLOv5 (TResNet's is the same): as many multiplications, and no copy of the image.
    """
    moved = view.producer(node.used[0], "SpaceToDepth")
    if moved is None:
        return None
    conv = convolution(view, node)
    if isinstance(conv, No):
        return conv
    one, block = conv.geometry, moved.attrs["blocksize"]
    assert isinstance(block, int)
    if conv.groups != 1 or set(one.dilations) != {1}:
        return No("it has groups or is dilated")
    if (refusal := view.enclosed(node, [moved])) is not None:
        return refusal
    filters, channels = conv.filters, conv.channels // block**2
    parts = conv.weights.reshape(
        filters, block, block, channels, *one.kernel
    )  # the offset in a block comes before the channel
    weights = np.ascontiguousarray(parts.transpose(0, 3, 4, 1, 5, 2))
    wider = [tuple(block * extent for extent in each) for each in (one.kernel, one.strides, one.before, one.after)]
    geometry = Geometry(wider[0], wider[1], one.dilations, wider[2], wider[3])
    draft = view.draft(node)
    constant = draft.constant(weights.reshape(filters, channels, *geometry.kernel))
    draft.node("Conv", (moved.used[0], constant, *node.inputs[2:]), {**geometry.attrs, "group": 1})
    return draft.done("the blocks become part of the kernel")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("Conv",), conv_of_conv),
    Rule(REASSOCIATES, ("Conv",), conv_of_space_to_depth),
    Rule(REASSOCIATES, ("ConvTranspose",), transposed_convolution_of_stride_one),
    Rule(REASSOCIATES, ("Add",), sum_of_convolutions),
)
