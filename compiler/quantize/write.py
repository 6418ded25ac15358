"""QuantizeLinear and DequantizeLinear around the tensors of layers, as runtimes expect to find them.

Each tensor has one pair, behind what makes it; weights and biases are stored as integers, each before its layer. Layers
that share an initialiser share its integers where their scales are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from compiler.ir.graph import Graph
from compiler.quantize.calibrate import Calibration
from compiler.quantize.layers import Layer, Product
from compiler.quantize.network import Network
from compiler.quantize.scheme import (
    Affine,
    quantised_bias,
    quantised_weights,
    scales_beside_bias,
    weight_scales,
)
from compiler.quantize.tensors import tensors_of


def write(
    network: Network,
    graph: Graph,
    layers: Sequence[Layer | Product],
    schemes: Mapping[str, Affine],
    calibration: Calibration,
    *,
    correct: bool,
    outputs: bool,
) -> Network:
    """A QDQ network with these layers quantised; `network` stays as it is.

    schemes  by tensor; a tensor that shares the scale of another one needs none
    correct  whether what rounding the weights does to the mean is taken out of the bias
    """
    made = network.copy()
    writer = _Writer(network, made, schemes)
    tensors = tensors_of(network, graph, layers, outputs=outputs)
    chosen = {id(layer.node) for layer in layers}
    of = dict(zip(map(id, network.nodes), made.nodes, strict=True))
    for name, root in tensors.roots.items():
        everyone = name in tensors.made
        readers = [
            of[id(node)]
            for node in network.readers.get(name, ())
            if everyone or id(node) in tensors.passing or id(node) in chosen
        ]
        writer.tensor(name, root, readers, result=outputs and name in network.outputs)
    for layer in layers:
        if isinstance(layer, Product):
            continue
        shift = calibration.shift(layer.name) if correct else None
        writer.layer(layer, of[id(layer.node)], tensors.roots[layer.node.input[0]], shift)
    made.nodes = writer.nodes()
    made.look()
    return made


class _Writer:
    def __init__(self, former: Network, made: Network, schemes: Mapping[str, Affine]) -> None:
        self.former, self.made, self.schemes = former, made, schemes
        self.parameters: dict[str, list[str]] = {}
        self.behind: dict[str, list[NodeProto]] = {}
        self.before: dict[int, list[NodeProto]] = {}
        self.stored: dict[tuple[bytes, bytes, int], list[str]] = {}

    def nodes(self) -> list[NodeProto]:
        """The old nodes with the new ones among them, in order."""
        found = [node for name in self.made.inputs for node in self.behind.get(name, ())]
        for node in self.made.nodes:
            found += [*self.before.get(id(node), ()), node]
            found += [one for name in node.output for one in self.behind.get(name, ())]
        return found

    def tensor(self, name: str, root: str, readers: Sequence[NodeProto], *, result: bool) -> None:
        """Rounds a tensor for these readers; as a result of the model under its own name."""
        if root not in self.parameters:
            scheme = self.schemes[root]
            self.parameters[root] = [
                self.made.add_constant(f"{root}_scale", np.asarray(scheme.scale, np.float32)),
                self.made.add_constant(f"{root}_zero_point", scheme.zero),
            ]
        source = name
        if result:
            source = self.made.fresh(f"{name}_float")
            producer = self.made.producer[name]
            _rename(producer.output, name, source)
        q = self.made.fresh(f"{name}_quantized")
        rounded = name if result else self.made.fresh(f"{name}_dequantized")
        for reader in readers:
            _rename(reader.input, name, rounded)
        self.behind.setdefault(source, []).extend(
            [
                helper.make_node("QuantizeLinear", [source, *self.parameters[root]], [q], name=f"{q}_node"),
                helper.make_node("DequantizeLinear", [q, *self.parameters[root]], [rounded], name=f"{rounded}_node"),
            ]
        )

    def layer(self, layer: Layer, node: NodeProto, root: str, shift: np.ndarray | None) -> None:
        """Stores weights and bias of a layer as integers."""
        x_scale = self.schemes[root].scale
        bias = _corrected(layer, shift)
        scales = weight_scales(layer.weights, layer.axis)
        each = scales if layer.channels == len(scales) else np.tile(scales, layer.group)
        widened = scales_beside_bias(each, x_scale, bias)
        of_weights = widened if len(scales) == len(each) else widened.reshape(layer.group, -1).max(axis=0)
        of_bias = of_weights if len(scales) == len(each) else np.tile(of_weights, layer.group)
        q = quantised_weights(layer.weights, of_weights, layer.axis)
        before = self.before.setdefault(id(node), [])
        node.input[1] = self._integers(layer.node.input[1], q, of_weights, layer.axis, before)
        if bias is not None:
            q, products = quantised_bias(bias, x_scale, of_bias)
            while len(node.input) < 3:
                node.input.append("")
            name = (layer.node.input[2] if len(layer.node.input) > 2 else "") or f"{layer.node.output[0]}_bias"
            node.input[2] = self._integers(name, q, products, 0, before)

    def _integers(self, name: str, q: np.ndarray, scales: np.ndarray, axis: int, before: list[NodeProto]) -> str:
        key = (q.tobytes() + str(q.shape).encode(), scales.tobytes(), axis)
        if key not in self.stored:
            self.stored[key] = [
                self.made.add_constant(f"{name}_quantized", q),
                self.made.add_constant(f"{name}_scale", scales),
                self.made.add_constant(f"{name}_zero_point", np.zeros(scales.shape, q.dtype)),
            ]
        inputs = self.stored[key]
        result = self.made.fresh(f"{name}_dequantized")
        before.append(helper.make_node("DequantizeLinear", inputs, [result], name=f"{result}_node", axis=axis))
        return result


def _corrected(layer: Layer, shift: np.ndarray | None) -> np.ndarray | None:
    """The bias without what rounding the weights adds to the mean (Nagel et al. 2019, section 4.2, measured)."""
    if shift is None or layer.node.op_type == "MatMul":
        return layer.bias
    if layer.bias is None:
        has_other = len(layer.node.input) > 2 and bool(layer.node.input[2])
        return None if has_other else -shift
    return np.asarray(layer.bias - shift)


def _rename(names: Sequence[str], old: str, new: str) -> None:
    for at, name in enumerate(names):
        if name == old:
            names[at] = new  # type: ignore[index]
