"""`python -m tests.bench.gpu.on_double MODULE ARGUMENT...`: a child of `gpu-check` with the double in place of a GPU.

The double has to be found under the driver's name. What is launched g++ has compiled, and the double is told which
library stands for which image; by TW_DOUBLE so is the process that measures, which is one of these too. What tiles need
of registers NVRTC says. Times mean nothing, and few launches are timed.

TW_PLAN_FAULT, such as `hang plan1`, injects a fault into a program that is run in a process of its own, by the name of
its folder: `tests/compiler/devices/cuda/measure/faulty_programs.py` has them.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import runpy
import sys
from pathlib import Path

from bench.gpu.half_hour import drift
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.measure import apart, bench, programs, switches
from compiler.measure import plans
from tests.compiler.devices.cuda.artifact_on_double import image_file, on_double
from tests.compiler.devices.cuda.compiling_on_double import stand_in
from tests.compiler.devices.cuda.measure.faulty_programs import inject
from tests.cuda_double.double import SONAME, compile_kernels
from tests.gpu import intrinsics

BY_MACROS = {family.source: family.kernels for family in intrinsics.FAMILIES}
"""Sources in which macros name the kernels."""


def main(arguments: list[str]) -> None:
    """Runs the module as `python -m` does."""
    module, *rest = arguments
    driver = ctypes.CDLL(SONAME)

    def tell(setting: str) -> None:
        assert driver.twd_configure(setting.encode())
        os.environ["TW_DOUBLE"] += f" {setting}"

    def compiled(source: str, architecture: str, name: str = "kernels.cu") -> nvrtc.Compiled:
        image = hashlib.sha256(f"{architecture}{source}".encode()).digest()
        library = compile_kernels(source, name=name, kernels=BY_MACROS.get(source, ()))
        tell(f"module={image_file(image)}:{architecture.removesuffix('a')}:{library}")
        return nvrtc.Compiled(architecture, image, "", {}, (), f"\n.target {architecture}\n".encode())

    for artifact in (Path(argument) for argument in rest if argument.endswith(".tw")):
        if artifact.exists():
            tell(on_double(artifact).settings)
    if injected := os.environ.get("TW_PLAN_FAULT"):
        inject(*injected.split())
    stand_in()
    nvrtc.compile_cuda = compiled
    apart.COMMAND = (sys.executable, "-m", "tests.bench.gpu.on_double", "compiler.devices.cuda.measure")
    programs.COMMAND = (sys.executable, "-m", "tests.bench.gpu.on_double", "compiler.devices.cuda.measure.programs")
    drift.TERMS, drift.SIDE = 96, 32
    bench.FORKS, bench.ALTERNATIONS, bench.ALTERNATED, bench.MOST_LAUNCHES, switches.SAMPLES = 2, 4, 2, 4, 2
    plans.SECONDS = 0.01
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
