"""The `bf16_attention` algorithm: both products by dot products of pairs of bf16 (VDPBF16PS), the softmax in fp32.

As in `attention`, keys and values of a head are packed once and the scores of a block of queries stay in the cache, as
floats. Both products read pairs: of k in the queries and keys, of keys in the exponentials and values. A block's scores
go from registers to the cache; one pass applies the maps and finds each query's greatest score, another rounds the
exponentials of the distances to it to bf16. Their sum is that of what they are before they are rounded.

Where the last panel of keys has fewer vectors than the others, so have its register tiles. What pads a last pair is
zero on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from compiler.codegen.expressions import Vector
from compiler.codegen.functions import decode, nest
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.attention import (
    KEYS,
    QUERIES,
    LoweredAttention,
    by_width,
    column_vectors,
    task_of,
)
from compiler.devices.cpu.algorithms.bf16 import GROUP
from compiler.devices.cpu.algorithms.blocking import even_part, most_rows, parts
from compiler.devices.cpu.algorithms.model import CALL_NS
from compiler.devices.cpu.codegen.dot_kernel import DotKernel
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.strips import store_vector, strips
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, as_attention
from compiler.forms.cache_lines import ALIAS_BYTES, LINE_BYTES, whole_lines
from compiler.forms.groups import LANE_BYTES
from compiler.forms.normal_form import is_contiguous
from compiler.ir.expr import Expr
from compiler.ir.index import Axis, row_major
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

PACK_NS = 0.05
"""One element of the keys or values packed."""
SUMS_NS = 0.3
"""One vector of sums leaving registers."""
POWER_NS = 1.8
"""One vector of scores through the maps, the largest value and the exponential."""


def bf16_attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of the scores' panels, cheapest by the model first.

    Empty unless the kernel is attention and the target multiplies pairs of bf16 in vectors: tiles of bf16 are
    `amx_attention`'s.
    """
    view = as_attention(workload.kernel) if target.multiplies_bf16 and not target.has_tiles else None
    return by_width(view, target, lambda vectors: _proposal(view, vectors, target, lanes)) if view else []


