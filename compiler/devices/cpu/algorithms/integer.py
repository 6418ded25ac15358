"""The `integer` algorithm: products of bytes with zero points, summed exactly in int32.

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
from typing import ClassVar

from compiler.codegen.expressions import INTEGERS, Emitter, Vector
from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.dot import DotContraction, DotProduct, Shape, Staged
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
from compiler.tuning.proposal import Proposal

FEW_STEPS = 16
"""Groups of k: with as few a layer takes 0.85 to 0.9 of its time when sums stay in registers, with more the same."""


def integer_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Tiles m x n of registers, cheapest by the model first; empty for a kernel that is no product of bytes."""
    product = product_of(workload, target)
    return product.tiles(target, lanes) if product else []


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
        staged=not (bytes_too and row_step(form, Slots(workload), holds_signed(form, target))),
        packed=form.packing(workload, target.vector_floats) is not None,
        parts=1 if bytes_too else target.parts_of_halves,
    )


I32 = DType.I32


def integer(
    name: str, workload: Workload, tile: Tile, target: CpuTarget, by_bytes: type[Bytes] | None = None
) -> DotContraction:
    """A kernel that `as_integer` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n."""
    form = as_integer(workload)
    assert form is not None, "the tile stage offers `integer` only to kernels of that form"
    shape = Shape.of(tile, form.view, target)
    lowering = held(target, by_bytes)
    signed = holds_signed(form, target)
    packing = packed_ahead(workload, shape.panel, target, by_bytes)
    panels = Panels((0,), form.view.depth, form.view.columns, shape.panel, ())
    groups = packing[1] if packing else lowering.groups_of(form, panels, signed)
    slots = Slots(workload)
    return lowering(
        name,
        workload,
        form.view,
        slots,
        shape,
        target,
        packing,
        groups,
        lowering.staged_of(form, signed),
        lowering.row_step_of(form, slots, signed),
        form=form,
        signed=signed,
    )


def packed_ahead(
    workload: Workload, panel: int, target: CpuTarget, by_bytes: type[Bytes] | None = None
) -> tuple[int, Groups] | None:
    """The position of B and its groups in panels of so many columns; None for what is no product by a constant B."""
    form = as_integer(workload)
    found = form.packing(workload, panel) if form else None
    if form is None or found is None:
        return None
    return found[0], held(target, by_bytes).groups_of(form, found[1], holds_signed(form, target))


def held(target: CpuTarget, by_bytes: type[Bytes] | None = None) -> type[Bytes | Halves]:
    """In which form operands are held."""
    return (by_bytes or Bytes) if target.multiplies_bytes else Halves


def holds_signed(form: IntegerContraction, target: CpuTarget) -> bool:
    """Whether the bytes of A are held as signed ones."""
    return target.takes_signed(form.a.value.dtype is DType.I8)


@dataclass
class _Integer(DotContraction):
    """What both forms share: the terms that zero points add to a sum."""

    form: IntegerContraction
    signed: bool
    """Whether the bytes of A are held as signed ones, where they are held as bytes."""
    total: ClassVar[DType] = I32

    @property
    def b_zero(self) -> Expr | None:
        """The zero point of B as it is packed; None where it is 0."""
        fixed, shift = self.form.b.fixed_zero, self.groups.shift
        return None if fixed == shift else plus(self.form.b.zero, -shift)

    @property
    def b(self) -> Expr:
        return plus(Cast(self.form.b.value, I32), -self.groups.shift)

    @property
    def extra_bytes(self) -> int:
        return 0 if self.b_zero is None else whole_lines(self.shape.block_m * LANE_BYTES)

    @property
    def _row_sums(self) -> str:
        return f"((int32_t *)(scratch + {self._a_bytes + self._b_bytes}))"

    def after_row(self) -> None:
        if self.b_zero is not None:
            ones = {4: "0x01010101", 2: "0x00010001"}[self.groups.group]
            self.writer.line("vi along = {0};")
            with self.writer.block(f"for (long at = 0; at < {self.row_bytes}; at += {LANE_BYTES} * TW_LANES)"):
                groups = "tw_groups((const char *)row + at)"
                self.writer.line(f"along = {self.dot}(along, {groups}, tw_splat_i({ones}));")
            self.writer.line(f"{self._row_sums}[m - first_row] = tw_sum_i(along);")

    def column_terms(self, emitter: Emitter, column: str, vector: Vector) -> None:
        if self.b_zero is not None:
            self.writer.line(f"const vi b_zero = {emitter.vi(self.b_zero)};")

    def corrected(self, emitter: Emitter, value: str) -> str:
        if self.b_zero is None:
            return value
        name = self.writer.name("sums")
        product = f"tw_mul_i(b_zero, tw_splat_i({self._row_sums}[m - first_row]))"
        self.writer.line(f"const vi {name} = tw_sub_i({value}, {product});")
        return name


