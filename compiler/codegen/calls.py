"""Calls as workloads: what their code and measurements depend on, under which names they are generated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from compiler.encodings.encoding import DENSE, Encodings
from compiler.forms.uses import uses_of
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.kernel import Routine, Slot
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.plans.plan import Plan
from compiler.ir.region import Region
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

T = TypeVar("T")


def workload_of(kernels: KernelGraph, call: Call, *, encoded: bool = True) -> Workload:
    """A call's kernel with the geometry of its buffers: equal workloads share code and measurements.

    `encoded`: with the ways in which its constants may be kept, for which all their values are looked at.
    """

    def encodings(slot: Slot, id: int) -> Encodings:
        return (DENSE, *(one for use in uses_of(call.kernel, slot) for one in kernels.encodings(id, use)))

    bound = tuple(zip(call.kernel.inputs, call.inputs, strict=True)) if encoded else ()
    return Workload(
        call.kernel,
        tuple(replace(geometry(kernels.buffers[buffer]), unread=False, margins=()) for buffer in call.inputs),
        tuple(geometry(kernels.buffers[buffer]) for buffer in call.outputs),
        tuple(buffer in kernels.constants for buffer in call.inputs),
        tuple(encodings(slot, id) for slot, id in bound),
    )


def lower_each(
    workloads: Sequence[Workload],
    plan: Plan,
    lowered: Callable[[str, Workload, Tile], T],
    known: dict[tuple[Workload, Tile], T],
) -> list[T]:
    """Every call's kernel under the plan's tile for it, in call order.

    Equal workloads under equal tiles share one kernel, also with those of `known`.
    """
    result = []
    for workload, (tile, _) in zip(workloads, plan.tiles, strict=True):
        key = workload.nameless, tile
        if key not in known:
            known[key] = lowered(function_name(workload, len(known)), workload, tile)
        result.append(known[key])
    return result


def operands_of(workload: Workload, packings: Mapping[int, Packing]) -> tuple[tuple[DType, int], ...]:
    """Element type and number of elements of each operand in memory, inputs before outputs.

    `packings` are those of the operands that are packed, by position.
    """
    buffers = enumerate((*workload.inputs, *workload.outputs))
    return tuple(
        (packings[at].dtype, packings[at].elements) if at in packings else (buffer.dtype, buffer.span)
        for at, buffer in buffers
    )


def geometry(buffer: Buffer) -> Buffer:
    """A buffer without its identity: type, layout and strides."""
    return replace(buffer, id=0, storage=0, offset=0, name="")


def function_name(workload: Workload, number: int) -> str:
    """A C identifier that says what the kernel computes; operator names are ours, never the model's."""
    routine = isinstance(workload.kernel, Routine) and not isinstance(workload.kernel, Region)
    words = re.sub(r"[^a-z0-9]+", "_", workload.kernel.family.lower()).strip("_")
    return f"k{number}_{words[:40].strip('_')}" + ("_routine" if routine else "")
