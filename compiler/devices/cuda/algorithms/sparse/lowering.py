"""Products by weights that are zero at two of each four places along k, as one CUDA kernel: `sparse`.

Pipeline, split k and maps are those of any contraction (`products.lowering`). B is packed without its zeros, with
the places of what is kept (`codegen.sparse_panels`): 9 bytes for each 16 of a dense one in 16 bits.

`sparse_wgmma` multiplies by warpgroups, which read both operands from shared memory (`sparse.warpgroups`); B comes by
bulk copies, metadata behind its rows.

`sparse_integer` is the same of bytes, summed exactly in int32; B takes 10 bytes for each 16. A may have a zero point p,
B has none, so that

    sum (A - p) B  =  sum A B  -  p sum B

where the sums of B over k are one more product of the same fragments, with ones (`products.bytes`). By warpgroups,
`sparse_wgmma_integer`, they are packed behind the tiles, as in `algorithms.integer_wgmma`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.sparse.form import as_sparse_contraction, as_sparse_integer, weights_of
from compiler.devices.cuda.algorithms.sparse.product import SparseProduct
from compiler.devices.cuda.algorithms.sparse.warpgroups import HEADER, SparseWgmmaProduct
from compiler.devices.cuda.codegen.fragments import MMA_N, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Bulk, Operand, Packed
from compiler.devices.cuda.codegen.rows import Rows, Swizzled
from compiler.devices.cuda.codegen.scalars import CudaEmitter
from compiler.devices.cuda.codegen.sparse_panels import SparsePanels, SummedSparsePanels
from compiler.devices.cuda.products.bytes import WGMMA_HEADER, before_first, packed_sums, padded, reading_bytes
from compiler.devices.cuda.products.floats import plain_a
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.pipeline import pipelined
from compiler.devices.cuda.products.wgmma import WGMMA_M
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.integer import IntegerContraction
from compiler.ir.expr import Expr
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

OF_BYTES = ("sparse_integer", "sparse_wgmma_integer")
BY_WARPGROUPS = ("sparse_wgmma", "sparse_wgmma_integer")
ATOM_BYTES = 1024
"""What tiles of rows of 128 swizzled bytes are aligned to."""


def lower_cuda_sparse(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_sparse_contraction` or `as_sparse_integer` accepts under a tile of `cuda_sparse_tiles`.

    Levels: `grid` or `cluster` (parts of k), `block` (m, n, k, stages), `warp` or `warpgroup` (m, n).
    """
    by_warpgroups = tile.algorithm in BY_WARPGROUPS
    if tile.algorithm in OF_BYTES:
        form = as_sparse_integer(workload)
        assert form is not None, "the tile stage offers products of bytes only to kernels of that form"
        of_bytes = Kept(Bytes(form), by_warpgroups)
        return pipelined(name, workload, form.view, tile, of_bytes, target).lower()
    view = as_sparse_contraction(workload)
    assert view is not None, "the tile stage offers `sparse` only to kernels of that form"
    return pipelined(name, workload, view, tile, Kept(Halves(), by_warpgroups), target).lower()


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


class Values(Protocol):
    """What the numbers of a product without zeros are, in 16 bits or in bytes."""

    @property
    def total(self) -> DType:
        """What sums are."""
        ...

    @property
    def header(self) -> str:
        """What warpgroups need."""
        ...

    def product(self, of: CudaContraction, by_warpgroups: bool) -> SparseProduct | SparseWgmmaProduct:
        """How they are multiplied."""
        ...

    def weights(self, of: CudaContraction) -> tuple[Expr, DType]:
        """B as the kernel has it, and the dtype in which it is packed."""
        ...

    def packs(self, by_warpgroups: bool) -> type[SparsePanels]:
        """What B is packed by."""
        ...

    def a(self, of: CudaContraction) -> Operand:
        """How rows of A come to shared memory."""
        ...

    def after(self, of: CudaContraction, writer: Writer, by_warpgroups: bool) -> None:
        """What becomes of sums."""
        ...


