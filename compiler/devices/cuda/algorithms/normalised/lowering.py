"""Products of normalised rows as one CUDA kernel: `normalised`, `normalised_tf32`, `.._3xtf32` and `.._ffma`.

The kernel is that of a product (`contraction`) whose A a block makes once: all of its rows, normalised, in shared
memory (`rows`). The steps of k then bring B alone, whose first ones are under way meanwhile. Blocks of other columns
normalise the same rows again; where others read them too, each leaves some of the rows in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.contraction.floats import CALLED, Floats, product_by
from compiler.devices.cuda.algorithms.contraction.lowering import CudaContraction, switches_of
from compiler.devices.cuda.algorithms.normalised.geometry import Rows, element_of, rows_of
from compiler.devices.cuda.algorithms.normalised.rows import NormalisedRows
from compiler.devices.cuda.algorithms.normalised.tiles import PRODUCTS
from compiler.devices.cuda.codegen.fragments import Product, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def lower_cuda_normalised(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `rows_of` accepts.

    Levels: `block` (m, n, k, stages), `warp` or `thread` (m, n).
    """
    rows = rows_of(workload)
    assert rows is not None, "the tile stage offers `normalised` only to kernels of that form"
    product = rows.normalised.contraction
    return CudaNormalised(name, workload, product, tile, OPERANDS, rows, **switches_of(target)).lower()


OPERANDS = Floats({name: CALLED[product] for name, product in PRODUCTS.items()})


@dataclass(frozen=True)
class CudaNormalised(CudaContraction):
    """`view` is the product, whose A are `rows`."""

    rows: Rows

    @cached_property
    def product(self) -> Product:
        """How a block multiplies the rows by the weights."""
        precision = "fp16" if self.tile.algorithm == "normalised" else "fp32"
        return product_by(PRODUCTS[self.tile.algorithm], self.tile, element_of(self.rows, self.workload, precision))

    @cached_property
    def a(self) -> NormalisedRows:
        """The rows in shared memory."""
        side = self.side("a", self.view.a, self.view.m, "first_m", self.m)
        return NormalisedRows(side, self.rows, self.slots, self._rows_at)

    # Shared memory: stages of packed B; behind them all steps of A

    @cached_property
    def stage_bytes(self) -> int:
        """Shared memory of what one step copies."""
        return self.n * self.product.layout(self.depth).pitch

    @property
    def _rows_at(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes."""
        return max(self._rows_at + self.steps * self.a.side.bytes, self.epilogue.shared_bytes)

    def _place(self, operand: Operand, stage: str) -> str:
        if operand is self.a:
            return f"shared + {self._rows_at} + step * {self.a.side.bytes}"
        return f"shared + {stage} * {self.stage_bytes}"

    # The text

    def notes(self) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        return ["rows are normalised first, by a warp each, then", *super().notes()]

    def declare_operands(self, writer: Writer) -> None:
        """The function that fetches B; what is the same for all rows comes after its first stages."""
        self.b.declare(writer)
        self._functions(writer, self.b)

    def _fetch(self, writer: Writer, operand: Operand, step: str, stage: str) -> None:
        if operand is self.b:
            super()._fetch(writer, operand, step, stage)

    def _fill(self, writer: Writer) -> None:
        """The first stages of B, and the rows."""
        with unrolled(writer, self.ahead, "stage"):
            with writer.block("if (first_step + stage < past_step)"):
                self._fetch(writer, self.b, "first_step + stage", "stage")
            writer.line("tw_cp_async_commit();")
        with writer.block(""):
            self.a.declare(writer)
            self._prefetch(writer)
            writer.line("tw_grid_dependency_wait();")
            own = f"first_n == own_row % {self.across} * {self.n}" if self.across > 1 else "true"
            self.a.normalise(writer, own)
