"""Both products by dot products of pairs of bf16 (VDPBF16PS): of k in the queries and keys, of keys in the others.

A block's scores go from registers to the cache, as floats; one pass applies the maps and finds each query's greatest
score, another rounds the exponentials of the distances to it to bf16. Their sum is that of what they are before they
are rounded. Where the last panel of keys has fewer vectors than the others, so have its register tiles. What pads a
last pair is zero on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from compiler.codegen.expressions import Vector
from compiler.devices.cpu.attention.sums import FloatSums
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.dot_kernel import DotKernel
from compiler.forms.cache_lines import ALIAS_BYTES, LINE_BYTES, whole_lines
from compiler.forms.groups import LANE_BYTES, PAIR
from compiler.forms.normal_form import is_contiguous
from compiler.ir.expr import Expr
from compiler.ir.index import Axis
from compiler.ir.tensor import DType


@dataclass
class Pairs:
    """The `Products` of `bf16_attention`."""

    sums: FloatSums

    def __post_init__(self) -> None:
        frame, view, sums = self.sums.frame, self.sums.view, self.sums
        self.frame, self.view, self.writer, self.lanes = frame, view, frame.writer, frame.lanes
        self.deep_pairs, self.key_pairs = parts(view.deep, PAIR), parts(view.keys.extent, PAIR)
        self.query_bytes = self.deep_pairs * LANE_BYTES
        self.staged_bytes = whole_lines(self.query_bytes)
        self.row_floats = sums.row_floats
        self.power_bytes = whole_lines(self.row_floats * DType.BF16.bytes)
        if self.power_bytes % ALIAS_BYTES == 0:
            self.power_bytes += LINE_BYTES
        if self.row_floats * LANE_BYTES % ALIAS_BYTES == 0:
            self.row_floats += self.lanes
        self.last_panel = parts(sums.last_keys % sums.panel, self.lanes) * self.lanes
        """Columns of a narrower last panel of keys; 0 where the last one is whole."""

    def write_kernels(self) -> None:
        """Of scores for whole panels and a narrower last one, and of the product with the values."""
        sums, cuts = self.sums, self.frame.cuts
        whole = sums.panel if sums.panel <= self.view.keys.extent else 0
        for panel in sorted({whole, self.last_panel} - {0}):
            for rows in cuts.counts(sums.score_rows):
                self._write_kernel("scores", rows, panel, sums.panel, self.query_bytes, self.row_floats)
        panel = sums.value_panel
        for rows in cuts.counts(sums.mixed_rows):
            self._write_kernel("mixed", rows, panel, panel, self.power_bytes, panel)

    def _write_kernel(self, what: str, rows: int, columns: int, panel: int, row_bytes: int, c_step: int) -> None:
        """Of the first `columns` of a panel, over as many pairs as the caller says."""
        by_lane = self.frame.target.multiplies_by_lane
        load, dot = ("tw_lone_group", "tw_dot_bf16_by") if by_lane else ("tw_group", "tw_dot_bf16")
        vectors, steps = columns // self.lanes, "steps"
        kernel = DotKernel(rows, vectors, self.lanes, panel, row_bytes, steps, c_step, load, dot, "float")
        kernel.write(self.writer, f"{self.frame.name}_{what}_{rows}_{columns}")

    def declare_operands(self) -> None:
        """Pairs, but for the scores, which are floats."""
        frame, view, sums, block = self.frame, self.view, self.sums, self.frame.block
        size = self.lanes * self.staged_bytes
        frame.octets("keys", sums.panels * sums.panel * self.query_bytes, "[panel][pair of k][key]")
        values = sums.value_panels * sums.value_panel * self.key_pairs * LANE_BYTES
        frame.octets("values", values, "[panel][pair of keys][column]")
        frame.octets("queries", block * self.query_bytes, "[query][k]")
        frame.octets("powers", block * self.power_bytes, "[query][key]: exponentials of scores")
        frame.region("float", "weights", DType.F32.bytes * block * self.row_floats, "[query][key]: scores")
        if not self._along_keys:
            frame.octets("staged", size, "[key][k]")
        if view.deep % PAIR:
            self.writer.line(f"memset(queries, 0, {block * self.query_bytes});")
            if not self._along_keys:
                self.writer.line(f"memset(staged, 0, {size});")

    def declare_rows(self) -> None:
        """What all rows have before the next step is taken of any."""
        self.writer.line(f"vf added[{self.frame.block}];")
        self.writer.line(f"float from[{self.frame.block}];")

    # Operands brought into the form that the micro-kernels read

    @property
    def _along_keys(self) -> bool:
        """Whether keys lie side by side in memory, so that pairs are made of vectors of them."""
        view, slots = self.view, self.frame.slots
        return is_contiguous(view.k, view.keys, slots) or not is_contiguous(view.k, view.depth[-1], slots)

    def pack_key_panel(self) -> None:
        """Along whichever axis lies side by side in memory."""
        view, panel = self.view, self.sums.panel
        if self._along_keys:
            self._pack_pairs("keys", view.keys, panel, view.depth, view.k, "0", str(view.deep))
        else:
            with self.writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
                self._pack_squares()

    def _pack_squares(self) -> None:
        """As many keys as a vector has lanes, staged one by one, their pairs transposed a square at a time."""
        view, writer, size, panel = self.view, self.writer, self.staged_bytes, self.sums.panel
        with writer.block("for (long lane = 0; lane < TW_LANES; lane++)"):
            writer.line(f"const long {view.keys} = panel * {panel} + column + lane;")
            with writer.block(f"if ({view.keys} < {view.keys.extent})"):
                self.frame.round_row(f"staged + lane * {size}", view.depth, view.k)
        with writer.block(f"for (long pair = 0; pair < {self.deep_pairs}; pair += TW_LANES)"):
            writer.line("vf square[TW_LANES];")
            from_ = f"(const float *)(staged + lane * {size} + pair * {LANE_BYTES})"
            writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) square[lane] = tw_load({from_});")
            writer.line("tw_transpose(square);")
            line = f"((panel * {self.deep_pairs} + pair + at) * {panel} + column) * {LANE_BYTES}"
            writer.line(f"const long some = tw_least_of({self.deep_pairs} - pair, TW_LANES);")
            writer.line(f"for (long at = 0; at < some; at++) tw_store((float *)(keys + {line}), square[at]);")

    def pack_values(self, begin: str, past: str) -> None:
        """Panels of columns, with pairs of keys; `begin` is even, as panels begin with a pair."""
        view, sums = self.view, self.sums
        with self.writer.block(f"for (long panel = 0; panel < {sums.value_panels}; panel++)"):
            self._pack_pairs("values", view.columns, sums.value_panel, (view.keys,), view.v, begin, past)

    def _pack_pairs(
        self, name: str, columns: Axis, panel: int, depth: tuple[Axis, ...], value: Expr, begin: str, past: str
    ) -> None:
        """A panel of pairs along the depth from `begin`, even, up to `past`, in C; zeros where there is no column."""
        writer, deep = self.writer, prod(axis.extent for axis in depth)

        def pair(count: int) -> None:
            """The pair number `pair`, of which so many are there."""
            line = f"(panel * {parts(deep, PAIR)} + pair) * {panel * LANE_BYTES}L"
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

        first = "0" if begin == "0" else f"{begin} / {PAIR}"
        with writer.block(f"for (long pair = {first}; pair < {past} / {PAIR}; pair++)"):
            pair(PAIR)
        if not past.isdecimal() or int(past) % PAIR:
            with writer.block(f"if ({past} % {PAIR})"):
                writer.line(f"const long pair = {past} / {PAIR};")
                pair(1)

    def _load_pair(self, vector: Vector, depth: tuple[Axis, ...], value: Expr, count: int) -> None:
        """both = the values at the places of the depth, row-major, of which the pair number `pair` is made."""
        for at in range(count):
            emitter, inner = self.frame.emitter(vector), 1
            for axis in reversed(depth):
                place = f"({PAIR} * pair + {at})" if inner == 1 else f"(({PAIR} * pair + {at}) / {inner})"
                emitter.names[axis] = place if axis is depth[0] else f"({place} % {axis.extent})"
                inner *= axis.extent
            self.writer.line(f"both[{at}] = {emitter.vf(value)};")

    def copy_queries(self) -> None:
        """Row by row, rounded."""
        with self.frame.rows():
            self.frame.round_row(f"queries + row * {self.query_bytes}", self.view.depth, self.view.q)

    # One block of queries against a block of keys

    def scores(self, keys: int) -> None:
        """Sums of all panels, then the maps row by row."""
        writer, sums, panel = self.writer, self.sums, self.sums.panel
        whole = keys // panel * panel
        if whole:
            past = f"tw_least_of({whole}, some)" if sums.counts_keys else str(whole)
            with writer.block(f"for (long place = 0; place < {past}; place += {panel})"):
                self._score_tiles(panel)
        if keys > whole:
            with writer.block(f"if ({whole} < some)" if sums.counts_keys else ""):
                writer.line(f"const long place = {whole};")
                self._score_tiles(self.last_panel)
        with self.frame.rows():
            self._score_maps(keys)

    def _score_tiles(self, columns: int) -> None:
        writer = self.writer
        writer.line(f"const char *const b = keys + (first_key + place) * {self.query_bytes}L;")

        def tile(rows: int) -> None:
            c = f"weights + row * {self.row_floats} + place"
            a = f"queries + row * {self.query_bytes}"
            writer.line(f"{self.frame.name}_scores_{rows}_{columns}({a}, b, {c}, {self.deep_pairs});")

        self.frame.cuts.write(writer, self.sums.score_rows, tile)

    def _score_maps(self, keys: int) -> None:
        """What follows the product on the scores of one query.

        A score that is not a number leaves the largest as it is: its own exponential, and so the sum, is none either.
        """
        view, writer, lanes, sums = self.view, self.writer, self.lanes, self.sums
        whole, rest = keys // lanes * lanes, keys % lanes
        writer.line(f"float *const line = weights + row * {self.row_floats};")
        writer.line("vf largest = most[row];")
        past = f"tw_least_of({whole}, some)" if sums.counts_keys else str(whole)
        if whole:
            with writer.block(f"for (long at = 0; at < {past}; at += TW_LANES)"):
                writer.line(f"const long {view.keys} = first_key + at;")
                value = sums.score(Vector(view.keys), "line + at", "row")
                if sums.maps:
                    writer.line(f"tw_store(line + at, {value});")
                writer.line(f"largest = tw_max_of({value}, largest);")
        if rest:
            with writer.block(f"if ({whole} < some)" if sums.counts_keys else ""):
                writer.line(f"const long {view.keys} = first_key + {whole};")
                value = sums.score(Vector(view.keys, str(rest)), f"line + {whole}", "row")
                writer.line(f"const vf live = tw_first_n({value}, {rest}, tw_splat(-INFINITY));")
                writer.line(f"tw_store(line + {whole}, live);")
                writer.line("largest = tw_max_of(live, largest);")
        writer.line("most[row] = largest;")

    def exponentials(self, keys: int, first: bool) -> None:
        """powers[row], in bf16.

        First all rows have their largest and last their sum: exponentials then wait for nothing, and steps within a
        vector, each of which waits for the last, are those of many rows at once.
        """
        writer, width = self.writer, str(parts(keys, self.lanes) * self.lanes)
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("const float largest = tw_greatest(most[row]);")
            writer.line("from[row] = largest == -INFINITY ? 0 : largest;")
            if not first:
                writer.line("most[row] = tw_splat(largest);")
        if self.sums.counts_keys:
            width = "(some + TW_LANES - 1) / TW_LANES * TW_LANES"
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line(f"const float *const line = weights + row * {self.row_floats};")
            writer.line(f"tw_bf16 *const into = (tw_bf16 *)(powers + row * {self.power_bytes}L);")
            writer.line("vf sum = {0};")
            with writer.block(f"for (long at = 0; at < {width}; at += TW_LANES)"):
                writer.include("tw_short_exp.h")
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

    def declare_values(self) -> None:
        """Rows of a panel, one for each pair of keys."""
        size = self.sums.value_panel * LANE_BYTES
        place = f"panel * {self.key_pairs * size}L + first_key / {PAIR} * {size}L"
        self.writer.line(f"const char *const b = values + {place};")

    def mix(self, rows: int, keys: int) -> None:
        """Over the pairs of all keys of the block, or of some."""
        steps = f"(some + {PAIR - 1}) / {PAIR}" if self.sums.counts_keys else str(parts(keys, PAIR))
        a = f"powers + row * {self.power_bytes}L"
        self.writer.line(f"{self.frame.name}_mixed_{rows}_{self.sums.value_panel}({a}, b, c, {steps});")
