"""A model whose table and matrices are codes, compiled for CUDA: the artifact keeps them, and gives what they say."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiling import compile_file
from tests.cuda_double.double import MODES

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
WORDS, WIDTH, INNER, BLOCK = 300, 128, 96, 32
RNG = np.random.default_rng(3)


def squeezed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes along the last axis as bytes, the first in the lowest bits."""
    each = codes.reshape(*codes.shape[:-1], -1, 8 // bits) << (bits * np.arange(8 // bits))
    return np.asarray(each.sum(-1), np.uint8)


def drawn(lines: int, depth: int, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales and zero points, along the second axis."""
    codes, zeros = (RNG.integers(0, 1 << bits, (lines, depth // each)) for each in (1, BLOCK))
    return codes, RNG.uniform(0.01, 0.05, zeros.shape).astype(np.float32), zeros


TABLE, FIRST, SECOND = drawn(WORDS, WIDTH, 4), drawn(INNER, WIDTH, 4), drawn(WIDTH, INNER, 8)


def model(folder: Path, rows: int) -> Path:
    """Rows of a table, then two products with a ReLU between them."""

    def node(operator: str, inputs: str, output: str, **attrs: int) -> onnx.NodeProto:
        attributes: dict[str, Any] = {"block_size": BLOCK, **attrs}
        return helper.make_node(operator, inputs.split(), [output], domain="com.microsoft", **attributes)

    nodes = [
        node("GatherBlockQuantized", "table ids table_s table_z", "x", bits=4, quantize_axis=1, gather_axis=0),
        node("MatMulNBits", "x first first_s first_z", "h", K=WIDTH, N=INNER, bits=4),
        helper.make_node("Relu", ["h"], ["r"]),
        node("MatMulNBits", "r second second_s second_z", "y", K=INNER, N=WIDTH, bits=8),
    ]
    constants = {"table": squeezed(TABLE[0], 4), "table_s": TABLE[1], "table_z": squeezed(TABLE[2], 4)}
    for name, (codes, scales, zeros), bits in (("first", FIRST, 4), ("second", SECOND, 8)):
        blocks = codes.reshape(len(codes), -1, BLOCK)
        constants |= {name: squeezed(blocks, bits), f"{name}_s": scales.reshape(-1)}
        constants[f"{name}_z"] = squeezed(zeros, bits).reshape(-1)
    graph = helper.make_graph(
        nodes,
        "codes",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def floats(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """In float64."""
    return np.asarray((codes - zeros.repeat(BLOCK, 1)) * scales.astype(np.float64).repeat(BLOCK, 1))


def nbytes(*each: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], int]) -> int:
    """Of codes, fp32 scales and zero points of a byte."""
    return sum(codes.size * bits // 8 + 5 * scales.size for (codes, scales, _), bits in each)


@needs_double
@pytest.mark.parametrize(("rows", "precision", "granted"), [(1, "fp32", 2e-6), (40, "fp16", 5e-3)])
def test_codes_stay_codes_in_the_artifact_and_give_what_float64_does(
    rows: int, precision: str, granted: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
    artifact = tmp_path / "model.tw"
    options = CompileOptions(target="cuda:sm_80", precision=precision, scheduler="sequential", tuning_budget_s=0.0)
    report = compile_file(model(tmp_path, rows), artifact, options)
    with zipfile.ZipFile(artifact) as archive:
        names = [call["blocking"]["algorithm"] for call in json.loads(archive.read("plan.json"))["calls"]]
    assert names[-2:] == ["gemv_quantised" if rows == 1 else "quantised_mma"] * 2
    assert report.weight_bytes <= 1.1 * nbytes((TABLE, 4), (FIRST, 4), (SECOND, 8))
    ids = np.random.default_rng(rows).integers(0, WORDS, rows)
    outcome = on_double(artifact).run({"ids": ids}, MODES[2])
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), outcome
    hidden = np.maximum(floats(*TABLE)[ids] @ floats(*FIRST).T, 0)
    want = hidden @ floats(*SECOND).T
    assert np.abs(outcome.outputs["y"] - want).max() <= granted * np.abs(want).max()
