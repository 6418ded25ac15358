"""Parts of products of bytes with zero points, summed exactly in int32.

Bytes are multiplied as they lie in memory, signed or not. With zero points p of A and q of B,

    sum (A - p)(B - q) = sum A B  -  p sum B  -  q (sum A - K p)

The sums of B over k, and those of A, are one more product of the same fragments with ones, and are taken only where p,
or q, may differ from 0. Where A is padded it is p, so that nothing is added. All of it is exact modulo 2**32, and so is
the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.fragments import (
    MMA_M,
    MMA_N,
    MmaProduct,
    declare_fragment_places,
    multiply_fragments,
    row_pitch,
    unrolled,
)
from compiler.devices.cuda.codegen.operands import Operand, Side
from compiler.devices.cuda.codegen.panels import SummedPanels
from compiler.devices.cuda.codegen.scalars import CudaEmitter
from compiler.devices.cuda.codegen.sparse_panels import SummedSparsePanels
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.operand import access_of
from compiler.devices.cuda.products.reading import Computed, reading
from compiler.devices.cuda.products.tiles import Reading, Shape
from compiler.forms.integer import IntegerContraction
from compiler.forms.integer import Operand as Bytes
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Cast, Const, Expr, Where
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

WGMMA_HEADER = "tw_wgmma_bytes.h"
"""Of products by warpgroups."""
INSTRUCTIONS: Mapping[tuple[DType, DType], str] = {
    (DType.I8, DType.I8): "tw_mma_m16n8k32_s8",
    (DType.U8, DType.U8): "tw_mma_m16n8k32_u8",
    (DType.U8, DType.I8): "tw_mma_m16n8k32_u8_s8",
    (DType.I8, DType.U8): "tw_mma_m16n8k32_s8_u8",
}
"""By the dtypes of A and B."""
ONES = "0x01010101"
"""Four bytes in a register."""


@dataclass(frozen=True)
class IntegerProduct(MmaProduct):
    """A times B of 8 bits; `row_sums` and `column_sums` say whether those of A and B are taken as well."""

    b_element: DType
    row_sums: bool
    column_sums: bool

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0 in int32, those of rows where they are needed, and the place of the warp in the tile."""
        across = self.n // self.warp_n
        rows, columns, _ = self.sums
        writer.line(f"const int warp_m = warp / {across} * {self.warp_m}, warp_n = warp % {across} * {self.warp_n};")
        declare_fragment_places(writer, row_pitch(depth, self.element), "warp_m", "warp_n")
        writer.line(f"int acc[{rows}][{columns}][4] = {{}};")
        if self.row_sums:
            writer.line(f"int row_sums[{rows}][4] = {{}}; /* of A, the same in all columns */")
        if self.column_sums:
            writer.line(f"int column_sums[{columns}][4] = {{}}; /* of B, the same in all rows */")

    def _multiply_step(self, writer: Writer, rows: int, columns: int, rounded: tuple[bool, bool]) -> None:
        instruction = INSTRUCTIONS[self.element, self.b_element]
        multiply_fragments(writer, instruction, "acc", "a", "b", rows, columns)
        if self.row_sums:
            writer.line(f"const unsigned ones_b[2] = {{{ONES}, {ONES}}};")
            with unrolled(writer, rows, "i"):
                writer.line(f"{instruction}(row_sums[i], a[i], ones_b);")
        if self.column_sums:
            writer.line(f"const unsigned ones_a[4] = {{{', '.join([ONES] * 4)}}};")
            with unrolled(writer, columns, "j"):
                writer.line(f"{instruction}(column_sums[j], ones_a, b[j]);")


def shape_of_bytes(form: IntegerContraction, workload: Workload) -> Shape | None:
    """The shape of a product of bytes; None for an empty one, and for what pads rows of many zero points.

    A is read through registers where it is padded with a zero point that is not 0.
    """
    view, a = form.view, form.a
    if not view.batches * view.rows * view.columns * view.depth:
        return None
    if a.condition is not None and a.zero is not None and a.zero.axes:
        return None
    access = access_of(padded(a), view.k[-1], Slots(workload), a.value.dtype)
    is_filled = a.condition is not None and a.fixed_zero != 0
    reading = Reading(access.count, len(access.loads), access.is_copy and not is_filled)
    return Shape(view.batches, view.rows, view.columns, view.depth, a.value.dtype, reading, None)


