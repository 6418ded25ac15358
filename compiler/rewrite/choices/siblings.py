"""Operators of the same input made one: wider weights, results cut out of what they give.

The merge of IOS (Ding et al., MLSys 2021): fewer and larger kernels, and the input is read once. What follows all parts
alike (a bias, an activation) is then done once as well, by the rules of `rules.splits`, and a Concat of the parts in
their order disappears.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.convolution import Convolution, Geometry, around, convolution, stacked
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.splits import MAPS, signature, write_split
from compiler.rewrite.view import Draft, No, Rewrite, View

GROWTH = 9
"""How many times its taps a kernel may have in a larger one: a 1x1 in a 3x3."""
MORE_TAPS = 3
"""The same of a depthwise kernel, which is never a 1x1: a 3x3 in a 5x5."""


def merged_convolutions(view: View, node: Node) -> Rewrite | No | None:
    """conv(x, V), conv(x, W) = split(conv(x, concat(V, W))), where the windows are equal."""
    found = _convolutions(view, node)
    if found is None or isinstance(found, No):
        return found
    own = next(conv for conv in found if conv.node is node)
    same = [conv for conv in found if conv.geometry == own.geometry]
    if len(same) < 2:
        return No("the windows of its siblings differ")
    return _merged(view, node, same, own.geometry) if same[0].node is node else None


def widened_convolutions(view: View, node: Node) -> Rewrite | No | None:
    """conv(x, V), conv(x, W) = split(conv(x, concat(V, W))),
    where the kernel of V is filled up to that of W by zeros.
    """
    found = _convolutions(view, node)
    if found is None or isinstance(found, No):
        return found
    first, *others = found
    extents, outputs = view.dims(first.x)[2:], view.dims(first.node.outputs[0])[2:]
    together, geometry = [first], first.geometry
    for other in others:
        wider = around(geometry, other.geometry, extents, outputs)
        if isinstance(wider, No) or view.dims(other.node.outputs[0])[2:] != outputs:
            continue
        if all(prod(wider.kernel) <= GROWTH * prod(conv.geometry.kernel) for conv in (*together, other)):
            together, geometry = [*together, other], wider
    if len({conv.geometry for conv in together}) < 2:
        return No("no window holds those of its siblings")
    return _merged(view, node, together, geometry) if first.node is node else None


def _convolutions(view: View, node: Node) -> list[Convolution] | No | None:
    """The convolutions of the node's input with one group and constant weights; a refusal if it is the only one."""
    siblings = _in_order(view, [other for other in view.readers(node.used[0]) if other.op == node.op])
    if len(siblings) < 2:
        return None
    own = _follower(view, node)
    siblings = [other for other in siblings if _follower(view, other) == own]
    if len(siblings) < 2:
        return No("something else becomes of its siblings")
    if node.attrs.get("group", 1) != 1:
        return No("the outputs of its groups would not lie side by side")
    found = []
    for sibling in siblings:
        conv = convolution(view, sibling) if sibling.used[0] == node.used[0] else No("it is the weights")
        if isinstance(conv, No):
            if sibling is node:
                return conv
        elif conv.groups == 1:
            found.append(conv)
    return found if len(found) > 1 else No("its siblings have groups, or weights that are not constant")


def _in_order(view: View, nodes: Sequence[Node]) -> list[Node]:
    """The order in which a Concat joins what nodes lead to, so that it finds their parts in place; else by name."""
    return sorted(nodes, key=lambda node: (_end(view, node), node.outputs[0]))


def _end(view: View, node: Node) -> tuple[int, int]:
    """The Concat that a node's result ends in by way of maps, and its place there."""
    value = node.outputs[0]
    while len(readers := view.readers(value)) == 1:
        (reader,) = readers
        if reader.op == "Concat":
            return reader.outputs[0], reader.used.index(value)
        if reader.op not in (*MAPS, "Add", "Mul"):
            break
        value = reader.outputs[0]
    return -1, 0


def _follower(view: View, node: Node) -> tuple[object, ...]:
    """What becomes of a node's result: nodes that agree in it can go on as one.

    A part that a Concat takes would be copied out of the whole, and a map that is not that of all parts needs a kernel
    of its own.
    """
    readers = view.readers(node.outputs[0])
    concat, _ = _end(view, node)
    if len(readers) == 1 and readers[0].op in MAPS:
        return concat, signature(readers[0])
    constant = len(readers) == 1 and readers[0].op in ("Add", "Mul") and any(True for _ in view.operands(readers[0]))
    return concat, readers[0].op if constant else ""


