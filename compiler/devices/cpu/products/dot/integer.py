"""Operands of products of bytes with zero points, summed exactly in int32.

There are two forms. Where the target multiplies bytes, B is held as signed bytes and A as unsigned ones (VPDPBUSD,
USDOT) or as signed ones (SDOT): what is of the other kind is moved by 128, and its zero point with it. With a' = A + s,
p' = p + s, b' = B - t, q' = q - t,

    sum (A - p)(B - q) = sum a' b'  -  p' (sum b' - K q')  -  q' sum a'

The sums of b' over k are packed behind each panel. Those of a' are taken of staged rows, and only where q' may differ
from 0.

Anywhere else both operands are held in 16 bits (VPMADDWD, SMLAL), A less its zero point, and only the last term is
left. All of it is exact modulo 2**32, and so is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.codegen.expressions import INTEGERS, Emitter
from compiler.devices.cpu.products.dot import DotContraction, DotProduct, DotStep, Shape, SingleRows, Staged, Step
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.cache_lines import LINE_BYTES, whole_lines
from compiler.forms.groups import LANE_BYTES, Groups
from compiler.forms.integer import IntegerContraction, as_integer, plus, row_step
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

FEW_STEPS = 16
"""Groups of k: with as few a layer takes 0.85 to 0.9 of its time when sums stay in registers, with more the same."""


def product_of(workload: Workload, target: CpuTarget) -> DotProduct | None:
    """The kernel as dot products see it; None for what is no product of bytes."""
    form = as_integer(workload)
    if form is None:
        return None
    bytes_too = target.multiplies_bytes
    return DotProduct(
        "integer",
        form.view,
        group=4 if bytes_too else 2,
        steps_per_ns=target.rates.fma_per_ns * (1.0 if bytes_too else target.halves_per_fma),
        staged=not held(form, target).row_step(Slots(workload)),
        packed=form.packing(workload, target.vector_floats) is not None,
        parts=1 if bytes_too else target.parts_of_halves,
    )


I32 = DType.I32


def integer(name: str, workload: Workload, tile: Tile, target: CpuTarget, by: Step | None = None) -> DotContraction:
    """A kernel that `as_integer` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n.

    `by` is its inner kernel; None: by dot products.
    """
    form = as_integer(workload)
    assert form is not None, "the tile stage offers `integer` only to kernels of that form"
    shape, slots, operands = Shape.of(tile, form.view, target), Slots(workload), held(form, target)
    packing = packed_ahead(workload, shape.panel, target)
    panels = Panels((0,), form.view.depth, form.view.columns, shape.panel, ())
    groups = packing[1] if packing else operands.groups(panels)
    rows = (operands.staged, operands.row_step(slots))
    return DotContraction(
        name, workload, form.view, slots, shape, target, packing, groups, *rows, operands, by or DotStep(), SingleRows()
    )


def packed_ahead(workload: Workload, panel: int, target: CpuTarget) -> tuple[int, Groups] | None:
    """The position of B and its groups in panels of so many columns; None for what is no product by a constant B."""
    form = as_integer(workload)
    found = form.packing(workload, panel) if form else None
    return (found[0], held(form, target).groups(found[1])) if form and found else None


def held(form: IntegerContraction, target: CpuTarget) -> Bytes | Halves:
    """In which form operands are held."""
    if not target.multiplies_bytes:
        return Halves(form)
    return Bytes(form, target.takes_signed(form.a.value.dtype is DType.I8))


@dataclass(frozen=True)
class WeightZero:
    """What the zero point of B, as it is packed, adds to a sum: itself times the sum of a row of A."""

    form: IntegerContraction

    def zero(self, product: DotContraction) -> Expr | None:
        """The zero point; None where it is 0."""
        fixed, shift = self.form.b.fixed_zero, product.groups.shift
        return None if fixed == shift else plus(self.form.b.zero, -shift)

    def b(self, product: DotContraction) -> Expr:
        """An element of B as it is packed."""
        return plus(Cast(self.form.b.value, I32), -product.groups.shift)

    def row_bytes(self, product: DotContraction) -> int:
        """Of the sums of a block's rows."""
        return 0 if self.zero(product) is None else whole_lines(product.shape.block_m * LANE_BYTES)

    def _row_sums(self, product: DotContraction) -> str:
        return f"((int32_t *)(scratch + {product.rows.a_bytes(product) + product.b_bytes}))"

    def sum_row(self, product: DotContraction) -> None:
        """Keeps the sum of the staged `row`."""
        if self.zero(product) is None:
            return
        writer, dot = product.writer, product.held.dot
        ones = {4: "0x01010101", 2: "0x00010001"}[product.groups.group]
        writer.line("vi along = {0};")
        with writer.block(f"for (long at = 0; at < {product.row_bytes}; at += {LANE_BYTES} * TW_LANES)"):
            writer.line(f"along = {dot}(along, tw_groups((const char *)row + at), tw_splat_i({ones}));")
        writer.line(f"{self._row_sums(product)}[m - first_row] = tw_sum_i(along);")

    def declare(self, product: DotContraction, emitter: Emitter) -> None:
        """Declares the zero points of a vector of columns."""
        zero = self.zero(product)
        if zero is not None:
            product.writer.line(f"const vi b_zero = {emitter.vi(zero)};")

    def corrected(self, product: DotContraction, value: str) -> str:
        """A vector of sums less what it adds."""
        if self.zero(product) is None:
            return value
        name = product.writer.name("sums")
        added = f"tw_mul_i(b_zero, tw_splat_i({self._row_sums(product)}[m - first_row]))"
        product.writer.line(f"const vi {name} = tw_sub_i({value}, {added});")
        return name


