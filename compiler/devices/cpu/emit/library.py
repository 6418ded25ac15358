"""Kernels in C, with the headers that they are written with, as one shared library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files

from compiler.codegen.build import Objects, Toolchain, compile_library, host_headers, small_header
from compiler.devices.cpu.target import CpuTarget
from compiler.trace import StopRequest, never_stops

HEADERS = (
    "tw_kernel.h",
    "tw_integer.h",
    "tw_narrow.h",
    "tw_transpose.h",
    "tw_handover.h",
    "tw_lanes.h",
    "tw_runtime.h",
)


def runtime_headers(sources: Iterable[str] = ()) -> dict[str, str]:
    """The hand-written headers of a program for a CPU, by file name, with those that only these sources include."""
    folder = files("compiler.devices.cpu.runtime")
    return {**{name: (folder / name).read_text() for name in HEADERS}, **host_headers(), **small_header(sources)}


def build_library(
    sources: Mapping[str, str],
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int = 2,
    optimise: str = "",
    stop: StopRequest = never_stops,
    objects: Objects | None = None,
) -> bytes:
    """`compile_library` with `runtime_headers` beside the sources."""
    headers = runtime_headers(sources.values())
    return compile_library(sources, headers, target, toolchain, jobs, optimise, stop, objects=objects)
