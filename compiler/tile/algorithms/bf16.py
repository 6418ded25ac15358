"""Tiles for fp32 contractions with operands rounded to bf16."""

from __future__ import annotations

from compiler.ir.contraction import as_contraction, packing_of
from compiler.ir.machine import Workload
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.dot import DotProduct
from compiler.tile.model import Proposal


def bf16_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no fp32 contraction."""
    view = as_contraction(workload)
    if view is None or not target.multiplies_bf16:
        return []
    return DotProduct(
        "bf16",
        view,
        group=2,
        steps_per_ns=target.rates.fma_per_ns,
        staged=True,
        packed=packing_of(view, workload, target.vector_floats) is not None,
    ).tiles(target, lanes)