def _extents(of: CudaContraction, by_warpgroups: bool) -> tuple[int, int, int, int]:
    """m and n of a block, and of a warp's or a warpgroup's part of it."""
    inner = "warpgroup" if by_warpgroups else "warp"
    m, n, part_m, part_n = (of.tile.extent(level, axis) for level in ("block", inner) for axis in "mn")
    return m, n, part_m, part_n


@dataclass(frozen=True)
class Halves:
    """Values in 16 bits."""

    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = HEADER

    def product(self, of: CudaContraction, by_warpgroups: bool) -> SparseProduct | SparseWgmmaProduct:
        """In the dtype of both operands."""
        half = half_of(of.view, of.workload, exact=False)
        assert half is not None, "`sparse` is for operands of 16 bits"
        extents = _extents(of, by_warpgroups)
        return SparseWgmmaProduct(half, *extents) if by_warpgroups else SparseProduct(half, *extents)

    def weights(self, of: CudaContraction) -> tuple[Expr, DType]:
        """As they are multiplied."""
        return of.view.b, of.product.element

    def packs(self, by_warpgroups: bool) -> type[SparsePanels]:
        """Without sums."""
        return SparsePanels

    def a(self, of: CudaContraction) -> Operand:
        """Where it lies."""
        return plain_a(of)

    def after(self, of: CudaContraction, writer: Writer, by_warpgroups: bool) -> None:
        """Sums are what they are."""


@dataclass(frozen=True)
class Bytes:
    """Values in bytes, from whose sums the zero point of A is taken."""

    form: IntegerContraction
    total: ClassVar[DType] = DType.I32
    header: ClassVar[str] = WGMMA_HEADER

    @property
    def _has_zero(self) -> bool:
        return self.form.a.fixed_zero != 0

    def product(self, of: CudaContraction, by_warpgroups: bool) -> SparseProduct | SparseWgmmaProduct:
        """By warps sums of B come from one more product; by warpgroups they are packed."""
        dtype, extents = self.form.a.value.dtype, _extents(of, by_warpgroups)
        if by_warpgroups:
            return SparseWgmmaProduct(dtype, *extents)
        return SparseProduct(dtype, *extents, column_sums=self._has_zero)

    def weights(self, of: CudaContraction) -> tuple[Expr, DType]:
        """Signed bytes."""
        return self.form.b.value, DType.I8

    def packs(self, by_warpgroups: bool) -> type[SparsePanels]:
        """With sums where warpgroups need them."""
        return SummedSparsePanels if by_warpgroups and self._has_zero else SparsePanels

    def a(self, of: CudaContraction) -> Operand:
        """Bytes, the zero point where they are padded."""
        return reading_bytes(of.side("a", padded(self.form.a), of.view.m, "first_m", of.m), self.form.a, of.slots)

    def after(self, of: CudaContraction, writer: Writer, by_warpgroups: bool) -> None:
        """What the zero point of A takes from the sums of this part of k. Unsigned, for they wrap around."""
        if not self._has_zero:
            return
        product = of.product
        assert isinstance(product, SparseProduct | SparseWgmmaProduct)
        if by_warpgroups:
            _declare_sums(of, writer, product.sums[0])
        own_row, place, b_sum = OF_WARPGROUPS if by_warpgroups else OF_WARPS
        view, zero = of.view, self.form.a.zero
        assert zero is not None, "without one nothing is taken"
        elements = {name: buffer.dtype for name, buffer in of.slots.buffers.items()}
        emitter = CudaEmitter(writer, of.slots.address, elements)
        columns, rows, _ = product.sums
        with unrolled(writer, rows, "j"), unrolled(writer, 2, "odd"), emitter.scope():
            if zero.axes & {*view.m}:
                writer.line(f"const int row = min({own_row}, {view.rows - 1});")
                decode(writer, view.m, "row", "int", zero.axes)
            writer.line(f"const unsigned a_zero = (unsigned){emitter.scalar(zero)};")
            with unrolled(writer, columns, "i"), unrolled(writer, 2, "half"):
                writer.line(f"int &sum = acc{place};")
                writer.line(f"sum = (int)((unsigned)sum - a_zero * {b_sum});")


