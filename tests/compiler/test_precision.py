"""Arithmetic shorter than fp32, from ONNX bytes to an artifact that runs.

It is bf16 on request, bytes where the model is quantised.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.devices.cpu.target import PROFILES, runs_here, this_machine
from compiler.errors import TargetUnavailable
from compiler.pack.loader import Model
from tests.compiler.networks import Network
from tests.compiling import compile_file

UNMEASURED = CompileOptions(threads=1, tuning_budget_s=0)
needs_bf16 = pytest.mark.skipif(not this_machine().multiplies_bf16, reason="this machine does not multiply bf16")


def stages(path: Path, quantised: bool) -> Path:
    """A convolution network, plain or in QDQ form, with a residual addition."""
    net = Network()

    def tensor(x: str, scale: float, zero: int) -> str:
        if not quantised:
            return x
        scales, zeros = net.constant(np.array(scale, np.float32)), net.constant(np.array(zero, np.uint8))
        y = net.node("QuantizeLinear", [x, scales, zeros], net.shapes[x])
        return net.node("DequantizeLinear", [y, scales, zeros], net.shapes[x])

    def weights(filters: int, channels: int, size: int) -> str:
        array = net.random.integers(-127, 128, (filters, channels, size, size)).astype(np.int8)
        scale = net.random.uniform(0.5, 2, filters).astype(np.float32) / (127 * channels * size)
        if not quantised:
            return net.constant(array * scale.reshape(-1, 1, 1, 1))
        names = [net.constant(array), net.constant(scale)]
        return net.node("DequantizeLinear", names, array.shape, axis=0)

    def conv(x: str, filters: int, size: int, pad: int) -> str:
        shape = (1, filters, *net.shapes[x][2:])
        return net.node(
            "Conv", [x, weights(filters, net.shapes[x][1], size), net.weight(filters)], shape, pads=[pad] * 4
        )

    x = tensor(net.input(1, 16, 12, 12), 0.02, 128)
    y = tensor(net.node("Relu", [conv(x, 32, 3, 1)], (1, 32, 12, 12)), 0.02, 0)
    z = tensor(conv(y, 16, 1, 0), 0.02, 120)
    total = tensor(net.node("Relu", [net.node("Add", [z, x], (1, 16, 12, 12))], (1, 16, 12, 12)), 0.02, 0)
    onnx.save(net.model([conv(total, 24, 3, 1)]), path)
    return path


def algorithms(artifact: Path) -> list[str]:
    """Of the plan's kernels, in order."""
    with zipfile.ZipFile(artifact) as archive:
        plan = json.loads(archive.read("plan.json"))
    return [str(call["tile"]).split()[0] for call in plan["calls"]]


def theirs(model: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Of a runtime that carries out the graph as it is written, in fp32."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


@needs_bf16
def test_a_job_of_precision_bf16_gets_contractions_that_round_and_an_artifact_that_agrees(tmp_path: Path) -> None:
    model = stages(tmp_path / "m.onnx", quantised=False)
    report = compile_file(model, tmp_path / "m.tw", CompileOptions(threads=1, tuning_budget_s=0, precision="bf16"))
    assert {"bf16", "amx_bf16"} & {*algorithms(tmp_path / "m.tw")}
    with zipfile.ZipFile(tmp_path / "m.tw") as archive:
        storages = json.loads(archive.read("plan.json"))["storages"]
        texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".c")]
    assert any("tw_store_bf16(" in text for text in texts), "activations lie in memory as bf16"
    assert report.arena_bytes == 2 * (32 + 16) * 12 * 12, storages
    assert report.tolerance == 5e-2
    assert 1e-5 < max(one.max_relative for one in report.errors) <= 5e-2
    with Model(tmp_path / "m.tw") as ours:
        inputs = ours.random_inputs(5)
        assert error(next(iter(ours.run(inputs).values())), theirs(model, inputs)) < 2e-2


@needs_bf16
def test_a_job_that_permits_bf16_but_states_a_tolerance_that_it_misses_is_computed_in_fp32(tmp_path: Path) -> None:
    model = stages(tmp_path / "m.onnx", quantised=False)
    options = CompileOptions(threads=1, tuning_budget_s=0, precision="bf16", tolerance=1e-5)
    report = compile_file(model, tmp_path / "m.tw", options)
    assert not {"bf16", "amx_bf16"} & {*algorithms(tmp_path / "m.tw")}
    assert max(one.max_relative for one in report.errors) <= 1e-5
    assert [notice for notice in report.notices if "compiled again without bf16" in notice]


def test_a_job_of_precision_fp32_rounds_to_nothing_shorter(tmp_path: Path) -> None:
    compile_file(stages(tmp_path / "m.onnx", quantised=False), tmp_path / "m.tw", UNMEASURED)
    assert not {"bf16", "amx_bf16"} & {*algorithms(tmp_path / "m.tw")}


@pytest.mark.parametrize("name", [profile.name for profile in PROFILES if not profile.multiplies_bf16])
def test_a_target_without_bf16_refuses_the_job_before_it_reads_the_model(name: str, tmp_path: Path) -> None:
    with pytest.raises(TargetUnavailable, match=r"lacks the CPU feature (avx512_)?bf16"):
        compile_file(tmp_path / "none.onnx", tmp_path / "m.tw", CompileOptions(target=name, precision="bf16"))


@pytest.mark.parametrize("name", [profile.name for profile in PROFILES if runs_here(profile)])
def test_a_qdq_network_is_computed_from_bytes_within_a_step_of_another_runtime(name: str, tmp_path: Path) -> None:
    model = stages(tmp_path / "m.onnx", quantised=True)
    report = compile_file(model, tmp_path / "m.tw", CompileOptions(target=name, threads=1, tuning_budget_s=0))
    assert sum(one.startswith(("integer", "amx_integer")) for one in algorithms(tmp_path / "m.tw")) == 3
    assert report.kernels <= 4
    with Model(tmp_path / "m.tw") as ours:
        inputs = ours.random_inputs(5)
        assert error(next(iter(ours.run(inputs).values())), theirs(model, inputs)) < 1e-2
