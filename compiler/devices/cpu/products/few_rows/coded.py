"""Panels of indices into a codebook."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.coded_rows import CodedRows
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.ir.packing import Packing


@dataclass(frozen=True)
class CodedPanels:
    """A group is one panel, of as many columns as a vector has lanes."""

    kernel: CodedRows

    @property
    def packing(self) -> Packing:
        """Indices behind their tables."""
        return self.kernel.packing

    @property
    def lanes(self) -> int:
        """Floats of a vector."""
        return self.kernel.lanes

    panel = width = lanes

    @property
    def scratch_floats(self) -> int:
        """Those of the rows, whose depth is rounded up."""
        return self.kernel.rows * self.kernel.packing.depth

    def write_kernels(self, writer: Writer, name: str) -> None:
        """One function."""
        self.kernel.write(writer, f"{name}_coded")

    def copy_rows(self, product: FewRows) -> None:
        """The rows, with zeros past the depth."""
        product.copy_to("rows", self.kernel.packing.depth)

    def multiply(self, product: FewRows) -> None:
        """The panel's indices, and the tables."""
        packing = self.kernel.packing
        group = f"{packing.first} + group * {self.lanes * packing.column_bytes}L"
        table = f"(const uint8_t *){product.matrix}"
        product.writer.line(f"const uint8_t *const table = {table}, *const b = table + {group};")
        product.declare_sums()
        product.writer.line(f"{product.name}_coded(rows, table, b, c);")
        product.finish(self.width)
