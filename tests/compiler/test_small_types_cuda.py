"""Models with elements of 8 bits and less compiled for a GPU, and run on the double of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.ir.arithmetic import cast
from compiler.ir.tensor import DType
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.small_values import codes
from tests.compiler.test_pipeline_cuda import needs_double, needs_nvrtc, no_gpu
from tests.compiler.test_small_types import F32, model_of, value
from tests.compiling import compile_file
from tests.cuda_double.double import MODES

__all__ = ["no_gpu"]


@needs_nvrtc
@needs_double
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_product_with_weights_of_four_bits_becomes_float8(tmp_path: Path, precision: str) -> None:
    random = np.random.default_rng(6)
    w = codes(DType.I4)[random.integers(0, 16, (32, 16))]
    scale = np.full((4, 16), 0.125, np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["real"], axis=0, block_size=8),
        helper.make_node("MatMul", ["x", "real"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Transpose", ["c"], ["turned"], perm=[1, 0]),
        helper.make_node("Cast", ["turned"], ["z"], to=F32),
    ]
    inputs = [value("x", F32, 4, 32), value("c", TensorProto.FLOAT6E2M3, 4, 16)]
    outputs = [value("y", TensorProto.FLOAT8E4M3FN, 4, 16), value("z", F32, 16, 4)]
    model = model_of(nodes, inputs, outputs, {"w": w, "scale": scale}, opset=28)
    file, artifact = tmp_path / "model.onnx", tmp_path / "model.tw"
    file.write_bytes(model.SerializeToString())
    compile_file(file, artifact, CompileOptions(target="cuda:sm_90", tuning_budget_s=0, precision=precision))
    x = random.integers(-4, 5, (4, 32)).astype(np.float32)
    c = codes(DType.F6E2M3).reshape(4, 16)
    outcome = on_double(artifact, "checked").run({"x": x, "c": c.view(np.uint8)}, MODES[4])
    assert (outcome.error, outcome.fault, dict(outcome.left)) == ("", "", {})
    want = cast(x @ (w.astype(np.float32) * np.float32(0.125)), DType.F8E4M3FN, saturate=True)
    np.testing.assert_array_equal(outcome.outputs["y"], want.view(np.uint8))
    np.testing.assert_array_equal(outcome.outputs["z"], c.T.astype(np.float32))
