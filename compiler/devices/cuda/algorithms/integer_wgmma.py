"""The `wgmma_integer` algorithm of CUDA: products of bytes with a zero point by warpgroups, summed exactly in int32.

As `products.wgmma`, by `wgmma` of bytes, which reads both operands as rows along k: A is copied in whole pieces of
16 bytes, B a packed constant of signed bytes that are zero where they say 0. With a zero point p of A,

    sum (A - p) B  =  sum A B  -  p sum B

No product with ones gives the sums of B, since 64 rows of them would cost as much as the tile: they are packed behind
the tiles, each over all of k before a step (`SummedPanels`), and a block takes the difference of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.codegen.panels import BlockPanels, SummedPanels
from compiler.devices.cuda.codegen.scalars import CudaEmitter
from compiler.devices.cuda.products.bytes import (
    WGMMA_HEADER,
    before_first,
    packed_sums,
    padded,
    reading_bytes,
    shape_of_bytes,
)
from compiler.devices.cuda.products.floats import plain_stage_bytes, times_loaded
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.pipeline import pipelined
from compiler.devices.cuda.products.tiles import MOST_OFFSET
from compiler.devices.cuda.products.warpgroups import cheapest_by_warpgroups, has_warpgroups, is_copied_whole
from compiler.devices.cuda.products.wgmma import WGMMA_M, WgmmaProduct
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.integer import IntegerContraction, as_integer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

NAME = "wgmma_integer"


def cuda_integer_wgmma_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first, in any precision.

    None where the target or the operands do not allow them.
    """
    buffers = (*workload.inputs, *workload.outputs)
    if not has_warpgroups(target) or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    form = as_integer_by_warpgroups(workload)
    shape = None if form is None else shape_of_bytes(form, workload)
    if shape is None or not is_copied_whole(shape):
        return []
    return [*cheapest_by_warpgroups(NAME, shape, target)]


def as_integer_by_warpgroups(workload: Workload) -> IntegerContraction | None:
    """The form of a kernel whose B is packed signed bytes without a zero point; None for any other."""
    form = as_integer(workload)
    if form is None or form.b.value.dtype is not DType.I8 or form.b.fixed_zero != 0:
        return None
    packed = form.packing(workload, 1)
    if packed is None or times_loaded(form.view, workload.kernel.inputs[packed[0]].name) > 1:
        return None
    return form


def lower_cuda_integer_wgmma(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_integer_by_warpgroups` accepts, under a tile of `cuda_integer_wgmma_tiles`.

    Levels: `grid` or `cluster` (parts of k), `block` (m, n, k, stages) and `warpgroup` (m, n).
    """
    form = as_integer_by_warpgroups(workload)
    assert form is not None, "the tile stage offers it only to kernels of that form"
    return pipelined(name, workload, form.view, tile, WarpgroupIntegers(form), target).lower()


@dataclass(frozen=True)
class WarpgroupIntegers:
    """Operands of bytes, multiplied by warpgroups; B is packed, and has no zero point."""

    form: IntegerContraction
    total: ClassVar[DType] = DType.I32
    header: ClassVar[str] = WGMMA_HEADER
    called: ClassVar[Mapping[str, str]] = {NAME: "8-bit tensor cores, by warpgroups"}

    def product(self, of: CudaContraction) -> WgmmaProduct:
        """By warpgroups."""
        m, n, part_m, part_n = (of.tile.extent(level, axis) for level in ("block", "warpgroup") for axis in "mn")
        return WgmmaProduct(self.form.a.value.dtype, m, n, part_m, part_n)

    def a(self, of: CudaContraction) -> Operand:
        """Bytes, the zero point where they are padded."""
        return reading_bytes(of.side("a", padded(self.form.a), of.view.m, "first_m", of.m), self.form.a, of.slots)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed."""
        side = of.side("b", self.form.b.value, (of.view.n,), "first_n", of.n)
        return of.reading_b(replace(side, element=DType.I8))

    @property
    def _has_zero(self) -> bool:
        return self.form.a.fixed_zero != 0

    def packing(self, of: CudaContraction) -> tuple[int, BlockPanels]:
        """With sums of its columns behind the tiles where A has a zero point."""
        found = self.form.packing(of.workload, of.n)
        assert found is not None
        position, matrix = found
        kind = SummedPanels if self._has_zero else BlockPanels
        return position, kind(replace(matrix, panel=0), of.n, of.depth, DType.I8, swizzled=True)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Takes what A's zero point adds."""
        if self._has_zero:
            self._take_zero_point(of, writer)

    def _take_zero_point(self, of: CudaContraction, writer: Writer) -> None:
        """What the zero point of A takes from the sums of this part of k. Unsigned, for they wrap around."""
        rows, columns, _ = of.product.sums
        self._declare_zero_points(of, writer, rows)
        assert of.packing is not None
        position, panels = of.packing
        assert isinstance(panels, SummedPanels)
        start = packed_sums(of, position, panels)
        first = before_first(of.parts)
        writer.line(f"const int *const b_sums = {start} + group_n + lane % 4 * 2; /* before each step */")
        with unrolled(writer, columns, "j"):
            for name, step in (("before", first), ("after", "past_step")):
                writer.line(f"const int2 {name} = *(const int2 *)(b_sums + {step} * {of.n} + j * 8);")
            differences = ", ".join(f"(unsigned)after.{one} - (unsigned)before.{one}" for one in "xy")
            writer.line(f"const unsigned b_sum[2] = {{{differences}}};")
            with unrolled(writer, rows, "i"), unrolled(writer, 4, "element"):
                writer.line("int &sum = acc[i][j * 4 + element];")
                writer.line("sum = (int)((unsigned)sum - a_zero[i][element / 2] * b_sum[element % 2]);")

    def _declare_zero_points(self, of: CudaContraction, writer: Writer, rows: int) -> None:
        """`a_zero`, of the thread's rows."""
        zero, view = self.form.a.zero, of.view
        assert zero is not None, "without one nothing is taken"
        elements = {name: buffer.dtype for name, buffer in of.slots.buffers.items()}
        emitter = CudaEmitter(writer, of.slots.address, elements)
        writer.line(f"unsigned a_zero[{rows}][2];")
        with unrolled(writer, rows, "i"), unrolled(writer, 2, "half"), emitter.scope():
            if zero.axes & {*view.m}:
                row = f"first_m + group_m + i * {WGMMA_M} + warp % 4 * 16 + half * 8 + lane / 4"
                writer.line(f"const int row = min({row}, {view.rows - 1});")
                decode(writer, view.m, "row", "int", zero.axes)
            writer.line(f"a_zero[i][half] = (unsigned){emitter.scalar(zero)};")


INTEGER_WGMMA = CudaAlgorithm((NAME,), cuda_integer_wgmma_tiles, lower_cuda_integer_wgmma, in_fp32=frozenset({NAME}))
