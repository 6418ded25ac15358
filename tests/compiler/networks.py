"""Small random networks: branches, chains of Concat, views, residuals, intermediate outputs."""

from __future__ import annotations

import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS


class Network:
    """An ONNX graph under construction; names of values are their keys in `shapes`."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[str] = []
        self.random = np.random.default_rng(7)

    def input(self, *shape: int) -> str:
        self.inputs.append(f"x{len(self.inputs)}")
        self.shapes[self.inputs[-1]] = shape
        return self.inputs[-1]

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant((self.random.standard_normal(shape) / max(prod(shape[1:]), 1) ** 0.5).astype(np.float32))

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}_{op}", **attrs))
        self.shapes[name] = shape
        return name

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(self.shapes[name]))

        graph = helper.make_graph(
            self.nodes, "net", [*map(info, self.inputs)], [*map(info, outputs)], initializer=self.constants
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def graph_of(model: onnx.ModelProto) -> Graph:
    """The graph as the front end reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return load(path, CompileOptions(), OPERATORS).graph


KINDS = (
    *("unary", "unary", "add", "mul", "conv", "conv", "concat", "concat", "transpose", "slice", "pool", "scale"),
    *("reshape", "softmax", "squeeze", "pad", "depthwise", "norm"),
)
"""Ways to grow; two of a kind come twice as often."""
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs")


@st.composite
def networks(draw: st.DrawFn, most: int = 14, samples: int = 1) -> onnx.ModelProto:
    """Operators on images of 6 x 6 pixels, each of any value so far, for each of some samples by itself."""
    net = Network()
    side = 6
    images = [net.input(samples, draw(st.sampled_from([2, 3, 8])), side, side)]
    for _ in range(draw(st.integers(3, most))):
        x = draw(st.sampled_from(images[-4:]))
        images.append(_grown(draw, net, x, images, side))
    loose = [name for name in images[1:] if not any(name in node.input for node in net.nodes)]
    more = draw(st.lists(st.sampled_from(images[1:]), max_size=2))
    return net.model(list(dict.fromkeys([*loose, *more])))


def _grown(draw: st.DrawFn, net: Network, x: str, images: list[str], side: int) -> str:
    shape = net.shapes[x]
    samples, channels = shape[:2]
    same = [name for name in images if net.shapes[name] == shape]
    kind = draw(st.sampled_from(KINDS))
    if kind == "unary":
        return net.node(draw(st.sampled_from(UNARY)), [x], shape)
    if kind in ("add", "mul"):
        return net.node(kind.capitalize(), [x, draw(st.sampled_from(same))], shape)
    if kind == "conv":
        outs, taps = draw(st.sampled_from([2, 8, 16])), draw(st.sampled_from([1, 3]))
        weight = net.weight(outs, channels, taps, taps)
        return net.node("Conv", [x, weight, net.weight(outs)], (samples, outs, side, side), pads=[taps // 2] * 4)
    if kind == "depthwise":
        return net.node("Conv", [x, net.weight(channels, 1, 3, 3)], shape, pads=[1] * 4, group=channels)
    if kind == "concat":
        parts = [x, *(draw(st.sampled_from(images)) for _ in range(draw(st.integers(1, 2))))]
        if (total := sum(net.shapes[part][1] for part in parts)) > 48:
            return net.node("Relu", [x], shape)
        return net.node("Concat", parts, (samples, total, side, side), axis=1)
    if kind == "transpose":
        return net.node("Transpose", [x], shape, perm=[0, 1, 3, 2])
    if kind == "slice" and channels > 1:
        first = draw(st.integers(0, channels - 2))
        ends = [net.constant(np.array([end], np.int64)) for end in (first, channels, 1)]
        return net.node("Slice", [x, *ends], (samples, channels - first, side, side))
    if kind == "pool":
        return net.node("MaxPool", [x], shape, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    if kind == "reshape":
        flat = net.node("Reshape", [x, net.constant(np.array([samples, -1]))], (samples, channels * side * side))
        flat = net.node("Tanh", [flat], net.shapes[flat])
        return net.node("Reshape", [flat, net.constant(np.array(shape))], shape)
    if kind == "softmax":
        return net.node("Softmax", [x], shape, axis=draw(st.sampled_from([1, 3])))
    if kind == "squeeze":
        mean = net.node("GlobalAveragePool", [x], (samples, channels, 1, 1))
        gate = net.node(
            "Sigmoid", [net.node("Conv", [mean, net.weight(channels, channels, 1, 1)], (samples, channels, 1, 1))], ()
        )
        return net.node("Mul", [x, gate], shape)
    if kind == "pad":
        padded = net.node(
            "Pad", [x, net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))], (samples, channels, side + 2, side + 2)
        )
        return net.node("AveragePool", [padded], shape, kernel_shape=[3, 3], strides=[1, 1])
    if kind == "norm":
        scale, bias = net.weight(side), net.weight(side)
        return net.node("LayerNormalization", [x, scale, bias], shape, axis=-1)
    return net.node("Mul", [x, net.weight(1, channels, 1, 1)], shape)
