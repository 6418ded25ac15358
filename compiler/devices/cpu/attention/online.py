"""Queries against blocks of keys: the sums so far are scaled to the new maximum block by block.

The online softmax of Milakov and Gimelshein, arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135. Where all
keys are one block nothing is scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compiler.devices.cpu.attention.sums import FloatSums
from compiler.devices.cpu.codegen.strips import panel_strips
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

    def pack_keys(self) -> None:
        """Packs the keys of a head."""

    def pack_values(self) -> None:
        """Packs the values of a head."""

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
        writer, online = frame.writer, sums.key_blocks > 1
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
        self.products.declare_rows()

    def pack(self) -> None:
        """Keys, then values."""
        self.products.pack_keys()
        self.products.pack_values()

    def copy_queries(self) -> None:
        """As the products want them."""
        self.products.copy_queries()

    def end(self) -> None:
        """Nothing is left to do."""

    def attend(self) -> None:
        """One block of keys behind the other."""
        sums, writer = self.sums, self.sums.frame.writer
        start = "tw_splat(-INFINITY)"
        if sums.key_blocks == 1:
            writer.line(f"for (long row = 0; row < count; row++) most[row] = {start};")
            self._one_key_block("0", sums.last_keys, first=True, last=True)
            return
        last = sums.key_blocks - 1
        with writer.block("for (long row = 0; row < count; row++)"):
            writer.line(f"most[row] = {start};")
            writer.line("total[row] = shift[row] = 0;")
        floats = sums.frame.block * sums.value_panels * sums.value_panel
        writer.line(f"memset(sums, 0, {floats} * sizeof(float));")
        live = f" && part * {sums.key_block} < live_keys" if sums.key_sizes else ""
        with writer.block(f"for (long part = 0; part < {last}{live}; part++)"):
            self._one_key_block(f"part * {sums.key_block}", sums.key_block, first=False, last=False)
        self._one_key_block(str(last * sums.key_block), sums.last_keys, first=False, last=True)

    def _one_key_block(self, first_key: str, keys: int, *, first: bool, last: bool) -> None:
        writer = self.sums.frame.writer
        with writer.block(""):
            writer.line(f"const long first_key = {first_key};")
            if self.sums.key_sizes:
                writer.line("const long left = live_keys <= first_key ? 0 : live_keys - first_key;")
                writer.line(f"const long some = tw_least_of({keys}, left);")
            self.products.scores(keys)
            self.products.exponentials(keys, first)
            self._mixed(keys, first, last)

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
