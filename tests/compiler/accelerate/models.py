"""A model that an accelerator takes whole."""

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
