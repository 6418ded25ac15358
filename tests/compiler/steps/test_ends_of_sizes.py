"""A small detector over pictures of any height and width: every size agrees with ONNX Runtime, in any order."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from tests.compiling import compile_file

SAME = [1, 1, 1, 1]
SIDE = {"min": 4, "opt": 8, "max": 20}


def detector() -> onnx.ModelProto:
    """Strided, pooled, gated by a mean, enlarged by repetition and by transposed convolutions, put side by side."""
    random = np.random.default_rng(5)
    shapes = {"w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 16, 1, 1), "w3": (8, 32, 3, 3), "w4": (8, 8, 2, 2)}
    shapes |= {"w5": (8, 1, 2, 2)}
    weights = {name: (random.standard_normal(shape) / 6).astype(np.float32) for name, shape in shapes.items()}

    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], strides=[2, 2], pads=SAME),
        helper.make_node("Relu", ["c0"], ["a0"]),
        helper.make_node("MaxPool", ["a0"], ["p0"], kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
        helper.make_node("Conv", ["p0", "w1"], ["c1"], strides=[2, 2], pads=SAME),
        helper.make_node("Relu", ["c1"], ["a1"]),
        helper.make_node("GlobalAveragePool", ["a1"], ["mean"]),
        helper.make_node("Conv", ["mean", "w2"], ["gate"]),
        helper.make_node("Sigmoid", ["gate"], ["open"]),
        helper.make_node("Mul", ["a1", "open"], ["gated"]),
        helper.make_node("Resize", ["gated", "", "scales"], ["large"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric"),
        helper.make_node("Concat", ["a0", "large"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "w3"], ["c3"], pads=SAME),
        helper.make_node("Relu", ["c3"], ["a3"]),
        helper.make_node("ConvTranspose", ["a3", "w4"], ["t4"], strides=[2, 2]),
        helper.make_node("Relu", ["t4"], ["a4"]),
        helper.make_node("ConvTranspose", ["a4", "w5"], ["t5"], strides=[2, 2]),
        helper.make_node("Sigmoid", ["t5"], ["y"]),
    ]  # fmt: skip
    constants = {**weights, "scales": np.array([1, 1, 2, 2], np.float32)}
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_every_height_and_width_gives_what_another_runtime_gives_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "detector.onnx"
    onnx.save(detector(), path)
    options = {"threads": 1, "tuning_budget_s": 0, "dims": {"height": SIDE, "width": SIDE}}
    compile_file(path, tmp_path / "detector.tw", CompileOptions.from_json(options))
    with zipfile.ZipFile(tmp_path / "detector.tw") as files:
        zeroed = ["zeroed_alloc" in files.read(f"{folder}source/model.c").decode() for folder in ("", "bindings/2/")]
    assert zeroed == [False, True], "what lies beyond sizes is read; a program at exact sizes has nothing there"
    peer = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(11)
    sizes = [(height, width) for height in range(4, 21, 4) for width in range(4, 21, 4)]
    assert len(sizes) == 25
    with Model(tmp_path / "detector.tw") as model:
        for at in random.permutation(2 * len(sizes)):
            height, width = sizes[at % len(sizes)]
            x = random.standard_normal((1, 3, height, width)).astype(np.float32)
            (found,), (wanted,) = model.run({"x": x}).values(), peer.run(None, {"x": x})
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=f"{height} x {width}")
