"""Products of bf16 and of bytes by tiles of 16 rows (Intel AMX).

Rows of A are read in place only where each begins at a cache line: a tile load whose rows lie across two lines takes
six times as long.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.products.dot import DotContraction, amx, bf16, integer
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import LINE_BYTES
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal


def amx_bf16_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest first; empty where there are no AMX tiles or the kernel is no contraction."""
    product = bf16.product_of(workload, target) if target.has_tiles else None
    return amx.as_tiles("amx_bf16", product).tiles(target, lanes) if product else []


def amx_integer_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The same for products of bytes."""
    product = integer.product_of(workload, target) if target.has_tiles else None
    return amx.as_tiles("amx_integer", product).tiles(target, lanes) if product else []


def amx_bf16(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """As `bf16.bf16`, by tiles."""
    return _aligned(bf16.bf16(name, workload, tile, target, amx.TileStep()))


def amx_integer(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """As `integer.integer`, by tiles."""
    return _aligned(integer.integer(name, workload, tile, target, amx.TileStep()))


def _aligned(lowering: DotContraction) -> DotContraction:
    """The lowering with its rows of A staged where they do not all begin at a cache line."""
    return replace(lowering, row_step=0) if lowering.row_step % LINE_BYTES else lowering


AMX_BF16 = Algorithm(("amx_bf16",), amx_bf16_tiles, amx_bf16, "bf16", any_short)
AMX_INTEGER = Algorithm(("amx_integer",), amx_integer_tiles, amx_integer)
