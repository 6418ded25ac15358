"""Products by weights that are zero at two of each four places along k, as one CUDA kernel: `sparse`.

Pipeline, split k and maps are those of any contraction (`contraction.lowering`). B is packed without its zeros, with
the places of what is kept (`codegen.sparse_panels`): 9 bytes for each 16 of a dense one in 16 bits.

`sparse_wgmma` multiplies by warpgroups, which read both operands from shared memory (`sparse.warpgroups`); B comes by
bulk copies, metadata behind its rows.

`sparse_integer` is the same of bytes, summed exactly in int32; B takes 10 bytes for each 16. A may have a zero point p,
B has none, so that

    sum (A - p) B  =  sum A B  -  p sum B

where the sums of B over k are one more product of the same fragments, with ones (`algorithms.integer`). By warpgroups,
`sparse_wgmma_integer`, they are packed behind the tiles, as in `algorithms.integer_wgmma`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.contraction.lowering import CudaContraction, switches_of
from compiler.devices.cuda.algorithms.contraction.operand import half_of
from compiler.devices.cuda.algorithms.contraction.wgmma import WGMMA_M
from compiler.devices.cuda.algorithms.integer import padded, reading_bytes
from compiler.devices.cuda.algorithms.integer_wgmma import HEADER as BYTES_HEADER
from compiler.devices.cuda.algorithms.integer_wgmma import before_first, packed_sums
from compiler.devices.cuda.algorithms.sparse.form import as_sparse_contraction, as_sparse_integer, weights_of
from compiler.devices.cuda.algorithms.sparse.product import SparseByteProduct, SparseProduct
from compiler.devices.cuda.algorithms.sparse.warpgroups import HEADER, SparseByteWgmmaProduct, SparseWgmmaProduct
from compiler.devices.cuda.codegen.fragments import MMA_N, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Bulk, Operand, Packed
from compiler.devices.cuda.codegen.rows import Swizzled
from compiler.devices.cuda.codegen.scalars import CudaEmitter
from compiler.devices.cuda.codegen.sparse_panels import SparsePanels, SummedSparsePanels
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.integer import IntegerContraction
from compiler.ir.expr import Expr
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

OF_BYTES = ("sparse_integer", "sparse_wgmma_integer")
ATOM_BYTES = 1024
"""What tiles of rows of 128 swizzled bytes are aligned to."""


def lower_cuda_sparse(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_sparse_contraction` or `as_sparse_integer` accepts under a tile of `cuda_sparse_tiles`.

    Levels: `grid` or `cluster` (parts of k), `block` (m, n, k, stages), `warp` or `warpgroup` (m, n).
    """
    if tile.algorithm in OF_BYTES:
        form = as_sparse_integer(workload)
        assert form is not None, "the tile stage offers products of bytes only to kernels of that form"
        by_warps = tile.algorithm == "sparse_integer"
        of_bytes = _CudaSparseInteger if by_warps else _CudaSparseIntegerWgmma
        return of_bytes(name, workload, form.view, tile, form, **switches_of(target)).lower()
    view = as_sparse_contraction(workload)
    assert view is not None, "the tile stage offers `sparse` only to kernels of that form"
    chosen = _CudaSparseWgmma if tile.algorithm == "sparse_wgmma" else _CudaSparse
    return chosen(name, workload, view, tile, **switches_of(target)).lower()


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
    called: ClassVar[Mapping[str, str]] = {
        "sparse": "16-bit sparse tensor cores, two of four weights",
        "sparse_wgmma": "16-bit sparse tensor cores by warpgroups, two of four weights",
        "sparse_integer": "8-bit sparse tensor cores, two of four weights",
        "sparse_wgmma_integer": "8-bit sparse tensor cores by warpgroups, two of four weights",
    }

    inner: ClassVar[str] = "warp"
    """The level of who has a part of a block's tile."""

    @cached_property
    def product(self) -> SparseProduct | SparseWgmmaProduct:
        return SparseProduct(self._half, *self._extents)

    @property
    def _half(self) -> DType:
        half = half_of(self.view, self.workload, exact=False)
        assert half is not None, "`sparse` is for operands of 16 bits"
        return half

    @property
    def _extents(self) -> tuple[int, int, int, int]:
        """m and n of a block, and of a part of it."""
        m, n, part_m, part_n = (self.tile.extent(level, axis) for level in ("block", self.inner) for axis in "mn")
        return m, n, part_m, part_n

    @property
    def _weights(self) -> tuple[Expr, DType]:
        """B as the kernel has it, and the dtype in which it is packed."""
        return self.view.b, self.product.element

    @property
    def _packs(self) -> type[SparsePanels]:
        """What B is packed by."""
        return SparsePanels

    @cached_property
    def _panels(self) -> tuple[int, SparsePanels]:
        value, element = self._weights
        found = weights_of(self.view, value, self.workload)
        assert found is not None
        position, matrix = found
        swizzled = isinstance(self.product.kept_layout(self.depth), Swizzled)
        return position, self._packs(replace(matrix, panel=0), self.n, self.depth, element, swizzled)

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


