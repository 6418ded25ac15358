"""What C compilers and NVRTC make of generated code, kept for other tests: the same sources are compiled by many."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from compiler.codegen import build
from compiler.codegen.build import Toolchain
from compiler.codegen.scalars import SMALL_HEADER
from compiler.devices.cpu.target import CpuTarget
from compiler.devices.cuda import candidates, nvrtc
from compiler.trace import StopRequest
from tests.kept import kept

HOST = "model.c"
"""The unit around the kernels: the plans as tables, and a runtime that is the same for every model. Optimising it takes
longer than small models' kernels do, and of its speed no test depends.
"""
READS_FILES = (".incbin", "#embed")
"""What makes an object file depend on more than the sources."""
COMPILE, COMPILE_CUDA = build._compile, nvrtc.compile_cuda
"""What runs the compilers."""
KERNELS = "tw_kernel.h"
"""The header that every unit of kernels begins with; most of such a unit's compilation is reading it."""
is_host_as_shipped = False
"""Whether HOST is compiled as in artifacts for users."""
kernels_level = ""
"""The level of optimisation of the other units; empty: as in artifacts for users."""


def keep_objects(patch: pytest.MonkeyPatch) -> None:
    """Let each compilation in this process take the object file of an equal one before it.

    Equal are sources, headers, flags and compiler. What is compiled reads the header of kernels precompiled, which
    changes no byte of the object file. What is around the kernels is not optimised, but where `host_as_shipped`.
    """
    once = build._compile

    def compiled(
        root: Path, unit: str, output: str, target: CpuTarget, toolchain: Toolchain, optimise: str, stop: StopRequest
    ) -> None:
        if unit != HOST:
            optimise = optimise or kernels_level
        elif not is_host_as_shipped:
            optimise = optimise or "-O0"
        texts = {path.name: path.read_text() for path in root.iterdir() if path.suffix in (".c", ".h")}
        sources = build._with_headers(unit, texts)
        if any(word in text for text in sources.values() for word in READS_FILES):
            return once(root, unit, output, target, toolchain, optimise, stop)

        def make(path: Path) -> None:
            if KERNELS in sources and build.INCLUDED.findall(sources[unit])[0] == KERNELS:
                precompile(root, texts, target, toolchain, optimise)
            once(root, unit, output, target, toolchain, optimise, stop)
            shutil.copy(root / output, path)

        shutil.copy(kept(repr((unit, sources, identity(target, toolchain, optimise))), ".o", make), root / output)
        return None

    patch.setattr(build, "_compile", compiled)


def identity(target: CpuTarget, toolchain: Toolchain, optimise: str) -> tuple[object, ...]:
    """Compiler and flags, as a part of a key."""
    return toolchain.path, toolchain.identity(target), target.vector_floats, optimise


def precompile(root: Path, texts: Mapping[str, str], target: CpuTarget, toolchain: Toolchain, optimise: str) -> None:
    """Put the precompiled header of kernels beside the header, where GCC looks for it; other compilers do not.

    Without one where the compiler makes none: why not is for the compilation to say.
    """
    place = root / f"{KERNELS}.gch"
    if place.exists():
        return

    def make(path: Path) -> None:
        level = [optimise] if optimise else []
        flags = [*build.COMPILE_FLAGS, *target.flags, f"-DTW_LANES={target.vector_floats}", *level]
        command = [toolchain.path, *flags, "-x", "c-header", str(root / KERNELS), "-o", str(path)]
        subprocess.run(command, check=True, capture_output=True)

    key = repr((build._with_headers(KERNELS, texts), identity(target, toolchain, optimise)))
    try:
        os.link(kept(key, ".gch", make), place)
    except (OSError, subprocess.CalledProcessError):  # one is there: another thread was faster
        return


def keep_cubins(patch: pytest.MonkeyPatch) -> None:
    """Let each compilation by NVRTC in this process take the result of an equal one before it.

    Equal are source, headers, name, architecture, options and version. What is refused is compiled each time.
    """
    once = nvrtc.compile_cuda

    def compiled(source: str, architecture: str, name: str = "kernels.cu") -> nvrtc.Compiled:
        runtime = files("compiler.devices.cuda.runtime")
        headers = [runtime.joinpath(header).read_text() for header in (*nvrtc.HEADERS, *nvrtc.WHERE_NEEDED)]
        headers.append((files("compiler.codegen") / SMALL_HEADER).read_text())
        held = sorted(field.name for field in fields(nvrtc.Compiled))
        key = repr((source, headers, name, architecture, nvrtc.OPTIONS, nvrtc.version(), held))

        def make(path: Path) -> None:
            path.write_bytes(pickle.dumps(once(source, architecture, name)))

        made: nvrtc.Compiled = pickle.loads(kept(key, ".cubin", make).read_bytes())
        return made

    for module in (nvrtc, candidates):
        patch.setattr(module, "compile_cuda", compiled)


def keep_nothing(patch: pytest.MonkeyPatch) -> None:
    """Let the compilers run each time."""
    patch.setattr(build, "_compile", COMPILE)
    for module in (nvrtc, candidates):
        patch.setattr(module, "compile_cuda", COMPILE_CUDA)
