from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.errors import TargetUnavailable
from compiler.targets import cpu
from worker import queues
from worker.queues import resolve

HERE = [profile.name for profile in cpu.PROFILES if cpu.runs_here(profile)]


def test_a_device_worker_takes_whatever_this_machine_can_run() -> None:
    own = ["cpu", *HERE]
    assert resolve(["cpu"]).names == (*own, *(f"run:{name}" for name in own))
    assert resolve(["cpu"]).measures


def test_a_builder_takes_what_the_compiler_here_can_make_and_runs_nothing() -> None:
    found = resolve(["build"])
    assert set(HERE) <= set(found.names)
    assert not any(name == "cpu" or name.startswith("run:") for name in found.names)
    assert not found.measures


def test_a_builder_also_builds_what_cannot_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "runs_here", lambda profile: False)
    assert set(HERE) <= set(resolve(["build"]).names)


def test_both_together_are_the_union_and_hold_the_device() -> None:
    both = resolve(["cpu", "build"])
    assert set(both.names) == {*resolve(["cpu"]).names, *resolve(["build"]).names}
    assert len(both.names) == len(set(both.names))
    assert both.measures


def test_an_explicit_name_is_one_queue_and_measures_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve([HERE[-1]]) == queues.Queues((HERE[-1],), measures=True)
    monkeypatch.setattr(cpu, "runs_here", lambda profile: False)
    assert resolve([HERE[-1]]) == queues.Queues((HERE[-1],), measures=False)


def test_a_builder_without_a_c_compiler_serves_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nothing = str(tmp_path / "cc")
    with pytest.raises(TargetUnavailable, match="install a C compiler"):
        resolve(["build"], nothing)
    assert resolve(["cpu", "build"], nothing) == resolve(["cpu"], nothing)


@pytest.mark.parametrize("name", ["cuda", "cuda:sm_90", "run:cuda", "gpu", "run:", ""])
def test_a_queue_that_nothing_can_serve_is_refused(name: str) -> None:
    with pytest.raises(TargetUnavailable):
        resolve([name])


def test_the_program_refuses_cuda_with_status_1(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "worker", "--queue", "cpu", "--queue", "cuda"]
    environment = {**os.environ, "TILEWRIGHT_DATA_DIR": str(tmp_path)}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "this version has not" in outcome.stderr
    assert "Traceback" not in outcome.stderr
