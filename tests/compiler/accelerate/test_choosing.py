"""Jobs that name a CPU and an accelerator: what is refused, which placement is taken, and what the report tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from compiler.accelerate import choosing
from compiler.accelerate.choosing import CPU_INT8, picked
from compiler.accelerate.pipelining import Loads
from compiler.contract import BenchmarkOptions, CompileOptions, CompileReport
from compiler.contract.devices import Within
from compiler.errors import OptionsError, TargetUnavailable, UnsupportedModel
from compiler.pipeline import compile_model
from compiler.preflight import preflight
from compiler.runner import benchmark
from tests.compiler.accelerate.models import array, convolution, saved, tall
from tests.compiling import compile_file

U65 = "npu:ethos-u65-256"
U55 = "npu:ethos-u55-64"
A53 = "cpu:cortex-a53"
A76 = "cpu:cortex-a76"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"devices": [U65]}, "works with exactly one CPU"),
        ({"devices": ["cpu", U65, "npu:ethos-u85-256"]}, "works with exactly one CPU"),
        ({"devices": ["cpu:0", U65]}, "works with exactly one CPU"),
        ({"devices": ["cuda:0", U65]}, "works with exactly one CPU"),
        ({"devices": ["cpu", A53, U65]}, "works with exactly one CPU"),
        ({"devices": ["cpu", "npu"]}, "device 'npu' has no profile"),
        ({"target": U65, "objective": "throughput"}, "objective throughput applies to several devices, and no devices"),
        ({"devices": ["cpu", U65], "objective": {"latency_ms": 0}}, "no inference can take so long"),
        ({"devices": ["cpu", U65], "precision": "bf16"}, "precision 'bf16' applies to cpu and cuda targets only"),
        ({"devices": ["cpu", U65], "threads": 1}, "options threads and devices exclude each other"),
        (
            {"devices": ["cpu", U65], "carry": {"y": "x"}},
            "option carry applies to one CPU, and to pipelines",
        ),
        ({"target": U65, "carry": {"y": "x"}}, "option carry applies to one CPU, and to pipelines"),
        ({"devices": ["cpu:0", "cpu:1"], "carry": {"y": "x"}}, "option carry applies to one CPU, and to pipelines"),
        ({"devices": ["cpu", A53]}, "'cpu:cortex-a53' cannot be one of several devices"),
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


def _compiled(model: Path, artifact: Path, *devices: str, objective: str = "latency") -> CompileReport:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    real = artifact.with_suffix(".npz")
    shape = [dim.dim_value for dim in onnx.load(model).graph.input[0].type.tensor_type.shape.dim]
    np.savez(real, x=array(*shape))
    options = CompileOptions(devices=devices, objective=objective, tuning_budget_s=0.0)
    return compile_file(model, artifact, options, samples={"real": real})


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
    model, artifact = tall(tmp_path / "m.onnx", 64), tmp_path / "m.tw"
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
    model, artifact = tall(tmp_path / "m.onnx", 2), tmp_path / "m.tw"
    report = _compiled(model, artifact, A53, U65)
    _checked(report, artifact)
    placed = report.placement
    assert placed is not None
    assert ([part.on for part in placed.parts], placed.calls, placed.accelerated) == (["cpu"], 0, 0)
    assert {row.why for row in placed.operators} == {"the whole model runs on the CPU"}


def test_programs_on_this_machine_are_measured_before_one_placement_is_taken(tmp_path: Path) -> None:
    weights = array(8, 8, 1, 1) / np.float32(3)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], "first"), helper.make_node("Sin", ["a"], ["y"], "sine")]
    model, artifact = saved(tmp_path / "m.onnx", nodes, {"w": weights}, (1, 8, 4, 4)), tmp_path / "m.tw"
    report = _compiled(model, artifact, "cpu", U65)
    assert len(_checked(report, artifact)) == 3
    placed = report.placement
    assert placed is not None
    assert (placed.beside, placed.cpu_formula.partition(";")[0]) == ("cpu", "parts of the CPU: this machine, measured")
    assert "measured for the CPU" in report.notices[-1]


LOADS = {
    "npu": Loads(0.0, 9e-3),
    "both": Loads(2e-3, 2e-3),
    "even": Loads(3e-3, 1e-3),
    "odd": Loads(5e-3, 2e-3),
    "cpu": Loads(6e-3, 0.0),
    "cpu in int8": Loads(4e-3, 0.0),
    "loop": None,
}
"""By the model of costs; what has no accelerator says so."""


@pytest.mark.parametrize(
    ("objective", "without", "timed"),
    [
        ("throughput", {}, ["loop", "both", "cpu in int8", "even"]),
        ("throughput", {"both", "loop"}, ["loop", "both", "cpu in int8", "even", "odd"]),
        ("latency", {}, ["loop", "both", "cpu in int8", "even"]),
        (Within(5.0), {}, ["loop", "both", "cpu in int8", "even"]),
        (Within(3.0), {"even"}, ["loop", "both", "cpu in int8", "even", "cpu"]),
    ],
)
def test_on_this_machine_what_promises_most_is_compiled_and_the_next_where_that_is_refused(
    objective: Any, without: set[str], timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of either kind and the best of the others; what cannot be foreseen always."""
    compiled: list[str] = []
    placed = {name: SimpleNamespace(name=name, uses_accelerator="cpu" not in name, segments=()) for name in LOADS}

    @contextmanager
    def assembled(one: Any, **_: Any) -> Iterator[Any]:
        compiled.append(one.name)
        if one.name in without:
            raise UnsupportedModel("refused")
        yield one

    monkeypatch.setattr(choosing, "proposed", lambda asked: (placed, {}))
    monkeypatch.setattr(choosing, "estimated_loads", lambda one, core, carried: LOADS[one.name])
    monkeypatch.setattr(choosing, "priced_loads", lambda one, carried: LOADS[one.name] or Loads(1.0, 0.0))
    monkeypatch.setattr(choosing, "assembled", assembled)
    asked: Any = SimpleNamespace(core="cpu", objective=objective, is_pipeline=objective != "latency", carried={})
    with choosing.chosen(asked, {}, compile_model, 1.0) as found:
        assert compiled == timed
        assert found.made.name in timed  # type: ignore[attr-defined]
        why = {row["name"]: row["why"] for row in found.candidates}
    assert all("promise more were timed" in why[name] for name in LOADS.keys() - {*timed})
    assert all(why[name] == "refused" for name in without)


