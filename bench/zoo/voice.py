"""A voice of tokens: an encoder in which all tokens see each other, and a generator of sound with a bounded reach.

The generator is that of HiFi-GAN (Kong et al. 2020, section 2.2): transposed convolutions, each followed by residual
blocks of dilated convolutions. Weights are seeded, and the sizes of a channel's sums keep activations near 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
WORDS = 64
"""Tokens that there are."""
FRAMES = 4
"""Of a token."""


@dataclass
class Voice:
    """Nodes and weights as they are made; values are names."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, op: str, inputs: Sequence[str], output: str = "", **attrs: Any) -> str:
        """The name of a node's one result."""
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], f"{op.lower()}_{len(self.nodes)}", **attrs))
        return name

    def constant(self, array: np.ndarray) -> str:
        """The name of a constant."""
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return str(self.weights[-1].name)

    def normal(self, *shape: int, terms: int = 1) -> str:
        """The name of a weight of which `terms` products make a sum."""
        return self.constant((self.random.standard_normal(shape) / math.sqrt(terms)).astype(np.float32))

    def conv(self, x: str, channels: int, filters: int, kernel: int, dilation: int = 1) -> str:
        """A convolution that keeps the length."""
        weight = self.normal(filters, channels, kernel, terms=channels * kernel)
        pad = dilation * (kernel - 1) // 2
        return self.node("Conv", (x, weight, self.normal(filters)), pads=[pad, pad], dilations=[dilation])

    def generator(self, x: str, width: int, rates: Sequence[int], kernels: Sequence[int] = (3, 7)) -> str:
        """Sound [1, 1, rates multiplied x T] of frames [1, width, T]."""
        x = self.conv(x, width, width, 7)
        for rate in rates:
            x, half = self.node("LeakyRelu", [x], alpha=0.1), max(width // 2, 4)
            weight, cut = self.normal(width, half, 2 * rate, terms=2 * width), rate - rate // 2
            pads = [rate // 2, cut]
            x = self.node("ConvTranspose", (x, weight, self.normal(half)), strides=[rate], pads=pads)
            width, blocks = half, [self._block(x, half, kernel) for kernel in kernels]
            x = self.node("Sum", blocks) if len(blocks) > 1 else blocks[0]
            x = self.node("Mul", (x, self.constant(np.array(0.4, np.float32))))
        return self.node("Tanh", [self.conv(self.node("LeakyRelu", [x], alpha=0.1), width, 1, 7)])

    def _block(self, x: str, width: int, kernel: int) -> str:
        for dilation in (1, 3):
            y = self.conv(self.node("LeakyRelu", [x], alpha=0.1), width, width, kernel, dilation)
            y = self.conv(self.node("LeakyRelu", [y], alpha=0.1), width, width, kernel)
            x = self.node("Add", (x, y))
        return x

    def encoder(self, ids: str, width: int) -> str:
        """Frames [1, width, FRAMES x L] of tokens [1, L], each of which depends on all tokens."""
        x = self.node("Gather", (self.normal(WORDS, width), ids))
        keys = self.node(
            "Transpose", [self.node("MatMul", (x, self.normal(width, width, terms=width)))], perm=[0, 2, 1]
        )
        scores = self.node("MatMul", (self.node("Mul", (x, self.constant(np.array(0.3, np.float32)))), keys))
        x = self.node("Add", (x, self.node("MatMul", (self.node("Softmax", [scores]), x))))
        x = self.node("Transpose", [x], perm=[0, 2, 1])
        scales = self.constant(np.array([1, 1, FRAMES], np.float32))
        way = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", (x, "", scales), **way)


def voice(
    tokens: int | str = 16, width: int = 32, rates: Sequence[int] = (8, 8, 2, 2), seed: int = 0
) -> onnx.ModelProto:
    """Sound `sound` [1, 1, FRAMES x tokens x rates multiplied] of `ids` [1, tokens]; a name leaves tokens open."""
    v = Voice(np.random.default_rng(seed))
    v.node("Identity", [v.generator(v.encoder("ids", width), width, rates)], "sound")
    length = math.prod(rates) * FRAMES * tokens if isinstance(tokens, int) else "samples"
    graph = helper.make_graph(
        v.nodes,
        "voice",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, tokens])],
        [helper.make_tensor_value_info("sound", TensorProto.FLOAT, [1, 1, length])],
        v.weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made
