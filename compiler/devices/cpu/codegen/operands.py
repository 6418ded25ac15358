"""A contraction's operands brought into the form the micro-kernel reads: A staged or gathered, B packed in panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.strips import padded_strip, store_vector, strips
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import Slots, is_contiguous
from compiler.forms.operand import Dim, Staged, guarded, joined_dims
from compiler.ir.expr import Const, Expr, Load, Where, conjunction, conjuncts
from compiler.ir.index import Axis, Index, row_major
from compiler.ir.tensor import DType

Bounds = Mapping[Axis, tuple[str, str]]
"""For each m axis, C expressions of the first point of a task's block and of the one past its last."""


def write_stage(writer: Writer, slots: Slots, staged: Staged, pitches: Sequence[int], bounds: Bounds) -> None:
    """`rows` = what a block of outputs needs of an image, in the order of its dimensions; padding is zero."""
    value, dims = joined_dims(staged, slots, pitches)
    _Stage(writer, slots, value, bounds).level(
        dims, "rows", Emitter(writer, slots.address, None, slots.extents, slots.numerics)
    )


@dataclass(frozen=True)
class _Stage:
    writer: Writer
    slots: Slots
    value: Expr
    bounds: Bounds

    def level(self, dims: Sequence[tuple[Dim, int]], place: str, emitter: Emitter) -> None:
        """Loops over the elements of the outermost of `dims` that the block needs, which lie from `place` on."""
        writer = self.writer
        if not dims:
            writer.line(f"{place}[0] = {emitter.scalar(self.value)};")
            return
        (dim, step), rest = dims[0], dims[1:]
        axis, (first, past) = dim.axis, self._range(dim)
        if not rest:
            self._run(dim, place, emitter)
            return
        with writer.block(f"for (long {axis} = {first}; {axis} < {past}; {axis}++)"), emitter.scope():
            at = writer.name("line")
            writer.line(f"float *const {at} = {place} + ({axis} - {first}) * {step};")
            if not dim.is_whole:
                low, end = emitter.index(dim.low), emitter.index(dim.past)
                with writer.block(f"if ({axis} < {low} || {axis} >= {end})"):
                    writer.line(f"memset({at}, 0, {step} * sizeof(float));")
                    writer.line("continue;")
            self.level(rest, at, emitter)

    def _range(self, dim: Dim) -> tuple[str, str]:
        if dim.output is None:
            return "0", str(dim.reach)
        first, past = self.bounds[dim.output]
        if dim.step == dim.reach == 1:
            return first, past
        return f"{first} * {dim.step}", f"(({past} - 1) * {dim.step} + {dim.reach})"

    def _run(self, dim: Dim, place: str, emitter: Emitter) -> None:
        """The innermost dimension, contiguous here and there: zeros, a copy (or a map in vectors), zeros."""
        writer, axis, (first, past) = self.writer, dim.axis, self._range(dim)
        begin, end = first, past
        if not dim.is_whole:
            begin, end = writer.name("begin"), writer.name("end")
            low, high = emitter.index(dim.low), emitter.index(dim.past)
            writer.line(f"const long {begin} = tw_between({first}, {low}, {past});")
            writer.line(f"const long {end} = tw_between({begin}, {high}, {past});")
            writer.line(f"memset({place}, 0, ({begin} - {first}) * sizeof(float));")
            writer.line(f"memset({place} + {end} - {first}, 0, ({past} - {end}) * sizeof(float));")
        value = self.value
        if isinstance(value, Load) and value.type is DType.F32:
            slot, offset = self.slots.address(value.slot, value.index)
            if offset.coefficient(axis) == 1:
                start = emitter.index(offset.substitute({axis: Index.of(0)}))
                count = f"({end} - {begin}) * sizeof(float)"
                writer.line(f"memcpy({place} + {begin} - {first}, {slot} + {start} + {begin}, {count});")
                return
        writer.line(f"long {axis} = {begin};")
        with writer.block(f"for (; {axis} + TW_LANES <= {end}; {axis} += TW_LANES)"):
            inner = Emitter(writer, self.slots.address, Vector(axis), self.slots.extents, self.slots.numerics)
            writer.line(f"tw_store({place} + {axis} - {first}, {inner.vf(value)});")
        with writer.block(f"if ({axis} < {end})"):
            count = writer.name("count")
            writer.line(f"const long {count} = {end} - {axis};")
            inner = Emitter(writer, self.slots.address, Vector(axis, count), self.slots.extents, self.slots.numerics)
            writer.line(f"tw_store_n({place} + {axis} - {first}, {inner.vf(value)}, {count});")


