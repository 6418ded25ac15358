"""Tiles for products with a gate on one operand, which is moved to the other: weights scaled once for all rows, or rows instead of weights."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.gated import gate_on_other_operand
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.contraction import contraction_tiles
from compiler.tile.model import Proposal


def gated_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Those of `contraction` with the gate on the other operand; empty for a kernel without a gate."""
    moved = gate_on_other_operand(workload.kernel) if isinstance(workload.kernel, Kernel) else None
    if moved is None:
        return []
    proposals = contraction_tiles(replace(workload, kernel=moved), target, lanes)
    return [replace(one, tile=replace(one.tile, algorithm="gated")) for one in proposals]
