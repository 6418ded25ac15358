"""One kernel as C, by the algorithm its tile names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from compiler.codegen.c_attention import attention
from compiler.codegen.c_bf16 import bf16
from compiler.codegen.c_contraction import contraction
from compiler.codegen.c_gemv import gemv
from compiler.codegen.c_integer import integer
from compiler.codegen.c_loops import loops
from compiler.codegen.c_recurrent import recurrent
from compiler.codegen.c_routine import routine
from compiler.codegen.c_separable import separable
from compiler.codegen.c_window import window
from compiler.codegen.c_winograd import winograd
from compiler.codegen.lowered import Lowered, Lowering, with_c_names
from compiler.codegen.task_grid import TaskGrid
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.gated import gate_on_other_operand
from compiler.ir.gemv import reads_once
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.machine import Workload
from compiler.ir.plan import Plan
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget

T = TypeVar("T")

ALGORITHMS: Mapping[str, Callable[[str, Workload, Tile, CpuTarget], Lowering]] = {
    "loops": lambda name, workload, tile, target: loops(name, workload, target),
    "contraction": contraction,
    "gated": lambda name, workload, tile, target: contraction(name, _gated(workload), tile, target),
    "attention": attention,
    "gemv": gemv,
    "gemv24": gemv,
    "recurrent": recurrent,
    "recurrent24": recurrent,
    "integer": integer,
    "bf16": bf16,
    "separable": separable,
    "window": window,
    "winograd": winograd,
    "routine": lambda name, workload, tile, target: routine(name, workload),
}


def lower(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowered:
    """A kernel as a C function called `name`. Raises KeyError for an algorithm this target does not have."""
    return _lowering(name, workload, tile, target).lower()


def _lowering(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    workload = replace(workload, kernel=with_c_names(workload.kernel))
    return ALGORITHMS[tile.algorithm](name, workload, tile, target)


def _gated(workload: Workload) -> Workload:
    """A product with its gate on the other operand."""
    assert isinstance(workload.kernel, Kernel)
    moved = gate_on_other_operand(workload.kernel)
    assert moved is not None, "the tile stage offers `gated` only to products with a gate"
    return replace(workload, kernel=moved)


def count_tiles(workload: Workload, tile: Tile, target: CpuTarget) -> int:
    """How many tile tasks a kernel has under a tile."""
    return _tasks(workload.nameless, tile, target)[0]


def task_grid(workload: Workload, tile: Tile, target: CpuTarget) -> TaskGrid | None:
    """What the tile tasks of a kernel work on under a tile (`Lowered.grid`)."""
    return _tasks(workload.nameless, tile, target)[1]


@lru_cache(maxsize=4096)
def _tasks(workload: Workload, tile: Tile, target: CpuTarget) -> tuple[int, TaskGrid | None]:
    lowering = _lowering("kernel", workload, tile, target)
    return lowering.tasks, lowering.grid


def workload_of(kernels: KernelGraph, call: Call) -> Workload:
    """A call's kernel with the geometry of its buffers: equal workloads share code and measurements."""
    bound = tuple(zip(call.kernel.inputs, call.inputs, strict=True))
    return Workload(
        call.kernel,
        tuple(geometry(kernels.buffers[buffer]) for buffer in call.inputs),
        tuple(geometry(kernels.buffers[buffer]) for buffer in call.outputs),
        tuple(buffer in kernels.constants for buffer in call.inputs),
        tuple(reads_once(call.kernel, slot) and kernels.is_narrow(id) for slot, id in bound),
    )


def lower_each(
    workloads: Sequence[Workload],
    plan: Plan,
    lowered: Callable[[str, Workload, Tile], T],
    known: dict[tuple[Workload, Tile], T],
) -> list[T]:
    """Every call's kernel under the plan's tile for it, in call order; equal workloads under equal tiles share one, also with those of `known`."""
    result = []
    for workload, (tile, _) in zip(workloads, plan.tiles, strict=True):
        key = workload.nameless, tile
        if key not in known:
            known[key] = lowered(function_name(workload, len(known)), workload, tile)
        result.append(known[key])
    return result


def geometry(buffer: Buffer) -> Buffer:
    """A buffer without its identity: type, layout and strides."""
    return replace(buffer, id=0, storage=0, offset=0, name="")


def function_name(workload: Workload, number: int) -> str:
    """A C identifier that tells what the kernel computes; operator names are ours, never the model's."""
    words = re.sub(r"[^a-z0-9]+", "_", workload.kernel.family.lower()).strip("_")
    return f"k{number}_{words[:40].strip('_')}" + ("_routine" if isinstance(workload.kernel, Routine) else "")
