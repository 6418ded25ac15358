"""Products of floats: their operands as they lie, or as a constant B is packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.fragments import Product
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.products.floats import CALLED, plain_a, plain_b, plain_packing, plain_stage_bytes, product_by
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.pipeline import pipelined
from compiler.devices.cuda.products.wgmma import WgmmaProduct
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, as_contraction
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


def lower_cuda_contraction(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_contraction` accepts under a tile of `contraction_tiles`.

    Levels: `grid` (parts of k), `block` (m, n, k, stages), `warpgroup`, `warp` or `thread`.
    """
    view = as_contraction(workload)
    assert view is not None, "the tile stage offers products only to kernels of that form"
    return pipelined(name, workload, view, tile, Floats(), target).lower()


def product_of(view: Contraction, workload: Workload, tile: Tile) -> Product:
    """How a tile multiplies."""
    m, n = tile.extent("block", "m"), tile.extent("block", "n")
    if tile.algorithm == "wgmma":
        return WgmmaProduct(_half(view, workload), m, n, tile.extent("warpgroup", "m"), tile.extent("warpgroup", "n"))
    return product_by(tile.algorithm, tile, _half(view, workload) if tile.algorithm == "mma" else DType.F32)


def _half(view: Contraction, workload: Workload) -> DType:
    half = half_of(view, workload, exact=False)
    assert half is not None, "`mma` and `wgmma` are for operands of 16 bits"
    return half


@dataclass(frozen=True)
class Floats:
    """Operands in fp32 or 16 bits, multiplied as the tile's algorithm says."""

    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = MappingProxyType(CALLED)

    def product(self, of: CudaContraction) -> Product:
        """As the tile says."""
        return product_of(of.view, of.workload, of.tile)

    def a(self, of: CudaContraction) -> Operand:
        """Where it lies."""
        return plain_a(of)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed, or where it lies."""
        return plain_b(of)

    def packing(self, of: CudaContraction) -> tuple[int, BlockPanels] | None:
        """Only a constant is packed that lies in constant steps of k and n and is read nowhere else."""
        return plain_packing(of)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Sums are what they are."""
