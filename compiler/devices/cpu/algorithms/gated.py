"""Tiles for products with a gate on one operand, which is moved to the other.

Either the weights are scaled once for all rows, or the rows are.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.products.contraction.lowering import contraction
from compiler.devices.cpu.products.contraction.tiles import contraction_tiles
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.gated import gate_on_other_operand
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal


def gated_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Those of `contraction` with the gate on the other operand; empty for a kernel without a gate."""
    moved = gate_on_other_operand(workload.kernel) if isinstance(workload.kernel, Kernel) else None
    if moved is None:
        return []
    proposals = contraction_tiles(replace(workload, kernel=moved), target, lanes)
    return [replace(one, tile=replace(one.tile, algorithm="gated")) for one in proposals]


def gated(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A product as `contraction` lowers it, with its gate on the other operand."""
    assert isinstance(workload.kernel, Kernel)
    moved = gate_on_other_operand(workload.kernel)
    assert moved is not None, "gated_tiles proposes nothing for a product without a gate"
    return contraction(name, replace(workload, kernel=moved), tile, target)


GATED = Algorithm(("gated",), gated_tiles, gated)
