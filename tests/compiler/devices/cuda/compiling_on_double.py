"""Compilations with the double of CUDA in place of a GPU, in a process that finds it under the driver's name."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler.devices.cuda.emit import program
from compiler.devices.cuda.emit.host import Image
from tests.compiler.devices.cuda.artifact_on_double import image_file
from tests.compiler.objects import keep_cubins, keep_objects
from tests.cuda_double.double import MODES, build_runtime, compile_kernels

ROOT = Path(__file__).parents[4]


def stand_in() -> None:
    """From now on what is emitted is compiled by g++, and the double told which library stands for which image."""
    driver = ctypes.CDLL("libcuda.so.1")

    def compiled(texts: Sequence[str], wanted: Sequence[str], jobs: int, known: object) -> list[Image]:
        found = []
        for unit, text in enumerate(texts):
            library = compile_kernels(text, "plain", f"kernels_{unit}.cu")
            for name in wanted:
                image = Image(unit, name, hashlib.sha256(f"{name}{text}".encode()).digest())
                setting = f"module={image_file(image.content)}:{name}:{library}"
                assert driver.twd_configure(setting.encode())
                os.environ["TW_DOUBLE"] = f"{os.environ.get('TW_DOUBLE', '')} {setting}"  # of processes started here
                found.append(image)
        return found

    patch = pytest.MonkeyPatch()
    keep_objects(patch)
    keep_cubins(patch)
    patch.setattr(program, "compile_units", compiled)


def run_on_double(script: str, *arguments: object) -> str:
    """What a script prints that is run after `stand_in`. Raises AssertionError with its words where it fails."""
    begin = f"from {__name__} import stand_in\nstand_in()\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + script, *map(str, arguments)],
        env={**os.environ, "LD_LIBRARY_PATH": str(build_runtime().parent), "TW_DOUBLE": f"sm=90 {MODES[4]}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
