"""Kernels in C, with the headers that they are written with, as one shared library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files

from compiler.codegen.build import INCLUDED, Objects, Toolchain, compile_library, host_headers, small_header
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


SHORT_HEADER, SHORT_LOAD = "tw_short.h", "tw_load_bf16"
"""The header of what loads elements that are shorter in memory, and how the names in it begin."""


def runtime_headers(sources: Iterable[str] = ()) -> dict[str, str]:
    """The hand-written headers of a program for a CPU, by file name, with those that only these sources include."""
    folder, texts = files("compiler.devices.cpu.runtime"), tuple(sources)
    names = (*HEADERS, SHORT_HEADER) if any(SHORT_HEADER in INCLUDED.findall(text) for text in texts) else HEADERS
    return {**{name: (folder / name).read_text() for name in names}, **host_headers(), **small_header(texts)}


def with_short(text: str) -> str:
    """The text of a kernel below the header that it needs if it loads elements that are shorter in memory."""
    return f'#include "{SHORT_HEADER}"\n{text}' if SHORT_LOAD in text else text


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
