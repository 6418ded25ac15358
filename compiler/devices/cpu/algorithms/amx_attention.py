"""Attention by tiles (Intel AMX): both products in bf16, the softmax between them in fp32.

As in `attention`, keys and values of a head are packed once and the scores of a block of queries stay in the cache.
Keys are panels of 16 in which pairs of k lie side by side, values panels of 16 columns with pairs of keys. Scores go
from tiles to memory row by row. What the softmax makes of a row, not yet divided by its sum, is rounded to bf16 and is
the next product's A.

Blocks have one or two parts of 16 queries. All keys are one block: more than KEYS are left to `attention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.codegen.expressions import Vector
from compiler.codegen.functions import decode, nest
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.amx import GROUPS, ROWS, SUMS
from compiler.devices.cpu.algorithms.attention import EXP_NS, KEYS, LoweredAttention, task_of
from compiler.devices.cpu.algorithms.blocking import parts
from compiler.devices.cpu.algorithms.model import CALL_NS
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.strips import panel_strips, store_vector, strips
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, as_attention
from compiler.forms.bounds import beyond_bounds, neutral_from
from compiler.forms.cache_lines import LINE_BYTES
from compiler.ir.index import row_major
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

STEP = 2 * GROUPS
"""Elements of k in a tile."""
PACK_NS = 0.1
"""One element of the keys or values packed."""


def amx_attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for blocks of one and of two parts, cheapest by the model first; empty unless the kernel is attention."""
    view = as_attention(workload.kernel) if target.has_tiles else None
    if view is None or view.keys.extent > KEYS or _has_sizes(view):
        return []
    found = [_proposal(view, many, target, lanes) for many in (1, 2) if many == 1 or view.queries > ROWS]
    return sorted(found, key=lambda proposal: proposal.seconds)


def _has_sizes(view: Attention) -> bool:
    """Whether rows or keys end at a size that is known while running."""
    inputs = frozenset(slot.name for slot in view.kernel.inputs)
    last = (view.scores, *view.maps)[-1].values[0]
    return bool(beyond_bounds(view.kernel) or neutral_from(last, view.keys, float("-inf"), inputs))


def _proposal(view: Attention, many: int, target: CpuTarget, lanes: int) -> Proposal:
    keys, columns, block = view.keys.extent, view.columns.extent, many * ROWS
    panel = SUMS // many * target.vector_floats
    tile = Tile(
        "amx_attention",
        (
            Level("lane", (("m", task_of(view, lanes)),)),
            Level("block", (("m", block), ("n", keys))),
            Level("register", (("m", block), ("n", panel))),
            Level("vector", (("m", block), ("n", panel))),
        ),
    )
    steps = parts(keys, panel) * parts(view.deep, STEP) + parts(columns, panel) * parts(keys, STEP)
    products = parts(view.queries, block) * steps * SUMS * 2 * ROWS / target.rates.fma_per_ns / 2
    powers = view.queries * parts(keys, target.vector_floats) * EXP_NS
    packed = keys * (view.deep + columns) * PACK_NS
    return Proposal(tile, 1e-9 * (CALL_NS + view.batches * (products + powers + packed)))


