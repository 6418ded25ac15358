"""Panels of codes of few bits that are made floats piece by piece, in the nearest cache, for all rows."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.micro_kernel import MicroKernel
from compiler.devices.cpu.codegen.quantised_rows import include, scales, zeros
from compiler.devices.cpu.products.few_rows.product import FewRows, row_counts
from compiler.forms.quantised_panels import WORD, QuantisedPanels

SPAN = 256
"""Of k that are made floats together: 16 KiB of a panel of two vectors of eight."""


@dataclass(frozen=True)
class ExpandedColumns:
    """A group is one panel, which all `rows` are multiplied by, `together` at a time."""

    packing: QuantisedPanels
    rows: int
    together: int

    @property
    def lanes(self) -> int:
        """Floats of a vector."""
        return self.packing.lanes

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.packing.panels.panel

    width = panel

    @property
    def _vectors(self) -> int:
        return self.panel // self.lanes

    @property
    def _pitch(self) -> int:
        """Floats from one row to the next: zeros fill the last chunk."""
        return self.packing.chunks * self.packing.taken

    @property
    def _chunks(self) -> int:
        """Made floats together."""
        return max(1, SPAN // self.packing.taken)

    @property
    def scratch_floats(self) -> int:
        """Those of the rows, and of a piece of the panel; what fills a chunk's last word lies behind the last one."""
        filling = self.packing.chunk - self.packing.taken
        return self.rows * self._pitch + (self._chunks * self.packing.taken + filling) * self.panel

    def write_kernels(self, writer: Writer, name: str) -> None:
        """One that makes a chunk floats, and a micro-kernel for each number of rows."""
        self._write_floats(writer, f"{name}_floats")
        for count in row_counts(self.rows, self.together):
            rows = tuple(row * self._pitch for row in range(count))
            MicroKernel(rows, ((0, 1),), self._vectors, self.lanes).write_adding(writer, f"{name}_{count}", 0)

    def _write_floats(self, writer: Writer, name: str) -> None:
        """An inlined `name(const uint8_t *b, float *to)`: to[k][column] of a chunk."""
        packing, parts, vectors = self.packing, 8 // self.packing.bits, range(self._vectors)
        include(writer, packing)
        with writer.block(f"static inline __attribute__((always_inline)) void {name}(const uint8_t *b, float *to)"):
            for at in vectors:
                writer.line(f"const vf s{at} = {scales(packing, at)}, z{at} = {zeros(packing, at)};")
            with writer.block(
                f"for (long word = 0; word < {packing.words}; word++, to += {WORD * parts * self.panel})"
            ):
                for at in vectors:
                    place = f"b + (word * {self._vectors} + {at}) * {WORD * self.lanes}L"
                    writer.line(f"const vu w{at} = (vu)tw_groups({place});")
                for k in range(WORD * parts):
                    shift = k % WORD * 8 + k // WORD * packing.bits
                    for at in vectors:
                        code = f"(vi)(w{at} >> {shift}) & {(1 << packing.bits) - 1}"
                        place = f"to + {k * self.panel + at * self.lanes}"
                        writer.line(f"tw_store({place}, (tw_float_of({code}) - z{at}) * s{at});")
        writer.line()

    def copy_rows(self, product: FewRows) -> None:
        """The rows as they are."""
        product.copy_to("rows", self._pitch)

    def multiply(self, product: FewRows) -> None:
        """Some chunks after others: made floats, then multiplied by all rows."""
        writer, packing, many = product.writer, self.packing, self._chunks
        start = f"(const uint8_t *){product.matrix} + group * {packing.chunks * packing.chunk_bytes}L"
        writer.line(f"const uint8_t *const b = {start};")
        writer.line(f"float *const floats = rows + {self.rows * self._pitch}L;")
        product.declare_sums()
        with writer.block(f"for (long at = 0; at < {self.rows * self.panel}; at += TW_LANES)"):
            writer.line("tw_store(c + at, (vf){0});")
        with writer.block(f"for (long first = 0; first < {packing.chunks}; first += {many})"):
            writer.line(f"const long past = tw_least_of(first + {many}, {packing.chunks});")
            with writer.block("for (long chunk = first; chunk < past; chunk++)"):
                to = f"floats + (chunk - first) * {packing.taken * self.panel}L"
                writer.line(f"{product.name}_floats(b + chunk * {packing.chunk_bytes}L, {to});")
            writer.line("long row = 0;")
            for count in row_counts(self.rows, self.together):
                with writer.block(f"for (; row + {count} <= {self.rows}; row += {count})"):
                    x = f"rows + row * {self._pitch}L + first * {packing.taken}"
                    depth = f"(past - first) * {packing.taken}"
                    writer.line(f"{product.name}_{count}({x}, floats, c + row * {self.panel}, {depth}, floats);")
        product.finish(self.width)
