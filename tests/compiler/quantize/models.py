"""Small models that hold what quantisation has to deal with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Drawn:
    """Nodes and seeded initialisers of one model."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}

    def weights(self, name: str, *shape: int) -> str:
        """Normal, so that a layer keeps the size of what it is given."""
        depth = max(1, int(np.prod(shape[1:])))
        return self.constant(name, self.random.normal(size=shape) * np.sqrt(2 / depth))

    def constant(self, name: str, array: Any, dtype: Any = np.float32) -> str:
        self.arrays[name] = np.asarray(array, dtype)
        return name

    def node(self, operator: str, inputs: list[str], output: str, name: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=name, **attributes))
        return output

    def model(
        self, inputs: dict[str, tuple[Any, ...]], outputs: dict[str, tuple[Any, ...]], opset: int = 17
    ) -> onnx.ModelProto:
        def values(named: dict[str, tuple[Any, ...]]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in named.items()]

        initialisers = [numpy_helper.from_array(array, name) for name, array in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "g", values(inputs), values(outputs), initialisers)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        onnx.checker.check_model(made)
        return made


def attention(tokens: int = 6, features: int = 8) -> onnx.ModelProto:
    """One head between three layers in and one out: queries and keys scaled as exporters do, a mask, a softmax."""
    d = Drawn()
    for name in ("q", "k", "v"):
        d.node("MatMul", ["x", d.weights(f"w{name}", features, features)], name, f"to_{name}")
    root = d.constant("root", features**-0.25)
    d.node("Mul", ["q", root], "qs")
    d.node("Div", [d.node("Transpose", ["k"], "kt", perm=[0, 2, 1]), d.constant("divisor", features**0.25)], "ks")
    mask = d.constant("mask", np.where(np.tri(tokens) > 0, 0.0, -1e4))
    d.node("Add", [d.node("MatMul", ["qs", "ks"], "s", "scores"), mask], "masked")
    d.node("MatMul", [d.node("Softmax", ["masked"], "p", axis=-1), "v"], "y", "mixed")
    return d.model({"x": (2, tokens, features)}, {"y": (2, tokens, features)})


def network() -> onnx.ModelProto:
    """A residual network with every pattern: a normalisation, a depthwise layer, shared and transposed weights."""
    d = Drawn()
    d.node("Conv", ["x", d.weights("w1", 8, 3, 3, 3)], "c1", "stem", pads=[1] * 4)
    parts = [d.constant("gamma", d.random.normal(size=8)), d.weights("beta", 8), d.weights("mean", 8)]
    variance = d.constant("variance", 0.5 + np.abs(d.random.normal(size=8)))
    d.node("BatchNormalization", ["c1", *parts, variance], "n1")
    d.node("MaxPool", [d.node("Relu", ["n1"], "r1")], "p1", kernel_shape=[2, 2], strides=[2, 2])
    d.node("Conv", ["p1", d.weights("wd", 8, 1, 3, 3), d.weights("bd", 8)], "d1", "depthwise", group=8, pads=[1] * 4)
    d.node("Relu", ["d1"], "dr")
    d.node("Conv", ["dr", d.weights("w2", 8, 8, 1, 1), d.weights("b2", 8)], "c2", "pointwise")
    d.node("Relu", [d.node("Add", ["c2", "p1"], "a")], "ar")
    d.node("Conv", ["ar", "w2"], "c3", "again")
    d.node("Mul", ["c3", d.node("Sigmoid", ["c3"], "s3")], "m3")
    d.node("Concat", ["m3", "ar"], "cat", axis=1)
    d.node("Conv", ["cat", d.weights("w4", 16, 16, 1, 1), d.weights("b4", 16)], "c4", "head")
    d.node("Clip", ["c4", d.constant("zero", 0.0), d.constant("six", 6.0)], "cl")
    d.node("Flatten", [d.node("GlobalAveragePool", ["cl"], "gap")], "flat")
    d.node("Transpose", [d.weights("wt", 16, 10)], "wtt", perm=[1, 0])
    d.node("Identity", ["wtt"], "wti")
    d.node("Gemm", ["flat", "wti", d.weights("bg", 10)], "y", "gemm", transB=1, alpha=0.5)
    return d.model({"x": ("N", 3, 16, 16)}, {"y": ("N", 10)})


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    """Its file."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def samples(path: Path, **arrays: Any) -> Path:
    """An archive of samples, of `network` unless arrays are given."""
    drawn = np.random.default_rng(1).normal(size=(3, 2, 3, 16, 16)).astype(np.float32)
    np.savez(path, **(arrays or {"x": drawn}))
    return path


def unlike_channels() -> tuple[onnx.ModelProto, np.random.Generator]:
    """Two convolutions from `x` [1, 3, 8, 8] to `y`; weights of the channels between differ by four decades."""
    d = Drawn()
    spread = np.logspace(-2, 2, 8)[d.random.permutation(8)]
    d.constant("w1", d.random.normal(size=(8, 3, 1, 1)) * spread[:, None, None, None])
    d.constant("w2", d.random.normal(size=(4, 8, 1, 1)) / spread[None, :, None, None])
    d.node("Relu", [d.node("Conv", ["x", "w1"], "c1")], "r1")
    d.node("Conv", ["r1", "w2"], "y")
    return d.model({"x": (1, 3, 8, 8)}, {"y": (1, 4, 8, 8)}), d.random
