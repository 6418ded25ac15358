"""Both products in fp32: elements of queries, or of weights, are broadcast against panels of keys, or of values."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from compiler.codegen.expressions import Vector
from compiler.devices.cpu.attention.sums import FloatSums
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.micro_kernel import MicroKernel
from compiler.devices.cpu.codegen.strips import copy_row, padded_strip, strips
from compiler.forms.normal_form import is_contiguous
from compiler.ir.expr import Expr
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType


@dataclass
class Fp32:
    """The `Products` of `attention`."""

    sums: FloatSums

    def __post_init__(self) -> None:
        self.frame, self.view = self.sums.frame, self.sums.view
        self.writer, self.lanes, self.row_floats = self.frame.writer, self.frame.lanes, self.sums.row_floats

    def write_kernels(self) -> None:
        """One of each product for every number of rows that a block, whole or the last, is cut into."""
        view, frame, sums = self.view, self.frame, self.sums
        for rows in frame.cuts.counts(sums.score_rows):
            offsets = tuple(row * view.deep for row in range(rows))
            kernel = MicroKernel(offsets, ((view.deep, 1),), sums.panel // self.lanes, self.lanes)
            kernel.write(self.writer, f"{frame.name}_scores_{rows}")
        for rows in frame.cuts.counts(sums.mixed_rows):
            for keys in sorted({min(sums.key_block, view.keys.extent), sums.last_keys}):
                offsets = tuple(row * self.row_floats for row in range(rows))
                kernel = MicroKernel(offsets, ((keys, 1),), sums.value_panel // self.lanes, self.lanes)
                write = kernel.write_first if sums.counts_keys else kernel.write
                write(self.writer, f"{frame.name}_mixed_{rows}_{keys}")

    def declare_operands(self) -> None:
        """All are floats."""
        view, sums, block = self.view, self.sums, self.frame.block
        self._floats("keys", sums.panels * sums.panel * view.deep, "[panel][k][key]")
        self._floats("values", sums.value_panels * sums.value_panel * view.keys.extent, "[panel][key][column]")
        self._floats("queries", block * view.deep, "[query][k]")
        self._floats("weights", block * self.row_floats, "[query][key]: scores, then their exponentials")

    def _floats(self, name: str, floats: int, what: str) -> None:
        self.frame.region("float", name, DType.F32.bytes * floats, what)

    def declare_rows(self) -> None:
        """Nothing more."""

    # Operands brought into the form that the micro-kernels read

    def pack_key_panel(self) -> None:
        """Along whichever axis lies side by side in memory."""
        view, writer, sums = self.view, self.writer, self.sums
        *outer, inner = view.depth
        slots = self.frame.slots
        along_keys = is_contiguous(view.k, view.keys, slots) or not is_contiguous(view.k, inner, slots)
        with ExitStack() as stack:
            place = Index.of(0)
            for axis in outer:
                stack.enter_context(writer.block(f"for (long {axis} = 0; {axis} < {axis.extent}; {axis}++)"))
                place = place * axis.extent + axis
            if along_keys:
                stack.enter_context(writer.block(f"for (long {inner} = 0; {inner} < {inner.extent}; {inner}++)"))
                deep = self.frame.emitter().index(place * inner.extent + inner)
                writer.line(f"float *const line = keys + (panel * {view.deep} + {deep}) * {sums.panel};")
                self._line(view.keys, sums.panel, view.k)
            else:
                self._pack_squares(place, inner)

    def _pack_squares(self, outer: Index, inner: Axis) -> None:
        """Keys that lie along k in memory, as many of them as a vector has lanes at a time, transposed in registers."""
        view, writer, panel = self.view, self.writer, self.sums.panel

        def square(vector: Vector) -> None:
            place = self.frame.emitter().index(outer * inner.extent + inner)
            writer.line("vf square[TW_LANES];")
            with writer.block("for (long lane = 0; lane < TW_LANES; lane++)"):
                writer.line(f"const long {view.keys} = panel * {panel} + column + lane;")
                writer.line("square[lane] = (vf){0};")
                with writer.block(f"if ({view.keys} < {view.keys.extent})"):
                    writer.line(f"square[lane] = {self.frame.emitter(vector).vf(view.k)};")
            writer.line("tw_transpose(square);")
            writer.line(f"float *const line = keys + (panel * {view.deep} + {place}) * {panel} + column;")
            with writer.block(f"for (long lane = 0; lane < {vector.count or 'TW_LANES'}; lane++)"):
                writer.line(f"tw_store(line + lane * {panel}, square[lane]);")

        with writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
            strips(writer, inner, self.lanes, square)

    def pack_values(self, begin: str, past: str) -> None:
        """Panels of columns."""
        view, writer, keys, sums = self.view, self.writer, self.view.keys, self.sums
        with (
            writer.block(f"for (long panel = 0; panel < {sums.value_panels}; panel++)"),
            writer.block(f"for (long {keys} = {begin}; {keys} < {past}; {keys}++)"),
        ):
            writer.line(f"float *const line = values + (panel * {keys.extent} + {keys}) * {sums.value_panel};")
            self._line(view.columns, sums.value_panel, view.v)

    def _line(self, axis: Axis, panel: int, value: Expr) -> None:
        """line[column] = the value at the columns of a panel, zeros beyond the last."""
        with self.writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
            padded_strip(self.writer, axis, panel, "line", lambda vector: self.frame.emitter(vector).vf(value))

    def copy_queries(self) -> None:
        """Row by row."""
        view = self.view
        with self.frame.rows():
            into = f"queries + row * {view.deep}"
            copy_row(self.writer, self.frame.emitter, self.lanes, view.depth, view.q, into)

    # One block of queries against a block of keys

    def scores(self, keys: int) -> None:
        """Panel by panel, with their maps."""
        writer, sums, deep = self.writer, self.sums, self.view.deep
        panel = sums.panel

        def tile(rows: int) -> None:
            writer.line(f"float c[{rows * panel}] __attribute__((aligned(64)));")
            writer.line(f"{self.frame.name}_scores_{rows}(queries + row * {deep}, b, c);")
            with writer.block(f"for (long at = 0; at < {rows}; at++)"):
                self._score_maps(keys)

        with writer.block(f"for (long place = 0; place < {'some' if sums.counts_keys else keys}; place += {panel})"):
            writer.line(f"const float *const b = keys + (first_key + place) * {deep}L;")
            self.frame.cuts.write(writer, sums.score_rows, tile)

    def _score_maps(self, keys: int) -> None:
        """What follows the product on the scores of one query in one panel."""
        view, writer, lanes, panel = self.view, self.writer, self.lanes, self.sums.panel
        self.frame.declare_query("row + at")
        writer.line(f"const float *const held = c + at * {panel};")
        writer.line(f"float *const line = weights + (row + at) * {self.row_floats} + place;")
        whole, rest = keys // lanes * lanes, keys % lanes
        limit = "" if keys % panel == 0 else f" && place + column < {whole}"
        with writer.block(f"for (long column = 0; column < {panel}{limit}; column += TW_LANES)"):
            writer.line(f"const long {view.keys} = first_key + place + column;")
            value = self.sums.score(Vector(view.keys), "held + column", "row + at")
            writer.line(f"tw_store(line + column, {value});")
            writer.line(f"most[row + at] = tw_max({value}, most[row + at]);")
        if rest:
            with writer.block(f"if (place + {panel} > {whole})"):
                writer.line(f"const long column = {whole} - place, {view.keys} = first_key + {whole};")
                value = self.sums.score(Vector(view.keys, str(rest)), "held + column", "row + at")
                writer.line("tw_store(line + column, tw_splat(-INFINITY));")
                writer.line(f"tw_store_n(line + column, {value}, {rest});")
                writer.line("most[row + at] = tw_max(tw_load(line + column), most[row + at]);")

    def exponentials(self, keys: int, first: bool) -> None:
        """In place of the scores."""
        writer, panel = self.writer, self.sums.panel
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("const float largest = tw_greatest(most[row]);")
            writer.line("const float from = largest == -INFINITY ? 0 : largest;")
            writer.line(f"float *const line = weights + row * {self.row_floats};")
            writer.line("vf sum = {0};")
            width = str(parts(keys, self.lanes) * self.lanes)
            if self.sums.counts_keys:
                writer.line(f"const long scored = (some + {panel - 1}) / {panel} * {panel};")
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

    def declare_values(self) -> None:
        """Rows of a panel, one for each key."""
        panel = self.sums.value_panel
        size = self.view.keys.extent * panel
        self.writer.line(f"const float *const b = values + panel * {size}L + first_key * {panel}L;")

    def mix(self, rows: int, keys: int) -> None:
        """Of all keys of the block, or of some."""
        some = ", some" if self.sums.counts_keys else ""
        self.writer.line(f"{self.frame.name}_mixed_{rows}_{keys}(weights + row * {self.row_floats}, b, c{some});")
