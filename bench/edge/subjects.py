"""Three networks of the shapes that small devices run, with an activation to choose and seeded weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Net:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.count = 0

    def weights(self, *shape: int) -> str:
        depth = max(1, int(np.prod(shape[1:])))
        return self.constant((self.random.normal(size=shape) / np.sqrt(depth / 2)).astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(array)
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{self.count}", **attributes))
        return name

    def conv(self, x: str, inside: int, out: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        pads = [kernel // 2] * 4
        w = self.weights(out, inside // group, kernel, kernel)
        return self.node("Conv", x, w, strides=[stride] * 2, pads=pads, group=group)

    def activation(self, x: str, kind: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x)) if kind == "SiLU" else self.node(kind, x)

    def model(self, shape: tuple[int, ...], out: str) -> bytes:
        self.nodes.append(helper.make_node("Identity", [out], ["y"], name="result"))
        graph = helper.make_graph(
            self.nodes,
            "edge",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return bytes(made.SerializeToString())


def mobilenet(kind: str, size: int = 96) -> bytes:
    """Inverted residuals (Sandler et al. 2018): 14 activations."""
    n = _Net()
    x, channels = n.activation(n.conv("x", 3, 16, 3, 2), kind), 16
    for out, stride in ((24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        wide = channels * 6
        y = n.activation(n.conv(x, channels, wide), kind)
        y = n.conv(n.activation(n.conv(y, wide, wide, 3, stride, wide), kind), wide, out)
        x, channels = (n.node("Add", x, y) if stride == 1 and channels == out else y), out
    x = n.node("GlobalAveragePool", n.activation(n.conv(x, channels, 128), kind))
    return n.model((1, 3, size, size), n.node("Gemm", n.node("Flatten", x), n.weights(128, 10)))


def unet(kind: str, size: int = 64) -> bytes:
    """Two levels, with transposed convolutions (Ronneberger et al. 2015): five activations."""
    n = _Net()
    a = n.activation(n.conv("x", 1, 16, 3), kind)
    b = n.activation(n.conv(n.node("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 16, 32, 3), kind)
    c = n.activation(n.conv(n.node("MaxPool", b, kernel_shape=[2, 2], strides=[2, 2]), 32, 64, 3), kind)
    up = n.node("ConvTranspose", c, n.weights(64, 32, 2, 2), strides=[2, 2])
    d = n.activation(n.conv(n.node("Concat", up, b, axis=1), 64, 32, 3), kind)
    up = n.node("ConvTranspose", d, n.weights(32, 16, 2, 2), strides=[2, 2])
    e = n.activation(n.conv(n.node("Concat", up, a, axis=1), 32, 16, 3), kind)
    return n.model((1, 1, size, size), n.conv(e, 16, 2))


def transformer(kind: str, rows: int = 64, width: int = 128, heads: int = 4) -> bytes:
    """One block before its normalisations, as encoders have it: attention and two layers."""
    n = _Net()
    each = width // heads

    def norm(x: str) -> str:
        return n.node("LayerNormalization", x, n.constant(np.ones(width, np.float32)), axis=-1)

    def dense(x: str, inside: int, out: int) -> str:
        return n.node("MatMul", x, n.weights(inside, out))

    x = norm("x")
    split, joined = n.constant(np.array([rows, heads, each])), n.constant(np.array([rows, width]))
    q, k, v = (n.node("Reshape", dense(x, width, width), split) for _ in range(3))
    q, v = (n.node("Transpose", one, perm=[1, 0, 2]) for one in (q, v))
    k = n.node("Transpose", k, perm=[1, 2, 0])
    scores = n.node("Mul", n.node("MatMul", q, k), n.constant(np.array(each**-0.5, np.float32)))
    mixed = n.node("MatMul", n.node("Softmax", scores, axis=-1), v)
    mixed = n.node("Reshape", n.node("Transpose", mixed, perm=[1, 0, 2]), joined)
    x = n.node("Add", "x", dense(mixed, width, width))
    y = dense(n.activation(dense(norm(x), width, 2 * width), kind), 2 * width, width)
    return n.model((rows, width), n.node("Add", x, y))
