"""Panels of codes of few bits, with scales and zero points of their blocks."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.quantised_rows import QuantisedRows
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.ir.packing import Packing

HEAD_FLOATS = 5
"""Of a `tw_digits_head`."""


@dataclass(frozen=True)
class QuantisedColumns:
    """A group is one panel."""

    kernel: QuantisedRows

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
        heads = kernel.rows * kernel.packing.chunks * HEAD_FLOATS
        return kernel.rows * kernel.pitch + kernel.digit_bytes // 4 + heads

    def write_kernels(self, writer: Writer, name: str) -> None:
        """One function, and one for rows that are not finite."""
        self.kernel.write(writer, f"{name}_quantised")

    def copy_rows(self, product: FewRows) -> None:
        """The rows, then their digits."""
        writer, kernel, packing = product.writer, self.kernel, self.kernel.packing
        product.copy_to("rows", kernel.pitch)
        digits = f"(int8_t *)(rows + {kernel.rows * kernel.pitch})"
        writer.line(f"int8_t *const digits = {digits};")
        writer.line(f"tw_digits_head *const heads = (tw_digits_head *)(digits + {kernel.digit_bytes});")
        writer.line("int finite = 1;")
        with writer.block(f"for (long at = 0; at < {kernel.rows * packing.chunks}; at++)"):
            place = f"rows + at * {packing.taken}, {packing.taken}, {packing.chunk}"
            into = f"digits + at * {3 * packing.chunk}, heads + at"
            writer.line(f"finite &= tw_digits_of({place}, {into});")

    def multiply(self, product: FewRows) -> None:
        """The panel's codes."""
        writer, packing = product.writer, self.kernel.packing
        start = f"(const uint8_t *){product.matrix} + group * {packing.chunks * packing.chunk_bytes}L"
        writer.line(f"const uint8_t *const b = {start};")
        product.declare_sums()
        writer.line(f"if (finite) {product.name}_quantised(digits, heads, b, c);")
        writer.line(f"else {product.name}_quantised_plain(rows, b, c);")
        product.finish(self.width)
