"""Attention of a few queries: the keys and values of a head are read once, where they lie, and nothing is packed.

All queries that share a head of keys are rows of both products. Keys come in blocks. Their scores are sums along a
key, of a few keys at a time, or along keys where these are neighbours in memory. A factor of whole rows of keys or
values, the scale of a cache in int8, is that of a score or of a weight. The softmax is taken online (Milakov
and Gimelshein, arXiv 1805.02867), and the weights of a block are multiplied with its values in rows.

Where the mask is a comparison with the place of a key (`compiler.forms.key_bounds`), keys that it leaves out for all
rows are not read once every row has a score so far above the mask's that the weights of such keys are 0. Whatever the
mask is, values are read of no block all of whose scores are so far below others that their weights are 0.

Where lanes share the keys of a head (`compiler.fuse.attention.key_parts`) a task has a part of them, and what becomes
of it are the sums as they are, with the largest score and the sum of weights (flash decoding: Dao, Haziza, Massa and
Sizov 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from compiler.codegen.expressions import Vector
from compiler.codegen.functions import decode
from compiler.codegen.scalars import literal
from compiler.codegen.task_grid import TaskGrid, one_by_one
from compiler.devices.cpu.attention.ends import VANISHES, declare_ends, kept_keys
from compiler.devices.cpu.attention.frame import Frame
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.epilogue import finish
from compiler.devices.cpu.codegen.lowered import Lowered, Lowering, kernel_function
from compiler.devices.cpu.codegen.strips import copy_row, strips
from compiler.forms.attention import RUN, Attention, apart
from compiler.forms.contraction import axes_of
from compiler.forms.key_bounds import ABSORBS, key_bounds
from compiler.forms.normal_form import Slots, is_contiguous
from compiler.ir.index import Axis, row_major
from compiler.ir.tensor import DType

FOLLOWED = 4
"""Keys whose scores are summed at a time along their elements, or vectors of keys: their sums wait for no other."""


def lies_along(view: Attention, slots: Slots) -> Axis | None:
    """The axis along which keys are read in vectors: the innermost of their elements, or that of the keys.

    None where neither lies side by side in memory, or values do not lie so along their columns.
    """
    if not view.depth or not is_contiguous(view.v, view.columns, slots):
        return None
    along = (axis for axis in (view.depth[-1], view.keys) if is_contiguous(view.k, axis, slots))
    return next(along, None)


@dataclass
class FewQueries(Lowering):
    """A kernel that `as_few_queries` accepts under a tile.

    Levels: `block` n, keys of a block; `register` m, rows whose scores are summed at a time; `vector` m and n, rows
    and columns of a register tile of the sums of values.
    """

    frame: Frame
    view: Attention

    def __post_init__(self) -> None:
        frame, view, tile = self.frame, self.view, self.frame.tile
        self.workload, self.writer, self.lanes = frame.workload, frame.writer, frame.lanes
        self.rows, self.block = view.queries, tile.extent("block", "n")
        self.score_rows, self.mixed_rows = tile.extent("register", "m"), tile.extent("vector", "m")
        self.panel = tile.extent("vector", "n") // self.lanes
        self.width = parts(view.columns.extent, self.lanes) * self.lanes
        self.masked = key_bounds(view)
        self.k, self.k_scale = apart(view.k, view.depth)
        self.v, self.v_scale = apart(view.v, (view.columns,))
        along = lies_along(view, frame.slots)
        assert along is not None, "the tile stage offers `few_queries` only where keys and values lie in vectors"
        self.along = along

    @property
    def needs_witness(self) -> bool:
        """Whether a part of the keys may have none but those that a mask leaves out, which might be as large."""
        return self.view.part is not None and bool(self.masked.bounds) and self.masked.lowest > ABSORBS

    @property
    def grid(self) -> TaskGrid:
        """A task is a head of keys with all rows that share it."""
        return TaskGrid(self.view.kernel, one_by_one(self.view.batch))

    def lower(self) -> Lowered:
        """One C function."""
        frame, view, writer = self.frame, self.view, self.writer
        notes = (
            f"heads {axes_of(view.batch)}; queries {axes_of(view.rows)}; keys {axes_of((view.keys,))};",
            f"depth {axes_of(view.depth)}; columns {axes_of((view.columns,))}; few queries",
        )
        with kernel_function(writer, frame.name, self.workload, *notes):
            frame.region("float", "queries", DType.F32.bytes * self.rows * view.deep, "[row][k]")
            what = "[row][key]: scores of a block, then their exponentials"
            frame.region("float", "scores", DType.F32.bytes * self.rows * self.block, what)
            frame.region("float", "sums", DType.F32.bytes * self.rows * self.width, "[row][column]")
            names = ("largest", "total", "scale", "fresh", *(("seen",) if self.needs_witness else ()))
            writer.line(f"float {', '.join(f'{name}[{self.rows}]' for name in names)};")
            with frame.trimming.tasks(self.grid):
                decode(writer, view.batch, "tile")
                self._copy_queries()
                self._start()
                if self.needs_witness:
                    self._witness()
                self._key_blocks()
                self._results()
        return Lowered(
            frame.name, writer.text(), self.tasks, frame.scratch, grid=self.grid, headers=frozenset(writer.headers)
        )

    # Queries and the ends of keys

    def _copy_queries(self) -> None:
        view = self.view
        with self._each_row():
            copy_row(self.writer, self.frame.emitter, self.lanes, view.depth, view.q, f"queries + row * {view.deep}")

    def _each_row(self) -> ExitStack:
        """A loop over rows, with their axes."""
        stack = ExitStack()
        stack.enter_context(self.writer.block(f"for (long row = 0; row < {self.rows}; row++)"))
        decode(self.writer, self.view.rows, "row")
        return stack

    def _start(self) -> None:
        """No key has been read; `from` and `to` are the ends of the keys that some row does not leave out."""
        writer, extent = self.writer, self.view.keys.extent
        writer.line(f"memset(sums, 0, {DType.F32.bytes * self.rows * self.width});")
        if not self.masked.bounds:
            writer.line(f"for (long row = 0; row < {self.rows}; row++) largest[row] = -INFINITY, total[row] = 0;")
            return
        writer.line(f"long firsts[{self.rows}], pasts[{self.rows}], from = {extent}, to = 0;")
        with self._each_row():
            writer.line("largest[row] = -INFINITY;")
            writer.line("total[row] = 0;")
            declare_ends(writer, self.frame.emitter(), self.masked.bounds, extent)
            writer.line("firsts[row] = first;")
            writer.line("pasts[row] = past;")
            writer.line("if (first < past && first < from) from = first;")
            writer.line("if (first < past && past > to) to = past;")
        writer.line("if (from > to) from = to;")

    def _witness(self) -> None:
        """seen[row] = the largest score of the first keys that count, which some part has.

        Above the mask's number it shows what a part by itself may not: that keys which are left out have weights of 0.
        """
        writer = self.writer
        writer.line(f"for (long row = 0; row < {self.rows}; row++) seen[row] = -INFINITY;")
        with writer.block("if (from < to)"):
            writer.line(f"const long first_key = from, count = tw_least_of(to - from, {self.block});")
            self._scores()
            writer.line(f"memcpy(seen, fresh, {DType.F32.bytes * self.rows});")

    def _key_blocks(self) -> None:
        """All blocks of keys; those that the bounds leave out only where a row needs them."""
        writer, extent = self.writer, self.view.keys.extent
        if not self.masked.bounds:
            self._run_of_blocks("0", str(extent))
            return
        writer.line(f"const long runs[3][2] = {{{{from, to}}, {{0, from}}, {{to, {extent}}}}};")
        with writer.block("for (long run = 0; run < 3; run++)"):
            lowest = literal(self.masked.lowest + VANISHES, DType.F32)
            writer.line("long sure = run > 0;")
            elsewhere = ""
            if self.view.part:
                elsewhere = f"seen[row] > {lowest} || " if self.needs_witness else "firsts[row] < pasts[row] || "
            writer.line(f"for (long row = 0; row < {self.rows}; row++) sure &= {elsewhere}largest[row] > {lowest};")
            writer.line("if (sure) break;")
            self._run_of_blocks("runs[run][0]", "runs[run][1]")

    def _run_of_blocks(self, begin: str, end: str) -> None:
        with self._each_block(begin, end):
            self._scores()
            self.writer.line("if (!counts) continue;")
            self._exponentials()
            self._mixed()

    @contextmanager
    def _each_block(self, begin: str, end: str) -> Iterator[None]:
        """A loop over blocks of `count` keys from `first_key` on; of a part its own runs."""
        writer, part = self.writer, self.view.part
        if part is None:
            with writer.block(f"for (long first_key = {begin}; first_key < {end}; first_key += {self.block})"):
                writer.line(f"const long count = tw_least_of({end} - first_key, {self.block});")
                yield
            return
        with writer.block(f"for (long run_of_keys = {begin} / {RUN}; run_of_keys * {RUN} < {end}; run_of_keys++)"):
            writer.line(f"if (run_of_keys % {part.axis.extent} != {part.axis}) continue;")
            writer.line(f"const long first_key = tw_between({begin}, run_of_keys * {RUN}, {end});")
            writer.line(f"const long count = tw_between({begin}, run_of_keys * {RUN} + {RUN}, {end}) - first_key;")
            yield

    # Scores

    def _scores(self) -> None:
        """Those of a block, after their maps, with the largest of each row; `counts`: whether some weight is not 0."""
        writer = self.writer
        if self.along == self.view.keys:
            self._scores_along_keys()
        else:
            self._scores_along_depth()
        writer.line("int counts = 0;")
        with self._each_row():
            writer.line(f"float *const line = scores + row * {self.block};")
            writer.line("vf most = tw_splat(-INFINITY);")
            writer.line("long at = 0;")
            with writer.block("for (; at + TW_LANES <= count; at += TW_LANES)"):
                value = self._mapped(Vector(self.view.keys))
                writer.line(f"tw_store(line + at, {value});")
                writer.line(f"most = tw_max({value}, most);")
            with writer.block("if (at < count)"):
                writer.line("const long live = count - at;")
                value = self._mapped(Vector(self.view.keys, "live"))
                writer.line(f"const vf last = tw_first_n({value}, live, tw_splat(-INFINITY));")
                writer.line("tw_store(line + at, last);")
                writer.line("most = tw_max(last, most);")
            writer.line("fresh[row] = tw_greatest(most);")
            writer.line(f"counts |= !(fresh[row] < largest[row] - {literal(VANISHES, DType.F32)}); /* also of a NaN */")

    def _row_tiles(self, most: int) -> list[range]:
        """The rows of each register tile."""
        return [range(first, min(first + most, self.rows)) for first in range(0, self.rows, most)]

    def _sums(self, rows: Sequence[int], count: int) -> list[list[str]]:
        """Declares vectors of sums, of each row so many, from 0 on; their C names."""
        names = [[f"sum{row}_{at}" for at in range(count)] for row in rows]
        self.writer.line(f"vf {', '.join(f'{name} = {{0}}' for row in names for name in row)};")
        return names

    def _scores_along_depth(self) -> None:
        """Of a vector of keys: products of each key and row along vectors of elements, then sums of all lanes."""
        writer = self.writer
        with writer.block("for (long key = 0; key < count; key += TW_LANES)"):
            for rows in self._row_tiles(self.score_rows):
                with writer.block(""):
                    writer.line(f"vf products[{len(rows)}][TW_LANES];")
                    with writer.block(f"for (long lane = 0; lane < TW_LANES; lane += {FOLLOWED})"):
                        self._products(rows)
                    for at, row in enumerate(rows):
                        writer.line(f"tw_store(scores + {row * self.block} + key, tw_sums(products[{at}]));")

    def _products(self, rows: range) -> None:
        """products[row][lane ..]: some keys; those beyond the last are the last one once more."""
        view, writer = self.view, self.writer
        for at in range(FOLLOWED):
            place = f"key + lane + {at}" if at else "key + lane"
            writer.line(f"const long key{at} = first_key + tw_least_of({place}, count - 1);")
        names = self._sums(range(len(rows)), FOLLOWED)

        def step(vector: Vector) -> None:
            elements = []
            for at in range(FOLLOWED):
                emitter = self.frame.emitter(vector)
                emitter.names = {view.keys: f"key{at}"}
                elements.append(emitter.vf(self.k))
            for number, row in enumerate(rows):
                query = self._query(row, vector)
                for at, element in enumerate(elements):
                    writer.line(f"{names[number][at]} += {query} * {element};")

        with ExitStack() as stack:
            for axis in view.depth[:-1]:
                stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
            strips(writer, view.depth[-1], self.lanes, step)
        for number, row_names in enumerate(names):
            for at, name in enumerate(row_names):
                writer.line(f"products[{number}][lane + {at}] = {name};")

    def _query(self, row: int, vector: Vector) -> str:
        """The C name of some elements of a query."""
        place = self.frame.emitter().index(row_major(self.view.depth) + row * self.view.deep)
        name = self.writer.name("query")
        count = f"_n(queries + {place}, {vector.count})" if vector.count else f"(queries + {place})"
        self.writer.line(f"const vf {name} = tw_load{count};")
        return name

    def _scores_along_keys(self) -> None:
        """Vectors of keys times elements of queries, some vectors at a time, then one by one."""
        writer, keys = self.writer, self.view.keys
        writer.line("long key = 0;")
        with writer.block(f"for (; key + {FOLLOWED} * TW_LANES <= count; key += {FOLLOWED} * TW_LANES)"):
            self._vectors_of_keys([Vector(keys)] * FOLLOWED)
        with writer.block("for (; key < count; key += TW_LANES)"):
            writer.line("const long live = tw_least_of(count - key, TW_LANES);")
            self._vectors_of_keys([Vector(keys, "live")])

    def _vectors_of_keys(self, vectors: Sequence[Vector]) -> None:
        view, writer = self.view, self.writer
        for at in range(len(vectors)):
            writer.line(f"const long key{at} = first_key + key + {at} * TW_LANES;")
        for rows in self._row_tiles(self.score_rows):
            names = self._sums(rows, len(vectors))
            with ExitStack() as stack:
                for axis in view.depth:
                    stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
                elements = []
                for at, vector in enumerate(vectors):
                    emitter = self.frame.emitter(vector)
                    emitter.names = {view.keys: f"key{at}"}
                    elements.append(emitter.vf(self.k))
                for number, row in enumerate(rows):
                    place = self.frame.emitter().index(row_major(view.depth) + row * view.deep)
                    for at, element in enumerate(elements):
                        writer.line(f"{names[number][at]} += queries[{place}] * {element};")
            for number, row in enumerate(rows):
                for at in range(len(vectors)):
                    place = f"scores + {row * self.block} + key + {at} * TW_LANES"
                    writer.line(f"tw_store({place}, {names[number][at]});")

    # The softmax

    def _exponentials(self) -> None:
        """In place of the scores; what earlier blocks gave is to be scaled to the new maximum."""
        writer = self.writer
        with self._each_row():
            writer.line(f"float *const line = scores + row * {self.block};")
            writer.line("const float was = largest[row], now = fresh[row] <= was ? was : fresh[row];")
            writer.line("const float shift = now == -INFINITY ? 0 : now;")
            writer.line("vf sum = {0};")
            with writer.block("for (long at = 0; at < count; at += TW_LANES)"):
                writer.line("const vf power = tw_exp_normal(tw_load(line + at) - shift);")
                writer.line(f"tw_store(line + at, power{self._scale_of_values()});")
                writer.line("sum += power;")
            writer.line("scale[row] = total[row] == 0 ? 0 : expf(was - shift);")
            writer.line("total[row] = total[row] * scale[row] + tw_sum(sum);")
            writer.line("largest[row] = now;")

    def _scale_of_values(self) -> str:
        """What the weight of a vector of keys is multiplied with, in C with the sign; empty for nothing."""
        view, writer = self.view, self.writer
        if self.v_scale is None:
            return ""
        writer.line(f"const long {view.keys} = first_key + at, live = tw_least_of(count - at, TW_LANES);")
        return f" * {self.frame.emitter(Vector(view.keys, 'live')).vf(self.v_scale)}"

    def _mapped(self, vector: Vector) -> str:
        """The C name of a vector of scores after their maps, `lowest` where a bound leaves keys out."""
        view, writer, frame = self.view, self.writer, self.frame
        writer.line(f"const long {view.keys} = first_key + at;")
        name = writer.name("score")
        scale = f" * {frame.emitter(vector).vf(self.k_scale)}" if self.k_scale else ""
        writer.line(f"const vf {name} = tw_load(line + at){scale};")
        value = finish(frame.emitter(vector), frame.slots, view.scores, self.masked.kept, name)
        return kept_keys(writer, self.masked, view.keys, "row", value)

    # Values

    def _mixed(self) -> None:
        """sums[row] = scale[row] times itself, and the weights times the values of a block."""
        writer, columns = self.writer, self.view.columns
        whole = columns.extent // self.lanes
        panels, rest = whole // self.panel, whole % self.panel
        if panels:
            width = self.panel * self.lanes
            with writer.block(f"for (long column = 0; column < {panels * width}; column += {width})"):
                self._panel([Vector(columns)] * self.panel)
        last = [Vector(columns)] * rest
        if columns.extent % self.lanes:
            last.append(Vector(columns, str(columns.extent % self.lanes)))
        if last:
            with writer.block(""):
                writer.line(f"const long column = {panels * self.panel * self.lanes};")
                self._panel(last)

    def _panel(self, vectors: Sequence[Vector]) -> None:
        for rows in self._row_tiles(self.mixed_rows):
            with self.writer.block(""):
                self._panel_of_rows(rows, vectors)

    def _panel_of_rows(self, rows: range, vectors: Sequence[Vector]) -> None:
        view, writer = self.view, self.writer
        names = self._sums(rows, len(vectors))
        with writer.block("for (long key = 0; key < count; key++)"):
            writer.line(f"const long {view.keys} = first_key + key;")
            elements = []
            for at, vector in enumerate(vectors):
                emitter = self.frame.emitter(vector)
                emitter.names = {view.columns: f"(column + {at * self.lanes})" if at else "column"}
                elements.append(emitter.vf(self.v))
            for number, row in enumerate(rows):
                for at, element in enumerate(elements):
                    writer.line(f"{names[number][at]} += scores[{row * self.block} + key] * {element};")
        for number, row in enumerate(rows):
            for at in range(len(vectors)):
                place = f"sums + {row * self.width + at * self.lanes} + column"
                writer.line(f"tw_store({place}, tw_load({place}) * scale[{row}] + {names[number][at]});")

    def _results(self) -> None:
        """The sums divided by those of the weights, and what follows; of a part of the keys all as it is."""
        view, writer, frame = self.view, self.writer, self.frame
        times = "" if view.part else " * whole"

        def result(vector: Vector) -> None:
            name = writer.name("mixed")
            writer.line(f"const vf {name} = tw_load(held + {view.columns}){times};")
            finish(frame.emitter(vector), frame.slots, view.mixed, view.epilogue, name)

        with self._each_row():
            if view.part:
                for block, value in ((view.part.largest, "largest"), (view.part.total, "total")):
                    slot, place = frame.slots.address(block.stores[0].slot, block.stores[0].index)
                    writer.line(f"{slot}[{frame.emitter().index(place)}] = {value}[row];")
            else:
                writer.line("const float whole = 1 / total[row];")
            writer.line(f"const float *const held = sums + row * {self.width};")
            strips(writer, view.columns, self.lanes, result)
