from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from compiler.codegen.build import find_toolchain
from compiler.contract import kinds
from compiler.devices.cpu import target as cpu
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda import target as cuda
from compiler.errors import TargetUnavailable
from tests.cuda_double.double import build_runtime, compiler_there
from tests.third_kind import register
from worker.devices import cuda_builds, gpu, npu, queues
from worker.devices.device import NO_DEVICE
from worker.devices.queues import resolve

HERE = [profile.name for profile in cpu.PROFILES if cpu.runs_here(profile)]
HERE += [family.name for family in kinds.CPU.families if {*HERE} & {*family.profiles}]
GPUS = [profile.name for profile in cuda.PROFILES]
needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs of sm_90, as far as processes see that are started."""
    if not compiler_there():
        pytest.skip("the double of CUDA needs g++")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_runtime().parent))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")


def test_a_device_worker_takes_whatever_this_machine_can_run() -> None:
    own = ["cpu", *HERE]
    own += npu.profiles()
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


def test_a_builder_takes_other_architectures_where_there_is_a_compiler_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = {profile.name for profile in cpu.PROFILES if profile.machine != platform.machine()}
    cross = {shutil.which(f"{profile.machine}-linux-gnu-gcc") for profile in cpu.PROFILES if profile.name in other}
    assert bool(other & set(resolve(["build"]).names)) == any((*cross, find_spec("ziglang")))
    monkeypatch.setattr("compiler.codegen.build.find_spec", lambda name: None)
    for name in ("gcc", "as", "ld"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    find_toolchain.cache_clear()
    assert not other & set(resolve(["build"]).names)
    find_toolchain.cache_clear()


def test_both_together_are_the_union_and_hold_the_device() -> None:
    both = resolve(["cpu", "build"])
    assert set(both.names) == {*resolve(["cpu"]).names, *resolve(["build"]).names}
    assert len(both.names) == len(set(both.names))
    assert both.measures


def test_an_explicit_name_is_one_queue_and_measures_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (resolve([HERE[-1]]).names, resolve([HERE[-1]]).device) == ((HERE[-1],), "cpu")
    monkeypatch.setattr(cpu, "runs_here", lambda profile: False)
    assert resolve([HERE[-1]]) == queues.Queues((HERE[-1],))


def test_a_builder_without_a_c_compiler_serves_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(npu, "installed", lambda: False)
    nothing = str(tmp_path / "cc")
    with pytest.raises(TargetUnavailable, match="install a C compiler"):
        resolve(["build"], nothing)
    assert resolve(["cpu", "build"], nothing) == resolve(["cpu"], nothing)


@pytest.mark.parametrize("name", ["cuda:sm_91", "run:cuda:1", "cuda:", "cuda:-1", "gpu", "run:", ""])
def test_a_queue_that_nothing_can_serve_is_refused(name: str) -> None:
    with pytest.raises(TargetUnavailable):
        resolve([name])


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "run:cuda", "run:cuda:sm_90"])
def test_without_a_gpu_there_is_no_worker_for_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(subprocess, "run", refusing("there is no NVIDIA driver on this machine"))
    with pytest.raises(TargetUnavailable, match="GPU 0 cannot be used: there is no NVIDIA driver"):
        resolve([name])


def refusing(reason: str) -> Any:
    """What a process says that looks for a GPU and finds none."""

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[bytes]:
        assert "compiler.devices.cuda.measure.facts" in command
        return subprocess.CompletedProcess(command, 0, json.dumps({"refusal": reason}).encode())

    return run


@needs_nvrtc
def test_a_gpu_worker_takes_its_architecture_and_runs_artifacts_of_it(gpus: None) -> None:
    first = resolve(["cuda:0"])
    assert first.names == ("cuda", "cuda:sm_90", "run:cuda", "run:cuda:sm_90")
    assert (first.device, first.measures) == ("cuda:0", True)
    assert isinstance(first.held, gpu.Held)
    assert first.held.gpu.name == "CUDA double sm_90"
    assert resolve(["cuda"]) == first
    second = resolve(["cuda:1"])
    assert (second.names, second.device) == (first.names, "cuda:1")
    with pytest.raises(TargetUnavailable, match="there is no GPU 2: CUDA_VISIBLE_DEVICES names 2"):
        resolve(["cuda:2"])


def test_without_nvrtc_a_gpu_worker_runs_artifacts_and_compiles_none(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_builds, "_told", lambda: {"missing": "NVRTC is not installed", "fix": "install it"})
    assert resolve(["cuda:0"]).names == ("run:cuda", "run:cuda:sm_90")
    assert not set(resolve(["build"]).names) & set(GPUS)


@needs_nvrtc
def test_a_builder_takes_every_gpu_that_nvrtc_makes_code_for_and_needs_none() -> None:
    found = resolve(["build"])
    assert set(GPUS) <= set(found.names)
    assert "cuda" not in found.names
    assert (found.device, found.held) == (NO_DEVICE, None)


def test_a_gpus_profile_alone_is_measured_where_the_gpu_is_and_built_elsewhere(gpus: None) -> None:
    assert resolve(["cuda:sm_90"]).device == "cuda:0"
    assert resolve(["cuda:sm_80"]) == queues.Queues(("cuda:sm_80",))
    assert resolve(["run:cuda:sm_90"]).device == "cuda:0"
    with pytest.raises(TargetUnavailable, match="another device"):
        resolve(["run:cuda:sm_80"])


@pytest.mark.parametrize("names", [["cuda:0", "cuda:1"], ["cuda:0", "cpu"], ["cuda:0", "run:cpu"], ["cpu", "run:cuda"]])
def test_one_worker_holds_one_device(gpus: None, names: list[str]) -> None:
    with pytest.raises(TargetUnavailable, match="one worker holds one"):
        resolve(names)


@needs_nvrtc
def test_a_gpu_worker_may_build_for_others_too(gpus: None) -> None:
    both = resolve(["cuda:0", "build"])
    assert set(both.names) == {*resolve(["cuda:0"]).names, *resolve(["build"]).names}
    assert both.device == "cuda:0"


def test_the_program_refuses_a_gpu_that_is_not_there_with_status_1(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "worker", "--queue", "cuda:7"]
    environment = {**os.environ, "TILEWRIGHT_DATA_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "there is no GPU 7" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_third_kind_of_device_is_served_without_further_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    first = resolve(["dsp:0"])
    assert first.names == ("dsp", "dsp:v1", "dsp:v2", "run:dsp", "run:dsp:v1", "run:dsp:v2")
    assert (first.device, first.measures, resolve(["dsp"])) == ("dsp:0", True, first)
    assert resolve(["run:dsp"]).device == "dsp:0"
    assert resolve(["dsp:1"]).device == "dsp:1"
    assert {"dsp:v1", "dsp:v2", "dsp:v3"} <= set(resolve(["build"]).names)
    assert resolve(["dsp:v3"]) == queues.Queues(("dsp:v3",))
    for asked in (["dsp:0", "dsp:1"], ["dsp:0", "cpu"]):
        with pytest.raises(TargetUnavailable, match="one worker holds one device"):
            resolve(asked)
    with pytest.raises(TargetUnavailable, match="there is no DSP 7"):
        resolve(["dsp:7"])
    with pytest.raises(TargetUnavailable, match="another device") as caught:
        resolve(["run:dsp:v3"])
    assert caught.value.fix == "use run:dsp"


def test_a_device_that_is_named_is_the_one_for_its_profiles_too(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    assert resolve(["dsp:1", "dsp:v1"]).device == "dsp:1"
