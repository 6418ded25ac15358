"""The `integer` algorithm of CUDA (`compiler.forms.integer`).

Products of bytes with zero points by 8-bit tensor cores, summed exactly in int32. Bytes are multiplied as they lie in
memory, signed or not. With zero points p of A and q of B,

    sum (A - p)(B - q) = sum A B  -  p sum B  -  q (sum A - K p)

The sums of B over k, and those of A, are one more product of the same fragments with ones, and are taken only where p,
or q, may differ from 0. Where A is padded it is p, so that nothing is added. All of it is exact modulo 2**32, and so is
the result. Pipeline, split k and maps are those of any contraction (`contraction`).

Tiles are those of other products, with 32 elements of k in a fragment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as points
from typing import ClassVar

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.algorithms.contraction.floats import plain_stage_bytes, times_loaded
from compiler.devices.cuda.algorithms.contraction.lowering import CudaContraction
from compiler.devices.cuda.algorithms.contraction.pipeline import pipelined
from compiler.devices.cuda.algorithms.contraction.reading import Computed, reading
from compiler.devices.cuda.codegen.fragments import (
    MMA_M,
    MMA_N,
    MmaProduct,
    declare_fragment_places,
    multiply_fragments,
    row_pitch,
    unrolled,
)
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand, Side
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter
from compiler.devices.cuda.products.costs import (
    MOST_HELD,
    Block,
    cheapest,
    divides,
    multiplied,
    pipelined_block,
    product_registers,
)
from compiler.devices.cuda.products.operand import access_of
from compiler.devices.cuda.products.tiles import (
    ELEMENT_CYCLES,
    MOST_OFFSET,
    MOST_PROPOSALS,
    STAGES,
    WARP_TILES,
    Reading,
    Shape,
    Sizes,
    depths_of,
    parts_of,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.integer import IntegerContraction, as_integer
from compiler.forms.integer import Operand as Bytes
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Cast, Const, Expr, Where
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal


def cuda_integer_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first.

    None for what is no product of bytes, or pads rows of many zero points.
    """
    form = as_integer(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if form is None or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    shape = shape_of_bytes(form, workload)
    if shape is None:
        return []
    if form.packing(workload, 1) is None:
        b = form.b.value
        count = access_of(b, form.view.k[-1], Slots(workload), b.dtype).count
        shape = replace(shape, b=Reading(count, is_copy=count > 1))
    blocks = ((sizes, _block(shape, sizes, target)) for sizes in _sizes(shape))
    return cheapest(blocks, MOST_PROPOSALS, target, lambda sizes: Tile("integer", sizes.levels("warp")))


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


def _sizes(shape: Shape) -> Iterator[Sizes]:
    """Of all tiles, however many blocks there are."""
    for tile, depth in points(WARP_TILES, depths_of(shape.element)):
        steps = -(-shape.depth // depth)
        for stages, parts in points(STAGES, parts_of(steps)):
            if stages <= max(steps + 1, 2):
                yield Sizes(*tile, depth, stages, parts)


def _block(shape: Shape, sizes: Sizes, target: CudaTarget) -> Block | None:
    """A product's, with bytes that threads take one by one, if they divide evenly."""
    threads = sizes.shares * WARP
    rows = sizes.m * (shape.a.count == 1) + sizes.n * (shape.b is not None and shape.b.count == 1)
    gathered = rows * sizes.depth // threads
    if gathered > MOST_HELD or not divides(sizes, threads):
        return None
    cycles, chain_ns = multiplied("mma_integer", sizes, 1, target)
    cycles += gathered * threads / WARP * ELEMENT_CYCLES / 4
    registers = product_registers("mma_integer", sizes) + gathered + 56
    step_bytes = (sizes.m + sizes.n) * sizes.depth
    return pipelined_block(shape, sizes, threads, registers, step_bytes, cycles, chain_ns)


INSTRUCTIONS: Mapping[tuple[DType, DType], str] = {
    (DType.I8, DType.I8): "tw_mma_m16n8k32_s8",
    (DType.U8, DType.U8): "tw_mma_m16n8k32_u8",
    (DType.U8, DType.I8): "tw_mma_m16n8k32_u8_s8",
    (DType.I8, DType.U8): "tw_mma_m16n8k32_s8_u8",
}
"""By the dtypes of A and B."""
ONES = "0x01010101"
"""Four bytes in a register."""


def lower_cuda_integer(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_integer` accepts, under levels `grid` (parts of k), `block` (m, n, k, stages) and `warp`."""
    form = as_integer(workload)
    assert form is not None, "the tile stage offers `integer` only to kernels of that form"
    return pipelined(name, workload, form.view, tile, Integers(form), target).lower()


@dataclass(frozen=True)
class IntegerProduct(MmaProduct):
    """A times B of 8 bits; `row_sums` and `column_sums` say whether those of A and B are taken as well."""

    b_element: DType
    row_sums: bool
    column_sums: bool
    sum_type: ClassVar[str] = "int"

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


@dataclass(frozen=True)
class Filled(Computed):
    """Pieces of bytes that go through registers, because what pads them is `padding` instead of 0."""

    padding: Expr

    @property
    def _is_plain(self) -> bool:
        return False

    def put(self, writer: Writer) -> None:
        """Stores the pieces to shared memory, with the padding's value where the tensor ends."""
        side, name, count = self.side, self.side.name, self.access.count
        ctype = CUDA_TYPES[side.element]
        kind = f"tw_vector<{ctype}, {count}>"
        writer.line(f"const {ctype} padding = {self._emitter(writer).scalar(self.padding)};")
        with unrolled(writer, self._passes, "i"):
            writer.line(f"{kind} piece = {name}_held[i];")
            with writer.block(f"if (!{name}_there[i])"), unrolled(writer, count, "part"):
                writer.line("piece.element[part] = padding;")
            row = f"{name}_row + i * {self._down}"
            skip = f"if ({row} < {side.tile}) " if self._may_overrun else ""
            writer.line(f"{skip}*({kind} *)(into + {side.layout.place(f'({row})', f'{name}_piece')}) = piece;")


@dataclass(frozen=True)
class Integers:
    """Operands of bytes, multiplied by warps to sums in int32, from which the zero points are taken afterwards."""

    form: IntegerContraction
    total: ClassVar[DType] = DType.I32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = {"integer": "8-bit tensor cores"}

    def product(self, of: CudaContraction) -> IntegerProduct:
        """By warps, with the sums that zero points ask for."""
        return product_of_bytes(self.form, of.tile)

    def a(self, of: CudaContraction) -> Operand:
        """Bytes, the zero point where they are padded."""
        return reading_bytes(of.side("a", padded(self.form.a), of.view.m, "first_m", of.m), self.form.a, of.slots)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed, or where it lies."""
        side = of.side("b", self.form.b.value, (of.view.n,), "first_n", of.n)
        return of.reading_b(replace(side, element=self.form.b.value.dtype))

    def packing(self, of: CudaContraction) -> tuple[int, BlockPanels] | None:
        """A constant that is read nowhere else."""
        found = self.form.packing(of.workload, of.n)
        if found is None or times_loaded(of.view, of.workload.kernel.inputs[found[0]].name) > 1:
            return None
        position, matrix = found
        return position, BlockPanels(replace(matrix, panel=0), of.n, of.depth, self.form.b.value.dtype)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Takes what the zero points add."""
        product = of.product
        assert isinstance(product, IntegerProduct)
        take_zero_points(writer, of, self.form, product)


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
    filled = isinstance(of.a, Filled)
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
        return Filled(side, slots, pieces, padding)
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


INTEGER = CudaAlgorithm(("integer",), cuda_integer_tiles, lower_cuda_integer, in_fp32=frozenset({"integer"}))
