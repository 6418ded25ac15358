"""Models that an accelerator takes whole, or shares with the CPU beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 8, 8)


def convolution(path: Path) -> Path:
    """A convolution and its activation, written there: from `x` of SHAPE, its first dimension symbolic, to `y`."""
    weights = np.random.default_rng(5).standard_normal((6, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def sample(path: Path) -> Path:
    """An .npz of one input, written there."""
    np.savez(path, x=np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32))
    return path


def array(*shape: int) -> np.ndarray:
    """Normally distributed numbers, the same for the same shape."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def saved(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: tuple[int, ...]) -> Path:
    """A model from `x` of this shape to `y`, written there."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def tall(path: Path, channels: int) -> Path:
    """Two convolutions and an addition, and between them sums along rows, for which there is no int8 operator."""
    weights = array(channels, channels, 3, 3) / np.float32(3 * channels**0.5)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("CumSum", ["a", "rows"], ["b"], "sums"),
        helper.make_node("Conv", ["b", "w"], ["c"], "second", pads=[1] * 4),
        helper.make_node("CumSum", ["c", "rows"], ["d"], "again"),
        helper.make_node("Add", ["d", "one"], ["y"], "more"),
    ]
    return saved(path, nodes, {"w": weights, "one": np.ones(1, np.float32), "rows": np.array(3)}, (1, channels, 8, 8))
