"""The `window` algorithm: sums and extremes over a window, channel by channel, as register-blocked C.

A register tile is a few rows and columns of outputs at one vector of channels. Every position that the tile reads is
loaded once and used for all outputs that depend on it. Weights of the window's rows in question stay in registers
meanwhile, and results go through the epilogue before they are stored. Tiles whose windows lie inside the operand carry
no tests; those at a border skip what lies outside.

A tile task is a block of rows at a block of channels: a narrow block keeps the rows that overlapping windows share in
the first-level cache, a wide one reads memory in longer segments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode, describe
from compiler.codegen.scalars import C_TYPES
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, declare_slots, signature
from compiler.devices.cpu.codegen.strips import SUM_STRETCH
from compiler.devices.cpu.codegen.trimming import Span, Trimming
from compiler.devices.cpu.products.window.tilings import Run, Shape, Tiles, along, tests_of, tiles_inside
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import within
from compiler.forms.channelwise import ChannelWindow, as_byte_window, weights_of
from compiler.forms.factors import by_multiplication
from compiler.forms.normal_form import Slots, substitute
from compiler.forms.numerics import Numerics
from compiler.ir.expr import Expr
from compiler.ir.index import Axis, Index
from compiler.ir.interval import settle
from compiler.ir.kernel import Block
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

MASKED = 16
"""Lanes of the instruction sets whose loads and stores take a mask."""
IDENTITIES = {"sum": "tw_splat(0)", "max": "tw_splat(-INFINITY)", "min": "tw_splat(INFINITY)"}


def window(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_byte_window` accepts, blocked as `tile` says.

    Levels `block` and `register`, axes rows, columns and channels.
    """
    view = as_byte_window(workload)
    assert view is not None, "the tile stage offers `window` only to kernels of that form"
    return BlockedWindow(name, workload, view, tile, target, Writer())