def _merged(view: View, node: Node, convs: Sequence[Convolution], geometry: Geometry) -> Rewrite | No:
    """One convolution with the filters of all, and the parts of its result."""
    if any(conv.x != convs[0].x or len(conv.node.outputs) > 1 for conv in convs):
        return No("it has other inputs")
    draft = view.draft(node)
    constants = [draft.constant(array) for array in stacked(convs, geometry) if array is not None]
    whole = draft.node("Conv", (convs[0].x, *constants), {**geometry.attrs, "group": 1})
    return _parts(draft, [conv.node for conv in convs], whole, 1, "convolutions")


def merged_separables(view: View, node: Node) -> Rewrite | No | None:
    """V depthwise(x, A), W depthwise(x, B) = split([V 0; 0 W] depthwise(x, A and B)),
    with several filters for each channel.

    The branches of a NASNet cell that read one tensor. The zeros multiply the operations of the 1x1 convolutions; where
    tensors are small, kernels that are not launched count for more.
    """
    own = _separable(view, node)
    if own is None or isinstance(own, No):
        return own
    x, follower = own[0].x, _follower(view, node)
    pairs = [own]
    for other in view.readers(x):
        for reader in view.readers(other.outputs[0]):
            pair = _separable(view, reader) if reader is not node and other.op == "Conv" else None
            if pair is not None and not isinstance(pair, No) and pair[0].x == x and _follower(view, reader) == follower:
                pairs.append(pair)
    if len(pairs) < 2:
        return No("no sibling of it goes on in the same way")
    order = _in_order(view, [outer.node for _, outer in pairs])
    pairs.sort(key=lambda pair: order.index(pair[1].node))
    depthwise, pointwise = [inner for inner, _ in pairs], [outer for _, outer in pairs]
    geometry = _window(view, depthwise)
    if isinstance(geometry, No) or len({conv.geometry for conv in pointwise}) > 1:
        return geometry if isinstance(geometry, No) else No("the 1x1 convolutions have different strides")
    if pointwise[0].node is not node:
        return None
    draft, count, channels = view.draft(node), len(pairs), own[0].channels
    regrouped = [  # the filters of a channel stand side by side
        np.ascontiguousarray(array.reshape(count, channels, *array.shape[1:]).swapaxes(0, 1)).reshape(array.shape)
        for array in stacked(depthwise, geometry)
        if array is not None
    ]
    filtered = draft.node(
        "Conv", (x, *(draft.constant(array) for array in regrouped)), {**geometry.attrs, "group": channels}
    )
    rows, biases = stacked(pointwise, pointwise[0].geometry)
    weights, begin = np.zeros((len(rows), channels, count), rows.dtype), 0
    for place, conv in enumerate(pointwise):
        weights[begin : begin + conv.filters, :, place] = conv.weights.reshape(conv.filters, channels)
        begin += conv.filters
    constants = [draft.constant(weights.reshape(len(rows), -1, *(1,) * geometry.rank))]
    constants += [] if biases is None else [draft.constant(biases)]
    whole = draft.node("Conv", (filtered, *constants), {**pointwise[0].geometry.attrs, "group": 1})
    return _parts(draft, [conv.node for conv in pointwise], whole, 1, "separable convolutions")


def _separable(view: View, node: Node) -> tuple[Convolution, Convolution] | No | None:
    """The depthwise convolution that only this node, a 1x1 convolution, reads, and the node; None for others."""
    maker = view.producer(node.used[0], "Conv") if node.op == "Conv" else None
    if maker is None or maker.attrs.get("group", 1) == 1 or node.attrs.get("group", 1) != 1:
        return None
    inner, outer = convolution(view, maker), convolution(view, node)
    if isinstance(inner, No):
        return inner
    if isinstance(outer, No):
        return outer
    if not inner.is_depthwise or not outer.geometry.is_pointwise:
        return None
    return view.enclosed(node, [maker]) or (inner, outer)


def _window(view: View, convs: Sequence[Convolution]) -> Geometry | No:
    """A window that holds those of all, with few more taps than each."""
    geometry = convs[0].geometry
    extents, outputs = view.dims(convs[0].x)[2:], view.dims(convs[0].node.outputs[0])[2:]
    for conv in convs[1:]:
        wider = around(geometry, conv.geometry, extents, outputs)
        if isinstance(wider, No) or view.dims(conv.node.outputs[0])[2:] != outputs:
            return No("the windows do not fit into one")
        geometry = wider
    if any(prod(geometry.kernel) > MORE_TAPS * prod(conv.geometry.kernel) for conv in convs):
        return No("a kernel would have to grow too much")
    return geometry


