"""Products by weights that are zero at two of each four places along k, as one CUDA kernel: `sparse`.

Pipeline, split k and maps are those of any contraction (`contraction.lowering`). B is packed without its zeros, with
the places of what is kept (`codegen.sparse_panels`): 9 bytes for each 16 of a dense one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.contraction.lowering import CudaContraction, switches_of
from compiler.devices.cuda.algorithms.contraction.operand import half_of
from compiler.devices.cuda.algorithms.sparse.form import as_sparse_contraction, weights_of
from compiler.devices.cuda.algorithms.sparse.product import SparseProduct
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand, Packed
from compiler.devices.cuda.codegen.sparse_panels import SparsePanels
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tile import Tile


def lower_cuda_sparse(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_sparse_contraction` accepts under a tile of `cuda_sparse_tiles`.

    Levels: `grid` or `cluster` (parts of k), `block` (m, n, k, stages), `warp` (m, n).
    """
    view = as_sparse_contraction(workload)
    assert view is not None, "the tile stage offers `sparse` only to kernels of that form"
    return _CudaSparse(name, workload, view, tile, **switches_of(target)).lower()


@dataclass(frozen=True)
class PackedSparse(Packed):
    """The tiles of a constant that sparse panels have packed."""

    panels: SparsePanels

    def fetch(self, writer: Writer) -> None:
        """Begins asynchronous copies of this thread's pieces of a step, of rows and of the metadata behind them."""
        side, panels = self.side, self.panels
        across, rows = panels.row_bytes // 16, panels.columns * panels.row_bytes // 16
        pieces = self.step_bytes // 16
        with unrolled(writer, -(-pieces // side.threads), "i"):
            writer.line(f"const int piece = thread + i * {side.threads};")
            row = f"piece / {across} * {side.pitch} + piece % {across} * 16"
            behind = f"{panels.columns * side.pitch} + (piece - {rows}) * 16"
            source = f"{side.name}_packed + step * {self.step_bytes} + i * {16 * side.threads}"
            test = f"if (piece < {pieces}) " if pieces % side.threads else ""
            writer.line(f"{test}tw_cp_async_16(into + (piece < {rows} ? {row} : {behind}), {source}, 16);")


@dataclass(frozen=True)
class _CudaSparse(CudaContraction):
    called: ClassVar[Mapping[str, str]] = {"sparse": "16-bit sparse tensor cores, two of four weights"}

    @cached_property
    def product(self) -> SparseProduct:
        half = half_of(self.view, self.workload, exact=False)
        assert half is not None, "`sparse` is for operands of 16 bits"
        tile = self.tile
        block, warp = ((tile.extent(level, "m"), tile.extent(level, "n")) for level in ("block", "warp"))
        return SparseProduct(half, *block, *warp)

    @cached_property
    def _panels(self) -> tuple[int, SparsePanels]:
        found = weights_of(self.view, self.workload)
        assert found is not None
        position, matrix = found
        return position, SparsePanels(replace(matrix, panel=0), self.n, self.depth, self.product.element)

    @property
    def packings(self) -> Mapping[int, Packing]:
        return dict([self._panels])

    @cached_property
    def b(self) -> Operand:
        position, panels = self._panels
        side = self._side("b", self.view.b, (self.view.n,), "first_n", self.n)
        side = replace(side, layout=self.product.kept_layout(self.depth))
        return PackedSparse(side, panels, self.workload.kernel.inputs[position].name, self.packed_tile(side))

    @cached_property
    def stage_bytes(self) -> int:
        _, panels = self._panels
        return self.a.side.bytes + self.b.side.bytes + panels.metadata_bytes