@dataclass(frozen=True)
class Bytes:
    """Bytes of A, unsigned or signed, with signed ones of B."""

    form: IntegerContraction
    signed: bool
    """Whether the bytes of A are held as signed ones."""
    total = I32
    suffix = "u8"
    lone_group = "tw_lone_group"
    folds_gelu = False

    @property
    def dot(self) -> str:
        """The instruction that adds products of four bytes."""
        return "tw_dot_signed" if self.signed else "tw_dot_bytes"

    @property
    def _weights(self) -> WeightZero:
        return WeightZero(self.form)

    @property
    def _shift(self) -> int:
        return self.form.a_shift(self.signed)

    def groups(self, panels: Panels) -> Groups:
        """How the second operand is packed; with sums of its columns where the zero point of the first is not 0."""
        moved = self.form.a.fixed_zero is None or self.form.a.fixed_zero + self._shift != 0
        return Groups(panels, DType.I8, self.form.b_shift, sums=moved)

    @property
    def staged(self) -> Staged:
        """The first operand as bytes in a row that is staged."""
        a, moved = self.form.a, self._shift
        source = a.value if isinstance(a.value, Load) else None
        return Staged(plus(Cast(a.value, I32), moved), plus(a.zero, moved), a.condition, source)

    def row_step(self, slots: Slots) -> int:
        """Bytes from a row to the next where they are read in place; 0 where they are staged."""
        return row_step(self.form, slots, self.signed)

    def in_registers(self, product: DotContraction) -> bool:
        """Where sums are so short that storing and loading them takes a good part of the time, and end as bytes."""
        return product.groups.groups <= FEW_STEPS and product.end is not None

    def copy(self, product: DotContraction, to: str, source: str, count: str, emitter: Emitter) -> str:
        """Bytes moved to where the instruction wants them."""
        if not self._shift and count.isdecimal() and int(count) < LINE_BYTES:
            return f"memcpy({to}, {source}, {count});"
        return f"tw_copy_bytes({to}, {source}, {count}, {abs(self._shift)});"

    def fill(self, product: DotContraction, to: str, count: str, emitter: Emitter) -> str:
        """Zero points."""
        return f"memset({to}, {emitter.scalar(product.staged.padding)}, {count});"

    def element_of(self, value: str) -> str:
        """A value as an unsigned byte."""
        return f"(uint8_t){value}"

    def lane_of(self, values: Sequence[str]) -> str:
        """Four values as one lane of 32 bits."""
        return f"tw_four({', '.join(values)})"

    def b(self, product: DotContraction) -> Expr:
        """As signed bytes."""
        return self._weights.b(product)

    def extra_bytes(self, product: DotContraction) -> int:
        """For the sums of rows."""
        return self._weights.row_bytes(product)

    def after_row(self, product: DotContraction) -> None:
        """Its sum."""
        self._weights.sum_row(product)

    def column_terms(self, product: DotContraction, emitter: Emitter, column: str) -> None:
        """Declares what each column adds: also its sum, times the first operand's zero point."""
        self._weights.declare(product, emitter)
        if product.groups.sums:
            below = f"tw_load_i({product.sums_of_panel} + {column})"
            if self._weights.zero(product) is not None:
                below = f"tw_sub_i({below}, tw_mul_i(b_zero, tw_splat_i({product.view.depth})))"
            if not self._zero_by_row(product):
                below = f"tw_mul_i({emitter.vi(product.staged.padding)}, {below})"
            product.writer.line(f"const vi below = {below};")

    def corrected(self, product: DotContraction, emitter: Emitter, value: str) -> str:
        """A sum less what the zero points of both operands have added to it."""
        value = self._weights.corrected(product, value)
        if not product.groups.sums:
            return value
        name = product.writer.name("sums")
        added = f"tw_mul_i({emitter.vi(product.staged.padding)}, below)" if self._zero_by_row(product) else "below"
        product.writer.line(f"const vi {name} = tw_sub_i({value}, {added});")
        return name

    @staticmethod
    def _zero_by_row(product: DotContraction) -> bool:
        """Whether rows have zero points of their own."""
        return bool(product.staged.padding.axes & {*product.view.m})


