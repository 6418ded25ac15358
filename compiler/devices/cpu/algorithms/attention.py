"""The `attention` algorithm: both products and the softmax between them, for a block of queries at a time.

The keys and values of a head are packed in panels once. The scores of a block of queries stay in the cache. Maps are
applied to them and their maxima taken as the products are made. Then they become exponentials of their distances to the
maximum, and are multiplied with the values. Each row is divided by its sum at the end.

Where there are more keys than a block of them, the sums so far are scaled to the new maximum block by block: the online
softmax of Milakov and Gimelshein, arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135.

A tile says which register tiles both products have, and the block of queries whose scores stay in a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import decode
from compiler.codegen.task_grid import Cut, TaskGrid, one_by_one
from compiler.codegen.writer import Writer
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.blocking import even_part, parts
from compiler.devices.cpu.algorithms.model import CALL_NS
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.micro_kernel import MicroKernel
from compiler.devices.cpu.codegen.strips import copy_row, padded_strip, panel_strips, strips
from compiler.devices.cpu.codegen.trimming import Span, Trimming
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, Heads, as_attention
from compiler.forms.bounds import neutral_from, within
from compiler.forms.cache_lines import whole_lines
from compiler.forms.contraction import axes_of
from compiler.forms.normal_form import Slots, is_contiguous
from compiler.ir.expr import Expr
from compiler.ir.index import Axis, Index
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

QUERIES = 28
"""Of a block: they reuse what they read of the keys and values often enough to hide where it lies."""
KEYS = 1024
"""Of a block: more have their softmax taken online."""
TASKS_PER_LANE = 4
MAX_VECTORS = 4
PACK_NS = 0.05
"""One element of the keys or values packed."""
EXP_NS = 3.0
"""One vector of scores through the maps, the largest value and the exponential."""


def attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of the scores' panels, cheapest by the model first.

    Empty unless the kernel is attention.
    """
    view = as_attention(workload.kernel)
    return by_width(view, target, lambda vectors: _proposal(view, vectors, target, lanes)) if view else []


def by_width(view: Heads, target: CpuTarget, proposal: Callable[[int], Proposal]) -> list[Proposal]:
    """A proposal for each number of vectors in a panel of scores, none of them beyond the last key; cheapest first."""
    widths = range(1, MAX_VECTORS + 1)
    kept = [vectors for vectors in widths if vectors == 1 or (vectors - 1) * target.vector_floats < view.keys.extent]
    return sorted(map(proposal, kept), key=lambda one: one.seconds)


