"""Pointwise convolutions move to where there are fewer positions.

A 1x1 convolution works on channels, a pool or a resize on positions: they commute wherever the weights of each window
add up to 1, or where there is no bias. Which order is cheaper follows from the operations, which the measure counts.
"""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.ops.attributes import axes_of, ints
from compiler.rewrite.convolution import averages_padding, convolution, pool_geometry
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def pool_before_pointwise(view: View, node: Node) -> Rewrite | No | None:
    """average_pool(W x + b) = W average_pool(x) + b, where W is 1x1 and no padding is averaged, or b = 0.

    The transitions of DenseNet pool after their convolution.
    """
    producer = view.producer(node.used[0], "Conv")
    if producer is None or set(ints(producer, "strides") or (1,)) != {1}:
        return None
    conv = convolution(view, producer)
    if isinstance(conv, No):
        return conv
    if not conv.geometry.keeps_positions:
        return None
    if conv.bias is not None and node.op == "AveragePool" and averages_padding(node, pool_geometry(view, node)):
        return No("the pool averages padding, where there is no bias")
    if (refusal := view.enclosed(node, [producer])) is not None:
        return refusal
    draft = view.draft(node)
    pooled = draft.node(node.op, (conv.x,), node.attrs)
    draft.node("Conv", (pooled, *producer.inputs[1:]), producer.attrs, producer.source)
    return draft.done("the convolution runs on the positions that the pool leaves")


def pointwise_of_subsample(view: View, node: Node) -> Rewrite | No | None:
    """W x[:, :, ::s, ::s] = conv(x, W, strides s), where W is 1x1;
    a pool with windows of 1 takes every s-th position likewise.

    The shortcuts of NASNet's reductions and of ResNet v2 are exported like this.
    """
    taken = view.producer(node.used[0], "AveragePool", "MaxPool", "Slice")
    steps = None if taken is None else _steps(view, taken)
    if taken is None or steps is None:
        return None
    conv = convolution(view, node)
    if isinstance(conv, No):
        return conv
    if not conv.geometry.is_pointwise:
        return No("the kernel reads neighbours of what is taken")
    strides = tuple(outer * inner for outer, inner in zip(conv.geometry.strides, steps, strict=True))
    draft = view.draft(node)
    draft.node(
        "Conv", (taken.used[0], *node.inputs[1:]), {**conv.geometry.attrs, "strides": strides, "group": conv.groups}
    )
    return draft.done(f"the convolution takes steps of {list(steps)} itself")


def _steps(view: View, node: Node) -> tuple[int, ...] | None:
    """The steps at which a node takes positions from the first on, and nothing else; None for any other node."""
    dims = view.dims(node.used[0])
    if len(dims) < 3 or len(node.outputs) > 1:
        return None
    if node.op != "Slice":
        places = pool_geometry(view, node)
        return places.strides if places.is_pointwise else None
    axes, steps = axes_of(node, len(dims)), ints(node, "steps")
    if axes is None or steps is None or any(ints(node, "starts") or ()):
        return None
    by_axis = dict(zip(axes, steps, strict=True))
    wanted = tuple(-(-extent // by_axis.get(axis, 1)) for axis, extent in enumerate(dims))
    if min(steps) < 1 or wanted != view.dims(node.outputs[0]) or any(by_axis.get(axis, 1) > 1 for axis in (0, 1)):
        return None
    return tuple(by_axis.get(axis, 1) for axis in range(2, len(dims)))


def pointwise_before_resize(view: View, node: Node) -> Rewrite | No | None:
    """W resize(x) + b = resize(W x + b), where W is 1x1 and the weights of each new position add up to 1.

    Decoders and feature pyramids that are written as upsample, then 1x1 convolution.
    """
    resize = view.producer(node.used[0], "Resize")
    if resize is None:
        return None
    conv = convolution(view, node)
    if isinstance(conv, No):
        return conv
    if not conv.geometry.keeps_positions:
        return None
    if resize.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return No("positions outside of the image have a value of their own")
    if view.dims(resize.used[0])[:2] != view.dims(resize.outputs[0])[:2]:
        return No("it resizes channels")
    if (refusal := view.enclosed(node, [resize])) is not None:
        return refusal
    attrs, sizes, rank = dict(resize.attrs), ints(resize, "sizes"), view.type(node.used[0]).rank
    if sizes:
        axes = axes_of(resize, rank) or tuple(range(rank))
        attrs["sizes"] = tuple(conv.filters if axis == 1 else size for axis, size in zip(axes, sizes, strict=True))
    draft = view.draft(node)
    reduced = draft.node("Conv", (resize.used[0], *node.inputs[1:]), node.attrs)
    draft.node("Resize", (reduced, *resize.inputs[1:]), attrs, resize.source)
    return draft.done("the convolution runs on the positions before the resize")


RULES: tuple[Rule, ...] = (
    Rule(REASSOCIATES, ("AveragePool", "GlobalAveragePool"), pool_before_pointwise),
    Rule(EXACT, ("Conv",), pointwise_of_subsample),
    Rule(REASSOCIATES, ("Conv",), pointwise_before_resize),
)
