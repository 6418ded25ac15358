"""Queries against blocks of keys: the sums so far are scaled to the new maximum block by block.

The online softmax of Milakov and Gimelshein, arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135. Where all
keys are one block nothing is scaled.

Where keys end by their places (`compiler.forms.key_bounds`) a block of queries reads those that one of its queries does
not leave out, from the panel on in which the first of them is, and keys are packed as the first block of queries reads
them. All keys are read after all if a query has no score so far above the mask's that the weights of the others are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compiler.codegen.scalars import literal
from compiler.devices.cpu.attention.ends import VANISHES, declare_ends
from compiler.devices.cpu.attention.sums import FloatSums
from compiler.devices.cpu.codegen.strips import panel_strips
from compiler.forms.key_bounds import KeyBounds
from compiler.ir.tensor import DType


class Products(Protocol):
    """Both products of a block of queries with a block of keys, of `keys` keys from `first_key` on.

    Where keys end at a size, `some` of them are before it.
    """

    def write_kernels(self) -> None:
        """Writes the C functions of both."""

    def declare_operands(self) -> None:
        """Declares regions of what they read, and of the scores."""

    def declare_rows(self) -> None:
        """Declares what `exponentials` keep of each query beside `most`, `total`, `shift` and `scale`."""

    def pack_key_panel(self) -> None:
        """Packs the panel number `panel` of a head's keys."""

    def pack_values(self, begin: str, past: str) -> None:
        """Packs the values of a head's keys from one on, up to another, both in C."""

    def copy_queries(self) -> None:
        """Brings a block of queries into the form that is multiplied."""

    def scores(self, keys: int) -> None:
        """weights[row] = the scores with their epilogue; most[row], lane by lane, the largest."""

    def exponentials(self, keys: int, first: bool) -> None:
        """Makes exponentials of the scores' distances to the largest, and total[row] their sum.

        Unless this is the `first` block of all, scale[row] is what sums so far are multiplied by. A row without any
        score above -infinity keeps a sum of 0, so that later keys, if there are any, decide.
        """

    def declare_values(self) -> None:
        """Declares b, the values of a panel from the first key of the block on."""

    def mix(self, rows: int, keys: int) -> None:
        """c = the weights of so many queries, from `row` on, times the panel at b."""


