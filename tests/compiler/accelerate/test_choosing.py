"""Jobs that name a CPU and an accelerator: what is refused, which placement is taken, and what the report tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from compiler.contract import CompileOptions, CompileReport
from compiler.errors import OptionsError, TargetUnavailable
from compiler.pipeline import compile_model
from compiler.preflight import preflight
from tests.compiler.accelerate.models import convolution

U65 = "npu:ethos-u65-256"
A53 = "cpu:cortex-a53"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"devices": [U65]}, "works with one CPU beside it alone"),
        ({"devices": ["cpu", U65, "npu:ethos-u85-256"]}, "works with one CPU beside it alone"),
        ({"devices": ["cpu:0", U65]}, "works with one CPU beside it alone"),
        ({"devices": ["cuda:0", U65]}, "works with one CPU beside it alone"),
        ({"devices": ["cpu", A53, U65]}, "works with one CPU beside it alone"),
        ({"devices": ["cpu", "npu"]}, "device 'npu' has no profile"),
        ({"devices": ["cpu", U65], "objective": "throughput"}, "objective throughput is given beside npu:ethos-u65"),
        ({"devices": ["cpu", U65], "objective": {"latency_ms": 3}}, "objective latency_ms=3 is given beside npu"),
        ({"devices": ["cpu", U65], "precision": "bf16"}, "precision 'bf16' is one of cpu and cuda targets alone"),
        ({"devices": ["cpu", U65], "threads": 1}, "threads is given beside devices"),
        ({"devices": ["cpu", A53]}, "'cpu:cortex-a53' cannot take part in a plan with others"),
    ],
)
def test_what_an_accelerator_and_a_cpu_cannot_be_asked_for(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        CompileOptions.from_json(asked)


def test_either_order_of_devices_is_a_job_for_the_accelerators_compiler(tmp_path: Path) -> None:
    for devices in (("cpu", U65), (U65, "cpu"), (A53, U65)):
        options = CompileOptions(devices=devices)
        assert (options.held, options.compiled_for, options.precision) == (U65, U65, "int8")
        assert CompileOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
    assert CompileOptions(devices=("cpu", "cuda:0")).compiled_for == "cpu"
    model = convolution(tmp_path / "m.onnx")
    found = preflight(model, CompileOptions(devices=("cpu", U65), dims={"batch": 1}))
    assert (found["ok"], found["corrected"], found["target"]["name"]) == (True, None, U65)
    asked = CompileOptions(devices=("cpu", "npu:ethos-u65-257"), dims={"batch": 1})
    found = preflight(model, asked)
    assert (found["ok"], found["problem"]["code"]) == (False, TargetUnavailable.code)
    assert found["corrected"]["devices"] == ["cpu", U65]
    for far in (CompileOptions(devices=("cpu", "npu:zzz")), CompileOptions(target="npu:zzz")):
        assert preflight(model, far)["problem"]["code"] == TargetUnavailable.code


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def _saved(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: tuple[int, ...]) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def _tall(path: Path, channels: int) -> Path:
    """Two convolutions and an addition, and between them sines, for which there is no int8 operator."""
    weights = _array(channels, channels, 3, 3) / np.float32(3 * channels**0.5)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Sin", ["a"], ["b"], "sine"),
        helper.make_node("Conv", ["b", "w"], ["c"], "second", pads=[1] * 4),
        helper.make_node("Sin", ["c"], ["d"], "again"),
        helper.make_node("Add", ["d", "one"], ["y"], "more"),
    ]
    return _saved(path, nodes, {"w": weights, "one": np.ones(1, np.float32)}, (1, channels, 8, 8))


def _compiled(model: Path, artifact: Path, *devices: str) -> CompileReport:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    real = artifact.with_suffix(".npz")
    shape = [dim.dim_value for dim in onnx.load(model).graph.input[0].type.tensor_type.shape.dim]
    np.savez(real, x=_array(*shape))
    options = CompileOptions(devices=devices, tuning_budget_s=0.0)
    return compile_model(model, artifact, options, samples={"real": real})


def _checked(report: CompileReport, artifact: Path) -> dict[str, float]:
    """Seconds of the candidates, by how their names begin. The artifact's are the least, and those of its report."""
    placed = report.placement
    assert placed is not None
    seconds = {one.name: one.seconds for one in placed.candidates if one.seconds is not None}
    (taken,) = (one for one in placed.candidates if one.taken)
    assert taken.seconds == min(seconds.values()) == pytest.approx(report.latency_s)
    assert placed.seconds == report.latency_s == pytest.approx(placed.accelerator_s + placed.cpu_s + placed.call_s)
    with np.load(artifact.with_suffix(".npz")) as given, tilewright.load(artifact) as runs:
        found = runs.run({"x": given["x"]})["y"]
        assert runs.bench()["median"] == report.latency_s
        assert np.isfinite(found).all()
    return seconds


def test_the_accelerator_keeps_what_is_faster_there_and_nothing_is_predicted_slower(tmp_path: Path) -> None:
    model, artifact = _tall(tmp_path / "m.onnx", 64), tmp_path / "m.tw"
    report = _compiled(model, artifact, U65, A53)
    seconds = _checked(report, artifact)
    placed = report.placement
    assert placed is not None
    assert [part.on for part in placed.parts] == [U65, "cpu", U65, "cpu"]
    assert (placed.beside, report.target) == (A53, U65)
    assert f"{A53}, one core, modelled" in placed.cpu_formula
    accelerator, divided, as_given, quantised = seconds.values()
    assert divided < min(accelerator, as_given, quantised)


def test_a_model_too_small_for_a_call_of_the_accelerator_is_the_cpus_alone(tmp_path: Path) -> None:
    model, artifact = _tall(tmp_path / "m.onnx", 2), tmp_path / "m.tw"
    report = _compiled(model, artifact, A53, U65)
    _checked(report, artifact)
    placed = report.placement
    assert placed is not None
    assert ([part.on for part in placed.parts], placed.calls, placed.accelerated) == (["cpu"], 0, 0)
    assert {row.why for row in placed.operators} == {"the whole model runs on the CPU"}


def test_programs_on_this_machine_are_measured_before_one_placement_is_taken(tmp_path: Path) -> None:
    weights = _array(8, 8, 1, 1) / np.float32(3)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], "first"), helper.make_node("Sin", ["a"], ["y"], "sine")]
    model, artifact = _saved(tmp_path / "m.onnx", nodes, {"w": weights}, (1, 8, 4, 4)), tmp_path / "m.tw"
    report = _compiled(model, artifact, "cpu", U65)
    assert len(_checked(report, artifact)) == 3
    placed = report.placement
    assert placed is not None
    assert (placed.beside, placed.cpu_formula.partition(";")[0]) == ("cpu", "parts of the CPU: this machine, measured")
    assert "measured for the CPU" in report.notices[-1]


def test_a_model_without_an_int8_operator_is_no_refusal_beside_a_cpu(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sin", ["x"], ["y"], "sine")]
    model, artifact = _saved(tmp_path / "m.onnx", nodes, {}, (2, 3)), tmp_path / "m.tw"
    report = _compiled(model, artifact, A53, U65)
    _checked(report, artifact)
    assert report.placement is not None
    (refused,) = (one for one in report.placement.candidates if one.seconds is None)
    assert "no layer to quantise" in refused.why
