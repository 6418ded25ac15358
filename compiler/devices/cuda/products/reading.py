"""Operands of a product that are read where they lie.

Copied     in memory k runs along the row in whole pieces of 16, 8 or 4 bytes: asynchronous copies, zero where the
           operand is padded
Computed   the same pieces, of another dtype than the product takes, or under a fused prologue: loaded into registers,
           converted, stored
Gathered   element by element through registers: everything else, such as first layers and transposed operands
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.axes import value_axes
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.operands import Operand, Side
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.devices.cuda.products.operand import Access, access_of, source
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load, conjuncts
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType


@dataclass(frozen=True)
class _Reading:
    """An operand that is read where it lies."""

    side: Side
    slots: Slots

    is_bulk = False

    @property
    def is_constant(self) -> bool:
        return False

    @cached_property
    def source(self) -> tuple[tuple[Expr, ...], Expr]:
        """The conditions outside of which the operand is zero, and its value inside."""
        condition, value = source(self.side.value)
        return tuple(conjuncts(condition)) if condition is not None else (), value

    @property
    def _elements(self) -> dict[str, DType]:
        return {name: buffer.dtype for name, buffer in self.slots.buffers.items()}

    def _emitter(self, writer: Writer) -> CudaEmitter:
        return CudaEmitter(writer, self.slots.address, self._elements)


@dataclass(frozen=True)
class _Pieces(_Reading):
    """Pieces of some elements, `access.count`; each thread has the same piece of every row that it takes."""

    access: Access

    @property
    def _across(self) -> int:
        return self.side.depth // self.access.count

    @property
    def _down(self) -> int:
        """Rows between two of a thread's."""
        return max(self.side.threads // self._across, 1)

    @property
    def _passes(self) -> int:
        return -(-self.side.tile // self._down)

    @property
    def _place(self) -> str:
        """Where piece i of this thread lies in the tile."""
        side, name = self.side, self.side.name
        return side.layout.place(f"({name}_row + i * {self._down})", f"{name}_piece * {side.element.bytes}")

    @property
    def _may_overrun(self) -> bool:
        return self.side.tile % self._down > 0

    def _offset(self, load: Load) -> tuple[Index, Index]:
        """The part of a load's address that a row fixes, and the one that moves along k."""
        offset = self.slots.address(load.slot, load.index)[1]
        moving = set(self.side.k)
        fixed = tuple(term for term in offset.terms if not Index((term,)).axes & moving)
        return Index(fixed, offset.const), Index(tuple(term for term in offset.terms if term not in fixed))

    @cached_property
    def _starts(self) -> tuple[Index, ...]:
        """The different parts of addresses that a row fixes."""
        return tuple(dict.fromkeys(self._offset(load)[0] for load in self.access.loads))

    def _start(self, load: Load) -> str:
        """The variable that holds what a row fixes of a load's address."""
        number = self._starts.index(self._offset(load)[0])
        return f"{self.side.name}_at{f'_{number + 1}' if number else ''}"

    @cached_property
    def _kept(self) -> tuple[Axis, ...]:
        """The row's axes that conditions, or addresses along k, mention."""
        moving = [self._offset(load)[1].axes for load in self.access.loads]
        mentioned = frozenset[Axis]().union(*moving, *(condition.axes for condition in self.source[0]))
        return tuple(axis for axis in self.side.axes if axis in mentioned)

    def declare(self, writer: Writer) -> None:
        side, name, count = self.side, self.side.name, self.access.count
        writer.line(
            f"/* {name.upper()}: {count} elements at `{name}_piece` of rows `{name}_row`, + {self._down}, ... */"
        )
        writer.line(
            f"const int {name}_piece = thread % {self._across} * {count}, {name}_row = thread / {self._across};"
        )
        starts = dict(zip((self._start(load) for load in self.access.loads), self.access.loads, strict=True))
        for variable in (*starts, *(f"{name}_{axis}" for axis in self._kept)):
            writer.line(f"int {variable}[{self._passes}];")
        if self._may_be_outside:
            writer.line(f"bool {name}_in[{self._passes}];")
        emitter = self._emitter(writer)
        with unrolled(writer, self._passes, "i"), emitter.scope():
            used = frozenset(self._kept).union(*(start.axes for start in self._starts))
            if used & set(side.axes) or self._may_be_outside:
                writer.line(f"const int row = {side.first} + {name}_row + i * {self._down};")
            decode(writer, side.axes, "row", "int", used)
            for axis in self._kept:
                writer.line(f"{name}_{axis}[i] = {axis};")
            if self._may_be_outside:
                inside = [f"row < {side.rows}"] * (side.rows % side.tile > 0)
                inside += [f"{name}_row + i * {self._down} < {side.tile}"] * self._may_overrun
                writer.line(f"{name}_in[i] = {' && '.join(inside)};")
            for variable, load in starts.items():
                writer.line(f"{variable}[i] = {emitter.index(self._offset(load)[0])};")

    @property
    def _may_be_outside(self) -> bool:
        """Whether a thread's row may lie outside of the operand, or of the tile."""
        return self.side.rows % self.side.tile > 0 or self._may_overrun

    def _declare_k(self, writer: Writer) -> None:
        """The piece's place along k."""
        side = self.side
        moving = [self._offset(load)[1].axes for load in self.access.loads]
        used = frozenset[Axis]().union(*moving, *(condition.axes for condition in self.source[0]))
        writer.line(f"const int k = {side.along(f'{side.name}_piece')};")
        decode(writer, side.k, "k", "int", used)

    def _test(self, emitter: CudaEmitter) -> str:
        """Inside the loop over rows: the condition under which the piece is there, "" for always.

        Names the row's axes.
        """
        side, name = self.side, self.side.name
        emitter.names = {axis: f"{name}_{axis}[i]" for axis in self._kept}
        tests = [f"{name}_in[i]"] * self._may_be_outside
        tests += [f"k < {side.whole_depth}"] * side.may_end
        tests += [emitter.condition(condition) for condition in self.source[0]]
        return " && ".join(tests)

    def _address(self, load: Load, emitter: CudaEmitter) -> str:
        along = self._offset(load)[1]
        return f"{load.slot} + ({self._start(load)}[i]{f' + {emitter.index(along)}' if along.terms else ''})"


@dataclass(frozen=True)
class Copied(_Pieces):
    """Pieces that asynchronous copies bring as they are."""

    in_registers = False

    @property
    def rounded(self) -> bool:
        """Whether elements are as the product wants them: not where it wants them rounded to TF32."""
        return not self.side.as_tf32

    def fetch(self, writer: Writer) -> None:
        """Begins asynchronous copies of this thread's pieces of a step."""
        side, name = self.side, self.side.name
        (load,) = self.access.loads
        emitter, size = self._emitter(writer), self.access.count * side.element.bytes
        self._declare_k(writer)
        with unrolled(writer, self._passes, "i"), emitter.scope():
            test, address = self._test(emitter), self._address(load, emitter)
            place = f"into + {self._place}"
            skip = f"if ({name}_row + i * {self._down} < {side.tile}) " if self._may_overrun else ""
            if not test:
                writer.line(f"tw_cp_async_{size}({place}, {address}, {size});")
                return
            writer.line(f"const bool inside = {test};")
            writer.line(f"{skip}tw_cp_async_{size}({place}, inside ? {address} : {load.slot}, inside ? {size} : 0);")

    def put(self, writer: Writer) -> None:
        """Nothing: the copies have shared memory as their destination."""
        pass


@dataclass(frozen=True)
class Computed(_Pieces):
    """Pieces that are converted on their way, or what a fused prologue makes of them.

    `padding` is what bytes are where they are padded, if that is not 0: then they are taken as they are otherwise.
    """

    padding: Expr | None = None

    in_registers = True
    rounded = True

    def _is_wide(self, load: Load) -> bool:
        """Whether a load moves along the piece."""
        return self.slots.address(load.slot, load.index)[1].coefficient(self.side.k[-1]) == 1

    def _kind(self, load: Load) -> str:
        ctype = CUDA_TYPES[self._elements[load.slot]]
        return f"tw_vector<{ctype}, {self.access.count}>" if self._is_wide(load) else ctype

    def _held(self, load: Load) -> str:
        number = self.access.loads.index(load)
        return f"{self.side.name}_held{f'_{number + 1}' if number else ''}"

    @property
    def _value(self) -> Expr:
        return self.source[1]

    @property
    def _is_plain(self) -> bool:
        """Whether zeros in registers become zeros."""
        return self.padding is None and isinstance(self._value, Load)

    def _tests(self) -> bool:
        return bool(self._test(self._emitter(Writer())))

    def declare(self, writer: Writer) -> None:
        """Registers for the loads of a step, and for whether they are inside the tensor."""
        super().declare(writer)
        for load in self.access.loads:
            writer.line(f"{self._kind(load)} {self._held(load)}[{self._passes}];")
        if self._tests() and not self._is_plain:
            writer.line(f"bool {self.side.name}_there[{self._passes}];")

    def fetch(self, writer: Writer) -> None:
        """Loads what this thread's pieces of a step are computed from."""
        emitter = self._emitter(writer)
        self._declare_k(writer)
        with unrolled(writer, self._passes, "i"), emitter.scope():
            test = self._test(emitter)
            if test:
                writer.line(f"const bool inside = {test};")
            if test and not self._is_plain:
                writer.line(f"{self.side.name}_there[i] = inside;")
            for load in self.access.loads:
                kind, held = self._kind(load), self._held(load)
                if test:
                    writer.line(f"{held}[i] = {kind}{{}};")
                skip = "if (inside) " if test else ""
                writer.line(f"{skip}{held}[i] = *(const {kind} *)({self._address(load, emitter)});")

    def put(self, writer: Writer) -> None:
        """Computes the pieces and stores them to shared memory."""
        if self.padding is not None:
            self._put_padded(writer, self.padding)
            return
        side, name = self.side, self.side.name
        kind = f"tw_vector<{CUDA_TYPES[side.element]}, {self.access.count}>"
        with unrolled(writer, self._passes, "i"):
            writer.line(f"{kind} piece;")
            with unrolled(writer, self.access.count, "part"):
                writer.line(f"piece.element[part] = {self._element(writer)};")
            if self._tests() and not self._is_plain:
                writer.line(f"if (!{name}_there[i]) piece = {kind}{{}};")
            skip = f"if ({name}_row + i * {self._down} < {side.tile}) " if self._may_overrun else ""
            writer.line(f"{skip}*({kind} *)(into + {self._place}) = piece;")

    def _put_padded(self, writer: Writer, padding: Expr) -> None:
        """Stores the pieces as they are, with the padding's value where the tensor ends."""
        side, name, count = self.side, self.side.name, self.access.count
        ctype = CUDA_TYPES[side.element]
        kind = f"tw_vector<{ctype}, {count}>"
        writer.line(f"const {ctype} padding = {self._emitter(writer).scalar(padding)};")
        with unrolled(writer, self._passes, "i"):
            writer.line(f"{kind} piece = {name}_held[i];")
            with writer.block(f"if (!{name}_there[i])"), unrolled(writer, count, "part"):
                writer.line("piece.element[part] = padding;")
            row = f"{name}_row + i * {self._down}"
            skip = f"if ({row} < {side.tile}) " if self._may_overrun else ""
            writer.line(f"{skip}*({kind} *)(into + {side.layout.place(f'({row})', f'{name}_piece')}) = piece;")

    def _element(self, writer: Writer) -> str:
        """One element of the piece as it lies in shared memory."""
        emitter, value = self._emitter(writer), self._value
        texts = {load: f"{self._held(load)}[i]{'.element[part]' * self._is_wide(load)}" for load in self.access.loads}
        if isinstance(value, Load):
            return self.side.converted(texts[value], self._elements[value.slot])
        for load, text in texts.items():
            emitter.held[load] = convert(text, self._elements[load.slot], load.dtype)
        return self.side.converted(emitter.scalar(value), value.dtype)


@dataclass(frozen=True)
class Gathered(_Reading):
    """Single elements.

    Neighbouring threads take neighbours along k, or along the rows where those are closer in memory.
    """

    in_registers = True
    rounded = True

    @cached_property
    def _along_rows(self) -> bool:
        offsets = [self.slots.address(load.slot, load.index)[1] for load in self.source[1].loads]
        if not offsets or not self.side.axes:
            return False
        k, row = self.side.k[-1], self.side.axes[-1]
        steps = [(offset.coefficient(row) or 0, offset.coefficient(k) or 0) for offset in offsets]
        return any(abs(by_row) == 1 and abs(by_k) != 1 for by_row, by_k in steps)

    @property
    def _held(self) -> DType:
        """What is held in registers: elements as they lie in memory, or the results of a prologue."""
        value = self.source[1]
        return self.slots.buffers[value.slot].dtype if isinstance(value, Load) else value.dtype

    @property
    def _count(self) -> int:
        count = self.side.tile * self.side.depth
        assert count % self.side.threads == 0, "threads take equal parts of a tile"
        return count // self.side.threads

    def _place(self) -> tuple[str, str]:
        """Row and element of the tile."""
        if self._along_rows:
            return f"(place % {self.side.tile})", f"place / {self.side.tile}"
        return f"(place / {self.side.depth})", f"place % {self.side.depth}"

    def declare(self, writer: Writer) -> None:
        """Registers for the elements of a step."""
        along = "rows" if self._along_rows else "k"
        writer.line(f"/* {self.side.name.upper()}: element by element, threads along {along} */")
        writer.line(f"{CUDA_TYPES[self._held]} {self.side.name}_held[{self._count}];")

    def fetch(self, writer: Writer) -> None:
        """Loads this thread's elements of a step one by one."""
        side = self.side
        conditions, value = self.source
        row, k = self._place()
        emitter = self._emitter(writer)
        with unrolled(writer, self._count, "i"):
            writer.line(f"const int place = thread + i * {side.threads};")
            writer.line(f"const int row = {side.first} + {row}, k = {side.along(k)};")
            writer.line(f"{CUDA_TYPES[self._held]} value = {{}};")
            outer = [f"row < {side.rows}"] * (side.rows % side.tile > 0)
            outer += [f"k < {side.whole_depth}"] * side.may_end
            with writer.block(f"if ({' && '.join(outer)})" if outer else ""), emitter.scope():
                used = value_axes(value, self.slots).union(*(condition.axes for condition in conditions))
                decode(writer, side.axes, "row", "int", used)
                decode(writer, side.k, "k", "int", used)
                tests = " && ".join(emitter.condition(condition) for condition in conditions)
                with writer.block(f"if ({tests})" if tests else ""), emitter.scope():
                    writer.line(f"value = {self._element(emitter, value)};")
            writer.line(f"{side.name}_held[i] = value;")

    def _element(self, emitter: CudaEmitter, value: Expr) -> str:
        if not isinstance(value, Load):
            return emitter.scalar(value)
        slot, offset = self.slots.address(value.slot, value.index)
        return f"{slot}[{emitter.index(offset)}]"

    def put(self, writer: Writer) -> None:
        """Stores the elements to shared memory."""
        side = self.side
        row, k = self._place()
        with unrolled(writer, self._count, "i"):
            writer.line(f"const int place = thread + i * {side.threads};")
            place = side.layout.place(row, f"{k} * {side.element.bytes}")
            into = f"*({CUDA_TYPES[side.element]} *)(into + {place})"
            writer.line(f"{into} = {side.converted(f'{side.name}_held[i]', self._held)};")


def reading(side: Side, slots: Slots) -> Operand:
    """The best way to read an operand where it lies."""
    access = access_of(side.value, side.k[-1], slots, side.element)
    if access.count < 2 or side.depth % access.count:
        return Gathered(side, slots)
    if side.kept:
        access = access.within(side.kept, side.element)
    return Copied(side, slots, access) if access.is_copy else Computed(side, slots, access)
