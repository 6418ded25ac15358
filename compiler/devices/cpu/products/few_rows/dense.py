"""Panels of floats or of 24-bit numbers, several of which are read side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.rows import RowsKernel
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.ir.packing import Packing


@dataclass(frozen=True)
class DensePanels:
    """A group is what `kernel` reads side by side; the last one may have fewer panels."""

    packing: Packing
    kernel: RowsKernel
    columns: int

    @property
    def lanes(self) -> int:
        """Floats of a vector."""
        return self.kernel.lanes

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.kernel.panel

    @property
    def width(self) -> int:
        """Columns of a group."""
        return self.kernel.width

    @property
    def scratch_floats(self) -> int:
        """Those of the rows."""
        return self.kernel.rows * self.kernel.depth

    @property
    def _kernels(self) -> list[RowsKernel]:
        """That of a whole group and that of the last, where there are such."""
        whole, rest = divmod(-(-self.columns // self.panel), self.kernel.panels)
        return [self.kernel] * bool(whole) + [replace(self.kernel, panels=rest)] * bool(rest)

    def write_kernels(self, writer: Writer, name: str) -> None:
        """One for each number of panels."""
        for kernel in self._kernels:
            kernel.write(writer, f"{name}_{kernel.panels}")

    def copy_rows(self, product: FewRows) -> None:
        """The rows as they are, but for the scale that elements of the matrix ask for."""
        product.copy_to("rows", self.kernel.depth, self.kernel.elements.scale)

    def multiply(self, product: FewRows) -> None:
        """The group's panels, or those of the last group."""
        writer, kernel, kernels = product.writer, self.kernel, self._kernels
        ctype = kernel.elements.ctype
        start = f"group * {kernel.apart * kernel.panels}L"
        writer.line(f"const {ctype} *const b = (const {ctype} *){product.matrix} + {start};")
        product.declare_sums()
        if len(kernels) == 1:
            self._sums(product, *kernels)
            return
        for head, each in zip((f"if (group < {product.count - 1})", "else"), kernels, strict=True):
            with writer.block(head):
                self._sums(product, each)

    def _sums(self, product: FewRows, kernel: RowsKernel) -> None:
        product.writer.line(f"{product.name}_{kernel.panels}(rows, b, c);")
        product.finish(kernel.width, kernel.factor if kernel.elements.behind else None)