def amx_attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_attention` accepts, blocked as `amx_attention_tiles` says."""
    view = as_attention(workload.kernel)
    assert view is not None, "the tile stage offers `amx_attention` only to kernels of that form"
    return _TileAttention(name, workload, view, tile, target)


@dataclass
class _TileAttention(LoweredAttention):
    """Parts of 16 queries, and panels of 16 keys or columns, of which a register tile has as many as `panel` says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        view = self.view
        self.many = self.score_rows // ROWS
        self.vectors = self.panel // self.lanes
        self.deep_steps, self.key_steps = parts(view.deep, STEP), parts(view.keys.extent, STEP)
        self.row_floats = self.panels * self.panel
        if self.row_floats % (2 * LINE_BYTES) == 0:
            self.row_floats += self.lanes
        self.query_bytes = self.deep_steps * LINE_BYTES
        self.weight_bytes = self.key_steps * LINE_BYTES

    def _declare(self) -> None:
        rows = self.many * ROWS
        self._octets("keys", self.panels * self.vectors * ROWS * self.query_bytes, "[16 keys][pair of k][key]")
        self._octets(
            "values", self.value_panels * self.vectors * ROWS * self.weight_bytes, "[16 columns][pair of keys][column]"
        )
        self._octets("queries", rows * self.query_bytes, "[query][k], of keys too before they are packed")
        self._octets("weights", rows * self.weight_bytes, "[query][key]: exponentials of scores, zeros beyond")
        self._region("scores", rows * self.row_floats, "[query][key]")
        self.writer.line(f"memset(queries, 0, {rows * self.query_bytes});")
        self.writer.line(f"memset(weights, 0, {rows * self.weight_bytes});")
        self.writer.line("long packed = -1;")
        self.writer.line(f"float largest[{rows}], total[{rows}];")
        self.writer.line(f"tw_tiles_begin(&{self.name}_shapes);")

    def _finish(self) -> None:
        self.writer.line("tw_tiles_end();")

    def _micro_kernels(self) -> None:
        """c = the products of all rows of a block with panels that lie `panel` bytes apart, 64 bytes of k at a time."""
        writer, name = self.writer, f"{self.name}_products"
        sizes = ", ".join(f"[{register}] = {{0}}" for register in range(8))
        writer.line(
            f"static const tw_tile_shapes {self.name}_shapes = "
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

    def _pack_keys(self) -> None:
        """16 keys at a time: rows of bf16, then squares of 16 pairs, transposed."""
        view, writer = self.view, self.writer
        panels = parts(view.keys.extent, ROWS)
        with writer.block(f"for (long panel = 0; panel < {panels}; panel++)"):
            with writer.block(f"for (long lane = 0; lane < {ROWS}; lane++)"):
                writer.line(f"const long {view.keys} = panel * {ROWS} + lane;")
                with writer.block(f"if ({view.keys} < {view.keys.extent})"):
                    self._rounded(f"(tw_bf16 *)(queries + lane * {self.query_bytes})", along_keys=True)
            with writer.block(f"for (long k = 0; k < {self.deep_steps}; k++)"):
                writer.line("vf square[TW_LANES];")
                from_ = f"(const float *)(queries + lane * {self.query_bytes} + k * {LINE_BYTES})"
                writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) square[lane] = tw_load({from_});")
                writer.line("tw_transpose(square);")
                to = f"(float *)(keys + (panel * {self.deep_steps} + k) * {ROWS * LINE_BYTES} + lane * {LINE_BYTES})"
                writer.line(f"for (long lane = 0; lane < TW_LANES; lane++) tw_store({to}, square[lane]);")

    def _rounded(self, into: str, *, along_keys: bool) -> None:
        """into[k] = a row of the keys or queries in bf16; what lies beyond k is 0 and stays so."""
        view, writer = self.view, self.writer
        value = view.k if along_keys else view.q
        *outer, inner = view.depth
        writer.line(f"tw_bf16 *const into = {into};")
        with nest(writer, outer):

            def copy(vector: Vector) -> None:
                emitter = self._emitter(vector)
                place = f"into + {emitter.index(row_major(view.depth))}"
                store_vector(writer, place, emitter.vf(value), vector, "_bf16")

            strips(writer, inner, self.lanes, copy)

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
                    writer.line(f"both[at] = {self._emitter(vector).vf(view.v)};")

                panel_strips(writer, view.columns, self.lanes, self.lanes, load)
            place = f"values + panel * {self.key_steps * ROWS * LINE_BYTES} + pair * {LINE_BYTES}"
            writer.line(f"tw_store_i((int32_t *)({place}), tw_pair_bf16(both[0], both[1]));")

    def _queries(self) -> None:
        with self.writer.block("for (long row = 0; row < count; row++)"):
            self.writer.line("const long query = row0 + row;")
            decode(self.writer, self.view.rows, "query")
            self._rounded(f"(tw_bf16 *)(queries + row * {self.query_bytes})", along_keys=False)

    # One block of queries

    def _key_blocks(self) -> None:
        self._score_tiles()
        self._powers()
        self._mixed_tiles()

    def _score_tiles(self) -> None:
        step = self.deep_steps * ROWS * LINE_BYTES
        with self.writer.block(f"for (long panel = 0; panel < {self.panels}; panel++)"):
            b = f"keys + panel * {self.vectors * step}L, {step}L, {self.deep_steps}"
            c = f"scores + panel * {self.panel}, {self.row_floats}"
            self.writer.line(f"{self.name}_products(queries, {self.query_bytes}L, {b}, {c});")

    def _powers(self) -> None:
        """weights[row] = exp(maps of scores - the largest), in bf16; total[row] = their sum.

        The largest of all rows are found first: exponentials of a row then wait for nothing.
        """
        writer, keys = self.writer, self.view.keys
        width = parts(keys.extent, self.lanes) * self.lanes
        with self._row():
            writer.line(f"float *const line = scores + row * {self.row_floats};")
            writer.line("vf most = tw_splat(-INFINITY);")

            def scored(vector: Vector) -> None:
                value = self._score(vector, f"line + {keys}")
                if not vector.count:
                    writer.line(f"tw_store(line + {keys}, {value});")
                    writer.line(f"most = tw_max({value}, most);")
                    return
                writer.line(f"const vf last = tw_first_n({value}, {vector.count}, tw_splat(-INFINITY));")
                writer.line(f"tw_store(line + {keys}, last);")
                writer.line("most = tw_max(last, most);")

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

    @contextmanager
    def _row(self) -> Iterator[None]:
        """A loop over the queries of a block."""
        with self.writer.block("for (long row = 0; row < count; row++)"):
            self.writer.line("const long query = row0 + row;")
            decode(self.writer, self.view.rows, "query")
            yield

    def _mixed_tiles(self) -> None:
        writer, step = self.writer, self.key_steps * ROWS * LINE_BYTES
        with writer.block(f"for (long panel = 0; panel < {self.value_panels}; panel++)"):
            writer.line(f"float c[{self.many * ROWS * self.value_panel}] __attribute__((aligned(64)));")
            b = f"values + panel * {self.vectors * step}L, {step}L, {self.key_steps}, c, {self.value_panel}"
            writer.line(f"{self.name}_products(weights, {self.weight_bytes}L, {b});")
            with self._row():
                writer.line("const float whole = 1 / total[row];")
                writer.line(f"const float *const held = c + row * {self.value_panel};")
                panel_strips(writer, self.view.columns, self.value_panel, self.lanes, self._result)


AMX_ATTENTION = Algorithm(("amx_attention",), amx_attention_tiles, amx_attention, "bf16", any_short)
