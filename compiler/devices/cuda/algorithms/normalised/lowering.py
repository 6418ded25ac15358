"""Products of normalised rows as one CUDA kernel: `normalised`, `normalised_tf32`, `.._3xtf32` and `.._ffma`.

The kernel is that of a product (`contraction`) whose A a block makes once: all of its rows, normalised, in shared
memory (`rows`). The steps of k then bring B alone, whose first ones are under way meanwhile. Blocks of other columns
normalise the same rows again; where others read them too, each leaves some of the rows in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.normalised.geometry import Rows, element_of, rows_of
from compiler.devices.cuda.algorithms.normalised.rows import NormalisedRows
from compiler.devices.cuda.algorithms.normalised.tiles import PRODUCTS
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import Product, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.products.floats import CALLED, plain_b, plain_packing, product_by
from compiler.devices.cuda.products.lowering import CudaContraction, switches_of
from compiler.devices.cuda.products.pipeline import (
    PIPELINE,
    Even,
    Place,
    fetch,
    functions,
    loop,
    prefetch,
)
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


def lower_cuda_normalised(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `rows_of` accepts.

    Levels: `block` (m, n, k, stages), `warp` or `thread` (m, n).
    """
    rows = rows_of(workload)
    assert rows is not None, "the tile stage offers `normalised` only to kernels of that form"
    product = rows.normalised.contraction
    parts = NormalisedOperands(rows), Even(), RowsThenPipeline(rows)
    return CudaContraction(name, workload, product, tile, *parts, **switches_of(target)).lower()


@dataclass(frozen=True)
class NormalisedOperands:
    """A are normalised rows, of which shared memory holds all steps; B is packed, or lies where it lies."""

    rows: Rows
    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: CALLED[product] for name, product in PRODUCTS.items()}
    )

    def product(self, of: CudaContraction) -> Product:
        """How a block multiplies the rows by the weights."""
        precision = "fp16" if of.tile.algorithm == "normalised" else "fp32"
        return product_by(PRODUCTS[of.tile.algorithm], of.tile, element_of(self.rows, of.workload, precision))

    def a(self, of: CudaContraction) -> NormalisedRows:
        """The rows in shared memory, behind the stages of B."""
        side = of.side("a", of.view.a, of.view.m, "first_m", of.m)
        return NormalisedRows(side, self.rows, of.slots, of.stages * of.stage_bytes)

    def b(self, of: CudaContraction) -> Operand:
        """As of any product of floats."""
        return plain_b(of)

    def packing(self, of: CudaContraction) -> tuple[int, BlockPanels] | None:
        """As of any product of floats."""
        return plain_packing(of)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Of B alone, which is what one step copies."""
        return of.n * of.product.layout(of.depth).pitch

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Sums are what they are."""


@dataclass(frozen=True)
class RowsThenPipeline:
    """Rows are normalised first; then steps of B come through the pipeline."""

    rows: Rows

    def ahead(self, of: CudaContraction) -> int:
        """As of the pipeline."""
        return PIPELINE.ahead(of)

    def shared_bytes(self, of: CudaContraction) -> int:
        """Stages of B, behind them all steps of A; or the sums that take their place."""
        return max(of.stages * of.stage_bytes + of.steps * of.a.side.bytes, of.epilogue.shared_bytes)

    def packings(self, of: CudaContraction) -> Mapping[int, Packing]:
        """As of the pipeline."""
        return PIPELINE.packings(of)

    def epilogue(self, of: CudaContraction) -> Epilogue:
        """As of the pipeline."""
        return PIPELINE.epilogue(of)

    def notes(self, of: CudaContraction) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        return ["rows are normalised first, by a warp each, then", *PIPELINE.notes(of)]

    def declare(self, of: CudaContraction, writer: Writer) -> None:
        """The function that fetches B; what is the same for all rows comes after its first stages."""
        of.b.declare(writer)
        functions(writer, of.b)

    def fill(self, of: CudaContraction, writer: Writer) -> None:
        """The first stages of B, and the rows."""
        rows = of.a
        assert isinstance(rows, NormalisedRows)
        with unrolled(writer, of.ahead, "stage"):
            with writer.block("if (first_step + stage < past_step)"):
                fetch(writer, of.b, "first_step + stage", "stage", _place(of))
            writer.line("tw_cp_async_commit();")
        with writer.block(""):
            rows.declare(writer)
            prefetch(of, writer)
            writer.line("tw_grid_dependency_wait();")
            own = f"first_n == own_row % {of.across} * {of.n}" if of.across > 1 else "true"
            rows.normalise(writer, own)

    def multiply(self, of: CudaContraction, writer: Writer) -> None:
        """The loop over steps, of which only B is fetched."""
        loop(of, writer, (of.b,), _place(of))


def _place(of: CudaContraction) -> Place:
    """Stages of B; behind them all steps of A."""

    def place(operand: Operand, stage: str) -> str:
        if operand is of.a:
            return f"shared + {of.stages * of.stage_bytes} + step * {of.a.side.bytes}"
        return f"shared + {stage} * {of.stage_bytes}"

    return place
