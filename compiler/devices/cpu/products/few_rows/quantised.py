"""Panels of codes of few bits, with scales and zero points of their blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.quantised_rows import QuantisedRows
from compiler.devices.cpu.products.few_rows.product import FewRows, row_counts
from compiler.ir.packing import Packing

HEAD_FLOATS = 5
"""Of a `tw_digits_head`."""


@dataclass(frozen=True)
class QuantisedColumns:
    """A group is one panel, which the rows of `kernel` at a time are multiplied by, of `rows`."""

    kernel: QuantisedRows
    rows: int

    @property
    def packing(self) -> Packing:
        """Codes, scales and zero points, chunk by chunk of k."""
        return self.kernel.packing

    @property
    def lanes(self) -> int:
        """Floats of a vector."""
        return self.kernel.lanes

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.kernel.packing.panels.panel

    width = panel

    @property
    def scratch_floats(self) -> int:
        """Those of the rows, of their digits, and of the heads of these."""
        kernel = self.kernel
        return self.rows * (kernel.pitch + kernel.digit_bytes // 4 + kernel.packing.chunks * HEAD_FLOATS)

    @property
    def _kernels(self) -> list[QuantisedRows]:
        """One for as many rows as are multiplied together, and one for those left over."""
        return [replace(self.kernel, rows=count) for count in row_counts(self.rows, self.kernel.rows)]

    def write_kernels(self, writer: Writer, name: str) -> None:
        """One function for each number of rows, and one for rows that are not finite."""
        for kernel in self._kernels:
            kernel.write(writer, f"{name}_{kernel.rows}")
        replace(self.kernel, rows=1).write_plain(writer, f"{name}_plain")

    def copy_rows(self, product: FewRows) -> None:
        """The rows, then their digits."""
        writer, kernel, packing = product.writer, self.kernel, self.kernel.packing
        product.copy_to("rows", kernel.pitch)
        writer.include("tw_digits.h")
        writer.line(f"int8_t *const digits = (int8_t *)(rows + {self.rows * kernel.pitch});")
        writer.line(f"tw_digits_head *const heads = (tw_digits_head *)(digits + {self.rows * kernel.digit_bytes}L);")
        writer.line("int finite = 1;")
        with writer.block(f"for (long at = 0; at < {self.rows * packing.chunks}; at++)"):
            centre = packing.centre if packing.centred else 0
            place = f"rows + at * {packing.taken}, {packing.taken}, {packing.chunk}, {kernel.digits}, {centre}"
            into = f"digits + at * {kernel.digits * packing.chunk}, heads + at"
            writer.line(f"finite &= tw_digits_of({place}, {into});")

    def multiply(self, product: FewRows) -> None:
        """So many rows at a time by the panel's codes."""
        writer, kernel = product.writer, self.kernel
        start = f"(const uint8_t *){product.matrix} + group * {kernel.packing.chunks * kernel.packing.chunk_bytes}L"
        writer.line(f"const uint8_t *const b = {start};")
        product.declare_sums()
        writer.line("long row = 0;")
        for each in self._kernels:
            with writer.block(f"for (; finite && row + {each.rows} <= {self.rows}; row += {each.rows})"):
                given = f"digits + row * {kernel.digit_bytes}L, heads + row * {kernel.packing.chunks}"
                writer.line(f"{product.name}_{each.rows}({given}, b, c + row * {self.width});")
        with writer.block(f"for (; row < {self.rows}; row++)"):
            writer.line(f"{product.name}_plain(rows + row * {kernel.pitch}, b, c + row * {self.width});")
        product.finish(self.width)