def product_of_bytes(form: IntegerContraction, tile: Tile) -> IntegerProduct:
    """How warps multiply bytes, and which sums their zero points ask for."""
    m, n, warp_m, warp_n = (tile.extent(level, axis) for level in ("block", "warp") for axis in "mn")
    return IntegerProduct(
        *(form.a.value.dtype, m, n, warp_m, warp_n, form.b.value.dtype),
        row_sums=form.b.fixed_zero != 0,
        column_sums=form.a.fixed_zero != 0,
    )


def take_zero_points(writer: Writer, of: CudaContraction, form: IntegerContraction, product: IntegerProduct) -> None:
    """What zero points take from the sums of this part of k. Unsigned, for they wrap around."""
    if not (product.row_sums or product.column_sums):
        return
    view, a_zero, b_zero = of.view, form.a.zero, form.b.zero
    elements = {name: buffer.dtype for name, buffer in of.slots.buffers.items()}
    emitter = CudaEmitter(writer, of.slots.address, elements)
    rows, columns, _ = product.sums
    filled = isinstance(of.a, Computed) and of.a.padding is not None
    depth = of.steps * of.depth if filled else view.depth
    if product.row_sums and product.column_sums:
        past = f"past_step * {of.depth}"
        writer.line(f"const int part_depth = min({past}, {depth}) - first_step * {of.depth};")
    with unrolled(writer, rows, "i"), unrolled(writer, 2, "half"), emitter.scope():
        if a_zero is not None and a_zero.axes & {*view.m}:
            row = f"first_m + warp_m + i * {MMA_M} + half * 8 + lane / 4"
            writer.line(f"const int row = min({row}, {view.rows - 1});")
            decode(writer, view.m, "row", "int", a_zero.axes)
        if product.column_sums and a_zero is not None:
            writer.line(f"const unsigned a_zero = (unsigned){emitter.scalar(a_zero)};")
        if product.row_sums:
            less = " - (unsigned)part_depth * a_zero" if product.column_sums else ""
            writer.line(f"const unsigned row_sum = (unsigned)row_sums[i][2 * half]{less};")
        with unrolled(writer, columns, "j"), unrolled(writer, 2, "odd"), emitter.scope():
            taken = []
            if product.column_sums:
                taken.append("a_zero * (unsigned)column_sums[j][odd]")
            if product.row_sums and b_zero is not None:
                if view.n in b_zero.axes:
                    column = f"first_n + warp_n + j * {MMA_N} + lane % 4 * 2 + odd"
                    writer.line(f"const int {view.n} = min({column}, {view.columns - 1});")
                writer.line(f"const unsigned b_zero = (unsigned){emitter.scalar(b_zero)};")
                taken.append("b_zero * row_sum")
            writer.line("int &sum = acc[i][j][2 * half + odd];")
            writer.line(f"sum = (int)((unsigned)sum - {' - '.join(taken)});")


def reading_bytes(side: Side, operand: Bytes, slots: Slots) -> Operand:
    """How bytes that are `padded` come to shared memory: where they are padded they are the zero point."""
    if operand.condition is None or operand.fixed_zero == 0:
        return reading(side, slots)
    padding = _zero_of(operand)
    access = access_of(side.value, side.k[-1], slots, side.element)
    if access.is_copy and side.depth % access.count == 0:
        pieces = access.within(side.kept, side.element) if side.kept else access
        return Computed(side, slots, pieces, padding)
    return reading(replace(side, value=_or(operand, padding)), slots)


def padded(operand: Bytes) -> Expr:
    """The bytes of an operand, 0 where it is padded."""
    return _or(operand, Const(0, operand.value.dtype))


def _or(operand: Bytes, otherwise: Expr) -> Expr:
    """The bytes of an operand, `otherwise` where it is padded."""
    if operand.condition is None:
        return operand.value
    return Where(operand.condition, operand.value, otherwise)


def _zero_of(operand: Bytes) -> Expr:
    """The zero point as a byte."""
    fixed, dtype = operand.fixed_zero, operand.value.dtype
    if fixed is not None or operand.zero is None:
        return Const(fixed or 0, dtype)
    return Cast(operand.zero, dtype)


def packed_sums(of: CudaContraction, position: int, panels: SummedPanels | SummedSparsePanels) -> str:
    """C for where the sums of a block's columns begin, behind the tiles of the input at this position."""
    slot, sums = of.workload.kernel.inputs[position].name, (panels.shape[2] + 1) * of.n
    return f"(const int *)({slot} + {panels.tiles_bytes}) + (size_t)({of.packed_tile(of.b.side)}) * {sums}"


def before_first(parts: int) -> str:
    """C for the step before whose part of k all else is: of parts that have no step the end of k."""
    return "min(first_step, past_step)" if parts > 1 else "first_step"