OF_WARPS = (
    f"first_m + warp_m + j * {MMA_N} + lane % 4 * 2 + odd",
    "[i][j][2 * half + odd]",
    "(unsigned)column_sums[i][2 * half]",
)
OF_WARPGROUPS = (
    f"first_m + group_m + j * {MMA_N} + lane % 4 * 2 + odd",
    "[i][j * 4 + 2 * half + odd]",
    "b_sum[i][half]",
)
"""C for a thread's row of A, the place of its sum in acc, and the sum of the column of B."""


@dataclass(frozen=True)
class Kept:
    """A constant B without the zeros that are two of each four places along k."""

    values: Values
    by_warpgroups: bool
    called: ClassVar[Mapping[str, str]] = {
        "sparse": "16-bit sparse tensor cores, two of four weights",
        "sparse_wgmma": "16-bit sparse tensor cores by warpgroups, two of four weights",
        "sparse_integer": "8-bit sparse tensor cores, two of four weights",
        "sparse_wgmma_integer": "8-bit sparse tensor cores by warpgroups, two of four weights",
    }

    @property
    def total(self) -> DType:
        """As the values say."""
        return self.values.total

    @property
    def header(self) -> str:
        """Of the instructions of warpgroups."""
        return self.values.header if self.by_warpgroups else ""

    def product(self, of: CudaContraction) -> SparseProduct | SparseWgmmaProduct:
        """By warps or warpgroups."""
        return self.values.product(of, self.by_warpgroups)

    def a(self, of: CudaContraction) -> Operand:
        """As the values say."""
        return self.values.a(of)

    def packing(self, of: CudaContraction) -> tuple[int, SparsePanels]:
        """Without its zeros."""
        value, element = self.values.weights(of)
        found = weights_of(of.view, value, of.workload)
        assert found is not None
        position, matrix = found
        packs = self.values.packs(self.by_warpgroups)
        return position, packs(replace(matrix, panel=0), of.n, of.depth, element, isinstance(_kept(of), Swizzled))

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed: by bulk copies for warpgroups."""
        position, panels = _packed(of)
        side = replace(of.side("b", of.view.b, (of.view.n,), "first_n", of.n), layout=_kept(of))
        slot, place = of.workload.kernel.inputs[position].name, of.packed_tile(side)
        if self.by_warpgroups:
            return Bulk(side, panels, slot, place, f"shared + {of.barriers_at}", of.stages)
        return PackedSparse(side, panels, slot, place)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of A, and of B with their metadata.

        For warpgroups whole atoms of the swizzle, so that those of the next stage lie as the hardware counts them.
        """
        _, panels = _packed(of)
        if self.by_warpgroups:
            return -(-(of.a.side.bytes + panels.tile_bytes) // ATOM_BYTES) * ATOM_BYTES
        return of.a.side.bytes + of.b.side.bytes + panels.metadata_bytes

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """As the values say."""
        self.values.after(of, writer, self.by_warpgroups)


def _kept(of: CudaContraction) -> Rows:
    """How the rows of B that are kept lie in shared memory."""
    product = of.product
    assert isinstance(product, SparseProduct | SparseWgmmaProduct)
    return product.kept_layout(of.depth)


def _packed(of: CudaContraction) -> tuple[int, SparsePanels]:
    assert of.packing is not None
    position, panels = of.packing
    assert isinstance(panels, SparsePanels)
    return position, panels


def _declare_sums(of: CudaContraction, writer: Writer, columns: int) -> None:
    """`b_sum`, of the thread's columns over this part of k."""
    position, panels = _packed(of)
    assert isinstance(panels, SummedSparsePanels)
    start = packed_sums(of, position, panels)
    writer.line(f"const int *const b_sums = {start} + group_n + warp % 4 * 16 + lane / 4; /* before each step */")
    writer.line(f"unsigned b_sum[{columns}][2];")
    with unrolled(writer, columns, "i"), unrolled(writer, 2, "half"):
        writer.line(f"const int *const own = b_sums + i * {WGMMA_M} + half * 8;")
        before = f"own[{before_first(of.parts)} * {of.n}]"
        writer.line(f"b_sum[i][half] = (unsigned)own[past_step * {of.n}] - (unsigned){before};")