@dataclass(frozen=True)
class Gather:
    """Rows of A gathered element by element into `rows`, `pitch` floats each: an implicit im2col."""

    writer: Writer
    slots: Slots
    view: Contraction
    pitch: int
    lanes: int

    def write(self, row: Axis, first: str, past: str) -> None:
        """rows[row - first][k] = A[row][k] for rows `first` .. `past` - 1, counted over all m axes together."""
        view, writer = self.view, self.writer
        condition, value = guarded(view.a)
        guards = conjuncts(condition) if condition is not None else []
        with writer.block(f"for (long {row} = {first}; {row} < {past}; {row}++)"):
            decode(writer, view.m, str(row))
            writer.line(f"float *const line = rows + ({row} - {first}) * {self.pitch};")
            self._level(
                list(view.k),
                guards,
                value,
                Index.of(0),
                Emitter(writer, self.slots.address, numerics=self.slots.numerics),
            )

    def _level(self, axes: list[Axis], guards: Sequence[Expr], value: Expr, place: Index, emitter: Emitter) -> None:
        """Loops over k, testing each guard as soon as its axes are known; what it excludes is zero."""
        writer = self.writer
        ready = [guard for guard in guards if not guard.axes & set(axes)]
        waiting = [guard for guard in guards if guard not in ready]
        inner = prod(axis.extent for axis in axes)
        with ExitStack() as stack, emitter.scope():
            if ready:
                test = " && ".join(emitter.scalar(guard) for guard in ready)
                zero = f"memset(line + {emitter.index(place * inner)}, 0, {inner} * sizeof(float));"
                writer.line(f"if (!({test})) {zero}")
                stack.enter_context(writer.block("else"))
                stack.enter_context(emitter.scope())
            self._inside(axes, waiting, value, place, emitter)

    def _inside(self, axes: list[Axis], guards: Sequence[Expr], value: Expr, place: Index, emitter: Emitter) -> None:
        writer = self.writer
        if not axes:
            writer.line(f"line[{emitter.index(place)}] = {emitter.scalar(value)};")
            return
        axis, rest = axes[0], axes[1:]
        position = place * axis.extent + axis
        if not rest and is_contiguous(value, axis, self.slots):
            self._strip(axis, guards, value, position, emitter)
            return
        with writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"), emitter.scope():
            self._level(rest, guards, value, position, emitter)

    def _strip(self, axis: Axis, guards: Sequence[Expr], value: Expr, position: Index, emitter: Emitter) -> None:
        """The innermost k axis in vectors; guards along it become conditions on lanes."""
        condition = conjunction(list(guards))
        expr = value if condition is None else Where(condition, value, Const(0.0, DType.F32))

        def strip(vector: Vector) -> None:
            inner = Emitter(self.writer, emitter.address, vector, self.slots.extents, emitter.numerics)
            result = inner.vf(expr)
            store_vector(self.writer, f"line + {inner.index(position)}", result, vector)

        strips(self.writer, axis, self.lanes, strip)


def write_panels(writer: Writer, slots: Slots, view: Contraction, panel: int) -> None:
    """panels[panel - first_panel][k][column] = B[k][n] for panels first_panel .. past_panel - 1, padded with zeros."""
    place = row_major(view.k)
    with writer.block("for (long panel = first_panel; panel < past_panel; panel++)"), ExitStack() as stack:
        writer.line(f"float *const packed = panels + (panel - first_panel) * {view.depth * panel};")
        transposed = _is_transposed(view, slots)
        for axis in view.k[:-1] if transposed else view.k:
            stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
        line = f"packed + ({Emitter(writer, slots.address).index(place)}) * {panel}"
        with writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
            if transposed:
                _write_transposed(writer, slots, view, panel, line)
            else:
                padded_strip(
                    writer,
                    view.n,
                    panel,
                    line,
                    lambda vector: Emitter(writer, slots.address, vector, slots.extents, slots.numerics).vf(view.b),
                )


def _is_transposed(view: Contraction, slots: Slots) -> bool:
    """Whether B is contiguous along its innermost k axis, and not along n."""
    loads = [slots.address(load.slot, load.index)[1] for load in view.b.loads]
    steps = {(load.coefficient(view.k[-1]), load.coefficient(view.n) in (0, 1)) for load in loads}
    return steps == {(1, False)}


def _write_transposed(writer: Writer, slots: Slots, view: Contraction, panel: int, line: str) -> None:
    """A vector's width of columns, which lie contiguous in memory.

    They are read along k and transposed in squares; the remainder is copied element by element.
    """
    n, k = view.n, view.k[-1]
    writer.line(f"const long first_{n} = panel * {panel} + column;")
    writer.line(f"const long turned = first_{n} + TW_LANES <= {view.columns} ? {k.extent} / TW_LANES * TW_LANES : 0;")
    with writer.block(f"for (long {k} = 0; {k} < turned; {k} += TW_LANES)"):
        writer.line("vf square[TW_LANES];")
        with writer.block("for (long at = 0; at < TW_LANES; at++)"):
            writer.line(f"const long {n} = first_{n} + at;")
            writer.line(
                f"square[at] = {Emitter(writer, slots.address, Vector(k), slots.extents, slots.numerics).vf(view.b)};"
            )
        writer.line("tw_transpose(square);")
        writer.line(f"for (long at = 0; at < TW_LANES; at++) tw_store({line} + at * {panel} + column, square[at]);")
    with (
        writer.block(f"for (long {k} = turned; {k} < {k.extent}; {k}++)"),
        writer.block("for (long at = 0; at < TW_LANES; at++)"),
    ):
        writer.line(f"const long {n} = first_{n} + at;")
        writer.line(f"float *const element = {line} + column + at;")
        writer.line("*element = 0.0f;")
        with writer.block(f"if ({n} < {view.columns})"):
            writer.line(f"*element = {Emitter(writer, slots.address, numerics=slots.numerics).scalar(view.b)};")
