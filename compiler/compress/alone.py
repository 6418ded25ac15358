"""A layer, or the two that it becomes, as a model of its own, with the kernels that it has inside of its network.

A convolution's channels lie last outside of it, as they do between layers. In bytes its input and its result are bytes,
and its weights are rounded as quantisation rounds them: what is zero stays zero. Scales of activations do not matter.
A recurrent layer is in fp32 in any case, as quantisation leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler.compress.layers import Layer
from compiler.compress.parts import Part
from compiler.ops.recurrent import BIAS, GATES, PEEPHOLES
from compiler.quantize.scheme import quantised_weights, weight_scales

SCALE = np.float32(0.02)
"""Of activations in bytes, about a zero point of 128."""
ZERO = np.uint8(128)
LEAST = np.float32(1e-6)
"""Scale of a result all of whose weights are zero."""


def stored(part: Part, *, in_bytes: bool) -> np.ndarray:
    """The weights as the model holds them: in float32, or in int8."""
    return quantised_weights(part.weights, _scales(part), part.axis) if in_bytes else part.weights


def _scales(part: Part) -> np.ndarray:
    return np.asarray(np.maximum(weight_scales(part.weights, part.axis), LEAST))


def model_of(layer: Layer, x: tuple[int, ...], parts: Sequence[Part], *, in_bytes: bool) -> bytes:
    """The layer as these parts, one after another, on an input of this shape, with a bias where it has one."""
    if layer.recurs:
        return _recurrent(layer, x, parts[0].weights)
    maker = _Maker()
    convolves = layer.node.op_type == "Conv"
    rank = len(x)
    given = [x[0], *x[2:], x[1]] if convolves else [*x]
    made = maker.node("Transpose", ["x"], perm=[0, rank - 1, *range(1, rank - 1)]) if convolves else "x"
    has_bias = len(layer.node.input) > 2 and bool(layer.node.input[2])
    for part in parts:
        made = _applied(maker, part, made, in_bytes=in_bytes, has_bias=has_bias and part is parts[-1])
    if convolves:
        made = maker.node("Transpose", [made], perm=[0, *range(2, rank), 1])
    return maker.model(given, made, TensorProto.UINT8 if in_bytes else TensorProto.FLOAT)


def _applied(maker: _Maker, part: Part, read: str, *, in_bytes: bool, has_bias: bool) -> str:
    """The name of a part's result; in bytes both it and what is read are."""
    factor = maker.constant(stored(part, in_bytes=in_bytes))
    if in_bytes:
        read = maker.node("DequantizeLinear", [read, *maker.scheme])
        factor = maker.node("DequantizeLinear", [factor, maker.constant(_scales(part))], axis=part.axis)
    inputs = [read, factor]
    if has_bias:
        inputs.append(maker.constant(np.linspace(-0.1, 0.1, part.weights.shape[part.axis], dtype=np.float32)))
    made = maker.node(part.operator, inputs)
    maker.nodes[-1].attribute.extend(part.attributes)
    return maker.node("QuantizeLinear", [made, *maker.scheme]) if in_bytes else made


def _recurrent(layer: Layer, x: tuple[int, ...], weights: np.ndarray) -> bytes:
    """The layer from states of zero over whole sequences, with biases and peepholes where it has them."""
    maker = _Maker()
    own = NodeProto()
    own.CopyFrom(layer.node)
    lasting = {BIAS: 2 * weights.shape[1], PEEPHOLES: 3 * weights.shape[1] // GATES[own.op_type]}
    read = {at: maker.constant(part) for at, part in layer.inputs(weights).items()}
    for at, count in lasting.items():
        if len(own.input) > at and own.input[at]:
            read[at] = maker.constant(np.tile(np.linspace(-0.1, 0.1, count, dtype=np.float32), (len(weights), 1)))
    del own.input[:], own.output[:]
    own.input.extend(["x", *(read.get(at, "") for at in range(1, max(read) + 1))])
    own.output.append("made")
    maker.nodes.append(own)
    return maker.model([*x], "made", TensorProto.FLOAT)


class _Maker:
    """Nodes and constants under names of their own."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    @property
    def scheme(self) -> tuple[str, str]:
        """Scale and zero point of activations."""
        return self.constant(np.asarray(SCALE)), self.constant(np.asarray(ZERO))

    def constant(self, array: np.ndarray) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def model(self, given: list[int], made: str, kind: int) -> bytes:
        """The file of a model that has an input `x` of such a shape, and the result `made`."""
        graph = helper.make_graph(
            self.nodes,
            "layer",
            [helper.make_tensor_value_info("x", kind, given)],
            [helper.make_tensor_value_info(made, kind, None)],
            self.constants,
        )
        opset = [helper.make_opsetid("", 17)]
        return bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())

    def node(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        """The name of its result."""
        result = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result