def test_a_model_without_an_int8_operator_is_no_refusal_beside_a_cpu(tmp_path: Path) -> None:
    nodes = [helper.make_node("Floor", ["x"], ["y"], "floor")]
    model, artifact = saved(tmp_path / "m.onnx", nodes, {}, (2, 3)), tmp_path / "m.tw"
    report = _compiled(model, artifact, A53, U65)
    _checked(report, artifact)
    assert report.placement is not None
    (refused,) = (one for one in report.placement.candidates if one.seconds is None)
    assert "no layer to quantise" in refused.why


def _row(path: Path) -> Path:
    """Five equal convolutions in a row."""
    names = ["x", "a", "b", "c", "d", "y"]
    nodes = [
        helper.make_node("Conv", [before, "w"], [after], f"to {after}", pads=[1] * 4)
        for before, after in pairwise(names)
    ]
    weights = array(32, 32, 3, 3) / np.float32(3 * 32**0.5)
    return saved(path, nodes, {"w": weights}, (1, 32, 12, 12))


def test_a_pipeline_ends_frames_more_often_than_either_device_alone_and_runs(tmp_path: Path) -> None:
    model, artifact = _row(tmp_path / "m.onnx"), tmp_path / "m.tw"
    report = _compiled(model, artifact, A76, U55, objective="throughput")
    placed = report.placement
    assert placed is not None
    found = placed.pipeline
    assert found is not None
    assert [part.on for part in placed.parts] == ["cpu", U55]
    periods = {one.name: one.period_s for one in placed.candidates if one.period_s is not None}
    assert found.period_s == min(periods.values())
    accelerator, cpu = periods["the accelerator, and the CPU for what it does not carry out"], periods[CPU_INT8]
    assert 1.05 * found.period_s < min(accelerator, cpu)
    loads = [sum(part.seconds for part in placed.parts if part.on == on) + placed.call_s for on in ("cpu", U55)]
    assert found.period_s == pytest.approx(max(loads))
    assert (found.cpu_busy, found.accelerator_busy) == pytest.approx([one / max(loads) for one in loads])
    assert found.latency_s == report.latency_s == pytest.approx(sum(loads) - placed.call_s)
    assert [one.picked for one in found.curve] == [False, True]
    assert [one.predicted_latency_s for one in found.curve] == sorted(one.predicted_latency_s for one in found.curve)
    assert found.slots_bytes == 2 * 32 * 12 * 12
    assert f"one ends every {1e3 * found.period_s:.3f} ms" in report.notices[-1]
    assert json.loads(json.dumps(report.to_json()))["placement"]["pipeline"]["curve"][1]["picked"] is True
    given = [array(1, 32, 12, 12) * scale for scale in (1.0, 0.5, 0.25)]
    with tilewright.load(artifact) as runs:
        wanted = [runs.run({"x": one})["y"] for one in given]
        frames = [{"x": given[at % 3]} for at in range(7)]
        frames[3] = {"x": given[0][0]}
        stream = runs.stream(iter(frames))
        for at in range(7):
            if at == 3:
                with pytest.raises(runs.errors, match="float32"):
                    next(stream)
            else:
                np.testing.assert_array_equal(next(stream)["y"], wanted[at % 3])
        frame = runs.submit({"x": given[1]})
        np.testing.assert_array_equal(frame.result()["y"], wanted[1])
        assert runs.bench()["period"] == found.period_s
    (timed,) = benchmark([("a", artifact)], BenchmarkOptions(seconds=0.05))["artifacts"]
    assert (timed["stream"]["per_second"], timed["stream"]["estimated"]) == (
        1 / found.period_s,
        "estimated by Vela 5.2.0",
    )
    assert [part["kernels"] for part in timed["stream"]["parts"]] == [4, 1]
    assert timed["stream"]["bubble"] == pytest.approx(1 - (1 + min(loads) / max(loads)) / 2)


def test_of_placements_within_a_latency_the_one_that_ends_most_frames_is_picked() -> None:
    known = {"even": Loads(2e-3, 2e-3), "cpu": Loads(3e-3, 0.0), "slow": Loads(1.9e-3, 1.9e-3, 20)}
    assert picked(known, "latency") == ("cpu", "")
    assert picked(known, "throughput") == ("even", "")
    assert picked(known, Within(4.0)) == ("even", "")
    assert picked(known, Within(3.5)) == ("cpu", "")
    name, notice = picked(known, Within(2.5))
    assert name == "cpu"
    assert notice.startswith("no placement is estimated to end an inference within 2.5 ms: the fastest of 3 takes 3 ms")
