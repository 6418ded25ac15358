"""Normalised rows in shared memory: the first operand of a product, all of k at once.

A warp takes a row at a time. Its lanes hold the row's elements in registers, `count` side by side in each piece, so
that memory is read once; sums are those of lanes, then of the warp by shuffles, in the same order under every tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.normalised.geometry import WARP, Rows, width_of
from compiler.devices.cuda.codegen.axes import value_axes
from compiler.devices.cuda.codegen.fragments import unrolled
from compiler.devices.cuda.codegen.operands import Side
from compiler.devices.cuda.codegen.reduction import accumulate, combine_lanes
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis

MOST_TOGETHER = 48
"""Elements of rows that a lane has under way at once."""


@dataclass(frozen=True)
class NormalisedRows:
    """The rows of a block's tile, a tile for each step from byte `at` of shared memory on."""

    side: Side
    rows: Rows
    slots: Slots
    at: int

    is_constant = False
    in_registers = False
    is_bulk = False

    @property
    def rounded(self) -> bool:
        """Whether elements are as the product wants them: not where it wants them rounded to TF32."""
        return not self.side.as_tf32

    @property
    def _count(self) -> int:
        return self.rows.count(self.side.element)

    @property
    def _whole(self) -> int:
        """Elements of a row in shared memory: all of every step, those behind the row's end zero."""
        return -(-self.side.whole_depth // self.side.depth) * self.side.depth

    @property
    def _pieces(self) -> int:
        """Of a lane."""
        return -(-self._whole // (WARP * self._count))

    @property
    def _warps(self) -> int:
        return self.side.threads // WARP

    @property
    def _each(self) -> int:
        """Rows of a warp, one after another."""
        return -(-self.side.tile // self._warps)

    @property
    def _together(self) -> int:
        """Rows of a warp whose elements are under way at once."""
        most = max(MOST_TOGETHER // (self._pieces * self._count), 1)
        return next(count for count in range(min(most, self._each), 0, -1) if self._each % count == 0)

    def _width(self, load: Load) -> int:
        return width_of(load, self.rows, self.slots, self.side.element)

    def _kind(self, load: Load) -> str:
        return f"tw_vector<{CUDA_TYPES[self.slots.buffers[load.slot].dtype]}, {self._width(load)}>"

    def _held(self, load: Load) -> str:
        """The array that holds a lane's elements of a load."""
        return f"row_held_{(*self.rows.fixed, *self.rows.moved).index(load) + 1}"

    def _emitter(self, writer: Writer) -> CudaEmitter:
        elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        emitter = CudaEmitter(writer, self.slots.address, elements)
        emitter.names = {self.rows.normalised.channel: "at"}
        return emitter

    def declare(self, writer: Writer) -> None:
        """What is the same for all rows, loaded before the predecessor has ended."""
        writer.line(f"/* A: rows of {self.side.whole_depth} elements, normalised by a warp each */")
        writer.line(f"const int row_lane = thread % {WARP}, row_warp = thread / {WARP};")
        for load in self.rows.fixed:
            writer.line(f"{self._kind(load)} {self._held(load)}[{self._pieces}][{self._count // self._width(load)}];")
        if self.rows.fixed:
            with self._piece(writer):
                self._load(writer, self.rows.fixed, "[i]", early=True)

    def fetch(self, writer: Writer) -> None:
        """Nothing: rows are normalised once, before the first step."""

    def put(self, writer: Writer) -> None:
        """Nothing: see `fetch`."""

    @contextmanager
    def _piece(self, writer: Writer, *, whole: bool = False, placed: bool = True) -> Iterator[None]:
        """A loop over a lane's pieces; `whole`: those behind the end as well; `placed`: each begins at element `at`."""
        end = self._whole if whole else self.side.whole_depth
        ragged = self._pieces * WARP * self._count != end
        with unrolled(writer, self._pieces, "i"):
            if placed or ragged:
                writer.line(f"const int at = (row_lane + i * {WARP}) * {self._count};")
            with writer.block(f"if (at < {end})" if ragged else ""):
                yield

    def _load(self, writer: Writer, loads: Sequence[Load], place: str, *, early: bool = False) -> None:
        emitter = self._emitter(writer)
        for load in loads:
            width, kind = self._width(load), self._kind(load)
            slot, offset = self.slots.address(load.slot, load.index)
            pointer = f"tw_early({slot})" if early else slot
            with unrolled(writer, self._count // width, "next_part"):
                value = f"*(const {kind} *)({pointer} + ({emitter.index(offset)}) + next_part * {width})"
                writer.line(f"{self._held(load)}{place}[next_part] = {value};")

    def normalise(self, writer: Writer, keeps: str) -> None:
        """Reads the rows, and leaves them normalised in shared memory; where `keeps` holds also in memory."""
        moved, together, found = self.rows.moved, self._together, self.rows.normalised
        loads = [load for block in (*found.statistics, found.row) for value in block.values for load in value.loads]
        later = [*(load for load in loads if load not in moved), *([found.made] if found.is_kept else [])]
        writer.line("#pragma unroll 1")
        with writer.block(f"for (int from = 0; from < {self._each}; from += {together})"):
            for load in moved:
                size = f"[{together}][{self._pieces}][{self._count // self._width(load)}]"
                writer.line(f"{self._kind(load)} {self._held(load)}{size};")
            with unrolled(writer, together, "next"):
                self._place(writer, moved)
                with self._piece(writer):
                    self._load(writer, moved, "[next][i]")
            with unrolled(writer, together, "next"):
                self._place(writer, later)
                self._row(writer, self._statistics(writer), keeps)

    def _place(self, writer: Writer, loads: Sequence[Load]) -> None:
        """Which row of the block's tile it is, and its place among all, as far as it decides where `loads` are.

        Beyond the last row the last one is read again.
        """
        side = self.side
        writer.line(f"const int own_row = row_warp + (from + next) * {self._warps};")
        used = frozenset[Axis]().union(*(value_axes(load, self.slots) for load in loads)) & {*side.axes}
        if used:
            writer.line(f"const int row = min(first_m + own_row, {side.rows - 1});")
            decode(writer, side.axes, "row", "int", used)

    def _at_element(self, writer: Writer, scalars: Mapping[Expr, str]) -> CudaEmitter:
        """At element `part` of piece i of the row: what lanes hold, and what was found of the row."""
        emitter = self._emitter(writer)
        for load in (*self.rows.fixed, *self.rows.moved):
            place, width = "[i]" if load in self.rows.fixed else "[next][i]", self._width(load)
            element = f"{self._held(load)}{place}[part / {width}].element[part % {width}]"
            emitter.held[load] = convert(element, self.slots.buffers[load.slot].dtype, load.dtype)
        emitter.held.update(scalars)
        return emitter

    def _statistics(self, writer: Writer) -> Mapping[Expr, str]:
        """What is found of a row before it is made, by name."""
        scalars: dict[Expr, str] = {}
        for block in self.rows.normalised.statistics:
            (store,), (value,) = block.stores, block.values
            name = writer.name(store.slot)
            if block.monoid:
                writer.line(f"float {name} = 0;")
                with self._piece(writer, placed=False), unrolled(writer, self._count, "part"):
                    accumulate(block, [name], self._at_element(writer, scalars))
                writer.line("#pragma unroll")
                combine_lanes(writer, block, [name])
            else:
                emitter = self._emitter(writer)
                emitter.held.update(scalars)
                writer.line(f"const float {name} = {emitter.scalar(value)};")
            scalars[Load(store.slot, store.index, value.dtype)] = name
        return scalars

    def _row(self, writer: Writer, scalars: Mapping[Expr, str], keeps: str) -> None:
        """The row in shared memory, and in memory where it is a result."""
        side, (value,) = self.side, self.rows.normalised.row.values
        kind = f"tw_vector<{CUDA_TYPES[side.element]}, {self._count}>"
        with self._piece(writer, whole=True):
            writer.line(f"{kind} piece = {{}};")
            inside = f"if (at < {side.whole_depth})" if self._whole > side.whole_depth else ""
            with writer.block(inside), unrolled(writer, self._count, "part"):
                text = self._at_element(writer, scalars).scalar(value)
                writer.line(f"piece.element[part] = {convert(text, value.dtype, side.element)};")
            place = side.layout.place("own_row", f"at % {side.depth} * {side.element.bytes}")
            into = f"shared + {self.at} + at / {side.depth} * {side.bytes} + {place}"
            skip = f"if (own_row < {side.tile}) " if side.tile % self._warps else ""
            writer.line(f"{skip}*({kind} *)({into}) = piece;")
            if self.rows.normalised.is_kept:
                self._keep(writer, keeps)

    def _keep(self, writer: Writer, keeps: str) -> None:
        """A piece of the row in memory, where elements are what they are in shared memory."""
        side, made = self.side, self.rows.normalised.made
        width, kind = self._width(made), self._kind(made)
        slot, offset = self.slots.address(made.slot, made.index)
        tests = [keeps, f"own_row < {side.tile}", f"first_m + own_row < {side.rows}", f"at < {side.whole_depth}"]
        with writer.block(f"if ({' && '.join(tests)})"), unrolled(writer, self._count // width, "next_part"):
            writer.line(f"{kind} kept;")
            with unrolled(writer, width, "part"):
                writer.line(f"kept.element[part] = piece.element[next_part * {width} + part];")
            address = f"{slot} + ({self._emitter(writer).index(offset)}) + next_part * {width}"
            writer.line(f"*({kind} *)({address}) = kept;")
