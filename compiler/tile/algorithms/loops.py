"""Plain loops: one tile, whose blocking the code generator derives from the kernel's axes."""

from __future__ import annotations

from math import prod

from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.model import CALL_NS, ELEMENT_NS, Proposal


def loop_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The one tile of the `loops` algorithm; for a Routine, its hand-written form."""
    if not isinstance(workload.kernel, Kernel):
        elements = sum(buffer.type.elements for buffer in workload.inputs)
        return [Proposal(Tile("routine"), 1e-9 * (CALL_NS + 10 * elements))]
    kernel = workload.kernel
    shared = prod(axis.extent for axis in kernel.shared)
    points = sum(shared * prod(axis.extent for axis in (*block.axes, *block.reduction)) for block in kernel.blocks)
    return [Proposal(Tile("loops"), 1e-9 * (CALL_NS + points * ELEMENT_NS * 4 / target.vector_floats))]