@dataclass(frozen=True)
class Online:
    """An `Element` of products in blocks of keys."""

    sums: FloatSums
    products: Products
    note = ""
    ends_at_sizes = True

    def write_kernels(self) -> None:
        """Those of the products."""
        self.products.write_kernels()

    def declare(self) -> None:
        """Operands, sums so far, and what is known of each query."""
        sums, frame = self.sums, self.sums.frame
        writer, online = frame.writer, sums.key_blocks > 1 or sums.ends is not None
        self.products.declare_operands()
        if online:
            floats = frame.block * sums.value_panels * sums.value_panel
            frame.region("float", "sums", DType.F32.bytes * floats, "[panel][query][column]")
        writer.line("long packed = -1;")
        writer.line(f"vf most[{frame.block}];")
        writer.line(f"float total[{frame.block}];")
        if online:
            writer.line(f"float shift[{frame.block}], scale[{frame.block}];")
        if sums.key_sizes:
            extent = sums.view.keys.extent
            writer.line(f"long live_keys = {extent}; /* from there on scores are -infinity */")
            for size in sums.key_sizes:
                live = frame.emitter().scalar(size)
                writer.line(f"if ({live} < live_keys) live_keys = {live} < 0 ? 0 : (long){live};")
        if sums.ends is not None:
            writer.line(f"char is_packed[{sums.panels}]; /* panels of keys, with their values */")
            writer.line(f"long firsts[{frame.block}], pasts[{frame.block}]; /* keys of each query */")
        self.products.declare_rows()

    def pack(self) -> None:
        """Keys, then values; nothing yet where they are packed as they are read."""
        sums, writer = self.sums, self.sums.frame.writer
        if sums.ends is not None:
            writer.line("memset(is_packed, 0, sizeof is_packed);")
            return
        with writer.block(f"for (long panel = 0; {sums.past_panels}; panel++)"):
            self.products.pack_key_panel()
        self.products.pack_values("0", sums.past_keys)

    def copy_queries(self) -> None:
        """As the products want them."""
        self.products.copy_queries()

    def end(self) -> None:
        """Nothing is left to do."""

    def attend(self) -> None:
        """One block of keys behind the other."""
        sums, writer = self.sums, self.sums.frame.writer
        if sums.ends is not None:
            self._attend_by_place(sums.ends)
            return
        if sums.key_blocks == 1:
            writer.line("for (long row = 0; row < count; row++) most[row] = tw_splat(-INFINITY);")
            self._one_key_block("0", sums.last_keys, first=True, last=True)
            return
        last = sums.key_blocks - 1
        self._start()
        live = f" && part * {sums.key_block} < live_keys" if sums.key_sizes else ""
        with writer.block(f"for (long part = 0; part < {last}{live}; part++)"):
            self._one_key_block(f"part * {sums.key_block}", sums.key_block, first=False, last=False)
        self._one_key_block(str(last * sums.key_block), sums.last_keys, first=False, last=True)

    def _start(self) -> None:
        """No key has been read."""
        sums, writer = self.sums, self.sums.frame.writer
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line("most[row] = tw_splat(-INFINITY);")
            writer.line("total[row] = shift[row] = 0;")
        floats = sums.frame.block * sums.value_panels * sums.value_panel
        writer.line(f"memset(sums, 0, {floats} * sizeof(float));")

    def _attend_by_place(self, ends: KeyBounds) -> None:
        """The keys that some query does not leave out, all of them if that does not decide, then the results."""
        sums, frame = self.sums, self.sums.frame
        writer, extent, panel = frame.writer, sums.view.keys.extent, sums.panel
        writer.line(f"long begin_key = {extent}, past_key = 0;")
        with frame.rows():
            declare_ends(writer, frame.emitter(), ends.bounds, extent)
            writer.line("firsts[row] = first, pasts[row] = past;")
            writer.line("if (first < past && first < begin_key) begin_key = first;")
            writer.line("if (first < past && past > past_key) past_key = past;")
        writer.line("if (begin_key > past_key) begin_key = past_key;")
        writer.line(f"past_key = tw_least_of((past_key + {panel - 1}) / {panel} * {panel}, {extent});")
        whole = extent % panel == 0
        if whole:
            writer.line(f"begin_key = begin_key / {panel} * {panel};")
        with writer.block("for (;;)"):
            self._start()
            if whole:
                keys = min(sums.key_block, extent)
                with writer.block(f"for (long at = begin_key; at < past_key; at += {keys})"):
                    self._one_key_block("at", keys, first=False, last=False)
            else:
                self._blocks_in_place()
            least = "begin_key == 0" if whole else f"begin_key < {sums.key_block}"
            lowest = literal(ends.lowest + VANISHES, DType.F32)
            writer.line(f"if ({least} && past_key == {extent}) break;")
            writer.line("long sure = 1;")
            writer.line(f"for (long row = 0; row < count; row++) sure &= tw_greatest(most[row]) > {lowest};")
            writer.line("if (sure) break;")
            writer.line(f"begin_key = 0, past_key = {extent};")
        with writer.block(f"for (long panel = 0; panel < {sums.value_panels}; panel++)"), frame.rows():
            writer.line("const float whole = 1 / total[row];")
            place = f"(panel * {frame.block} + row) * {sums.value_panel}"
            writer.line(f"const float *const held = sums + {place};")
            panel_strips(writer, sums.view.columns, sums.value_panel, frame.lanes, sums.result)

    def _blocks_in_place(self) -> None:
        """The blocks of keys, each from a multiple of its size on: the last one has another number of keys."""
        sums, writer, last = self.sums, self.sums.frame.writer, self.sums.key_blocks - 1
        if last:
            parts_live = f"part < {last} && part * {sums.key_block} < past_key"
            with writer.block(f"for (long part = begin_key / {sums.key_block}; {parts_live}; part++)"):
                self._one_key_block(f"part * {sums.key_block}", sums.key_block, first=False, last=False)
        with writer.block(f"if (past_key > {last * sums.key_block})"):
            self._one_key_block(str(last * sums.key_block), sums.last_keys, first=False, last=False)

    def _one_key_block(self, first_key: str, keys: int, *, first: bool, last: bool) -> None:
        writer = self.sums.frame.writer
        with writer.block(""):
            writer.line(f"const long first_key = {first_key};")
            if self.sums.key_sizes:
                writer.line("const long left = live_keys <= first_key ? 0 : live_keys - first_key;")
                writer.line(f"const long some = tw_least_of({keys}, left);")
            if self.sums.ends is not None:
                writer.line(f"const long some = tw_least_of({keys}, past_key - first_key);")
                self._pack_some()
            self.products.scores(keys)
            self.products.exponentials(keys, first)
            self._mixed(keys, first, last)

    def _pack_some(self) -> None:
        """The panels of these keys that no block of queries has read."""
        writer, panel, extent = self.sums.frame.writer, self.sums.panel, self.sums.view.keys.extent
        with writer.block(f"for (long panel = first_key / {panel}; panel * {panel} < first_key + some; panel++)"):
            writer.line("if (is_packed[panel]) continue;")
            writer.line("is_packed[panel] = 1;")
            writer.line(f"const long begin = panel * {panel}, past = tw_least_of(begin + {panel}, {extent});")
            self.products.pack_key_panel()
            self.products.pack_values("begin", "past")

    def _mixed(self, keys: int, first: bool, last: bool) -> None:
        """The weights times the values, added to the sums so far.

        At the last block of keys the sums are divided by the weights' sum and stored.
        """
        sums, frame = self.sums, self.sums.frame
        writer, panel = frame.writer, sums.value_panel

        def tile(rows: int) -> None:
            writer.line(f"float c[{rows * panel}] __attribute__((aligned(64)));")
            self.products.mix(rows, keys)
            with writer.block(f"for (long at = 0; at < {rows}; at++)"):
                self._mixed_row(first, last)

        with writer.block(f"for (long panel = 0; panel < {sums.value_panels}; panel++)"):
            self.products.declare_values()
            frame.cuts.write(writer, sums.mixed_rows, tile)

    def _mixed_row(self, first: bool, last: bool) -> None:
        sums, frame = self.sums, self.sums.frame
        writer, panel = frame.writer, sums.value_panel
        writer.line(f"float *const held = c + at * {panel};")
        if not first:
            writer.line(f"float *const sum = sums + (panel * {frame.block} + row + at) * {panel};")
            with writer.block(f"for (long column = 0; column < {panel}; column += TW_LANES)"):
                writer.line("const vf so_far = tw_load(sum + column) * scale[row + at] + tw_load(held + column);")
                writer.line(f"tw_store({'held' if last else 'sum'} + column, so_far);")
        if last:
            frame.declare_query("row + at")
            writer.line("const float whole = 1 / total[row + at];")
            panel_strips(writer, sums.view.columns, panel, frame.lanes, sums.result)
