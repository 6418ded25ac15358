"""Both products by tiles (Intel AMX): parts of 16 queries, and panels of 16 keys or columns.

Keys are panels of 16 in which pairs of k lie side by side, values panels of 16 columns with pairs of keys. Scores go
from tiles to memory row by row. What the softmax makes of a row, not yet divided by its sum, is rounded to bf16 and is
the next product's A. All keys are one block.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.expressions import Vector
from compiler.devices.cpu.attention.sums import FloatSums
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.amx import GROUPS, ROWS
from compiler.devices.cpu.codegen.strips import panel_strips, strips
from compiler.forms.cache_lines import LINE_BYTES
from compiler.forms.groups import PAIR
from compiler.ir.tensor import DType

STEP = PAIR * GROUPS
"""Elements of k in a tile."""


@dataclass
class Tiles:
    """The `Element` of `amx_attention`; a register tile has as many panels of 16 as its panel is wide."""

    sums: FloatSums
    note = ""
    ends_at_sizes = True

    def __post_init__(self) -> None:
        frame, view, sums = self.sums.frame, self.sums.view, self.sums
        self.frame, self.view, self.writer, self.lanes = frame, view, frame.writer, frame.lanes
        self.many = sums.score_rows // ROWS
        self.vectors = sums.panel // self.lanes
        self.deep_steps, self.key_steps = parts(view.deep, STEP), parts(view.keys.extent, STEP)
        self.row_floats = sums.panels * sums.panel
        if self.row_floats % (2 * LINE_BYTES) == 0:
            self.row_floats += self.lanes
        self.query_bytes = self.deep_steps * LINE_BYTES
        self.weight_bytes = self.key_steps * LINE_BYTES

    def declare(self) -> None:
        """Operands of both products, and the scores between them."""
        frame, sums, writer, rows = self.frame, self.sums, self.writer, self.many * ROWS
        frame.octets("keys", sums.panels * self.vectors * ROWS * self.query_bytes, "[16 keys][pair of k][key]")
        values = sums.value_panels * self.vectors * ROWS * self.weight_bytes
        frame.octets("values", values, "[16 columns][pair of keys][column]")
        frame.octets("queries", rows * self.query_bytes, "[query][k], of keys too before they are packed")
        frame.octets("weights", rows * self.weight_bytes, "[query][key]: exponentials of scores, zeros beyond")
        frame.region("float", "scores", DType.F32.bytes * rows * self.row_floats, "[query][key]")
        writer.line(f"memset(queries, 0, {rows * self.query_bytes});")
        writer.line(f"memset(weights, 0, {rows * self.weight_bytes});")
        writer.line("long packed = -1;")
        writer.line(f"float largest[{rows}], total[{rows}];")
        writer.line(f"tw_tiles_begin(&{frame.name}_shapes);")

    def end(self) -> None:
        """Leaves the tiles to others."""
        self.writer.line("tw_tiles_end();")

    def write_kernels(self) -> None:
        """c = the products of all rows of a block with panels that lie `panel` bytes apart, 64 bytes of k at a time."""
        writer, name = self.writer, f"{self.frame.name}_products"
        writer.include("tw_tiles.h")
        sizes = ", ".join(f"[{register}] = {{0}}" for register in range(8))
        writer.line(
            f"static const tw_tile_shapes {self.frame.name}_shapes = "
            f"{{1, .bytes = {{{sizes.format(LINE_BYTES)}}}, .rows = {{{sizes.format(ROWS)}}}}};"
        )
        head = f"void {name}(const char *a, long a_step, const char *b, long panel, long steps, float *c, long c_step)"
        with writer.block(f"static inline __attribute__((always_inline)) {head}"):
            for register in range(self.many * self.vectors):
                writer.line(f"tw_tile_zero({register});")
            with writer.block("for (long k = 0; k < steps; k++)"):
                for part in range(self.many):
                    writer.line(f"tw_tile_load({4 + part}, a + {part * ROWS} * a_step + k * {LINE_BYTES}, a_step);")
                for vector in range(self.vectors):
                    b = 6 + vector % 2
                    writer.line(f"tw_tile_load({b}, b + {vector} * panel + k * {ROWS * LINE_BYTES}, {LINE_BYTES}L);")
                    for part in range(self.many):
                        writer.line(f"tw_tile_dot_bf16({part * self.vectors + vector}, {4 + part}, {b});")
            for part in range(self.many):
                for vector in range(self.vectors):
                    place = f"c + {part * ROWS} * c_step + {vector * self.lanes}"
                    writer.line(f"tw_tile_store({part * self.vectors + vector}, {place}, 4 * c_step);")
        writer.line()

    # Operands brought into the form of tiles

    def pack(self) -> None:
        """Keys, then values."""
        self._pack_keys()
        self._pack_values()

    def _pack_keys(self) -> None:
        """16 keys at a time: rows of bf16, then squares of 16 pairs, transposed."""
        view, writer = self.view, self.writer
        panels = parts(view.keys.extent, ROWS)
        with writer.block(f"for (long panel = 0; panel < {panels}; panel++)"):
            with writer.block(f"for (long lane = 0; lane < {ROWS}; lane++)"):
                writer.line(f"const long {view.keys} = panel * {ROWS} + lane;")
                with writer.block(f"if ({view.keys} < {view.keys.extent})"):
                    self.frame.round_row(f"queries + lane * {self.query_bytes}", view.depth, view.k)
            with writer.block(f"for (long k = 0; k < {self.deep_steps}; k++)"):
                writer.line("vf square[TW_LANES];")
                from_ = f"(const float *)(queries + lane * {self.query_bytes} + k * {LINE_BYTES})"
                writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) square[lane] = tw_load({from_});")
                writer.line("tw_transpose(square);")
                to = f"(float *)(keys + (panel * {self.deep_steps} + k) * {ROWS * LINE_BYTES} + lane * {LINE_BYTES})"
                writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) tw_store({to}, square[lane]);")

    def _pack_values(self) -> None:
        """Pairs of keys side by side, zeros where there is no key or column."""
        view, writer, keys = self.view, self.writer, self.view.keys
        with (
            writer.block(f"for (long pair = 0; pair < {self.key_steps * GROUPS}; pair++)"),
            writer.block(f"for (long panel = 0; panel < {parts(view.columns.extent, self.lanes)}; panel++)"),
        ):
            writer.line("vf both[2] = {{0}};")
            with writer.block(f"for (long at = 0; at < 2 && 2 * pair + at < {keys.extent}; at++)"):
                writer.line(f"const long {keys} = 2 * pair + at;")

                def load(vector: Vector, column: str) -> None:
                    writer.line(f"both[at] = {self.frame.emitter(vector).vf(view.v)};")

                panel_strips(writer, view.columns, self.lanes, self.lanes, load)
            place = f"values + panel * {self.key_steps * ROWS * LINE_BYTES} + pair * {LINE_BYTES}"
            writer.line(f"tw_store_i((int32_t *)({place}), tw_pair_bf16(both[0], both[1]));")

    def copy_queries(self) -> None:
        """Row by row, rounded."""
        with self.frame.rows():
            self.frame.round_row(f"queries + row * {self.query_bytes}", self.view.depth, self.view.q)

    # One block of queries

    def attend(self) -> None:
        """Scores of all keys, their exponentials, and these times the values."""
        self._score_tiles()
        self._powers()
        self._mixed_tiles()

    def _score_tiles(self) -> None:
        step = self.deep_steps * ROWS * LINE_BYTES
        with self.writer.block(f"for (long panel = 0; panel < {self.sums.panels}; panel++)"):
            b = f"keys + panel * {self.vectors * step}L, {step}L, {self.deep_steps}"
            c = f"scores + panel * {self.sums.panel}, {self.row_floats}"
            self.writer.line(f"{self.frame.name}_products(queries, {self.query_bytes}L, {b}, {c});")

    def _powers(self) -> None:
        """weights[row] = exp(maps of scores - the largest), in bf16; total[row] = their sum.

        The largest of all rows are found first: exponentials of a row then wait for nothing.
        """
        writer, keys = self.writer, self.view.keys
        width = parts(keys.extent, self.lanes) * self.lanes

        def scored(vector: Vector) -> None:
            value = self.sums.score(vector, f"line + {keys}")
            if not vector.count:
                writer.line(f"tw_store(line + {keys}, {value});")
                writer.line(f"most = tw_max({value}, most);")
                return
            writer.line(f"const vf last = tw_first_n({value}, {vector.count}, tw_splat(-INFINITY));")
            writer.line(f"tw_store(line + {keys}, last);")
            writer.line("most = tw_max(last, most);")

        with self.frame.rows():
            writer.line(f"float *const line = scores + row * {self.row_floats};")
            writer.line("vf most = tw_splat(-INFINITY);")
            strips(writer, keys, self.lanes, scored)
            writer.line("const float greatest = tw_greatest(most);")
            writer.line("largest[row] = greatest == -INFINITY ? 0 : greatest;")
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line(f"const float *const line = scores + row * {self.row_floats};")
            writer.line(f"tw_bf16 *const powers = (tw_bf16 *)(weights + row * {self.weight_bytes});")
            writer.line("vf sum = {0};")
            with writer.block(f"for (long at = 0; at < {width}; at += TW_LANES)"):
                writer.line("const vf power = tw_exp_normal(tw_load(line + at) - largest[row]);")
                writer.line("tw_store_bf16(powers + at, power);")
                writer.line("sum += power;")
            writer.line("total[row] = tw_sum(sum);")

    def _mixed_tiles(self) -> None:
        writer, step, panel = self.writer, self.key_steps * ROWS * LINE_BYTES, self.sums.value_panel
        with writer.block(f"for (long panel = 0; panel < {self.sums.value_panels}; panel++)"):
            writer.line(f"float c[{self.many * ROWS * panel}] __attribute__((aligned(64)));")
            b = f"values + panel * {self.vectors * step}L, {step}L, {self.key_steps}, c, {panel}"
            writer.line(f"{self.frame.name}_products(weights, {self.weight_bytes}L, {b});")
            with self.frame.rows():
                writer.line("const float whole = 1 / total[row];")
                writer.line(f"const float *const held = c + row * {panel};")
                panel_strips(writer, self.view.columns, panel, self.lanes, self.sums.result)