def _proposal(view: Attention, vectors: int, target: CpuTarget, lanes: int) -> Proposal:
    floats, task, most = target.vector_floats, task_of(view, lanes), most_rows(vectors, target)
    panel, wide = vectors * floats, column_vectors(view, floats)
    block = even_part(task, max(QUERIES // most, 1) * most)
    rows, mixed = even_part(block, most), even_part(block, most_rows(wide, target))
    keys = view.keys.extent
    if keys > KEYS:
        keys = parts(even_part(keys, KEYS), panel) * panel
    tile = Tile(
        "bf16_attention",
        (
            Level("lane", (("m", task),)),
            Level("block", (("m", block), ("n", keys))),
            Level("register", (("m", rows), ("n", panel))),
            Level("vector", (("m", mixed), ("n", wide * floats))),
        ),
    )
    return Proposal(tile, _seconds(view, (rows, vectors), (mixed, wide), target))


def _seconds(view: Attention, scores: tuple[int, int], mixed: tuple[int, int], target: CpuTarget) -> float:
    """Both products under register tiles of (rows, vectors), with the exponentials and packing."""
    floats, keys, columns = target.vector_floats, view.keys.extent, view.columns.extent
    loads_per_ns = target.rates.l1_per_ns / (LANE_BYTES * floats)
    dots_per_ns = target.rates.fma_per_ns * (target.rates.dots_per_fma or 1.0)

    def product(shape: tuple[int, int], vectors: int, depth: int) -> float:
        """Of all queries with so many vectors of columns."""
        rows, wide = shape
        step = max(rows / dots_per_ns, (rows / wide + 1) / loads_per_ns)
        return parts(view.queries, rows) * vectors * (parts(depth, GROUP) * step + rows * SUMS_NS)

    both = product(scores, parts(keys, floats), view.deep)
    both += product(mixed, parts(parts(columns, floats), mixed[1]) * mixed[1], keys)
    powers = view.queries * parts(keys, floats) * POWER_NS
    packed = keys * (view.deep + columns) * PACK_NS
    return 1e-9 * (CALL_NS + view.batches * (both + powers + packed))


def bf16_attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_attention` accepts, blocked as in `attention`."""
    view = as_attention(workload.kernel)
    assert view is not None, "the tile stage offers `bf16_attention` only to kernels of that form"
    return _PairAttention(name, workload, view, tile, target)


@dataclass
class _PairAttention(LoweredAttention):
    """Operands of both products in bf16, pairs of them side by side."""

    def __post_init__(self) -> None:
        super().__post_init__()
        view, by_lane = self.view, self.target.multiplies_by_lane
        self.deep_pairs, self.key_pairs = parts(view.deep, GROUP), parts(view.keys.extent, GROUP)
        self.query_bytes = self.deep_pairs * LANE_BYTES
        self.staged_bytes = whole_lines(self.query_bytes)
        self.power_bytes = whole_lines(self.row_floats * DType.BF16.bytes)
        if self.power_bytes % ALIAS_BYTES == 0:
            self.power_bytes += LINE_BYTES
        if self.row_floats * LANE_BYTES % ALIAS_BYTES == 0:
            self.row_floats += self.lanes
        self.last_panel = parts(self._last_keys % self.panel, self.lanes) * self.lanes
        """Columns of a narrower last panel of keys; 0 where the last one is whole."""
        self.load, self.dot = ("tw_lone_group", "tw_dot_bf16_by") if by_lane else ("tw_group", "tw_dot_bf16")

    # What lies in the scratch

    def _declare(self) -> None:
        super()._declare()
        self.writer.line(f"vf added[{self.block}];")
        self.writer.line(f"float from[{self.block}];")

    def _operands(self) -> None:
        view, lanes, size = self.view, self.lanes, self.staged_bytes
        self._octets("keys", self.panels * self.panel * self.query_bytes, "[panel][pair of k][key]")
        values = self.value_panels * self.value_panel * self.key_pairs * LANE_BYTES
        self._octets("values", values, "[panel][pair of keys][column]")
        self._octets("queries", self.block * self.query_bytes, "[query][k]")
        self._octets("powers", self.block * self.power_bytes, "[query][key]: exponentials of scores")
        self._region("weights", self.block * self.row_floats, "[query][key]: scores")
        if not self._along_keys:
            self._octets("staged", lanes * size, "[key][k]")
        if view.deep % GROUP:
            self.writer.line(f"memset(queries, 0, {self.block * self.query_bytes});")
            if not self._along_keys:
                self.writer.line(f"memset(staged, 0, {lanes * size});")

    # Register tiles of both products

    def _micro_kernels(self) -> None:
        whole = self.panel if self.panel <= self.view.keys.extent else 0
        for panel in sorted({whole, self.last_panel} - {0}):
            for rows in self.cuts.counts(self.score_rows):
                self._micro_kernel("scores", rows, panel, self.panel, self.query_bytes, self.row_floats)
        panel = self.value_panel
        for rows in self.cuts.counts(self.mixed_rows):
            self._micro_kernel("mixed", rows, panel, panel, self.power_bytes, panel)

    def _micro_kernel(self, what: str, rows: int, columns: int, panel: int, row_bytes: int, c_step: int) -> None:
        """Of the first `columns` of a panel, over as many pairs as the caller says."""
        vectors, steps = columns // self.lanes, "steps"
        kernel = DotKernel(rows, vectors, self.lanes, panel, row_bytes, steps, c_step, self.load, self.dot, "float")
        kernel.write(self.writer, f"{self.name}_{what}_{rows}_{columns}")

    # Operands brought into the form that the micro-kernels read

    @property
    def _along_keys(self) -> bool:
        """Whether keys lie side by side in memory, so that pairs are made of vectors of them."""
        view = self.view
        return is_contiguous(view.k, view.keys, self.slots) or not is_contiguous(view.k, view.depth[-1], self.slots)

    def _pack_keys(self) -> None:
        past = f"panel * {self.panel} < live_keys" if self.key_sizes else f"panel < {self.panels}"
        with self.writer.block(f"for (long panel = 0; {past}; panel++)"):
            if self._along_keys:
                self._pack_pairs("keys", self.view.keys, self.panel, self.view.depth, self.view.k, str(self.view.deep))
            else:
                with self.writer.block(f"for (long column = 0; column < {self.panel}; column += TW_LANES)"):
                    self._pack_pair_squares()

    def _pack_pair_squares(self) -> None:
        """As many keys as a vector has lanes, staged one by one, their pairs transposed a square at a time."""
        view, writer, size = self.view, self.writer, self.staged_bytes
        with writer.block("for (long lane = 0; lane < TW_LANES; lane++)"):
            writer.line(f"const long {view.keys} = panel * {self.panel} + column + lane;")
            with writer.block(f"if ({view.keys} < {view.keys.extent})"):
                self._rounded(f"staged + lane * {size}", view.k)
        with writer.block(f"for (long pair = 0; pair < {self.deep_pairs}; pair += TW_LANES)"):
            writer.line("vf square[TW_LANES];")
            from_ = f"(const float *)(staged + lane * {size} + pair * {LANE_BYTES})"
            writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) square[lane] = tw_load({from_});")
            writer.line("tw_transpose(square);")
            line = f"((panel * {self.deep_pairs} + pair + at) * {self.panel} + column) * {LANE_BYTES}"
            writer.line(f"const long some = tw_least_of({self.deep_pairs} - pair, TW_LANES);")
            writer.line(f"for (long at = 0; at < some; at++) tw_store((float *)(keys + {line}), square[at]);")

    def _rounded(self, into: str, value: Expr) -> None:
        """into[k] = a row of the keys or queries in bf16; what lies beyond k is 0 and stays so."""
        writer = self.writer
        *outer, inner = self.view.depth
        writer.line(f"tw_bf16 *const into = (tw_bf16 *)({into});")

        def copy(vector: Vector) -> None:
            emitter = self._emitter(vector)
            place = f"into + {emitter.index(row_major(self.view.depth))}"
            store_vector(writer, place, emitter.vf(value), vector, "_bf16")

        with nest(writer, outer):
            strips(writer, inner, self.lanes, copy)

    def _pack_values(self) -> None:
        view = self.view
        with self.writer.block(f"for (long panel = 0; panel < {self.value_panels}; panel++)"):
            self._pack_pairs("values", view.columns, self.value_panel, (view.keys,), view.v, self._past_keys)

    def _pack_pairs(
        self, name: str, columns: Axis, panel: int, depth: tuple[Axis, ...], value: Expr, past: str
    ) -> None:
        """A panel of pairs along the depth up to `past`, a C expression; zeros where there is no column."""
        writer, deep = self.writer, prod(axis.extent for axis in depth)

        def pair(count: int) -> None:
            """The pair number `pair`, of which so many are there."""
            line = f"(panel * {parts(deep, GROUP)} + pair) * {panel * LANE_BYTES}L"
            writer.line(f"char *const line = {name} + {line};")
            with writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
                writer.line(f"const long {columns} = panel * {panel} + column;")
                writer.line("vf both[2] = {{0}};")
                whole, rest = columns.extent // self.lanes * self.lanes, columns.extent % self.lanes
                if whole:
                    with writer.block(f"if ({columns} < {whole})"):
                        self._load_pair(Vector(columns), depth, value, count)
                if rest:
                    with writer.block(f"if ({columns} == {whole})"):
                        self._load_pair(Vector(columns, str(rest)), depth, value, count)
                writer.line(f"tw_store_i((int32_t *)(line + column * {LANE_BYTES}), tw_pair_bf16(both[0], both[1]));")

        with writer.block(f"for (long pair = 0; pair < {past} / {GROUP}; pair++)"):
            pair(GROUP)
        if not past.isdecimal() or int(past) % GROUP:
            with writer.block(f"if ({past} % {GROUP})"):
                writer.line(f"const long pair = {past} / {GROUP};")
                pair(1)

    def _load_pair(self, vector: Vector, depth: tuple[Axis, ...], value: Expr, count: int) -> None:
        """both = the values at the places of the depth, row-major, of which the pair number `pair` is made."""
        for at in range(count):
            emitter, inner = self._emitter(vector), 1
            for axis in reversed(depth):
                place = f"({GROUP} * pair + {at})" if inner == 1 else f"(({GROUP} * pair + {at}) / {inner})"
                emitter.names[axis] = place if axis is depth[0] else f"({place} % {axis.extent})"
                inner *= axis.extent
            self.writer.line(f"both[{at}] = {emitter.vf(value)};")

    def _queries(self) -> None:
        with self.writer.block("for (long row = 0; row < count; row++)"):
            self.writer.line("const long query = row0 + row;")
            decode(self.writer, self.view.rows, "query")
            self._rounded(f"queries + row * {self.query_bytes}", self.view.q)

    # One block of queries against a block of keys

    def _scores(self, keys: int) -> None:
        """weights[row] = the scores of a block of keys with their epilogue; most[row], lane by lane, the largest."""
        whole = keys // self.panel * self.panel
        if whole:
            past = f"tw_least_of({whole}, some)" if self.key_sizes else str(whole)
            with self.writer.block(f"for (long place = 0; place < {past}; place += {self.panel})"):
                self._score_tiles(self.panel)
        if keys > whole:
            with self.writer.block(f"if ({whole} < some)" if self.key_sizes else ""):
                self.writer.line(f"const long place = {whole};")
                self._score_tiles(self.last_panel)
        with self.writer.block("for (long row = 0; row < count; row++)"):
            self._score_maps(keys)

    def _score_tiles(self, columns: int) -> None:
        writer = self.writer
        writer.line(f"const char *const b = keys + (first_key + place) * {self.query_bytes}L;")

        def tile(rows: int) -> None:
            c = f"weights + row * {self.row_floats} + place"
            a = f"queries + row * {self.query_bytes}"
            writer.line(f"{self.name}_scores_{rows}_{columns}({a}, b, {c}, {self.deep_pairs});")

        self.cuts.write(writer, self.score_rows, tile)

    def _score_maps(self, keys: int) -> None:
        """What follows the product on the scores of one query.

        A score that is not a number leaves the largest as it is: its own exponential, and so the sum, is none either.
        """
        view, writer, lanes = self.view, self.writer, self.lanes
        whole, rest = keys // lanes * lanes, keys % lanes
        writer.line("const long query = row0 + row;")
        decode(writer, view.rows, "query")
        writer.line(f"float *const line = weights + row * {self.row_floats};")
        writer.line("vf largest = most[row];")
        past = f"tw_least_of({whole}, some)" if self.key_sizes else str(whole)
        if whole:
            with writer.block(f"for (long at = 0; at < {past}; at += TW_LANES)"):
                writer.line(f"const long {view.keys} = first_key + at;")
                value = self._score(Vector(view.keys), "line + at")
                if self.maps:
                    writer.line(f"tw_store(line + at, {value});")
                writer.line(f"largest = tw_max_of({value}, largest);")
        if rest:
            with writer.block(f"if ({whole} < some)" if self.key_sizes else ""):
                writer.line(f"const long {view.keys} = first_key + {whole};")
                value = self._score(Vector(view.keys, str(rest)), f"line + {whole}")
                writer.line(f"const vf live = tw_first_n({value}, {rest}, tw_splat(-INFINITY));")
                writer.line(f"tw_store(line + {whole}, live);")
                writer.line("largest = tw_max_of(live, largest);")
        writer.line("most[row] = largest;")

    def _exponentials(self, keys: int, first: bool) -> None:
        """powers[row] = exp(weights[row] - largest) in bf16, and their sum; sums so far are scaled to the new largest.

        As in `attention`, but that first all rows have their largest and last their sum: exponentials then wait for
        nothing, and steps within a vector, each of which waits for the last, are those of many rows at once.
        """
        writer, width = self.writer, str(parts(keys, self.lanes) * self.lanes)
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("const float largest = tw_greatest(most[row]);")
            writer.line("from[row] = largest == -INFINITY ? 0 : largest;")
            if not first:
                writer.line("most[row] = tw_splat(largest);")
        if self.key_sizes:
            width = "(some + TW_LANES - 1) / TW_LANES * TW_LANES"
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line(f"const float *const line = weights + row * {self.row_floats};")
            writer.line(f"tw_bf16 *const into = (tw_bf16 *)(powers + row * {self.power_bytes}L);")
            writer.line("vf sum = {0};")
            with writer.block(f"for (long at = 0; at < {width}; at += TW_LANES)"):
                writer.line("const vf power = tw_exp_bf16(tw_load(line + at) - from[row]);")
                writer.line("tw_store_bf16(into + at, power);")
                writer.line("sum += power;")
            writer.line("added[row] = sum;")
        with writer.block("for (long row = 0; row < count; row++)"):
            if first:
                writer.line("total[row] = tw_sum(added[row]);")
                return
            writer.line("scale[row] = total[row] == 0 ? 0 : expf(shift[row] - from[row]);")
            writer.line("total[row] = total[row] * scale[row] + tw_sum(added[row]);")
            writer.line("shift[row] = from[row];")

    def _panel_of_values(self) -> None:
        size = self.value_panel * LANE_BYTES
        place = f"panel * {self.key_pairs * size}L + first_key / {GROUP} * {size}L"
        self.writer.line(f"const char *const b = values + {place};")

    def _mix(self, rows: int, keys: int) -> None:
        steps = f"(some + {GROUP - 1}) / {GROUP}" if self.key_sizes else str(parts(keys, GROUP))
        a = f"powers + row * {self.power_bytes}L"
        self.writer.line(f"{self.name}_mixed_{rows}_{self.value_panel}({a}, b, c, {steps});")


BF16_ATTENTION = Algorithm(("bf16_attention",), bf16_attention_tiles, bf16_attention, "bf16", any_short)
