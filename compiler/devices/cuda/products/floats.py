"""Parts of products of floats: operands as they lie, or as a constant B is packed, and how they are multiplied."""

from __future__ import annotations

from dataclasses import replace

from compiler.devices.cuda.codegen.fragments import FmaProduct, MmaProduct, Product, SplitProduct
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.codegen.rows import Swizzled
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.operand import without_widening
from compiler.devices.cuda.products.reading import reading
from compiler.forms.contraction import Contraction, packing_of
from compiler.ir.expr import Expr, Load
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

CALLED = {
    "wgmma": "16-bit tensor cores, by warpgroups",
    "mma": "16-bit tensor cores",
    "mma_tf32": "tf32 tensor cores",
    "mma_3xtf32": "fp32 by three tf32 products",
    "ffma": "fp32 multiply-adds",
}
"""How algorithms multiply, for comments."""


def product_by(algorithm: str, tile: Tile, element: DType) -> Product:
    """How warps or threads multiply by `mma`, of operands as `element`, by `mma_tf32`, `mma_3xtf32` or `ffma`."""
    m, n = tile.extent("block", "m"), tile.extent("block", "n")
    if algorithm == "ffma":
        return FmaProduct(m, n, tile.extent("thread", "m"), tile.extent("thread", "n"))
    warps = tile.extent("warp", "m"), tile.extent("warp", "n")
    return SplitProduct(DType.F32, m, n, *warps) if algorithm == "mma_3xtf32" else MmaProduct(element, m, n, *warps)


def plain_a(of: CudaContraction) -> Operand:
    """Rows of A where they lie."""
    return reading(of.side("a", of.view.a, of.view.m, "first_m", of.m), of.slots)


def plain_b(of: CudaContraction) -> Operand:
    """Columns of B as they are packed, or where they lie."""
    return of.reading_b(of.side("b", of.view.b, (of.view.n,), "first_n", of.n))


def plain_packing(of: CudaContraction) -> tuple[int, BlockPanels] | None:
    """Only a constant is packed that lies in constant steps of k and n and is read nowhere else."""
    plain = replace(of.view, b=as_fp32(of.view.b))
    found = packing_of(plain, of.workload, of.n)
    if found is None or times_loaded(of.view, of.workload.kernel.inputs[found[0]].name) > 1:
        return None
    position, matrix = found
    product = of.product
    swizzled = isinstance(product.layout(of.depth), Swizzled)
    matrix = replace(matrix, panel=0)
    return position, BlockPanels(matrix, of.n, of.depth, product.element, product.as_tf32, swizzled)


def plain_stage_bytes(of: CudaContraction) -> int:
    """Of rows of both operands in one layout."""
    return (of.m + of.n) * of.product.layout(of.depth).pitch


def as_fp32(value: Expr) -> Expr:
    """A load of 16-bit floats, widened, as the fp32 load that its packing sees."""
    inner = without_widening(value)
    return Load(inner.slot, inner.index, DType.F32) if isinstance(inner, Load) else value


def times_loaded(view: Contraction, slot: str) -> int:
    """How many different loads of a slot the product and its maps have."""
    values = [value for block in (view.product, *view.epilogue) for value in block.values]
    return len({load for value in values for load in value.loads if load.slot == slot})
