"""The `window` algorithm on a GPU.

Sums and extremes over a window, channel by channel, with the sliding window in registers. A *strip* is a few rows and
columns of outputs at a vector of neighbouring channels: the work of one thread. Every position that its windows look at
is read once, by accesses of up to 16 bytes, as many rows of positions ahead as registers hold; positions outside the
operand are not read and count as the monoid's identity. Neighbouring threads have neighbouring channels, then
neighbouring columns, so that a warp reads stretches of memory and what overlapping windows share is found in the
first-level cache.

Constant weights are packed [members of a group][loops][taps][channels]; as many as registers hold are requested before
the kernel waits for the one that it depends on.

Where few outputs reduce over many positions (`split`), threads and blocks share out a strip's reduction instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product as points

from compiler.devices.cuda.algorithms.window.split import SplitWindow
from compiler.devices.cuda.algorithms.window.strip import Strip, StripText
from compiler.devices.cuda.codegen.lane_columns import AHEAD, AHEAD_BYTES
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, convert, literal
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.channelwise import Side, as_channel_window
from compiler.forms.normal_form import substitute
from compiler.ir.expr import Apply, Const, Expr, Load, Position
from compiler.ir.index import Axis, Index
from compiler.ir.interval import decided
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

REGISTER_BYTES = 4
MOST_WEIGHTS = 40
"""Of a thread, that stay in registers as floats from before the wait on."""
NOWHERE = Index.of(0)


def lower_cuda_window(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_channel_window` accepts.

    Levels: `thread` rows, columns, channels of a strip; `block` threads. With `parts` in `block`, or in `grid`, so many
    threads, or blocks, share the reduction of each strip.
    """
    view = as_channel_window(workload)
    assert view is not None, "the tile stage offers `window` only to kernels of that form"
    shape = Strip.of(view, tile)
    if tile.extent("block", "parts") or tile.extent("grid", "parts"):
        return SplitWindow(name, workload, view, shape, tile).lower()
    return _Window(name, workload, view, shape, tile).lower()