@dataclass(frozen=True)
class Halves:
    """Both operands in 16 bits, the first less its zero point."""

    form: IntegerContraction
    total = I32
    suffix = "i16"
    lone_group = "tw_lone_halves"
    dot = "tw_dot_halves"
    folds_gelu = False

    @property
    def _weights(self) -> WeightZero:
        return WeightZero(self.form)

    def groups(self, panels: Panels) -> Groups:
        """How the second operand is packed."""
        return Groups(panels, DType.I16, self.form.b.fixed_zero or 0)

    @property
    def staged(self) -> Staged:
        """The first operand less its zero point in a row that is staged."""
        a = self.form.a
        wide: Expr = Cast(a.value, I32)
        value = wide if a.zero is None else Apply("sub", (wide, a.zero))
        return Staged(value, Const(0, I32), a.condition, a.value if isinstance(a.value, Load) else None)

    def row_step(self, slots: Slots) -> int:
        """Rows are always staged."""
        return 0

    def in_registers(self, product: DotContraction) -> bool:
        """Never."""
        return False

    def copy(self, product: DotContraction, to: str, source: str, count: str, emitter: Emitter) -> str:
        """Bytes that are widened."""
        zero = emitter.scalar(self.form.a.zero) if self.form.a.zero is not None else "0"
        return f"tw_copy_halves_{INTEGERS[self.form.a.value.dtype]}({to}, {source}, {count}, {zero});"

    def fill(self, product: DotContraction, to: str, count: str, emitter: Emitter) -> str:
        """Zeros."""
        return f"memset({to}, 0, ({count}) * sizeof *row);"

    def element_of(self, value: str) -> str:
        """A value in 16 bits."""
        return f"(int16_t){value}"

    def lane_of(self, values: Sequence[str]) -> str:
        """A pair of values as one lane of 32 bits."""
        return f"tw_pair({', '.join(values)})"

    def b(self, product: DotContraction) -> Expr:
        """Less its zero point, where that is known."""
        return self._weights.b(product)

    def extra_bytes(self, product: DotContraction) -> int:
        """For the sums of rows."""
        return self._weights.row_bytes(product)

    def after_row(self, product: DotContraction) -> None:
        """Its sum."""
        self._weights.sum_row(product)

    def column_terms(self, product: DotContraction, emitter: Emitter, column: str) -> None:
        """The zero points of the second operand."""
        self._weights.declare(product, emitter)

    def corrected(self, product: DotContraction, emitter: Emitter, value: str) -> str:
        """A sum less what these have added to it."""
        return self._weights.corrected(product, value)