def _most_rows(vectors: int, target: CpuTarget) -> int:
    """Rows of a register tile of so many vectors.

    Sums and a row of B fill the registers; elements of A are broadcast from memory.
    """
    return max(target.vector_registers // vectors - 1, 1)


def task_of(view: Heads, lanes: int) -> int:
    """The queries of a task: all of a head, unless there are so few heads that lanes share them."""
    tasks = 1 if view.batches % lanes == 0 or view.batches >= TASKS_PER_LANE * lanes else lanes
    return parts(view.queries, tasks)


def _proposal(view: Attention, vectors: int, target: CpuTarget, lanes: int) -> Proposal:
    panel, floats = vectors * target.vector_floats, target.vector_floats
    task = task_of(view, lanes)
    most = _most_rows(vectors, target)
    block = even_part(task, max(QUERIES // most, 1) * most)
    rows = even_part(block, most)
    keys = view.keys.extent
    if keys > KEYS:
        keys = parts(even_part(keys, KEYS), panel) * panel
    wide = column_vectors(view, floats)
    mixed = even_part(block, _most_rows(wide, target))
    tile = Tile(
        "attention",
        (
            Level("lane", (("m", task),)),
            Level("block", (("m", block), ("n", keys))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("m", mixed), ("n", wide * floats))),
        ),
    )
    return Proposal(tile, _seconds(view, (rows, vectors), (mixed, wide), target))


def column_vectors(view: Heads, floats: int) -> int:
    """Vectors of a panel of values: the width that pads least, the widest of those."""
    needed = parts(view.columns.extent, floats)
    return min(range(1, MAX_VECTORS + 1), key=lambda vectors: (parts(needed, vectors) * vectors, -vectors))


def _seconds(view: Attention, scores: tuple[int, int], mixed: tuple[int, int], target: CpuTarget) -> float:
    """Both products under register tiles of (rows, vectors), with the exponentials and packing.

    The products are bound by arithmetic or loads.
    """
    floats = target.vector_floats
    loads_per_ns = target.rates.l1_per_ns / (4 * floats)

    def product(shape: tuple[int, int], columns: int, depth: int) -> float:
        rows, vectors = shape
        panels = parts(parts(columns, floats), vectors)
        step = max(rows * vectors / target.rates.fma_per_ns, (rows + vectors) / loads_per_ns)
        return parts(view.queries, rows) * panels * (depth * step + rows * vectors)

    keys, columns = view.keys.extent, view.columns.extent
    both = product(scores, keys, view.deep) + product(mixed, columns, keys)
    powers = view.queries * parts(keys, floats) * EXP_NS
    packed = keys * (view.deep + columns) * PACK_NS
    return 1e-9 * (CALL_NS + view.batches * (both + powers + packed))


def attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_attention` accepts.

    Levels: `lane` m, queries of a task; `block` m and n, queries and keys worked on at a time; `register` m and n, the
    register tile of the scores; `vector` m and n, that of the product with the values.
    """
    view = as_attention(workload.kernel)
    assert view is not None, "the tile stage offers `attention` only to kernels of that form"
    return LoweredAttention(name, workload, view, tile, target)


@dataclass(frozen=True)
class QueryCuts:
    """How `queries` are cut into tasks, these into blocks, and blocks into register tiles."""

    queries: int
    task: int
    block: int

    def counts(self, rows: int) -> list[int]:
        """Rows of the register tiles that blocks, whole or the last of a task, are cut into, `rows` at most."""
        tasks = {self.task, self.queries - (parts(self.queries, self.task) - 1) * self.task}
        sizes = {size for task in tasks for size in (min(self.block, task), task % self.block) if size}
        return sorted({part for size in sizes for part in (min(rows, size), size % rows) if part})

    def write(self, writer: Writer, rows: int, call: Callable[[int], None]) -> None:
        """Register tiles of `rows` queries from `row` on, then what is left of the block's `count`."""
        counts = self.counts(rows)
        writer.line("long row = 0;")
        if rows in counts:
            with writer.block(f"for (; row + {rows} <= count; row += {rows})"):
                call(rows)
        for rest in (count for count in counts if count != rows):
            with writer.block(f"if (count - row == {rest})"):
                call(rest)


@dataclass
class LoweredAttention(Lowering):
    """A kernel under a tile."""

    name: str
    workload: Workload
    view: Attention
    tile: Tile
    target: CpuTarget

    def __post_init__(self) -> None:
        self.writer = Writer()
        self.slots = Slots(self.workload)
        self.trimming = Trimming(self.writer, self.view.kernel, self.slots, self.target.vector_floats)
        tile, view, self.lanes = self.tile, self.view, self.target.vector_floats
        self.task = min(tile.extent("lane", "m"), view.queries)
        self.block = min(tile.extent("block", "m"), view.queries)
        self.cuts = QueryCuts(view.queries, self.task, self.block)
        self.key_block = tile.extent("block", "n")
        self.key_blocks = -(-view.keys.extent // self.key_block)
        self.score_rows, self.panel = tile.extent("register", "m"), tile.extent("register", "n")
        self.mixed_rows, self.value_panel = tile.extent("vector", "m"), tile.extent("vector", "n")
        assert self.key_blocks == 1 or self.key_block % self.panel == 0, "a block of keys holds whole panels"
        self.panels = -(-view.keys.extent // self.panel)
        self.value_panels = -(-view.columns.extent // self.value_panel)
        self.row_floats = -(-min(self.key_block, view.keys.extent) // self.lanes) * self.lanes
        self.parts = -(-view.queries // self.task)
        self.scratch = 0
        inputs = frozenset(slot.name for slot in view.kernel.inputs)
        last = (view.scores, *view.maps)[-1].values[0]
        sides = {*view.batch, *view.rows}
        unread = [one.bound for one in self.trimming.beyond if one.bound.place.axes <= sides]
        self.maps = tuple(within(block, unread) for block in view.maps)
        """Of the scores, whatever they are in rows whose results do not depend on them."""
        self.key_sizes = neutral_from(last, view.keys, float("-inf"), inputs)

    @property
    def grid(self) -> TaskGrid:
        """How tasks cut the result: heads, and blocks of their rows."""
        return TaskGrid(self.view.kernel, (*one_by_one(self.view.batch), Cut(self.view.rows, self.task)))

    def lower(self) -> Lowered:
        """The C functions of both products with the softmax between them."""
        view, writer = self.view, self.writer
        self._micro_kernels()
        notes = (
            f"heads {axes_of(view.batch)}; queries {axes_of(view.rows)}; keys {axes_of((view.keys,))};",
            f"depth {axes_of(view.depth)}; columns {axes_of((view.columns,))}",
        )
        with kernel_function(writer, self.name, self.workload, *notes):
            self._declare()
            with self.trimming.tasks(self.grid):
                writer.line(f"const long head = tile / {self.parts};")
                decode(writer, view.batch, "head")
                with writer.block("if (packed != head)"):
                    writer.line("packed = head;")
                    self._pack_keys()
                    self._pack_values()
                writer.line(f"const long first = tile % {self.parts} * {self.task};")
                ends = "end" if self.trimming.beyond else "past"
                writer.line(f"const long {ends} = tw_least_of(first + {self.task}, {view.queries});")
                if self.trimming.beyond:
                    past = self.trimming.clip(Span(view.rows, "first", ends), self.block, ())
                    writer.line(f"const long past = {past};")
                with writer.block(f"for (long row0 = first; row0 < past; row0 += {self.block})"):
                    writer.line(f"const long count = tw_least_of(past - row0, {self.block});")
                    self._queries()
                    self._key_blocks()
            self._finish()
        return Lowered(self.name, writer.text(), self.tasks, self.scratch, grid=self.grid)

    # What lies in the scratch

    def _declare(self) -> None:
        view = self.view
        self._operands()
        if self.key_blocks > 1:
            self._region("sums", self.block * self.value_panels * self.value_panel, "[panel][query][column]")
        self.writer.line("long packed = -1;")
        self.writer.line(f"vf most[{self.block}];")
        self.writer.line(f"float total[{self.block}];")
        if self.key_blocks > 1:
            self.writer.line(f"float shift[{self.block}], scale[{self.block}];")
        if self.key_sizes:
            self.writer.line(f"long live_keys = {view.keys.extent}; /* from there on scores are -infinity */")
            for size in self.key_sizes:
                live = self._emitter().scalar(size)
                self.writer.line(f"if ({live} < live_keys) live_keys = {live} < 0 ? 0 : (long){live};")

    def _operands(self) -> None:
        """Regions of what both products read, and of the scores."""
        view = self.view
        self._region("keys", self.panels * self.panel * view.deep, "[panel][k][key]")
        self._region("values", self.value_panels * self.value_panel * view.keys.extent, "[panel][key][column]")
        self._region("queries", self.block * view.deep, "[query][k]")
        self._region("weights", self.block * self.row_floats, "[query][key]: scores, then their exponentials")

    def _finish(self) -> None:
        """What the function does last."""

    def _region(self, name: str, floats: int, what: str) -> None:
        self.writer.line(f"float *const {name} = (float *)(scratch + {self.scratch}); /* {what} */")
        self.scratch += whole_lines(4 * floats)

    def _octets(self, name: str, octets: int, what: str) -> None:
        self.writer.line(f"char *const {name} = scratch + {self.scratch}; /* {what} */")
        self.scratch += whole_lines(octets)

    # Register tiles of both products

    def _micro_kernels(self) -> None:
        """A micro-kernel of each product for every number of rows that a block, whole or the last, is cut into."""
        view = self.view
        for rows in self.cuts.counts(self.score_rows):
            offsets = tuple(row * view.deep for row in range(rows))
            kernel = MicroKernel(offsets, ((view.deep, 1),), self.panel // self.lanes, self.lanes)
            kernel.write(self.writer, f"{self.name}_scores_{rows}")
        for rows in self.cuts.counts(self.mixed_rows):
            for keys in sorted({min(self.key_block, view.keys.extent), self._last_keys}):
                offsets = tuple(row * self.row_floats for row in range(rows))
                kernel = MicroKernel(offsets, ((keys, 1),), self.value_panel // self.lanes, self.lanes)
                write = kernel.write_first if self.key_sizes else kernel.write
                write(self.writer, f"{self.name}_mixed_{rows}_{keys}")

    @property
    def _last_keys(self) -> int:
        """Keys of the last block."""
        return self.view.keys.extent - (self.key_blocks - 1) * self.key_block

    # Operands brought into the form that the micro-kernels read

    def _pack_keys(self) -> None:
        view, writer = self.view, self.writer
        *outer, inner = view.depth
        along_keys = is_contiguous(view.k, view.keys, self.slots) or not is_contiguous(view.k, inner, self.slots)
        with ExitStack() as stack:
            past = f"panel * {self.panel} < live_keys" if self.key_sizes else f"panel < {self.panels}"
            stack.enter_context(writer.block(f"for (long panel = 0; {past}; panel++)"))
            place = Index.of(0)
            for axis in outer:
                stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
                place = place * axis.extent + axis
            if along_keys:
                stack.enter_context(writer.block(f"for (long {inner} = 0; {inner} < {inner.extent}; {inner}++)"))
                deep = self._index(place * inner.extent + inner)
                writer.line(f"float *const line = keys + (panel * {view.deep} + {deep}) * {self.panel};")
                self._line(view.keys, self.panel, view.k)
            else:
                self._pack_squares(place, inner)

    def _pack_squares(self, outer: Index, inner: Axis) -> None:
        """Keys that lie along k in memory, as many of them as a vector has lanes at a time, transposed in registers."""
        view, writer = self.view, self.writer

        def square(vector: Vector) -> None:
            place = self._index(outer * inner.extent + inner)
            writer.line("vf square[TW_LANES];")
            with writer.block("for (long lane = 0; lane < TW_LANES; lane++)"):
                writer.line(f"const long {view.keys} = panel * {self.panel} + column + lane;")
                writer.line("square[lane] = (vf){0};")
                with writer.block(f"if ({view.keys} < {view.keys.extent})"):
                    writer.line(f"square[lane] = {self._emitter(vector).vf(view.k)};")
            writer.line("tw_transpose(square);")
            writer.line(f"float *const line = keys + (panel * {view.deep} + {place}) * {self.panel} + column;")
            with writer.block(f"for (long lane = 0; lane < {vector.count or 'TW_LANES'}; lane++)"):
                writer.line(f"tw_store(line + lane * {self.panel}, square[lane]);")

        with writer.block(f"for (long column = 0; column < {self.panel}; column += TW_LANES)"):
            strips(writer, inner, self.lanes, square)

    def _pack_values(self) -> None:
        view, writer = self.view, self.writer
        keys = view.keys
        with (
            writer.block(f"for (long panel = 0; panel < {self.value_panels}; panel++)"),
            writer.block(f"for (long {keys} = 0; {keys} < {self._past_keys}; {keys}++)"),
        ):
            writer.line(f"float *const line = values + (panel * {keys.extent} + {keys}) * {self.value_panel};")
            self._line(view.columns, self.value_panel, view.v)

    @property
    def _past_keys(self) -> str:
        """Where keys end, in C."""
        return "live_keys" if self.key_sizes else str(self.view.keys.extent)

    def _line(self, axis: Axis, panel: int, value: Expr) -> None:
        """line[column] = the value at the columns of a panel, zeros beyond the last."""
        writer = self.writer
        with writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
            padded_strip(writer, axis, panel, "line", lambda vector: self._emitter(vector).vf(value))

    def _queries(self) -> None:
        with self.writer.block("for (long row = 0; row < count; row++)"):
            self.writer.line("const long query = row0 + row;")
            decode(self.writer, self.view.rows, "query")
            into = f"queries + row * {self.view.deep}"
            copy_row(self.writer, self._emitter, self.lanes, self.view.depth, self.view.q, into)

    def _emitter(self, vector: Vector | None = None) -> Emitter:
        return Emitter(self.writer, self.slots.address, vector, self.slots.extents)

    def _index(self, index: Index) -> str:
        return self._emitter().index(index)

    # One block of queries against all keys

    def _key_blocks(self) -> None:
        writer = self.writer
        start = "tw_splat(-INFINITY)"
        if self.key_blocks == 1:
            writer.line(f"for (long row = 0; row < count; row++) most[row] = {start};")
            self._one_key_block("0", self._last_keys, first=True, last=True)
            return
        last = self.key_blocks - 1
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line(f"most[row] = {start};")
            writer.line("total[row] = shift[row] = 0;")
        writer.line(f"memset(sums, 0, {self.block * self.value_panels * self.value_panel} * sizeof(float));")
        live = f" && part * {self.key_block} < live_keys" if self.key_sizes else ""
        with writer.block(f"for (long part = 0; part < {last}{live}; part++)"):
            self._one_key_block(f"part * {self.key_block}", self.key_block, first=False, last=False)
        self._one_key_block(str(last * self.key_block), self._last_keys, first=False, last=True)

    def _one_key_block(self, first_key: str, keys: int, *, first: bool, last: bool) -> None:
        with self.writer.block(""):
            self.writer.line(f"const long first_key = {first_key};")
            if self.key_sizes:
                self.writer.line("const long left = live_keys <= first_key ? 0 : live_keys - first_key;")
                self.writer.line(f"const long some = tw_least_of({keys}, left);")
            self._scores(keys)
            self._exponentials(keys, first)
            self._mixed(keys, first, last)

    def _scores(self, keys: int) -> None:
        """weights[row] = the scores of a block of keys with their epilogue; most[row], lane by lane, the largest."""
        writer, panel = self.writer, self.panel
        with writer.block(f"for (long place = 0; place < {'some' if self.key_sizes else keys}; place += {panel})"):
            writer.line(f"const float *const b = keys + (first_key + place) * {self.view.deep}L;")

            def tile(rows: int) -> None:
                writer.line(f"float c[{rows * panel}] __attribute__((aligned(64)));")
                writer.line(f"{self.name}_scores_{rows}(queries + row * {self.view.deep}, b, c);")
                with writer.block(f"for (long at = 0; at < {rows}; at++)"):
                    self._score_maps(keys)

            self.cuts.write(self.writer, self.score_rows, tile)

    def _score_maps(self, keys: int) -> None:
        """What follows the product on the scores of one query in one panel."""
        view, writer, lanes, panel = self.view, self.writer, self.lanes, self.panel
        writer.line("const long query = row0 + row + at;")
        decode(writer, view.rows, "query")
        writer.line(f"const float *const held = c + at * {panel};")
        writer.line(f"float *const line = weights + (row + at) * {self.row_floats} + place;")
        whole, rest = keys // lanes * lanes, keys % lanes
        limit = "" if keys % panel == 0 else f" && place + column < {whole}"
        with writer.block(f"for (long column = 0; column < {panel}{limit}; column += TW_LANES)"):
            writer.line(f"const long {view.keys} = first_key + place + column;")
            value = self._score(Vector(view.keys), "held + column")
            writer.line(f"tw_store(line + column, {value});")
            writer.line(f"most[row + at] = tw_max({value}, most[row + at]);")
        if rest:
            with writer.block(f"if (place + {panel} > {whole})"):
                writer.line(f"const long column = {whole} - place, {view.keys} = first_key + {whole};")
                value = self._score(Vector(view.keys, str(rest)), "held + column")
                writer.line("tw_store(line + column, tw_splat(-INFINITY));")
                writer.line(f"tw_store_n(line + column, {value}, {rest});")
                writer.line("most[row + at] = tw_max(tw_load(line + column), most[row + at]);")

    def _score(self, vector: Vector, place: str) -> str:
        value = self.writer.name("score")
        self.writer.line(f"const vf {value} = tw_load({place});")
        return finish(self._emitter(vector), self.slots, self.view.scores, self.maps, value)

    def _exponentials(self, keys: int, first: bool) -> None:
        """weights[row] = exp(weights[row] - largest), and their sum; sums so far are scaled to the new largest.

        A row without any score above -infinity keeps a sum of 0, so that later keys, if there are any, decide.
        """
        writer = self.writer
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("const float largest = tw_greatest(most[row]);")
            writer.line("const float from = largest == -INFINITY ? 0 : largest;")
            writer.line(f"float *const line = weights + row * {self.row_floats};")
            writer.line("vf sum = {0};")
            width = str(-(-keys // self.lanes) * self.lanes)
            if self.key_sizes:
                writer.line(f"const long scored = (some + {self.panel - 1}) / {self.panel} * {self.panel};")
                width = f"tw_least_of({width}, scored)"
            with writer.block(f"for (long at = 0; at < {width}; at += TW_LANES)"):
                writer.line("const vf power = tw_exp_normal(tw_load(line + at) - from);")
                writer.line("tw_store(line + at, power);")
                writer.line("sum += power;")
            if first:
                writer.line("total[row] = tw_sum(sum);")
                return
            writer.line("scale[row] = total[row] == 0 ? 0 : expf(shift[row] - from);")
            writer.line("total[row] = total[row] * scale[row] + tw_sum(sum);")
            writer.line("shift[row] = from;")
            writer.line("most[row] = tw_splat(largest);")

    def _mixed(self, keys: int, first: bool, last: bool) -> None:
        """The weights times the values, added to the sums so far.

        At the last block of keys the sums are divided by the weights' sum and stored.
        """
        writer, panel = self.writer, self.value_panel
        with writer.block(f"for (long panel = 0; panel < {self.value_panels}; panel++)"):
            self._panel_of_values()

            def tile(rows: int) -> None:
                writer.line(f"float c[{rows * panel}] __attribute__((aligned(64)));")
                self._mix(rows, keys)
                with writer.block(f"for (long at = 0; at < {rows}; at++)"):
                    self._mixed_row(first, last)

            self.cuts.write(self.writer, self.mixed_rows, tile)

    def _panel_of_values(self) -> None:
        """b = the values of a panel from the first key of the block on."""
        panel = self.value_panel
        size = self.view.keys.extent * panel
        self.writer.line(f"const float *const b = values + panel * {size}L + first_key * {panel}L;")

    def _mix(self, rows: int, keys: int) -> None:
        """c = the weights of so many queries, from `row` on, times the panel at b."""
        some = ", some" if self.key_sizes else ""
        self.writer.line(f"{self.name}_mixed_{rows}_{keys}(weights + row * {self.row_floats}, b, c{some});")

    def _mixed_row(self, first: bool, last: bool) -> None:
        view, writer, panel = self.view, self.writer, self.value_panel
        writer.line(f"float *const held = c + at * {panel};")
        if not first:
            writer.line(f"float *const sum = sums + (panel * {self.block} + row + at) * {panel};")
            with writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
                writer.line("const vf so_far = tw_load(sum + column) * scale[row + at] + tw_load(held + column);")
                writer.line(f"tw_store({'held' if last else 'sum'} + column, so_far);")
        if not last:
            return
        writer.line("const long query = row0 + row + at;")
        decode(writer, view.rows, "query")
        writer.line("const float whole = 1 / total[row + at];")
        panel_strips(writer, view.columns, panel, self.lanes, self._result)

    def _result(self, vector: Vector, column: str) -> None:
        value = self.writer.name("mixed")
        self.writer.line(f"const vf {value} = tw_load(held + {column}) * whole;")
        finish(self._emitter(vector), self.slots, self.view.mixed, self.view.epilogue, value)


ATTENTION = Algorithm(("attention",), attention_tiles, attention, takes=any_short)