@dataclass
class BlockedWindow(Lowering):
    """One lowering: the kernel as a window, how it is blocked, and the text being written.

    `pointers` is C's name of all slots' memory.
    """

    name: str
    workload: Workload
    view: ChannelWindow
    tile: Tile
    target: CpuTarget
    writer: Writer
    pointers: str = "p"

    def __post_init__(self) -> None:
        self.slots = Slots(self.workload)
        self.lanes = self.target.vector_floats
        self.weights: tuple[int, Packing] | None = weights_of(self.view, self.workload, self.lanes)
        self.vectors = max(self.tile.extent("register", "channels") // self.lanes, 1)
        self.bases: dict[tuple[str, Index], str] = {}
        self.block_rows = self.tile.extent("block", "rows", 1)
        self.block_channels = self.tile.extent("block", "channels")
        self.trimming = Trimming(self.writer, self.view.kernel, self.slots, self.lanes)
        sides = {*self.view.outer, self.view.rows.output, self.view.columns.output}
        overwritten = self.trimming.overwritten(self.view.epilogue) if self.pointers == "p" else ()
        self.bounds = tuple(bound for bound in overwritten if bound.place.axes <= sides)
        """Bounds that tiles do not ask about: what lies beyond them in the last tiles is stored again."""
        self.epilogue = tuple(within(block, self.bounds) for block in self.view.epilogue)

    @cached_property
    def _plans(self) -> list[tuple[Tiles, Tiles | None, list[Run], list[Run]]]:
        """Rows of register tiles of one height, which of them read nothing that a guard keeps out, and their runs.

        The runs of such rows come first, then those of all others.
        """
        columns = along(self.view.columns, self.tile.extent("register", "columns", 1))
        rows = along(self.view.rows, self.tile.extent("register", "rows", 1))
        return [(group, tiles_inside(group, self.view.guards), *self._runs(group, columns)) for group in rows]

    @property
    def grid(self) -> TaskGrid:
        """How tasks cut the result: outer axes, blocks of rows, blocks of channels."""
        inner = (Cut((self.view.rows.output,), self.block_rows), Cut((self.view.channel,), self.block_channels))
        return TaskGrid(self.view.kernel, (*one_by_one(self.view.outer), *inner))

    def lower(self) -> Lowered:
        """The C functions of the window: blocks of rows and channels, each one task."""
        view, writer = self.view, self.writer
        block_rows, block_channels = self.block_rows, self.block_channels
        row_blocks = -(-view.rows.output.extent // block_rows)
        channel_blocks = -(-view.channel.extent // block_channels)
        self.functions()
        describe(writer, self.workload)
        with writer.block(signature(self.name)):
            if self.trimming.beyond:
                declare_slots(writer, self.workload)
            writer.line("(void)scratch;")
            with self.trimming.tasks(self.grid):
                writer.line(f"const long first = tile % {channel_blocks} * {block_channels};")
                writer.line(f"const long past = tw_least_of(first + {block_channels}, {view.channel.extent});")
                writer.line(f"long row = tile / {channel_blocks} % {row_blocks} * {block_rows};")
                ends = "end_row" if self.trimming.beyond else "past_row"
                writer.line(f"const long {ends} = tw_least_of(row + {block_rows}, {view.rows.output.extent});")
                decode(writer, view.outer, f"tile / {channel_blocks * row_blocks}")
                if self.trimming.beyond:
                    self._clip()
                if self.bounds:
                    writer.line("const long first_row = row;")
                self.rows()
                if self.bounds:
                    self._overwrite()
        packings = dict([self.weights]) if self.weights else {}
        return Lowered(
            self.name, writer.text(), self.tasks, packings=packings, grid=self.grid, headers=frozenset(writer.headers)
        )

    def _clip(self) -> None:
        """Declares where a task's rows end without whole register tiles beyond a size; what lies in those is stored."""
        view, step = self.view, self.tile.extent("register", "rows", 1)
        around = (Span.whole(view.columns.output), Span((view.channel,), "first", "past"))
        past = self.trimming.clip(Span((view.rows.output,), "row", "end_row"), step, around)
        self.writer.line(f"const long past_row = {past};")

    def _overwrite(self) -> None:
        """Stores what lies beyond sizes in the last register tiles, which stored what they computed there."""
        view, tile = self.view, self.tile
        rows, columns = Span((view.rows.output,), "first_row", "past_row"), Span.whole(view.columns.output)
        channels = Span((view.channel,), "first", "past")
        self.trimming.overwrite(rows, tile.extent("register", "rows", 1) - 1, (columns, channels))
        self.trimming.overwrite(columns, tile.extent("register", "columns", 1) - 1, (rows, channels))

    def functions(self) -> None:
        """The C functions of all shapes of register tiles."""
        for shape in dict.fromkeys(run.shape for _, _, inner, edge in self._plans for run in (*inner, *edge)):
            self._function(shape)

    def rows(self) -> None:
        """Rows of outputs from `row`, which advances, to `past_row`, at channels `first` to `past`."""
        for group, middle, inner, edge in self._plans:
            with self.writer.block(f"for (; row + {group.size} <= past_row; row += {group.size})"):
                self._calls(middle, inner, edge)

    def _runs(self, rows: Tiles, columns: Sequence[Tiles]) -> tuple[list[Run], list[Run]]:
        """The runs of one row of tiles where its windows lie inside vertically, and where they do not.

        Empty where that never is.
        """
        middle = tiles_inside(rows, self.view.guards)
        edge = [Run(Shape(rows, part, False), part.first, part.past) for part in columns] if middle != rows else []
        inner = []
        for part in columns if middle else ():
            assert middle is not None
            border, inside = Shape(rows, part, False), tiles_inside(part, self.view.guards)
            first, past = (inside.first, inside.past) if inside else (part.past, part.past)
            inner += [Run(border, part.first, first)] if first > part.first else []
            inner += [Run(Shape(middle, inside, True), first, past)] if inside else []
            inner += [Run(border, past, part.past)] if past < part.past else []
        return inner, edge

    def _calls(self, middle: Tiles | None, inner: Sequence[Run], edge: Sequence[Run]) -> None:
        """One row of tiles."""
        if middle is None or not edge:
            for run in inner or edge:
                self._call(run)
            return
        with self.writer.block(f"if (row >= {middle.first} && row <= {middle.last})"):
            for run in inner:
                self._call(run)
        with self.writer.block("else"):
            for run in edge:
                self._call(run)

    def _call(self, run: Run) -> None:
        outer = "".join(f"{axis}, " for axis in self.view.outer)
        past = self._clipped(run) if self.trimming.beyond and self.pointers == "p" else str(run.past)
        places = f"{self.pointers}, {outer}row, {run.first}, {past}, first, past"
        self.writer.line(f"{self.name}_{run.shape}({places});")

    def _clipped(self, run: Run) -> str:
        """Where a run ends without whole register tiles beyond a size; what lies in those is stored."""
        view, shape = self.view, run.shape
        rows = Span((view.rows.output,), "row", f"row + {shape.rows.size}")
        columns = Span((view.columns.output,), str(run.first), str(run.past))
        return self.trimming.clip(columns, shape.columns.size, (rows, Span((view.channel,), "first", "past")))

    # The function of one shape

    def _function(self, shape: Shape) -> None:
        view, writer = self.view, self.writer
        outer = "".join(f"long {axis}, " for axis in view.outer)
        rows, columns = view.rows.output, view.columns.output
        where = "all windows inside" if shape.inside else "windows that may reach over a border"
        writer.line(f"/* {shape.rows.size} x {shape.columns.size} outputs at a time: {where}. */")
        head = (
            f"static void {self.name}_{shape}(void *const *p, {outer}long {rows}, "
            "long first_column, long past_column, long first, long past)"
        )
        with writer.block(head):
            declare_slots(writer, self.workload)
            loop = f"for (long {columns} = first_column; {columns} < past_column; {columns} += {shape.columns.size})"
            with writer.block(loop):
                self._declare_bases()
                self._channels(shape)
        writer.line()

    def _channels(self, shape: Shape) -> None:
        """Several vectors of channels at a time, then one, then the remainder: by the same code if masks are free."""
        writer, axis, lanes = self.writer, self.view.channel, self.lanes
        masked = axis.extent % lanes > 0 and lanes == MASKED
        writer.line(f"long {axis} = first;")
        together = {self.vectors, 1} - ({1} if masked else set())
        for vectors in sorted(together, reverse=True):
            step = vectors * lanes
            if axis.extent >= step:
                with writer.block(f"for (; {axis} + {step} <= past; {axis} += {step})"):
                    self.strip(shape, vectors, Vector(axis)).write()
        if masked:
            with writer.block(f"for (; {axis} < past; {axis} += TW_LANES)"):
                writer.line(f"const long live = tw_least_of(TW_LANES, past - {axis});")
                self.strip(shape, 1, Vector(axis, "live")).write()
        elif axis.extent % lanes:
            with writer.block(f"if ({axis} < past)"):
                self.strip(shape, 1, Vector(axis, str(axis.extent % lanes))).write()

    def strip(self, shape: Shape, vectors: int, vector: Vector) -> Strip:
        """The code of one register tile of so many vectors of channels, from `vector` on."""
        return Strip(self, shape, vectors, vector)

    # Addresses

    def _declare_bases(self) -> None:
        """Pointers to what a tile reads and writes first, so that all else lies at constant distances from them."""
        view = self.view
        self.bases = {}
        exprs = [view.value, *(value for block in self.epilogue for value in block.values)]
        if view.weight is not None and self.weights is None:
            exprs.append(view.weight)
        at_first = {side.position: Index.of(side.output) * side.stride for side in (view.rows, view.columns)}
        loads = [load for expr in exprs for load in expr.substitute(at_first).loads]
        stores = [store for block in view.kernel.blocks for store in block.stores]
        places = [(load.slot, load.index) for load in loads] + [(store.slot, store.index) for store in stores]
        for slot, index in places:
            if slot in self.slots.buffers:
                self._declare_base(slot, index)

    def _declare_base(self, slot: str, index: tuple[Index, ...]) -> None:
        base = self._base(self.slots.address(slot, index)[1])
        if base.is_const or (slot, base) in self.bases:
            return
        name = self.writer.name(f"at_{slot}")
        self.bases[slot, base] = name
        const = "" if slot in {output.name for output in self.workload.kernel.outputs} else "const "
        ctype = C_TYPES[self.slots.buffers[slot].dtype]
        place = Emitter(self.writer, self.slots.address).index(base)
        self.writer.line(f"{const}{ctype} *{name} = {slot} + {place};")
        self.writer.line(f"TW_OPAQUE({name});")

    @property
    def numerics(self) -> Numerics:
        """Those of the slots, and the same of pointers into them."""
        known = self.slots.numerics
        bases = {name: known.elements[slot] for (slot, _), name in self.bases.items() if slot in known.elements}
        return replace(known, elements={**known.elements, **bases})

    def _base(self, offset: Index) -> Index:
        """The part of an offset that is fixed for a tile."""
        fixed = {*self.view.outer, self.view.rows.output, self.view.columns.output}
        return Index(tuple(term for term in offset.terms if term[0] in fixed))

    def address(self, slot: str, index: tuple[Index, ...]) -> tuple[str, Index]:
        """A pointer that a tile has at hand, and the offset from it."""
        offset = self.slots.address(slot, index)[1]
        base = self._base(offset)
        return (self.bases[slot, base], offset - base) if (slot, base) in self.bases else (slot, offset)


@dataclass(frozen=True)
class _Output:
    """One vector of results: its row and column in the tile, its vector of channels."""

    row: int
    column: int
    vector: int

    def __str__(self) -> str:
        return f"{self.row}_{self.column}_{self.vector}"


class Strip:
    """The code of one register tile at one place: accumulators, what is added to them, what becomes of them."""

    def __init__(self, window: BlockedWindow, shape: Shape, vectors: int, vector: Vector) -> None:
        self.window, self.view, self.writer = window, window.view, window.writer
        self.shape, self.vectors, self.lanes = shape, range(vectors), window.lanes
        self.emitter = Emitter(self.writer, window.address, vector, window.slots.extents, window.numerics)
        self.outputs = [
            _Output(*place)
            for place in itertools.product(range(shape.rows.size), range(shape.columns.size), self.vectors)
        ]

    def write(self) -> None:
        """The statements of the tile."""
        monoid = self.view.monoid
        if self.window.weights:
            slot = self.window.workload.kernel.inputs[self.window.weights[0]]
            packed = slot.name if slot.type.dtype is DType.F32 else f"(const float *){slot.name}"
            steps = self.view.depth * self.view.group * self.view.taps
            self.writer.line(f"const float *const weights = {packed} + {self.view.channel} * {steps};")
        for output in self.outputs:
            self.writer.line(f"vf total{output} = {IDENTITIES[monoid]};")
        sides = {self.view.rows.position, self.view.columns.position}
        members = (self.view.members,) if self.view.members else ()
        self._loops(
            (*members, *self.view.loops),
            [guard for guard in self.view.guards if not guard.axes & sides],
            Index.of(0),
            "total",
        )
        self._epilogue()

    # The reduction

    def _loops(self, loops: Sequence[Axis], guards: Sequence[Expr], place: Index, into: str) -> None:
        """Loops over what is not unrolled, with each guard tested as soon as its axes are known.

        `place` counts their points.
        """
        ready = [guard for guard in guards if not guard.axes & set(loops)]
        waiting = [guard for guard in guards if guard not in ready]
        with ExitStack() as stack, self.emitter.scope():
            if ready:
                stack.enter_context(self.writer.block(f"if ({self._all(ready)})"))
            if not loops:
                self._taps(place, into)
            elif loops == self.view.loops[-1:] and self._is_long and into == "total":
                self._stretches(loops[0], waiting, place)
            else:
                axis, past = loops[0], self._past(loops[0])
                with (
                    self.writer.block(f"for (long {axis} = 0; {axis} < {past}; {axis}++)"),
                    self.emitter.scope(),
                ):
                    self._loops(loops[1:], waiting, place * axis.extent + axis, into)

    def _past(self, axis: Axis) -> str:
        """Where a loop ends, in C; where a size ends it, a variable that is declared here."""
        past = str(axis.extent)
        for size in (size for ended, size in self.view.ends if ended == axis):
            ended = self.writer.name(f"past_{axis}")
            self.writer.line(f"const long {ended} = tw_least_of({past}, {self.emitter.scalar(size)});")
            past = ended
        return past

    @property
    def _is_long(self) -> bool:
        return self.view.monoid == "sum" and self.view.depth * self.view.taps > 2 * SUM_STRETCH

    def _stretches(self, axis: Axis, guards: Sequence[Expr], place: Index) -> None:
        """The innermost loop of a long sum in stretches, each summed on its own before it is added to the total."""
        writer, past = self.writer, self._past(axis)
        with writer.block(f"for (long stretch = 0; stretch < {past}; stretch += {SUM_STRETCH})"):
            writer.line(f"const long past_stretch = tw_least_of(stretch + {SUM_STRETCH}, {past});")
            for output in self.outputs:
                writer.line(f"vf part{output} = {{0}};")
            with writer.block(f"for (long {axis} = stretch; {axis} < past_stretch; {axis}++)"), self.emitter.scope():
                self._loops((), guards, place * axis.extent + axis, "part")
            for output in self.outputs:
                writer.line(f"total{output} += part{output};")

    def _taps(self, place: Index, into: str) -> None:
        """Each row of positions that the tile reads, for the outputs whose windows cover it."""
        rows = self.shape.rows
        if self.view.members:
            self.writer.line(f"const vi lanes = TW_GROUPS_OF({self.view.group}) + (int32_t){self.view.members};")
        for position, readers in rows.side.readers(rows.size).items():
            tests = self._needed(rows, position)
            if tests is not None:
                with self.writer.block(f"if ({self._all(tests)})" if tests else ""), self.emitter.scope():
                    if self.view.weight is None:
                        self._row(position, readers, into)
                    else:
                        self._weighted_row(position, readers, place, into)

    def _needed(self, tiles: Tiles, position: int) -> list[Expr] | None:
        return [] if self.shape.inside else tests_of(self.view.guards, tiles, position)

    def _columns(self, act: Callable[[int, Sequence[tuple[int, int]]], None]) -> None:
        """`act` on each column of positions and its readers, under the tests it needs."""
        columns = self.shape.columns
        for position, readers in columns.side.readers(columns.size).items():
            tests = self._needed(columns, position)
            if tests is not None:
                with ExitStack() as stack:
                    if tests:
                        stack.enter_context(self.writer.block(f"if ({self._all(tests)})"))
                        stack.enter_context(self.emitter.scope())
                    act(position, readers)

    def _weighted_row(self, row: int, readers: Sequence[tuple[int, int]], place: Index, into: str) -> None:
        """into[output] += position * weight[tap], for one row of positions."""
        downs, taps = [down for _, down in readers], range(self.view.columns.taps)
        weights = {tap: self._weight(place, *tap) for tap in itertools.product(downs, taps, self.vectors)}

        def add(column: int, across: Sequence[tuple[int, int]]) -> None:
            for vector in self.vectors:
                value = self._value(row, column, vector)
                if self.view.members:
                    whole, value = value, self.writer.name("member")
                    self.writer.line(f"const vf {value} = tw_permute({whole}, lanes);")
                for (output_row, down), (output_column, tap) in itertools.product(readers, across):
                    output = _Output(output_row, output_column, vector)
                    self.writer.line(f"{into}{output} += {value} * {weights[down, tap, vector]};")

        self._columns(add)

    def _row(self, row: int, readers: Sequence[tuple[int, int]], into: str) -> None:
        """The windows' parts in one row of positions, each computed once for all rows of outputs that cover it."""
        begun: set[tuple[int, int]] = set()
        guarded = not self.shape.inside and any(
            self._needed(self.shape.columns, position) != []
            for position in self.shape.columns.side.readers(self.shape.columns.size)
        )
        if guarded:
            for column, vector in itertools.product(range(self.shape.columns.size), self.vectors):
                self.writer.line(f"vf row{column}_{vector} = {IDENTITIES[self.view.monoid]};")
                begun.add((column, vector))

        def add(column: int, across: Sequence[tuple[int, int]]) -> None:
            for vector in self.vectors:
                value = self._value(row, column, vector)
                for output, _ in across:
                    name = f"row{output}_{vector}"
                    if (output, vector) in begun:
                        self.writer.line(self._step(name, value))
                    else:
                        self.writer.line(f"vf {name} = {value};")
                        begun.add((output, vector))

        self._columns(add)
        for (output_row, _), column, vector in itertools.product(readers, range(self.shape.columns.size), self.vectors):
            self.writer.line(self._step(f"{into}{_Output(output_row, column, vector)}", f"row{column}_{vector}"))

    def _step(self, into: str, value: str) -> str:
        return (
            f"{into} += {value};" if self.view.monoid == "sum" else f"{into} = tw_{self.view.monoid}({value}, {into});"
        )

    def _value(self, row: int, column: int, vector: int) -> str:
        """What is reduced, at a position counted from the tile's first."""
        rows, columns = self.view.rows, self.view.columns
        value = self.view.value.substitute(
            {
                rows.position: Index.of(rows.output) * rows.stride + row,
                columns.position: Index.of(columns.output) * columns.stride + column,
                **self._channel(vector),
            }
        )
        return self.emitter.vf(settle(value, self.shape.limits))

    def _weight(self, place: Index, down: int, across: int, vector: int) -> str:
        view = self.view
        if self.window.weights:
            step = place * view.taps + (down * view.columns.taps + across)
            at = self.emitter.index((step + vector * view.depth * view.group * view.taps) * self.lanes)
            name = self.writer.name("w")
            self.writer.line(f"const vf {name} = tw_load(weights + {at});")
            return name
        assert view.weight is not None
        taps = {view.rows.tap: Index.of(down), view.columns.tap: Index.of(across)}
        known = {tap: index for tap, index in taps.items() if tap is not None}
        return self.emitter.vf(view.weight.substitute({**known, **self._channel(vector)}))

    def _channel(self, vector: int) -> Mapping[Axis, Index]:
        return {self.view.channel: Index.of(self.view.channel) + vector * self.lanes}

    def _all(self, tests: Sequence[Expr]) -> str:
        return " && ".join(self.emitter.scalar(test) for test in tests)

    # What follows the reduction, on each result

    def _epilogue(self) -> None:
        sides = {self.view.rows.output, self.view.columns.output}
        for vector in self.vectors:
            self._load_shared(vector, sides)
        for output in self.outputs:
            with self.emitter.scope():
                self._maps(output)

    def _load_shared(self, vector: int, sides: set[Axis]) -> None:
        """Loads what is the same for all outputs of the tile ahead of their stores.

        Past a store no compiler can prove that it is the same.
        """
        for block in self.window.epilogue:
            for value in block.values:
                for load in value.loads:
                    if load.slot in self.window.slots.buffers and load.type is DType.F32 and not load.axes & sides:
                        self.emitter.vf(load.substitute(self._channel(vector)))

    def _maps(self, output: _Output) -> None:
        rows, columns = self.view.rows.output, self.view.columns.output
        place = {
            rows: Index.of(rows) + output.row,
            columns: Index.of(columns) + output.column,
            **self._channel(output.vector),
        }
        maps = [self._settled(substitute(block, place)) for block in self.window.epilogue]
        finish(self.emitter, self.window.slots, substitute(self.view.product, place), maps, f"total{output}")

    def _settled(self, block: Block) -> Block:
        """A map with all decided that the places of these tiles decide."""
        values = (settle(value.transform(by_multiplication), self.shape.limits) for value in block.values)
        return replace(block, values=tuple(values))
