"""The `bf16` algorithm: fp32 contractions by dot products of operands that are rounded to bf16."""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.products.dot import bf16
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.machine import Workload
from compiler.tuning.proposal import Proposal


def bf16_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no fp32 contraction."""
    product = bf16.product_of(workload, target)
    return bf16.finished(product, target).tiles(target, lanes) if product else []


BF16 = Algorithm(("bf16",), bf16_tiles, bf16.bf16, "bf16", any_short)