@dataclass(frozen=True)
class _CudaSparseWgmma(_CudaSparse):
    inner: ClassVar[str] = "warpgroup"
    header: ClassVar[str] = HEADER

    @cached_property
    def product(self) -> SparseWgmmaProduct:
        return SparseWgmmaProduct(self._half, *self._extents)

    @cached_property
    def b(self) -> Operand:
        plain = super().b
        _, panels = self._panels
        assert isinstance(plain, Packed)
        return Bulk(plain.side, panels, plain.slot, plain.place, f"shared + {self.barriers_at}", self.stages)

    @cached_property
    def stage_bytes(self) -> int:
        """Whole atoms of the swizzle, so that those of the next stage lie as the hardware counts them."""
        _, panels = self._panels
        return -(-(self.a.side.bytes + panels.tile_bytes) // ATOM_BYTES) * ATOM_BYTES


@dataclass(frozen=True)
class _OfBytes(_CudaSparse):
    """Products of bytes, from whose sums the zero point of A is taken.

    A thread's row of A is `row` in C, `place` its sum in acc, and `b_sum` the sum of the column of B.
    """

    form: IntegerContraction

    total: ClassVar[DType] = DType.I32
    row: ClassVar[str]
    place: ClassVar[str]
    b_sum: ClassVar[str]

    @property
    def _has_zero(self) -> bool:
        return self.form.a.fixed_zero != 0

    @property
    def _weights(self) -> tuple[Expr, DType]:
        return self.form.b.value, DType.I8

    @cached_property
    def a(self) -> Operand:
        side = self._side("a", padded(self.form.a), self.view.m, "first_m", self.m)
        return reading_bytes(side, self.form.a, self.slots)

    def _steps(self, writer: Writer) -> None:
        super()._steps(writer)
        if self._has_zero:
            self._take_zero_point(writer)

    def _take_zero_point(self, writer: Writer) -> None:
        """What the zero point of A takes from the sums of this part of k. Unsigned, for they wrap around."""
        view, zero = self.view, self.form.a.zero
        assert zero is not None, "without one nothing is taken"
        elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        emitter = CudaEmitter(writer, self.slots.address, elements)
        columns, rows, _ = self.product.sums
        with unrolled(writer, rows, "j"), unrolled(writer, 2, "odd"), emitter.scope():
            if zero.axes & {*view.m}:
                writer.line(f"const int row = min({self.row}, {view.rows - 1});")
                decode(writer, view.m, "row", "int", zero.axes)
            writer.line(f"const unsigned a_zero = (unsigned){emitter.scalar(zero)};")
            with unrolled(writer, columns, "i"), unrolled(writer, 2, "half"):
                writer.line(f"int &sum = acc{self.place};")
                writer.line(f"sum = (int)((unsigned)sum - a_zero * {self.b_sum});")


@dataclass(frozen=True)
class _CudaSparseInteger(_OfBytes):
    row: ClassVar[str] = f"first_m + warp_m + j * {MMA_N} + lane % 4 * 2 + odd"
    place: ClassVar[str] = "[i][j][2 * half + odd]"
    b_sum: ClassVar[str] = "(unsigned)column_sums[i][2 * half]"

    @cached_property
    def product(self) -> SparseByteProduct:
        return SparseByteProduct(self.form.a.value.dtype, *self._extents, column_sums=self._has_zero)


@dataclass(frozen=True)
class _CudaSparseIntegerWgmma(_OfBytes, _CudaSparseWgmma):
    header: ClassVar[str] = BYTES_HEADER
    row: ClassVar[str] = f"first_m + group_m + j * {MMA_N} + lane % 4 * 2 + odd"
    place: ClassVar[str] = "[i][j * 4 + 2 * half + odd]"
    b_sum: ClassVar[str] = "b_sum[i][half]"

    @cached_property
    def product(self) -> SparseByteWgmmaProduct:
        return SparseByteWgmmaProduct(self.form.a.value.dtype, *self._extents)

    @property
    def _packs(self) -> type[SparsePanels]:
        return SummedSparsePanels if self._has_zero else SparsePanels

    def _take_zero_point(self, writer: Writer) -> None:
        self._declare_sums(writer, self.product.sums[0])
        super()._take_zero_point(writer)

    def _declare_sums(self, writer: Writer, columns: int) -> None:
        """`b_sum`, of the thread's columns over this part of k."""
        position, panels = self._panels
        assert isinstance(panels, SummedSparsePanels)
        start = packed_sums(self, position, panels)
        writer.line(f"const int *const b_sums = {start} + group_n + warp % 4 * 16 + lane / 4; /* before each step */")
        writer.line(f"unsigned b_sum[{columns}][2];")
        with unrolled(writer, columns, "i"), unrolled(writer, 2, "half"):
            writer.line(f"const int *const own = b_sums + i * {WGMMA_M} + half * 8;")
            before = f"own[{before_first(self.parts)} * {self.n}]"
            writer.line(f"b_sum[i][half] = (unsigned)own[past_step * {self.n}] - (unsigned){before};")
