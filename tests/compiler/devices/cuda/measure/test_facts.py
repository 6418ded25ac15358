from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compiler.devices.cuda.measure.fake_nvml import install
from tests.cuda_double.double import build_runtime, compiler_there

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")


def reported(index: int, tmp_path: Path, settings: str = "", **nvml: Any) -> dict[str, Any]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(build_runtime().parent),
        "TW_DOUBLE": settings,
        "PYTHONPATH": str(install(tmp_path / "nvml", **nvml)),
    }
    command = [sys.executable, "-P", "-m", "compiler.devices.cuda.measure.facts", str(index)]
    answer: dict[str, Any] = json.loads(
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    )
    return answer


def test_driver_and_nvml_are_asked(tmp_path: Path) -> None:
    answer = reported(0, tmp_path)
    assert (answer["gpu"]["name"], answer["gpu"]["capability"]) == ("CUDA double sm_90", [9, 0])
    assert (answer["nvml"]["device"], answer["nvml"]["multiprocessor_mhz"]) == ("NVIDIA H200", 1980)
    assert reported(0, tmp_path, init=None)["nvml"] is None


def test_a_device_that_is_not_there_is_refused_with_a_reason(tmp_path: Path) -> None:
    assert "CUDA_ERROR_INVALID_DEVICE" in reported(1, tmp_path)["refusal"]
    assert "CUDA_ERROR_NO_DEVICE" in reported(0, tmp_path, "devices=0")["refusal"]
