"""Which nodes are computed from bytes: products of an activation with constant weights, and of two activations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.quantize.network import Left, Network, attributes, named
from compiler.quantize.scheme import LARGEST_BIAS, LEVELS, quantised_weights, weight_scales

LAYERS = having(Trait.LINEAR)
"""Products of an input with weights."""
LARGEST_SUM = 2**31 - 1
SEEN_THROUGH = ("Identity", "Dropout")
"""Operators that leave no value of their own in the front end's graph."""


@dataclass(frozen=True)
class Layer:
    """One: its node in the file and in the front end's graph, its constants, and the axis of its output channels.

    `bias` is None where it has none, or one that is not one number for each channel, which then stays as it is.
    """

    node: NodeProto
    inner: Node
    weights: np.ndarray
    bias: np.ndarray | None
    axis: int
    group: int

    @property
    def name(self) -> str:
        """What messages and the report call it."""
        return named(self.node)

    @property
    def channels(self) -> int:
        """Of the result."""
        return int(self.weights.shape[self.axis]) * (self.group if self.node.op_type == "ConvTranspose" else 1)

    @property
    def given(self) -> tuple[str, ...]:
        """The tensors that it reads as bytes."""
        return (self.node.input[0],)


@dataclass(frozen=True)
class Product:
    """A product of two activations, as attention has them. Both are bytes; its result is where a layer reads it."""

    node: NodeProto

    @property
    def name(self) -> str:
        """What messages and the report call it."""
        return named(self.node)

    @property
    def given(self) -> tuple[str, ...]:
        """The tensors that it reads as bytes."""
        return tuple(dict.fromkeys(self.node.input))


def channel_axis(network: Network, node: NodeProto) -> int:
    """The axis of a layer's weights that becomes the channel of its result."""
    match network.operator(node):
        case "Conv":
            return 0
        case "Gemm":
            attrs = attributes(node)
            return 0 if "transB" in attrs and attrs["transB"].i else 1
    return 1


def layers_of(
    network: Network, graph: Graph, keep: Collection[str], *, attention: bool
) -> tuple[list[Layer | Product], list[Left]]:
    """The layers in the model's order, and those that stay as they are: `keep` names some of them.

    graph      what the front end makes of the network
    attention  products of two activations are layers too
    """
    ids = ids_of(graph)
    found: list[Layer | Product] = []
    left: list[Left] = []
    for node in network.nodes:
        if network.operator(node) not in LAYERS:
            continue
        layer: Layer | Product | str = "it is to be kept"
        if named(node) not in keep:
            layer = _layer(network, graph, ids, node)
            if attention and isinstance(layer, str) and (depth := _depth_of_product(network, graph, ids, node)):
                too_deep = LEVELS * LEVELS * depth > LARGEST_SUM
                layer = "its sums of products do not fit into 32 bits" if too_deep else Product(node)
        if isinstance(layer, str):
            left.append(Left(node, layer))
        else:
            found.append(layer)
    return found, left


def ids_of(graph: Graph) -> dict[str, int]:
    """Values of the graph by the model's names."""
    found: dict[str, int] = {}
    for id, value in graph.values.items():
        if value.name:
            found.setdefault(value.name, id)
    return found


def id_of(network: Network, ids: dict[str, int], name: str) -> int | None:
    """The graph's value for a name of the network, also for one behind operators that do nothing."""
    while name not in ids:
        if network.made_by(name) not in SEEN_THROUGH:
            return None
        name = network.producer[name].input[0]
    return ids[name]


def _layer(network: Network, graph: Graph, ids: dict[str, int], node: NodeProto) -> Layer | str:
    """The layer, or why it is none."""
    weights = network.constant(node.input[1])
    if weights is None:
        return "its weights are not constant, or quantised already"
    if weights.dtype != np.float32:
        return f"its weights are {weights.dtype}"
    if weights.ndim < 2 or (node.op_type == "MatMul" and weights.ndim != 2):
        return f"its weights have {weights.ndim} axes"
    if not weights.size or not np.isfinite(weights).all():
        return "it has no weights, or some that are not finite"
    source = id_of(network, ids, node.input[0])
    if source is None or source in graph.constants:
        return "its input is constant"
    made = id_of(network, ids, node.output[0])
    inner = None if made is None else graph.producer.get(made)
    if inner is None or inner.op != node.op_type or inner.inputs[0] != source:
        return "the front end takes it apart"
    axis = channel_axis(network, node)
    attrs = attributes(node)
    if any(name in attrs and attrs[name].f != 1 for name in ("alpha", "beta")):
        return "it has a factor, and its bias is data"
    sums = np.abs(quantised_weights(weights, _positive(weight_scales(weights, axis)), axis).astype(np.int64))
    depth = tuple(at for at in range(weights.ndim) if at != axis)
    if LEVELS * int(sums.sum(axis=depth).max(initial=0)) > LARGEST_BIAS:
        return "its sums of products do not fit into 32 bits"
    group = attrs["group"].i if "group" in attrs else 1
    layer = Layer(node, inner, weights, None, axis, group)
    bias = network.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if bias is not None and _is_of_channels(bias, layer.channels):
        layer = replace(layer, bias=bias.reshape(-1))
    return layer


def _depth_of_product(network: Network, graph: Graph, ids: dict[str, int], node: NodeProto) -> int:
    """How many products of two computed float32 matrices a MatMul sums; 0 for any other node."""
    if network.operator(node) != "MatMul":
        return 0
    values = [id_of(network, ids, name) for name in (*node.input, *node.output)]
    if any(value is None or value in graph.constants for value in values):
        return 0
    a, b, result = (graph.type(value) for value in values if value is not None)
    real = all(one.dtype is DType.F32 for one in (a, b, result))
    return a.dims[-1] if real and min(a.rank, b.rank) > 1 else 0


def _is_of_channels(bias: np.ndarray, channels: int) -> bool:
    """Whether a constant is one finite number for each channel."""
    vector = bias.shape[-1:] == (channels,) and bias.size == channels
    return vector and bias.dtype == np.float32 and bool(np.isfinite(bias).all())


def _positive(scales: np.ndarray) -> np.ndarray:
    return np.where(scales > 0, scales, np.float32(1))
