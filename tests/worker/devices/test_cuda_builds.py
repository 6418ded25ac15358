from __future__ import annotations

import subprocess

import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda import target as cuda
from compiler.errors import ToolchainFailed, ToolchainMissing
from worker.devices import cuda_builds

GPUS = [profile.name for profile in cuda.PROFILES]


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
def test_a_process_tells_every_profile_that_nvrtc_knows() -> None:
    assert cuda_builds.able() == GPUS


def test_profiles_that_nvrtc_refuses_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def old(source: str, architecture: str) -> None:
        if architecture in ("sm_100", "sm_120"):
            raise ToolchainFailed("invalid value for --gpu-architecture")

    monkeypatch.setattr(nvrtc, "compile_cuda", old)
    assert cuda_builds.probe() == {"able": [name for name in GPUS if name not in ("cuda:sm_100", "cuda:sm_120")]}


def test_without_nvrtc_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(source: str, architecture: str) -> None:
        raise ToolchainMissing("NVRTC, the CUDA compiler, is not installed", fix="install it")

    monkeypatch.setattr(nvrtc, "compile_cuda", missing)
    assert cuda_builds.probe() == {"missing": "NVRTC, the CUDA compiler, is not installed", "fix": "install it"}


def test_a_process_that_dies_or_is_garbled_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(command: list[str], **given: object) -> None:
        raise subprocess.CalledProcessError(-11, command)

    monkeypatch.setattr(subprocess, "run", dies)
    assert cuda_builds.able() == []
