"""Models for CUDA whose filters and columns have their zeros in blocks: what is reported, chosen and computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.device import cuda_backend
from compiler.encodings.zeros import leaves_out
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ops import OPERATORS
from compiler.prove.agree import agree
from compiler.rewrite import rewrite
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.test_sparse_models_cuda import algorithms, no_gpu
from tests.compiling import compile_file
from tests.cuda_double.double import MODES

__all__ = ["no_gpu"]
pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
OPTIONS = CompileOptions(target="cuda:sm_80", scheduler="sequential", tuning_budget_s=0.0)


def weights(lines: int, inputs: int, taps: tuple[int, ...], group: int, share: float) -> np.ndarray:
    """Filters of which 32 together keep a share of groups of neighbouring inputs."""
    random = np.random.default_rng(lines)
    kept = random.random((lines // 32, inputs // group, *taps)) < share
    dense = random.normal(size=(lines, inputs, *taps)) / np.sqrt(share * inputs * np.prod(taps))
    return np.asarray(dense * kept.repeat(32, 0).repeat(group, 1), np.float32)


CONSTANTS = {
    "first": np.random.default_rng(6).normal(size=(64, 8, 3, 3)).astype(np.float32) / 8,
    "w0": weights(256, 64, (3, 3), 8, 0.1),
    "b0": np.linspace(-1, 1, 256, dtype=np.float32),
    "w1": weights(128, 256, (1, 1), 8, 0.1),
    "w2": weights(256, 512, (), 1, 0.05).T.copy(),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions of 3x3 and 1x1 with what follows them, and a MatMul; the first layer is dense."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["u"], name="first", pads=[1] * 4),
        helper.make_node("Tanh", ["u"], ["v"]),
        helper.make_node("Conv", ["v", "w0", "b0"], ["a"], name="windows", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["e"], name="pointwise"),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["d"]),
        helper.make_node("MatMul", ["z", "w2"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "vectors",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 12, 12]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [48, 512]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("d", "y")],
        [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()],
    )
    path = tmp_path_factory.mktemp("vectors") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@needs_double
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("precision", "tolerance", "count"), [("fp32", 1e-4, 3), ("fp16", 2e-2, 2)])
def test_zeros_are_left_out_and_reported_and_the_artifact_agrees(
    model: Path, tmp_path: Path, precision: str, tolerance: float, count: int
) -> None:
    artifact, options = tmp_path / "model.tw", replace(OPTIONS, precision=precision)
    report = compile_file(model, artifact, options, dump=tmp_path)
    assert len([name for name in algorithms(artifact) if leaves_out(name)]) == count
    assert any("multiply no zero weights" in notice for notice in report.notices)
    assert report.weight_bytes < 0.5 * (4 if precision == "fp32" else 2) * sum(one.size for one in CONSTANTS.values())
    assert next(tmp_path.glob("*_explanation.txt")).read_text().count("kept and multiplied without zeros") == count
    graph, twin = load(model, options, OPERATORS).graph, on_double(artifact, "plain")

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outcome = twin.run(dict(zip("xz", inputs, strict=True)), MODES[2])
        assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), outcome
        return [outcome.outputs["d"], outcome.outputs["y"]]

    verdict = agree(run, graph, OPERATORS, tolerance, 0, budget_s=0.0)
    assert verdict.passed, verdict


@pytest.mark.usefixtures("no_gpu")
def test_sparsity_off_multiplies_every_weight(model: Path) -> None:
    kernels = fuse(rewrite(load(model, OPTIONS, OPERATORS).graph).graph).kernels
    found = {}
    for sparsity in ("auto", "off"):
        backend = cuda_backend(replace(OPTIONS, sparsity=sparsity), {})
        stored = backend.stored(kernels, "fp32")
        workloads = [backend.workload_of(stored, call) for call in stored.calls]
        found[sparsity] = [
            {one.tile.algorithm for one in backend.legal_tiles(workload, 1, "fp32")} for workload in workloads
        ]
    assert sum(any(map(leaves_out, tried)) for tried in found["auto"]) == 3
    assert not any(leaves_out(one) for tried in found["off"] for one in tried)