@dataclass
class Bytes(_Integer):
    """Bytes of A, unsigned or signed, with signed ones of B."""

    suffix: ClassVar[str] = "u8"

    @property
    def in_registers(self) -> bool:
        """Where sums are so short that storing and loading them takes a good part of the time, and end as bytes."""
        return self.groups.groups <= FEW_STEPS and self.end is not None

    @property
    def dot(self) -> str:
        """The instruction that adds products of four bytes."""
        return "tw_dot_signed" if self.signed else "tw_dot_bytes"

    @staticmethod
    def groups_of(form: IntegerContraction, panels: Panels, signed: bool) -> Groups:
        """How the second operand is packed; with sums of its columns where the zero point of the first is not 0."""
        moved = form.a.fixed_zero is None or form.a.fixed_zero + form.a_shift(signed) != 0
        return Groups(panels, DType.I8, form.b_shift, sums=moved)

    @staticmethod
    def staged_of(form: IntegerContraction, signed: bool) -> Staged:
        """The first operand as bytes in a row that is staged."""
        a, moved = form.a, form.a_shift(signed)
        source = a.value if isinstance(a.value, Load) else None
        return Staged(plus(Cast(a.value, I32), moved), plus(a.zero, moved), a.condition, source)

    @staticmethod
    def row_step_of(form: IntegerContraction, slots: Slots, signed: bool) -> int:
        """Bytes from a row to the next where they are read in place; 0 where they are staged."""
        return row_step(form, slots, signed)

    def copy(self, to: str, source: str, count: str, emitter: Emitter) -> str:
        """A statement that writes `count` bytes of a row, moved to where the instruction wants them."""
        if not self.form.a_shift(self.signed) and count.isdecimal() and int(count) < LINE_BYTES:
            return f"memcpy({to}, {source}, {count});"
        return f"tw_copy_bytes({to}, {source}, {count}, {abs(self.form.a_shift(self.signed))});"

    def fill(self, to: str, count: str, emitter: Emitter) -> str:
        """A statement that writes `count` bytes of padding."""
        return f"memset({to}, {emitter.scalar(self.staged.padding)}, {count});"

    def element_of(self, value: str) -> str:
        """A value as an unsigned byte."""
        return f"(uint8_t){value}"

    def lane_of(self, values: Sequence[str]) -> str:
        """Four values as one lane of 32 bits."""
        return f"tw_four({', '.join(values)})"

    def column_terms(self, emitter: Emitter, column: str, vector: Vector) -> None:
        """Declares what each column adds: also its sum, times the first operand's zero point."""
        super().column_terms(emitter, column, vector)
        if self.groups.sums:
            below = f"tw_load_i({self.sums_of_panel} + {column})"
            if self.b_zero is not None:
                below = f"tw_sub_i({below}, tw_mul_i(b_zero, tw_splat_i({self.view.depth})))"
            if not self._zero_by_row:
                below = f"tw_mul_i({emitter.vi(self.staged.padding)}, {below})"
            self.writer.line(f"const vi below = {below};")

    def corrected(self, emitter: Emitter, value: str) -> str:
        """A sum less what the zero points of both operands have added to it."""
        value = super().corrected(emitter, value)
        if not self.groups.sums:
            return value
        name = self.writer.name("sums")
        product = f"tw_mul_i({emitter.vi(self.staged.padding)}, below)" if self._zero_by_row else "below"
        self.writer.line(f"const vi {name} = tw_sub_i({value}, {product});")
        return name

    @property
    def _zero_by_row(self) -> bool:
        """Whether rows have zero points of their own."""
        return bool(self.staged.padding.axes & {*self.view.m})


@dataclass
class Halves(_Integer):
    """Both operands in 16 bits."""

    suffix: ClassVar[str] = "i16"
    lone_group: ClassVar[str] = "tw_lone_halves"

    @property
    def dot(self) -> str:
        """The instruction that adds products of pairs."""
        return "tw_dot_halves"

    @staticmethod
    def groups_of(form: IntegerContraction, panels: Panels, signed: bool) -> Groups:
        """How the second operand is packed."""
        return Groups(panels, DType.I16, form.b.fixed_zero or 0)

    @staticmethod
    def staged_of(form: IntegerContraction, signed: bool) -> Staged:
        """The first operand less its zero point in a row that is staged."""
        a = form.a
        wide: Expr = Cast(a.value, I32)
        value = wide if a.zero is None else Apply("sub", (wide, a.zero))
        return Staged(value, Const(0, I32), a.condition, a.value if isinstance(a.value, Load) else None)

    @staticmethod
    def row_step_of(form: IntegerContraction, slots: Slots, signed: bool) -> int:
        """Rows are always staged."""
        return 0

    def copy(self, to: str, source: str, count: str, emitter: Emitter) -> str:
        """A statement that writes `count` bytes of a row, widened."""
        zero = emitter.scalar(self.form.a.zero) if self.form.a.zero is not None else "0"
        return f"tw_copy_halves_{INTEGERS[self.form.a.value.dtype]}({to}, {source}, {count}, {zero});"

    def fill(self, to: str, count: str, emitter: Emitter) -> str:
        """A statement that writes padding."""
        return f"memset({to}, 0, ({count}) * sizeof *row);"

    def element_of(self, value: str) -> str:
        """A value in 16 bits."""
        return f"(int16_t){value}"

    def lane_of(self, values: Sequence[str]) -> str:
        """A pair of values as one lane of 32 bits."""
        return f"tw_pair({', '.join(values)})"


INTEGER = Algorithm(("integer",), integer_tiles, integer)
