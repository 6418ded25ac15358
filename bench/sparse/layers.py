"""The convolutions of ResNet-18 as models of one layer, with weights as pruning leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 7
FORMS: Mapping[str, int] = {"unstructured": 1, "1x4": 4, "1x8": 8}
"""Neighbouring filters that are zero at the same places."""


@dataclass(frozen=True)
class Layer:
    """A convolution with a bias and ReLU: `depth` channels of size x size to `columns`, by taps x taps."""

    depth: int
    columns: int
    size: int
    taps: int
    stride: int = 1

    @property
    def name(self) -> str:
        """Taps, stride, channels and size in one word, as tables have it."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"{self.taps}x{self.taps}{stride} {self.depth}-{self.columns} @{self.size}"

    def weights(self, share: float = 0.0, form: str = "unstructured") -> np.ndarray:
        """Float32[columns, depth, taps, taps], of which about a share is zero."""
        random = np.random.default_rng(SEED)
        shape = (self.columns, self.depth, self.taps, self.taps)
        scale = (2 / (self.depth * self.taps**2 * (1 - share))) ** 0.5
        mask = random.random((self.columns // FORMS[form], *shape[1:])) >= share
        return np.asarray(scale * random.standard_normal(shape) * mask.repeat(FORMS[form], 0), np.float32)

    def model(self, batch: int, weights: np.ndarray, *, channels_last: bool) -> onnx.ModelProto:
        """In NCHW, or, as a layer finds it in the midst of a network of ours, with channels last on both sides."""
        given, taken = [batch, self.depth, self.size, self.size], ["x", "y"]
        nodes = []
        if channels_last:
            given = [given[0], *given[2:], given[1]]
            taken = ["x_nchw", "y_nchw"]
            nodes.append(helper.make_node("Transpose", ["x"], ["x_nchw"], perm=[0, 3, 1, 2]))
        pads, strides = [self.taps // 2] * 4, [self.stride] * 2
        nodes.append(helper.make_node("Conv", [taken[0], "w", "b"], ["sums"], pads=pads, strides=strides))
        nodes.append(helper.make_node("Relu", ["sums"], [taken[1]]))
        if channels_last:
            nodes.append(helper.make_node("Transpose", ["y_nchw"], ["y"], perm=[0, 2, 3, 1]))
        bias = np.linspace(-0.1, 0.1, self.columns, dtype=np.float32)
        graph = helper.make_graph(
            nodes,
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


LAYERS: tuple[Layer, ...] = (
    Layer(64, 64, 56, 3),
    Layer(64, 128, 56, 3, 2),
    Layer(64, 128, 56, 1, 2),
    Layer(128, 128, 28, 3),
    Layer(128, 256, 28, 3, 2),
    Layer(256, 256, 14, 3),
    Layer(256, 512, 14, 3, 2),
    Layer(256, 512, 14, 1, 2),
    Layer(512, 512, 7, 3),
)
"""Those that differ, but for the first, whose three channels nobody prunes."""
