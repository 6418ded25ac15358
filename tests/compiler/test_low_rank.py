"""A product by a matrix of low rank, from preflight to the artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.pack.loader import Model
from compiler.preflight import preflight
from tests.compiling import compile_file

OPTIONS = CompileOptions(threads=1, tuning_budget_s=0)


def test_a_product_by_a_matrix_of_low_rank_becomes_two_where_that_is_faster(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    u, v = random.normal(size=(400, 12)).astype(np.float32), random.normal(size=(12, 640)).astype(np.float32)
    weights = (u @ v) / np.float32(400)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"], "product"), helper.make_node("Relu", ["t"], ["y"], "relu")],
        "low_rank",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 400])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = tmp_path / "low.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    assert preflight(model, OPTIONS)["low_rank"] == [{"name": "w", "shape": [400, 640], "rank": 12}]
    report = compile_file(model, tmp_path / "low.tw", OPTIONS, dump=tmp_path)
    whole = compile_file(model, tmp_path / "whole.tw", replace(OPTIONS, without=("product_by_low_rank",)))
    assert report.weight_bytes < 0.1 * whole.weight_bytes
    assert "a matrix of 400 x 640 has rank 12" in next(tmp_path.glob("*_explanation.txt")).read_text()
    x = random.normal(size=(2, 400)).astype(np.float32)
    want = np.maximum(x.astype(np.float64) @ weights.astype(np.float64), 0)
    for name in ("low.tw", "whole.tw"):
        with Model(tmp_path / name, lanes=1) as artifact:
            np.testing.assert_allclose(artifact.run({"x": x})["y"], want, rtol=0, atol=3e-6 * want.max())
