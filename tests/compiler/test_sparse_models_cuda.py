"""Models for CUDA whose weights are zero at two of each four places, or in blocks: what is told and computed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.device import cuda_backend
from compiler.encodings.two_of_four import TwoOfFour
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.ops import OPERATORS
from compiler.preflight import preflight
from compiler.prove.agree import agree
from compiler.rewrite import rewrite
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.quantize.models import samples
from tests.compiling import compile_file
from tests.cuda_double.double import MODES

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
OPTIONS = CompileOptions(target="cuda:sm_80", precision="fp16", scheduler="sequential", tuning_budget_s=0.0)


def weights(*shape: int, axis: int, seed: int) -> np.ndarray:
    dense = np.random.default_rng(seed).normal(size=shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
    return TwoOfFour.of(axis).pruned(dense)


def octets(*shape: int, axis: int, seed: int) -> np.ndarray:
    dense = np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)
    return TwoOfFour.of(axis).pruned(dense)


CONSTANTS = {
    "first": np.random.default_rng(6).normal(size=(64, 8, 3, 3)).astype(np.float32) / 8,
    "w0": weights(64, 64, 3, 3, axis=1, seed=1),
    "b0": np.linspace(-1, 1, 64, dtype=np.float32),
    "w1": weights(96, 64, 1, 1, axis=1, seed=2),
    "w2": weights(96, 128, axis=0, seed=3),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions of 3x3 and 1x1 with what follows them, and a MatMul; the first layer is dense."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["u"], name="first", pads=[1] * 4),
        helper.make_node("Tanh", ["u"], ["v"]),
        helper.make_node("Conv", ["v", "w0", "b0"], ["a"], name="windows", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "v"], ["c"]),
        helper.make_node("Conv", ["c", "w1"], ["d"], name="pointwise"),
        helper.make_node("Relu", ["d"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "two_of_four",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 8, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()],
    )
    path = tmp_path_factory.mktemp("two_of_four") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)


def algorithms(artifact: Path) -> list[str]:
    with zipfile.ZipFile(artifact) as archive:
        return [call["blocking"]["algorithm"] for call in json.loads(archive.read("plan.json"))["calls"]]


@needs_double
@pytest.mark.usefixtures("no_gpu")
def test_zeros_are_left_out_and_reported_and_the_artifact_agrees(model: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "model.tw"
    report = compile_file(model, artifact, OPTIONS, dump=tmp_path)
    assert algorithms(artifact).count("sparse") == 3
    assert any("multiply no zero weights" in notice for notice in report.notices)
    assert report.weight_bytes < 0.85 * 2 * sum(array.size for array in CONSTANTS.values())
    said = next(tmp_path.glob("*_explanation.txt")).read_text()
    said = said[said.index("Weights with many zeros (3)") :]
    assert "f32[64, 64, 3, 3]: 2:4" in said
    assert "50.0 % zeros" in said
    assert said.count("kept and multiplied without zeros") == 3
    graph, twin = load(model, OPTIONS, OPERATORS).graph, on_double(artifact, "plain")

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outcome = twin.run({"x": inputs[0]}, MODES[2])
        assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), outcome
        return [outcome.outputs["y"]]

    verdict = agree(run, graph, OPERATORS, 2e-2, 0, budget_s=0.0)
    assert verdict.passed, verdict


@pytest.mark.usefixtures("no_gpu")
def test_sparsity_off_multiplies_every_weight(model: Path) -> None:
    kernels = fuse(rewrite(load(model, OPTIONS, OPERATORS).graph).graph).kernels
    found = {}
    for sparsity in ("auto", "off"):
        backend = cuda_backend(replace(OPTIONS, sparsity=sparsity), {})
        stored = backend.stored(kernels, "fp16")
        workloads = [backend.workload_of(stored, call) for call in stored.calls]
        found[sparsity] = [
            {one.tile.algorithm for one in backend.legal_tiles(workload, 1, "fp16")} for workload in workloads
        ]
    assert sum("sparse" in tried for tried in found["auto"]) == 3
    assert found["off"] == [tried - {"sparse"} for tried in found["auto"]]


def test_a_preflight_says_how_the_zeros_lie(model: Path) -> None:
    found = preflight(model, OPTIONS)["sparse"]
    assert [(one["name"], one["form"]) for one in found] == [("w0", "2:4"), ("w2", "2:4"), ("w1", "2:4")]


QUANTISED = {
    "scale": np.float32(0.05),
    "middle": np.uint8(128),
    "few": np.int8(3),
    "weight_scale": np.float32(0.01),
    "scales": np.linspace(0.008, 0.012, 96, dtype=np.float32),
    "none": np.int8(0),
    "w0": octets(64, 32, 3, 3, axis=1, seed=1),
    "b0": np.arange(-320, 320, 10, dtype=np.int32),
    "w1": octets(96, 64, 3, 3, axis=1, seed=2),
    "w2": octets(96, 128, axis=0, seed=3),
}


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(QUANTISED, tmp_path_factory.mktemp("quantised") / "model.onnx")


@pytest.fixture(scope="module")
def in_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, whose weights keep a sixth of their blocks, of eight inputs for 32 results."""
    random = np.random.default_rng(12)
    constants = dict(QUANTISED)
    for name, lines in (("w0", 0), ("w1", 0), ("w2", 1)):
        dense = random.integers(-127, 128, np.asarray(QUANTISED[name]).shape).astype(np.int8)
        blocks = np.moveaxis(dense, (lines, 1 - lines), (0, 1))
        mask = random.random((-(-blocks.shape[0] // 32), -(-blocks.shape[1] // 8), *blocks.shape[2:])) < 1 / 6
        blocks[~mask.repeat(32, 0).repeat(8, 1)[: blocks.shape[0], : blocks.shape[1]]] = 0
        constants[name] = dense
    return saved(constants, tmp_path_factory.mktemp("in_blocks") / "model.onnx")


def saved(constants: Mapping[str, object], path: Path) -> Path:
    """Convolutions of bytes, with a scale for each filter too, and a product whose activations are signed."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "middle"], ["q"]),
        helper.make_node(
            "QLinearConv",
            ["q", "scale", "middle", "w0", "weight_scale", "none", "scale", "middle", "b0"],
            ["c0"],
            pads=[1] * 4,
        ),
        helper.make_node("DequantizeLinear", ["c0", "scale", "middle"], ["d0"]),
        helper.make_node("DequantizeLinear", ["w1", "scales"], ["d1"], axis=0),
        helper.make_node("Conv", ["d0", "d1"], ["c1"], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "scale", "few"], ["g"]),
        helper.make_node("DequantizeLinear", ["g", "scale", "few"], ["d2"]),
        helper.make_node("DequantizeLinear", ["w2", "weight_scale", "none"], ["d3"]),
        helper.make_node("MatMul", ["d2", "d3"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 32, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@needs_double
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("name", "algorithm", "without"), [("quantised", "sparse_integer", 3), ("in_blocks", "sparse_mma_integer", 1)]
)
def test_zeros_among_bytes_are_left_out_and_no_bit_of_a_result_changes(
    request: pytest.FixtureRequest, name: str, algorithm: str, without: int, tmp_path: Path
) -> None:
    quantised: Path = request.getfixturevalue(name)
    options = replace(OPTIONS, precision="fp32")
    found: dict[str, list[np.ndarray]] = {}

    def run(artifact: Path, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outcome = on_double(artifact, "plain").run({"x": inputs[0]}, MODES[2])
        assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), outcome
        return [outcome.outputs["y"]]

    x = np.random.default_rng(8).uniform(-6, 6, (6, 32, 9, 9)).astype(np.float32)
    for sparsity, count in (("auto", without), ("off", 0)):
        artifact = tmp_path / f"{sparsity}.tw"
        report = compile_file(quantised, artifact, replace(options, sparsity=sparsity), dump=tmp_path / sparsity)
        assert algorithms(artifact).count(algorithm) == count
        assert algorithms(artifact).count("integer") == 3 - count
        assert not any("no zero weights" in notice for notice in report.notices)  # bytes are never infinite
        said = next((tmp_path / sparsity).glob("*_explanation.txt")).read_text()
        assert said.count("kept and multiplied without zeros") == count
        found[sparsity] = run(artifact, [x])
    np.testing.assert_array_equal(found["auto"], found["off"])
    graph = load(quantised, options, OPERATORS).graph
    verdict = agree(partial(run, tmp_path / "auto.tw"), graph, OPERATORS, 2e-3, 0, budget_s=0.0)
    assert verdict.passed, verdict


def test_a_preflight_says_how_zeros_among_bytes_lie(quantised: Path) -> None:
    found = preflight(quantised, OPTIONS)["sparse"]
    assert [(one["name"], one["form"]) for one in found] == [("w1", "2:4"), ("w0", "2:4"), ("w2", "2:4")]


@pytest.mark.usefixtures("no_gpu")
def test_a_pruned_model_that_is_quantised_in_the_same_job_keeps_its_zeros(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(9).normal(size=(2, 6, 8, 9, 9)).astype(np.float32)
    archive, artifact = samples(tmp_path / "s.npz", x=x), tmp_path / "model.tw"
    report = compile_file(model, artifact, replace(OPTIONS, precision="int8"), samples={"s.npz": archive})
    assert report.quantised is not None
    taken = algorithms(artifact)
    # The first layer is dense, and the pointwise one has a single step of k, in which by the model nothing is gained.
    assert (taken.count("sparse_integer"), taken.count("integer")) == (2, 2)
