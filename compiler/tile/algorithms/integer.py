"""Tiles for products of bytes."""

from __future__ import annotations

from compiler.ir.integer import as_integer, row_step
from compiler.ir.machine import Workload
from compiler.ir.normal_form import Slots
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.dot import DotProduct
from compiler.tile.model import Proposal


def integer_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no product of bytes."""
    form = as_integer(workload)
    if form is None:
        return []
    bytes_too = target.multiplies_bytes
    return DotProduct(
        "integer",
        form.view,
        group=4 if bytes_too else 2,
        steps_per_ns=target.rates.fma_per_ns * (1.0 if bytes_too else 0.5),
        staged=not (bytes_too and row_step(form, Slots(workload))),
        packed=form.packing(workload, target.vector_floats) is not None,
    ).tiles(target, lanes)
