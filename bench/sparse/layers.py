"""Layers of known networks as models of one layer each, and a network, with weights as pruning leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.zoo import build
from compiler.compress.forms import mask_of

SEED = 7
GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3}
FORMS: Mapping[str, tuple[int, int]] = {
    "unstructured": (1, 1),
    "combined": (1, 1),
    "1x4": (1, 4),
    "1x8": (1, 8),
    "1x16": (1, 16),
    "4x16": (4, 16),
}
"""Neighbouring inputs and filters, or gates, that are zero together."""


@dataclass(frozen=True)
class Convolution:
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
        drawn = _drawn((self.columns, self.depth, self.taps, self.taps), share, form)
        return drawn * np.float32((2 / (self.depth * self.taps**2 * (1 - share))) ** 0.5)

    def input(self, batch: int, *, channels_last: bool) -> np.ndarray:
        """Float32[batch, depth, size, size], or with channels last; none of it negative."""
        x = _given((batch, self.depth, self.size, self.size)).clip(0)
        return with_channels_last(x) if channels_last else x

    def pruned(self, batch: int, share: float, form: str, *, channels_last: bool) -> onnx.ModelProto:
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
        return _model(nodes, given, self.weights(share, form), self.columns)


@dataclass(frozen=True)
class Product:
    """A dense layer with a bias, of transformers: `rows` tokens of each sequence, `depth` features to `columns`."""

    rows: int
    depth: int
    columns: int

    @property
    def name(self) -> str:
        """Features and tokens in one word."""
        return f"dense {self.depth}-{self.columns} x{self.rows}"

    def weights(self, share: float = 0.0, form: str = "unstructured") -> np.ndarray:
        """Float32[depth, columns], of which about a share is zero."""
        drawn = _drawn((self.columns, self.depth), share, form).T
        return np.ascontiguousarray(drawn) * np.float32((1 / (self.depth * (1 - share))) ** 0.5)

    def input(self, batch: int, *, channels_last: bool) -> np.ndarray:
        """Float32[batch * rows, depth], in either layout: rows have their features side by side."""
        return _given((batch * self.rows, self.depth))

    def pruned(self, batch: int, share: float, form: str, *, channels_last: bool) -> onnx.ModelProto:
        """The same in either layout."""
        nodes = [helper.make_node("MatMul", ["x", "w"], ["sums"]), helper.make_node("Add", ["sums", "b"], ["y"])]
        return _model(nodes, [batch * self.rows, self.depth], self.weights(share, form), self.columns)


@dataclass(frozen=True)
class Recurrence:
    """A recurrent layer: `steps` steps of each sequence, with as many features as hidden units."""

    operator: str
    hidden: int
    steps: int = 64

    @property
    def name(self) -> str:
        """Operator, units and steps in one word."""
        return f"{self.operator} {self.hidden} x{self.steps}"

    def input(self, batch: int, *, channels_last: bool) -> np.ndarray:
        """Float32[steps, batch, features], in either layout."""
        return _given((self.steps, batch, self.hidden))

    def pruned(self, batch: int, share: float, form: str, *, channels_last: bool) -> onnx.ModelProto:
        """The same in either layout; states keep their size."""
        node = helper.make_node(self.operator, ["x", "w", "r"], ["y"], hidden_size=self.hidden)
        drawn = _drawn((2 * GATES[self.operator] * self.hidden, self.hidden), share, form)
        w, r = np.split(drawn * np.float32((0.5 / (self.hidden * (1 - share))) ** 0.5), 2)
        graph = helper.make_graph(
            [node],
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.steps, batch, self.hidden])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [self.steps, 1, batch, self.hidden])],
            [numpy_helper.from_array(one[None], name) for name, one in (("w", w), ("r", r))],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass(frozen=True)
class Network:
    """A whole network of the zoo, of which every weight tensor of convolutions and dense layers is pruned alike."""

    name: str

    def input(self, batch: int, *, channels_last: bool) -> np.ndarray:
        """What the network takes, in the one layout that it has."""
        (given,) = self.pruned(batch, 0.0, "unstructured", channels_last=channels_last).graph.input
        return _given(tuple(dim.dim_value for dim in given.type.tensor_type.shape.dim))

    def pruned(self, batch: int, share: float, form: str, *, channels_last: bool) -> onnx.ModelProto:
        """The network; what is left of its weights is scaled, so that activations keep their size."""
        model = build(self.name)
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = batch
        del model.graph.value_info[:]
        weights = {node.input[1] for node in model.graph.node if node.op_type in ("Conv", "Gemm")}
        for tensor in model.graph.initializer:
            if tensor.name in weights:
                array = numpy_helper.to_array(tensor)
                mask = _drawn(array.shape, share, form) != 0
                scaled = (array * mask / (1 - share) ** 0.5).astype(array.dtype)
                tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))
        return model


Layer = Convolution | Product | Recurrence | Network


def with_channels_last(array: np.ndarray) -> np.ndarray:
    """NCHW to NHWC; a matrix as it is."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1) if array.ndim == 4 else array)


def _drawn(shape: tuple[int, ...], share: float, form: str) -> np.ndarray:
    """Standard normal weights, filters first, of which about a share is zero."""
    random = np.random.default_rng(SEED)
    if form == "combined" and share:
        drawn = random.standard_normal(shape)
        kept = mask_of(np.abs(drawn).reshape(len(drawn), -1), "combined", share)
        return np.asarray(drawn * kept.reshape(shape), np.float32)
    inputs, filters = FORMS[form]
    mask = random.random((-(-shape[0] // filters), -(-shape[1] // inputs), *shape[2:])) >= share
    whole = mask.repeat(filters, 0).repeat(inputs, 1)[: shape[0], : shape[1]]
    return np.asarray(random.standard_normal(shape) * whole, np.float32)


def _given(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _model(nodes: list[onnx.NodeProto], given: list[int], weights: np.ndarray, columns: int) -> onnx.ModelProto:
    bias = np.linspace(-0.1, 0.1, columns, dtype=np.float32)
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RESNET18 = (
    Convolution(3, 64, 224, 7, 2),
    Convolution(64, 64, 56, 3),
    Convolution(64, 128, 56, 3, 2),
    Convolution(64, 128, 56, 1, 2),
    Convolution(128, 128, 28, 3),
    Convolution(128, 256, 28, 3, 2),
    Convolution(128, 256, 28, 1, 2),
    Convolution(256, 256, 14, 3),
    Convolution(256, 512, 14, 3, 2),
    Convolution(256, 512, 14, 1, 2),
    Convolution(512, 512, 7, 3),
)
"""All that differ."""
MOBILENET = (
    Convolution(64, 128, 56, 1),
    Convolution(256, 256, 28, 1),
    Convolution(512, 512, 14, 1),
    Convolution(1024, 1024, 7, 1),
)
"""Pointwise convolutions of MobileNet V1."""
BERT = (Product(128, 768, 768), Product(128, 768, 3072), Product(128, 3072, 768))
"""BERT base: a projection, and both dense layers of a feed-forward block."""
RECURRENT = tuple(Recurrence(operator, hidden) for operator in ("LSTM", "GRU") for hidden in (256, 512))
CLASSIFIERS = tuple(
    Product(1, *sizes) for sizes in ((512, 1000), (1024, 1000), (4096, 1000), (4096, 4096), (768, 3072))
)
"""Dense layers of one row: behind ResNet-18 and MobileNet, within VGG, and BERT's for a single token."""
LAYERS: tuple[Layer, ...] = (*RESNET18, *MOBILENET, *BERT, *CLASSIFIERS, *RECURRENT, Network("resnet18"))
