"""How much an artifact's weights grow by a second plan.

A tile says how its kernel wants constants packed, and each packing is stored once.
"""

from __future__ import annotations

from compiler.codegen.calls import workload_of
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import KernelGraph
from compiler.ir.packing import Packing
from compiler.ir.plans.plan import Plan


def repacked_bytes(kernels: KernelGraph, plan: Plan, other: Plan, target: CpuTarget) -> int:
    """Bytes of constants that calls want packed in another way under the other plan.

    Only calls whose tiles differ are lowered.
    """
    found: dict[tuple[int, Packing | None], int] = {}
    for call, (tile, _), (another, _) in zip(kernels.calls, plan.tiles, other.tiles, strict=True):
        constants = {at: id for at, id in enumerate(call.inputs) if id in kernels.constants}
        if not constants or tile == another:
            continue
        workload = workload_of(kernels, call)
        here, there = (lower("repacked", workload, one, target).packings for one in (tile, another))
        for at, id in constants.items():
            packing = there.get(at)
            if packing != here.get(at):
                bytes = packing.elements * packing.dtype.bytes if packing else kernels.constants[id].nbytes
                found[id, packing] = bytes
    return sum(found.values())
