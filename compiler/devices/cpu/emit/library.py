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


WHERE_NEEDED = {
    "tw_short.h": "tw_load_bf16",
    "tw_short_math.h": "tw_erf_bf16",
    "tw_short_sigmoid.h": "tw_sigmoid_bf16",
    "tw_short_exp.h": "tw_exp_bf16",
    "tw_short_gelu.h": "tw_gelu_bf16",
    "tw_pixels.h": "tw_pixel",
    "tw_tiles.h": "tw_tile",
    "tw_quantise.h": "tw_quantised",
    "tw_bytes.h": "tw_bytes",
    "tw_near.h": "tw_exp_near",
    "tw_quarters.h": "tw_quarter",
    "tw_spread.h": "tw_spread",
    "tw_table.h": "tw_table",
    "tw_pick.h": "tw_pick",
    "tw_codebook.h": "tw_coded",
    "tw_digits.h": "tw_digits",
    "tw_expand.h": "tw_expand",
    "state.h": "tw_state",
    "tw_state.h": "tw_state",
}
"""Headers that few kernels need, and how the names in them begin: of loads of elements that are shorter in memory, of
functions whose results are rounded to these, of sigmoids, exponentials and Gelu that are, of pixels of few channels,
of products by tiles, of rounding to bytes, of vectors of bytes, of exponentials that are rounded to bytes, of
quarters of vectors of bytes, of bytes brought to the lanes of their group, of functions of a byte as tables, of
elements picked for each lane, of values looked up in a codebook, of floats as digits of bytes, and, for model.c alone,
of constants that are made dense at load, and of states that are kept from run to run."""


def runtime_headers(sources: Iterable[str] = ()) -> dict[str, str]:
    """The hand-written headers of a program for a CPU, by file name, with those that only these sources include."""
    folder, texts = files("compiler.devices.cpu.runtime"), tuple(sources)
    included = {header for text in texts for header in INCLUDED.findall(text)}
    names = (*HEADERS, *(header for header in WHERE_NEEDED if header in included))
    return {**{name: (folder / name).read_text() for name in names}, **host_headers(), **small_header(texts)}


def with_headers(text: str) -> str:
    """The text of a kernel below those of WHERE_NEEDED that it needs."""
    needed = [header for header, name in WHERE_NEEDED.items() if name in text]
    return "".join(f'#include "{header}"\n' for header in needed) + text


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
    return compile_library(sources, headers, target, toolchain, jobs, optimise=optimise, stop=stop, objects=objects)
