"""One kernel as C, by the algorithm its tile names."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from compiler.codegen.scalars import with_small
from compiler.codegen.task_grid import TaskGrid
from compiler.devices.cpu.algorithms import lowering
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def lower(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowered:
    """A kernel as a C function called `name`. Raises KeyError for an algorithm this target does not have."""
    lowered = lowering(name, workload, tile, target).lower()
    return replace(lowered, text=with_small(lowered.text))


def count_tiles(workload: Workload, tile: Tile, target: CpuTarget) -> int:
    """How many tile tasks a kernel has under a tile."""
    return _tasks(workload.nameless, tile, target)[0]


def task_grid(workload: Workload, tile: Tile, target: CpuTarget) -> TaskGrid | None:
    """What the tile tasks of a kernel work on under a tile (`Lowered.grid`)."""
    return _tasks(workload.nameless, tile, target)[1]


@lru_cache(maxsize=4096)
def _tasks(workload: Workload, tile: Tile, target: CpuTarget) -> tuple[int, TaskGrid | None]:
    found = lowering("kernel", workload, tile, target)
    return found.tasks, found.grid
