"""One kernel as C, by the algorithm its tile names."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from compiler.codegen.build import COMPILE_FLAGS, small_header
from compiler.codegen.calls import function_name
from compiler.codegen.digest import source_digest
from compiler.codegen.scalars import with_small
from compiler.codegen.task_grid import TaskGrid
from compiler.devices.cpu.algorithms import lowering
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.library import WHERE_NEEDED, runtime_headers, with_headers
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile

INCLUDES = '#include "tw_kernel.h"\n'
"""What the texts of kernels stand below."""


def lower(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowered:
    """A kernel as a C function called `name`. Raises KeyError for an algorithm this target does not have."""
    lowered = lowering(name, workload, tile, target).lower()
    return replace(lowered, text=with_headers(with_small(lowered.text), lowered.headers))


def kernel_source(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> str:
    """The C of a kernel, after what it includes."""
    return f"{INCLUDES}\n{lower(name, workload, tile, target).text}"


def digest_of(lowered: Lowered, target: CpuTarget) -> str:
    """What identifies a kernel's code, as it is compiled for a target (`source_digest`)."""
    packings = sorted(lowered.packings.items())
    facts = (COMPILE_FLAGS, target.flags, target.vector_floats, lowered.tiles, lowered.scratch_bytes, packings)
    return source_digest(lowered.name, INCLUDES + lowered.text, _headers(lowered.text), facts)


def source_of(workload: Workload, tile: Tile, target: CpuTarget) -> str:
    """The digest of the code that a kernel has under a tile, which is generated for it. Raises what `lower` raises."""
    return _source_of(workload.nameless, tile, replace(target, rates=Rates()))


@lru_cache(maxsize=8192)
def _source_of(workload: Workload, tile: Tile, target: CpuTarget) -> str:
    return digest_of(lower(function_name(workload, 0), workload, tile, target), target)


def _headers(text: str) -> dict[str, str]:
    needs_more = any(header in text for header in WHERE_NEEDED)
    return runtime_headers((text,)) if needs_more else {**_always(), **small_header((text,))}


def count_tiles(workload: Workload, tile: Tile, target: CpuTarget) -> int:
    """How many tile tasks a kernel has under a tile."""
    return _tasks(workload.nameless, tile, target)[0]


def task_grid(workload: Workload, tile: Tile, target: CpuTarget) -> TaskGrid | None:
    """What the tile tasks of a kernel work on under a tile (`Lowered.grid`)."""
    return _tasks(workload.nameless, tile, target)[1]


@cache
def _always() -> dict[str, str]:
    return runtime_headers()


@lru_cache(maxsize=4096)
def _tasks(workload: Workload, tile: Tile, target: CpuTarget) -> tuple[int, TaskGrid | None]:
    found = lowering("kernel", workload, tile, target)
    return found.tasks, found.grid