def _parts(draft: Draft, nodes: Sequence[Node], whole: int, axis: int, what: str) -> Rewrite:
    """The parts of `whole` in the place of what the nodes give.

    Maps that all the nodes have among their readers are done on the whole.
    """
    view = draft.view
    sizes = tuple(view.dims(node.outputs[0])[axis] for node in nodes)
    values, replaced = write_split(draft, whole, axis, sizes), list(nodes[1:])
    for maps in zip(*(_maps_beside(view, node) for node in nodes), strict=False):
        if len({signature(map) for map in maps}) == 1:
            mapped = draft.node(maps[0].op, (whole, *maps[0].inputs[1:]), maps[0].attrs, maps[0].source)
            values += write_split(draft, mapped, axis, sizes)
            replaced += maps
    return draft.outputs(*values, why=f"{len(nodes)} {what} of one input become one", replaced=tuple(replaced))


def _maps_beside(view: View, node: Node) -> list[Node]:
    """Maps of a node's result that something else reads as well, in an order that does not depend on the node."""
    readers = view.readers(node.outputs[0])
    maps = [reader for reader in readers if reader.op in MAPS and reader.used[0] == node.outputs[0]]
    return sorted(maps, key=signature) if len(readers) > 1 else []


def merged_products(view: View, node: Node) -> Rewrite | No | None:
    """x V, x W = split(x concat(V, W)), the weights constant: queries, keys and values, or the gates of a cell."""
    siblings = [
        other
        for other in _in_order(view, view.readers(node.used[0]))
        if other.op == node.op and other.inputs[0] == node.inputs[0] and _columns(view, other) is not None
    ]
    if len(siblings) < 2 or all(other is not node for other in siblings):
        return None
    alike = [other for other in siblings if _is_alike(view, node, other)]
    if len(alike) < 2:
        return No("its siblings have other attributes, or weights with other rows")
    if alike[0] is not node:
        return None
    axis = int(bool(node.attrs.get("transB", 0))) ^ 1
    draft = view.draft(node)
    inputs = [node.used[0], draft.constant(np.concatenate([view.constants[other.used[1]] for other in alike], axis))]
    if any(len(other.used) > 2 for other in alike):
        inputs.append(draft.constant(np.concatenate([_row(view, other) for other in alike], axis=-1)))
    whole = draft.node(node.op, tuple(inputs), node.attrs)
    return _parts(draft, alike, whole, view.type(node.outputs[0]).rank - 1, "products")


def _columns(view: View, node: Node) -> np.ndarray | None:
    """The weights of a product with a matrix of constants."""
    weights = view.constant(node.inputs[1])
    return weights if weights is not None and weights.ndim == 2 and view.type(node.used[0]).rank > 1 else None


def _is_alike(view: View, node: Node, other: Node) -> bool:
    """Whether the columns of two products may stand side by side."""
    if node.attrs != other.attrs or (len(other.used) > 2 and view.constant(other.used[2]) is None):
        return False
    rows = 1 if node.attrs.get("transB", 0) else 0
    return _is_row(view, other) and view.dims(node.used[1])[rows] == view.dims(other.used[1])[rows]


def _is_row(view: View, node: Node) -> bool:
    """Whether what is added to a product is the same for all its rows."""
    return len(node.used) < 3 or view.type(node.used[2]).elements in (1, *view.dims(node.used[2])[-1:])


def _row(view: View, node: Node) -> np.ndarray:
    """What is added to each row of a product."""
    columns = view.dims(node.outputs[0])[-1]
    if len(node.used) < 3:
        return np.zeros(columns, view.type(node.outputs[0]).dtype.numpy)
    return np.array(np.broadcast_to(view.constants[node.used[2]].reshape(-1), (columns,)))


CHOICES: tuple[Rule, ...] = (
    Rule(EXACT, ("Conv",), merged_convolutions),
    Rule(REASSOCIATES, ("Conv",), widened_convolutions),
    Rule(EXACT, ("MatMul", "Gemm"), merged_products),
    Rule(REASSOCIATES, ("Conv",), merged_separables),
)
