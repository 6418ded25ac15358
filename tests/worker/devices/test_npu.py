"""NPU targets on a worker: inside the walls of a job, and over the queues of the cores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from compiler.accelerate.chips import TARGETS
from compiler.contract import BenchmarkOptions, CompileOptions, Event
from compiler.errors import TargetUnavailable
from tests.compiler.accelerate.models import convolution, sample
from tests.servers import GUARD_S
from worker.attempt.child import Spec
from worker.attempt.supervise import Ending, supervise
from worker.devices import npu, queues
from worker.devices.catalogue import targets
from worker.lease.wakeup import Wakeup
from worker.limits import Limits
from worker.processes.group import Group

U55 = "npu:ethos-u55-128"


def _job(
    kind: str, folder: Path, inputs: tuple[tuple[str, Path], ...], options: Mapping[str, Any], **more: Any
) -> tuple[Ending, list[Event], Path]:
    """One job in a child of its own, behind its walls."""
    scratch = folder / kind
    scratch.mkdir()
    limits = Limits(wall_s=GUARD_S, memory_bytes=4 << 30)
    spec = Spec(kind, inputs, scratch / "output", scratch, scratch / "finish", options, (), limits, **more)
    seen: list[Event] = []
    wakeup = Wakeup()
    ending = supervise(Group.start(spec.to_json(), scratch), limits, wakeup, seen.append)
    wakeup.close()
    return ending, seen, spec.output


def test_a_job_compiles_estimates_and_infers_behind_its_walls(tmp_path: Path) -> None:
    if not npu.installed():
        pytest.skip("Vela or LiteRT is not installed (the extra npu)")
    model, samples = convolution(tmp_path / "m.onnx"), sample(tmp_path / "real.npz")
    options = CompileOptions(target=U55, dims={"batch": 1})
    given = (("model", model),)
    real = (("real.npz", samples),)
    ending, seen, artifact = _job("compile", tmp_path, given, options.to_json(), samples=real, measures=False)
    assert ending.kind == "report", ending.problem
    report = ending.report
    placed = report["placement"]
    assert (report["target"], placed["accelerated"], placed["on_cpu"]) == (U55, 2, 0)
    assert placed["cycles"] > 0
    assert report["latency_s"] == placed["seconds"]
    assert "estimated by Vela" in placed["estimated_by"]
    assert [one.phase for one in seen if one.kind == "phase"] == ["load", "rewrite", "emit", "pack", "agree"]
    assert report["errors"][0]["max_relative"] < 0.02 < report["tolerance"]
    assert not any("tiles were chosen" in notice for notice in report["notices"])

    ending, _, _ = _job("benchmark", tmp_path, (("a", artifact),), BenchmarkOptions(seconds=1.0).to_json())
    assert ending.kind == "report", ending.problem
    (entry,) = ending.report["artifacts"]
    assert (entry["runs"], entry["samples_s"], entry["median_s"]) == (0, [], report["latency_s"])
    assert "nothing was measured" in ending.report["notices"][-1]

    ending, _, made = _job("inference", tmp_path, (("a", artifact), ("inputs", samples)), {"threads": None})
    assert ending.kind == "report", ending.problem
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with np.load(samples) as x, np.load(made) as found:
        (want,) = session.run(None, dict(x))
        assert np.abs(found["y"] - want).max() < 0.02 * want.max()
    assert json.loads(json.dumps(report)) == report


def test_the_worker_of_the_cores_serves_npu_targets_where_their_compiler_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(npu, "installed", lambda: True)
    found = queues.resolve(["cpu"])
    assert {U55, f"run:{U55}"} <= set(found.names)
    assert U55 in queues.resolve(["build"]).names
    assert f"run:{U55}" not in queues.resolve(["build"]).names
    assert (queues.resolve([U55]).names, queues.resolve([U55]).device) == ((U55,), "")
    assert queues.resolve([f"run:{U55}"]).device == "cpu"
    assert [entry["name"] for entry in targets() if entry["name"].startswith("npu")] == [*TARGETS]
    with pytest.raises(TargetUnavailable, match="no worker holds an accelerator"):
        queues.resolve(["npu"])


def test_without_their_compiler_there_are_no_npu_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npu, "installed", lambda: False)
    assert not any("npu" in name for name in queues.resolve(["cpu"]).names)
    assert npu.compilable("") == []
    assert not any(entry["name"].startswith("npu") for entry in targets())
    with pytest.raises(TargetUnavailable, match="'npu:ethos-u55-128' is unknown"):
        queues.resolve([U55])
