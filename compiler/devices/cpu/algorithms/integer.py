"""The `integer` algorithm: products of bytes with zero points, by dot products."""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.products.dot import integer
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.machine import Workload
from compiler.tuning.proposal import Proposal


def integer_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no product of bytes."""
    product = integer.product_of(workload, target)
    return product.tiles(target, lanes) if product else []


INTEGER = Algorithm(("integer",), integer_tiles, integer.integer)
