from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import TargetUnavailable
from service.db.models import JobState
from service.jobs.scheduling import lease
from tests.compiler.devices.cuda.measure.fake_nvml import install
from tests.cuda_double.double import build_runtime, compiler_there
from worker import inquiry
from worker.attempt.run import run
from worker.devices import device
from worker.devices.gpu import environment, held

needs_double = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a GPU and NVML, as far as processes see that are started; the folder of NVML's module."""
    folder = install(tmp_path / "nvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_runtime().parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


def test_a_job_sees_its_gpu_alone_and_others_none() -> None:
    assert environment("cuda:1", {}) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    assert environment("cuda:1", {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"})["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    # Numbers that somebody else chose mean what they mean to every CUDA program there.
    assert environment("cuda:1", {"CUDA_VISIBLE_DEVICES": "3,1"}) == {"CUDA_VISIBLE_DEVICES": "1"}
    fastest = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": "1"}
    assert environment("cuda:0", fastest) == fastest
    assert environment("cuda:0", {"LD_LIBRARY_PATH": "/d"})["LD_LIBRARY_PATH"] == "/d"
    for other in ("cpu", ""):
        assert environment(other, {"CUDA_VISIBLE_DEVICES": "0"}) == {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(TargetUnavailable, match="there is no GPU 0"):
        environment("cuda:0", {"CUDA_VISIBLE_DEVICES": ""})


@needs_double
def test_driver_and_nvml_tell_of_a_gpu(machine: Path) -> None:
    found = held(0)
    assert (found.device, found.target) == ("cuda:0", "cuda:sm_90")
    facts = device.facts(found)
    assert (facts["device"], facts["measures"], facts["target"]) == ("cuda:0", True, "cuda:sm_90")
    assert facts["fingerprint"] == found.gpu.fingerprint
    assert {"cpu:x86-64-v3", "cuda:sm_80"} <= set(facts["targets"])
    assert facts["gpu"]["capability"] == "9.0"
    assert facts["gpu"]["nvml"]["driver"] == "580.95.05"
    assert json.loads(json.dumps(facts)) == facts
    (machine / "answers.json").write_text("{}")
    assert held(0).facts()["gpu"]["nvml"] is None


@needs_double
def test_a_gpu_that_cannot_be_used_is_refused_with_the_drivers_reason(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is handed on to the process is named; the double is configured as it is started.
    monkeypatch.setattr(inquiry, "PASSED_ON", (*inquiry.PASSED_ON, "TW_DOUBLE"))
    monkeypatch.setenv("TW_DOUBLE", "devices=0")
    with pytest.raises(TargetUnavailable, match="CUDA_ERROR_NO_DEVICE"):
        held(0)


def test_records_are_looked_up_as_the_gpu_measures_them() -> None:
    hardware = {"device": "cuda:0", "target": "cuda:sm_90", "fingerprint": "cuda:sm_90/1"}
    for target in ("cuda", "cuda:sm_90"):
        assert device.measured_as(target, hardware) == ("cuda:sm_90", "cuda:sm_90/1")
        assert device.measured_as(target, {"device": "", "target": "cpu:x86-64-v3", "fingerprint": ""}) is None
    assert device.measured_as("cuda:sm_80", hardware) is None


@pytest.mark.parametrize(
    ("target", "held", "measured"),
    [
        ("cpu:x86-64-v3", "cpu", True),
        ("cuda:sm_90", "cuda:1", True),
        ("cuda:sm_90", "cpu", False),
        ("cpu", "cuda:0", False),
        ("cuda:sm_90", device.NO_DEVICE, False),
        ("cpu", device.NO_DEVICE, False),
    ],
)
def test_only_a_device_of_its_kind_measures_a_job(target: str, held: str, measured: bool) -> None:
    assert device.measures(target, held) == measured


LOOKING = """
assert spec["gpu"] is {gpu}
assert os.environ["CUDA_VISIBLE_DEVICES"] == {visible!r}, os.environ
succeed()
"""


@pytest.mark.parametrize(("name", "visible"), [("cuda:1", "7"), ("cpu", "")])
def test_a_job_is_told_which_gpu_it_has(
    office: Any, context_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    kind = name.partition(":")[0]
    context = context_with(LOOKING.format(gpu=kind == "cuda", visible=visible), device=name, queues=(kind,))
    job_id = office.submit(kind)
    claim = lease.claim(context.db, context.name, context.queues, context.lease_s)
    assert claim is not None
    assert run(context, claim) == "succeeded"
    assert office.job(job_id).state == JobState.SUCCEEDED


@needs_double
def test_the_worker_never_starts_cuda_itself(machine: Path, tmp_path: Path) -> None:
    """Nor does NVRTC, which starts the driver wherever it is loaded."""
    program = """
from worker import __main__
from worker.devices import device, queues
serving = queues.resolve(["cuda:0", "build"])
print(device.facts(serving.held)["device"])
"""
    report = tmp_path / "report"
    reported = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "TW_DOUBLE_REPORT": str(report)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert reported.stdout == "cuda:0\n"
    assert not report.exists()  # as it would if the driver had been loaded
