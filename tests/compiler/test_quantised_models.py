"""Models whose weights were quantised in blocks, in each form that exporters write, from the file to the artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.engines.tilewright import calls
from compiler.contract import CompileOptions
from compiler.contract.events import Event
from compiler.devices.cpu.target import this_machine
from compiler.pack.loader import Model
from compiler.preflight import preflight
from tests.compiling import compile_file

INPUTS, OUTPUTS, BLOCK = 1024, 640, 32
OPTIONS = CompileOptions(threads=1, tuning_budget_s=0.0, tolerance=1e-5)
RNG = np.random.default_rng(4)
CODES = RNG.integers(0, 16, (OUTPUTS, INPUTS))
SCALES = RNG.uniform(0.01, 0.05, (OUTPUTS, INPUTS // BLOCK)).astype(np.float32)
ZEROS = RNG.integers(0, 16, SCALES.shape)


def written(folder: Path, nodes: Sequence[onnx.NodeProto], constants: dict[str, np.ndarray], rows: int) -> Path:
    """A model of x[rows, INPUTS] to y[rows, OUTPUTS]."""
    graph = helper.make_graph(
        list(nodes),
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, OUTPUTS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def in_blocks(folder: Path, rows: int, scales: np.ndarray = SCALES) -> Path:
    """MatMulNBits with zero points."""
    packed = (CODES[:, 0::2] | (CODES[:, 1::2] << 4)).astype(np.uint8).reshape(OUTPUTS, INPUTS // BLOCK, BLOCK // 2)
    zeros = (ZEROS[:, 0::2] | (ZEROS[:, 1::2] << 4)).astype(np.uint8)
    attrs: dict[str, Any] = {"K": INPUTS, "N": OUTPUTS, "bits": 4, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", "q", "s", "z"], ["y"], domain="com.microsoft", **attrs)
    return written(folder, [node], {"q": packed, "s": scales.reshape(-1), "z": zeros.reshape(-1)}, rows)


def dequantised(folder: Path, rows: int) -> Path:
    """DequantizeLinear of uint4 in blocks."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=BLOCK),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    narrow: list[np.ndarray] = [array.T.astype(ml_dtypes.uint4) for array in (CODES, ZEROS)]
    return written(folder, nodes, {"q": narrow[0], "s": SCALES.T.copy(), "z": narrow[1]}, rows)


def cast(folder: Path, rows: int) -> Path:
    """Cast, Sub, Mul and Reshape of constants, then a product with the transposed matrix."""
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["f", "z"], ["centred"]),
        helper.make_node("Mul", ["centred", "s"], ["blocks"]),
        helper.make_node("Reshape", ["blocks", "shape"], ["w"]),
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=1),
    ]
    constants: dict[str, np.ndarray] = {
        "q": CODES.astype(np.uint8).reshape(OUTPUTS, -1, BLOCK),
        "z": ZEROS.astype(np.float32)[..., None],
        "s": SCALES[..., None],
        "shape": np.array([OUTPUTS, INPUTS]),
    }
    return written(folder, nodes, constants, rows)


FORMS = {"MatMulNBits": in_blocks, "DequantizeLinear": dequantised, "Cast, Sub, Mul": cast}
BYTES = INPUTS * OUTPUTS // 2 + 5 * OUTPUTS * INPUTS // BLOCK


@pytest.mark.parametrize("rows", [1, 3, 20, 32])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_weights_stays_codes_in_the_artifact_and_gives_what_float64_does(
    form: str, rows: int, tmp_path: Path
) -> None:
    multiplies_bytes = this_machine().multiplies_bytes
    if rows == 3 and not multiplies_bytes:
        pytest.skip("without an instruction for bytes three rows are multiplied by floats sooner")
    artifact = tmp_path / "model.tw"
    report = compile_file(FORMS[form](tmp_path, rows), artifact, OPTIONS)
    algorithm = "gemv_quantised" if rows == 1 or multiplies_bytes else "gemm_quantised"
    assert [call["tile"].split()[0] for call in calls(artifact)] == [algorithm]
    assert report.weight_bytes <= 1.05 * BYTES
    x = np.random.default_rng(8).normal(size=(rows, INPUTS)).astype(np.float32)
    weights = (CODES - np.repeat(ZEROS, BLOCK, 1)) * np.repeat(SCALES, BLOCK, 1).astype(np.float64)
    want = x @ weights.T
    with Model(artifact) as loaded:
        got = loaded.run({"x": x})["y"]
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.parametrize("rows", [1, 32])
def test_scales_that_fp16_has_take_two_bytes_each(rows: int, tmp_path: Path) -> None:
    scales, artifact = SCALES.astype(np.float16).astype(np.float32), tmp_path / "model.tw"
    report = compile_file(in_blocks(tmp_path, rows, scales), artifact, OPTIONS)
    assert report.weight_bytes <= 1.01 * (BYTES - 2 * OUTPUTS * INPUTS // BLOCK)
    x = np.random.default_rng(8).normal(size=(rows, INPUTS)).astype(np.float32)
    want = x @ ((CODES - np.repeat(ZEROS, BLOCK, 1)) * np.repeat(scales, BLOCK, 1).astype(np.float64)).T
    with Model(artifact) as loaded:
        got = loaded.run({"x": x})["y"]
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


def test_a_tolerance_that_admits_it_has_activations_of_16_bits(tmp_path: Path) -> None:
    artifact = tmp_path / "model.tw"
    report = compile_file(in_blocks(tmp_path, 1), artifact, replace(OPTIONS, tolerance=1e-3))
    assert [call["tile"].split()[0] for call in calls(artifact)] == ["gemv_quantised16"]
    assert report.weight_bytes <= 1.05 * BYTES


def test_weights_of_few_bits_are_told_before_and_after(tmp_path: Path) -> None:
    model = in_blocks(tmp_path, 1)
    (found,) = preflight(model, OPTIONS)["quantised"]
    assert (found["shape"], found["bits"], found["block"], found["axis"]) == ([INPUTS, OUTPUTS], 4, BLOCK, 0)
    assert found["zero_points"]
    assert found["saved_bytes"] == 4 * INPUTS * OUTPUTS - BYTES
    compile_file(model, tmp_path / "model.tw", OPTIONS, dump=tmp_path)
    said = next(tmp_path.glob("*_explanation.txt")).read_text()
    said = said[said.index("Weights of few bits (1)") :]
    assert "codes of 4 bits, a scale and a zero point for each 32 along axis 0: 0.43 MB for 2.62 MB in fp32" in said
    assert "kept as codes" in said


def test_weights_of_few_bits_are_tried_on_such_weights(tmp_path: Path) -> None:
    events: list[Event] = []
    options = replace(OPTIONS, tuning_budget_s=60.0, tuning_trials=8, scheduler="sequential")
    compile_file(in_blocks(tmp_path, 1), tmp_path / "measured.tw", options, observe=events.append)
    tried: list[Any] = [event.data for event in events if event.kind == "record" and event.data["kind"] == "kernel"]
    assert any(record["variant"]["algorithm"] == "gemv_quantised" for record in tried)
