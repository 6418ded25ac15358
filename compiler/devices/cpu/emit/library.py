"""Kernels in C, with the headers that they are written with, as one shared library."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
    "tw_pool.h",
    "tw_lanes.h",
    "tw_runtime.h",
)

WHERE_NEEDED = (
    "tw_short.h",
    "tw_short_math.h",
    "tw_short_sigmoid.h",
    "tw_short_exp.h",
    "tw_short_gelu.h",
    "tw_pixels.h",
    "tw_tiles.h",
    "tw_quantise.h",
    "tw_bytes.h",
    "tw_near.h",
    "tw_quarters.h",
    "tw_spread.h",
    "tw_table.h",
    "tw_pick.h",
    "tw_codebook.h",
    "tw_digits.h",
    "tw_expand.h",
    "tw_page.h",
    "tw_page_lanes.h",
    "state.h",
    "tw_state.h",
)
"""Headers that few kernels need, in the order in which they are included: who writes a call says so to the writer.

They are of loads of elements that are shorter in memory, of functions whose results are rounded to these, of sigmoids,
exponentials and Gelu that are, of pixels of few channels, of products by tiles, of rounding to bytes, of vectors of
bytes, of exponentials that are rounded to bytes, of quarters of vectors of bytes, of bytes brought to the lanes of a
group, of functions of a byte as tables, of elements picked for each lane, of values looked up in a codebook, of floats
as digits of bytes, and, for model.c alone, of constants that are made dense at load, of modules for pages, and of
states that are kept from run to run.
"""


def runtime_headers(sources: Iterable[str] = ()) -> dict[str, str]:
    """The hand-written headers of a program for a CPU, by file name, with those that only these sources include."""
    folder, texts = files("compiler.devices.cpu.runtime"), tuple(sources)
    included = {header for text in texts for header in INCLUDED.findall(text)}
    names = (*HEADERS, *(header for header in WHERE_NEEDED if header in included))
    return {**{name: (folder / name).read_text() for name in names}, **host_headers(), **small_header(texts)}


def with_headers(text: str, headers: Collection[str]) -> str:
    """The text of a kernel below those of WHERE_NEEDED that it needs."""
    return "".join(f'#include "{header}"\n' for header in WHERE_NEEDED if header in headers) + text


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
