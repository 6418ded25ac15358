"""The nodes that a layer becomes: itself with other weights, or two whose weights are factors of a low rank.

A convolution U V x is one to `rank` channels by V, with the window, and one of 1x1 from there by U. A product is two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import AttributeProto, NodeProto

from compiler.compress.layers import Layer
from compiler.encodings.low_rank import Factors
from compiler.quantize.network import Network


@dataclass(frozen=True)
class Part:
    """An operator with its attributes and weights float32 as it reads them, whose results lie along `axis`."""

    operator: str
    attributes: tuple[AttributeProto, ...]
    weights: np.ndarray
    axis: int


def parts_of(layer: Layer, weights: np.ndarray, factors: Factors | None) -> tuple[Part, ...]:
    """The one that has the layer's weights, or two by their factors; a bias belongs to the last."""
    operator, attributes = layer.node.op_type, (*layer.node.attribute,)
    if factors is None:
        return (Part(operator, attributes, weights, layer.axis),)
    u, v = (np.ascontiguousarray(each, np.float32) for each in (factors.u, factors.v))
    if operator == "Conv":
        window = layer.weights.shape[2:]
        spread = np.moveaxis(v.reshape(len(v), *window, -1), -1, 1)
        point = u.reshape(*u.shape, *(1 for _ in window))
        return Part(operator, attributes, np.ascontiguousarray(spread), 0), Part(operator, (), point, 0)
    last = u if layer.axis == 0 else np.ascontiguousarray(u.T)
    return Part("MatMul", (), np.ascontiguousarray(v.T), 1), Part(operator, attributes, last, layer.axis)


def divide(network: Network, layer: Layer, factors: Factors) -> None:
    """Puts two nodes in the place of a layer's: the last keeps its name, its results and its bias.

    The first is called after it, with `_low_rank` at the end.
    """
    first, last = parts_of(layer, layer.weights, factors)
    node, name = layer.node, layer.name
    before = NodeProto(op_type=first.operator, name=f"{node.name}_low_rank" if node.name else "")
    before.attribute.extend(first.attributes)
    before.input.extend([node.input[0], network.add_constant(f"{name}_v", first.weights)])
    before.output.append(network.fresh(f"{name}_low_rank"))
    del node.attribute[:]
    node.attribute.extend(last.attributes)
    node.input[0] = before.output[0]
    node.input[1] = network.add_constant(f"{name}_u", last.weights)
    at = next(at for at, one in enumerate(network.nodes) if one is node)
    network.nodes.insert(at, before)
    network.look()