class _Window(StripText):
    """The form in which a thread has its strip for itself."""

    def lower(self) -> CudaLowered:
        threads = self.tile.extent("block", "threads")
        writer = self.writer
        writer.line(f"const int strip = tile * {threads} + (int)threadIdx.x;")
        with ExitStack() as stack:
            if self.strip.count % threads:
                stack.enter_context(writer.block(f"if (strip < {self.strip.count})"))
            self._strip()
        grid = -(-self.strip.count // threads)
        return framed(
            self.name,
            self.workload,
            writer.lines,
            Frame(grid=grid, block=threads, waits=True, resident=1),
            packings=self.packings,
            notes=self.notes,
        )

    def _strip(self) -> None:
        writer, strip = self.writer, self.strip
        strip.declare(writer, "strip")
        self.early_weights = self._early_weights()
        early = self.vectors([self.view.value, *(value for block in self.view.epilogue for value in block.values)])
        for load in early:
            if self.is_early(load):
                self.read(load, early=True)
        writer.line("tw_grid_dependency_wait();")
        sizes = f"[{strip.rows}][{strip.columns}][{self.width}]"
        writer.line(f"float total{sizes};")
        with ExitStack() as stack:
            for axis, extent in (("y", strip.rows), ("x", strip.columns), ("part", self.width)):
                writer.line("#pragma unroll")
                stack.enter_context(writer.block(f"for (int {axis} = 0; {axis} < {extent}; {axis}++)"))
            writer.line(f"total[y][x][part] = {literal(self.identity, DType.F32)};")
        self.row_tests = self._tests(self.view.rows, strip.rows, "row")
        self.column_tests = self._tests(self.view.columns, strip.columns, "column")
        sides = {self.view.rows.position, self.view.columns.position}
        others = [guard for guard in self.view.guards if not guard.axes & sides]
        self._loops(self.view.loops, others, NOWHERE)
        self._results()

    def _early_weights(self) -> dict[int, str]:
        """All weights, where registers hold them."""
        view = self.view
        if not self.packing or view.depth > 1 or view.group > 1:
            return {}
        if view.taps * self.width > MOST_WEIGHTS:
            return {}
        return {tap: self.weight_vector(NOWHERE, tap, early=True) for tap in range(view.taps)}

    # Which positions count

    def _tests(self, side: Side, size: int, called: str) -> dict[int, str]:
        """For each position along a side that counts for some strip: the name of its condition, "" for always."""
        found = {}
        for position, readers in side.readers(size).items():
            tests = self._conditions(side, size, position, min(output for output, _ in readers))
            if tests is None:
                continue
            found[position] = ""
            if tests:
                found[position] = self.writer.name(called)
                text = " && ".join(self.emitter.scalar(test) for test in tests)
                self.writer.line(f"const bool {found[position]} = {text};")
        return found

    def _conditions(self, side: Side, size: int, position: int, first: int) -> list[Expr] | None:
        """What a position needs in order to count: it is inside, and the first output that reads it exists.

        None where it never does.
        """
        tests = []
        if side.output.extent % size:
            tests.append(_below(Index.of(side.output) + first, side.output.extent))
        for guard in self.view.guards:
            if side.position in guard.axes:
                tests.append(guard.substitute({side.position: Index.of(side.output) * side.stride + position}))
        answers = [decided(test, self.strip.limits) for test in tests]
        if False in answers:
            return None
        return [test for test, answer in zip(tests, answers, strict=True) if answer is None]

    # The reduction

    def _loops(self, loops: Sequence[Axis], guards: Sequence[Expr], place: Index) -> None:
        """Loops over what is not unrolled, each guard tested as soon as its axes are known.

        `place` counts their points.
        """
        ready = [guard for guard in guards if not guard.axes & set(loops)]
        waiting = [guard for guard in guards if guard not in ready]
        with ExitStack() as stack, self.emitter.scope():
            if ready:
                stack.enter_context(
                    self.writer.block(f"if ({' && '.join(self.emitter.scalar(test) for test in ready)})")
                )
            if not loops:
                self._rows(place)
                return
            axis = loops[0]
            if len(loops) == 1 and self.view.taps == 1:
                self.writer.line(f"#pragma unroll {AHEAD}")
            stack.enter_context(self.writer.block(f"for (int {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
            stack.enter_context(self.emitter.scope())
            self._loops(loops[1:], waiting, place * axis.extent + axis)

    def _rows(self, place: Index) -> None:
        """Row after row of positions: those of the next rows are on their way while one is worked on."""
        before = dict(self.raw)
        rows = list(self.row_tests)
        row_bytes = sum(
            max(self.elements[load.slot].bytes * self.width, REGISTER_BYTES)
            for column in self.column_tests
            for load in self.vectors([self.value_at(rows[0] if rows else 0, column)])
        )
        # The weights of a group's members take the registers that further rows would.
        ahead = 1 if self.view.members else max(AHEAD_BYTES // max(row_bytes, 1), 1)
        for row in rows[:ahead]:
            self._read_row(row)
        for at, row in enumerate(rows):
            if at + ahead < len(rows):
                self._read_row(rows[at + ahead])
            self._row(row, place)
        self.raw = before

    def _inside(self, row: int, column: int) -> str:
        return " && ".join(filter(None, (self.row_tests[row], self.column_tests[column])))

    def _read_row(self, row: int) -> None:
        """The vectors of one row of positions."""
        for column in self.column_tests:
            value = self.value_at(row, column)
            for load in self.vectors([value]):
                if load not in self.raw:
                    self.read(load, self._inside(row, column), self.identity if load == value else 0.0)

    def _row(self, row: int, place: Index) -> None:
        """One row of positions, for the outputs whose windows cover it."""
        view = self.view
        downs = view.rows.readers(self.strip.rows)[row]
        with ExitStack() as stack:
            if view.members:
                self.writer.line("#pragma unroll")
                members = f"for (int {view.members} = 0; {view.members} < {view.group}; {view.members}++)"
                stack.enter_context(self.writer.block(members))
                stack.enter_context(self.emitter.scope())
                place = Index.of(view.members) * view.depth + place
            weights = self._weights(sorted({down for _, down in downs}), place)
            for column, acrosses in view.columns.readers(self.strip.columns).items():
                if column in self.column_tests:
                    self._position(row, column, weights, [*points(downs, acrosses)])

    def _weights(self, downs: Sequence[int], place: Index) -> Mapping[int, str]:
        """Packed weights of whole rows of taps, by tap."""
        if not self.packing or self.early_weights:
            return self.early_weights
        across = self.view.columns.taps
        taps = [down * across + tap for down in downs for tap in range(across)]
        return {tap: self.weight_vector(place, tap) for tap in taps}

    def _position(
        self,
        row: int,
        column: int,
        weights: Mapping[int, str],
        readers: Sequence[tuple[tuple[int, int], tuple[int, int]]],
    ) -> None:
        """One position, into the totals of all windows that look at it: `readers` are (output, tap) down and across."""
        view, value, inside = self.view, self.value_at(row, column), self._inside(row, column)
        with ExitStack() as stack:
            lazy = inside and any(load not in self.raw for load in value.loads)
            if lazy:
                stack.enter_context(self.writer.block(f"if ({inside})"))
            self.per_channel(stack, self.element)
            self.hold(value.loads, self.element)
            text = self.emitter.scalar(value)
            if inside and not lazy and value not in self.raw:
                name = self.writer.name("v")
                self.writer.line(f"const float {name} = {inside} ? {text} : {literal(self.identity, DType.F32)};")
                text = name
            for (output_row, down), (output_column, across) in readers:
                total = f"total[{output_row}][{output_column}][part]"
                if view.weight is None:
                    self.step(total, text)
                else:
                    self.writer.line(f"{total} += {text} * {self._weight(down, across, weights)};")

    def _weight(self, down: int, across: int, weights: Mapping[int, str]) -> str:
        """A tap's weight at the channel in question."""
        tap = down * self.view.columns.taps + across
        if tap in weights:
            assert self.packing
            return convert(f"{weights[tap]}[part]", self.packing[1].dtype, DType.F32)
        assert self.view.weight is not None
        taps = {self.view.rows.tap: Index.of(down), self.view.columns.tap: Index.of(across)}
        return self.emitter.scalar(
            self.view.weight.substitute({axis: at for axis, at in taps.items() if axis is not None})
        )

    # What follows the reduction, on each result

    def _results(self) -> None:
        """Maps and stores: what they read is requested for all outputs before the first is stored."""
        outputs = [*points(range(self.strip.rows), range(self.strip.columns))]
        for row, column in outputs:
            loads = self.vectors([value for block in self._maps(row, column) for value in block.values])
            for load in loads:
                if load not in self.raw:
                    self.read(load, self._exists(row, column))
        for row, column in outputs:
            exists = self._exists(row, column)
            with ExitStack() as stack:
                if exists:
                    stack.enter_context(self.writer.block(f"if ({exists})"))
                self._result(row, column)

    def _exists(self, row: int, column: int) -> str:
        """The condition under which an output of the strip exists; "" for always."""
        sides = (
            (self.view.rows.output, self.strip.rows, row),
            (self.view.columns.output, self.strip.columns, column),
        )
        return " && ".join(f"{axis} + {at} < {axis.extent}" for axis, size, at in sides if at and axis.extent % size)

    def _place(self, row: int, column: int) -> Mapping[Axis, Index]:
        rows, columns = self.view.rows.output, self.view.columns.output
        return {rows: Index.of(rows) + row, columns: Index.of(columns) + column}

    def _maps(self, row: int, column: int) -> list[Block]:
        place = self._place(row, column)
        return [self.settled(substitute(block, place), self.strip.limits) for block in self.view.epilogue]

    def _result(self, row: int, column: int) -> None:
        """The maps of one output, and what they store as vectors."""
        product = substitute(self.view.product, self._place(row, column))
        maps = self._maps(row, column)
        stores = [store for block in (product, *maps) for store in block.stores if store.slot in self.elements]
        kept = {store: self.writer.name(store.slot) for store in stores}
        for store, name in kept.items():
            self.writer.line(f"{CUDA_TYPES[self.elements[store.slot]]} {name}[{self.width}];")
        with ExitStack() as stack:
            self.per_channel(stack)
            self.hold([load for block in maps for value in block.values for load in value.loads])
            value = f"total[{row}][{column}][part]"
            for block in (product, *maps):
                for at, store in enumerate(block.stores):
                    if block is not product:
                        value = self.emitter.scalar(block.values[at])
                    self.emitter.held[Load(store.slot, store.index, DType.F32)] = value
                    if store in kept:
                        self.writer.line(
                            f"{kept[store]}[part] = {convert(value, DType.F32, self.elements[store.slot])};"
                        )
        for store, name in kept.items():
            nbytes = self.access_bytes(store.slot, store.index)
            place = self.emitter.index(self.slots.address(store.slot, store.index)[1])
            self.writer.line(f"tw_write<{nbytes}>({store.slot} + {place}, {name});")


def _below(index: Index, extent: int) -> Expr:
    return Apply("lt", (Position(index), Const(extent, DType.I64)))
