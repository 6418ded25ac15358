"""Panels without zeros."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.placed_panels import declare_panel, panel_kernel
from compiler.devices.cpu.products.few_rows.product import FewRows, row_counts
from compiler.forms.kept_groups import PickedFloats, PlacedSteps


@dataclass(frozen=True)
class PlacedPanels:
    """A group is one panel, which `together` rows at a time are multiplied by."""

    packing: PlacedSteps
    lanes: int
    rows: int
    together: int

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.packing.panel

    width = panel

    @property
    def scratch_floats(self) -> int:
        """Those of the rows in the order of the steps and, behind them, of the rows as they are where these differ."""
        return self.rows * self._depth * (2 if is_ordered(self.packing) else 1)

    @property
    def _depth(self) -> int:
        return self.packing.groups.panels.depth

    def write_kernels(self, writer: Writer, name: str) -> None:
        """One for each number of rows."""
        for count in row_counts(self.rows, self.together):
            panel_kernel(self.packing, count, self.lanes, self.width).write(writer, f"{name}_{count}")

    def copy_rows(self, product: FewRows) -> None:
        """The rows, in the order of the steps."""
        writer, past, depth = product.writer, self.rows * self._depth, self._depth
        if not is_ordered(self.packing):
            product.copy_to("rows", depth)
            return
        writer.line(f"float *const plain = rows + {past};")
        product.copy_to("plain", depth)
        order = f"(const uint16_t *)((const char *){product.matrix} + {self.packing.parts[-1]})"
        writer.line(f"const uint16_t *const order = {order};")
        with writer.block(f"for (long m = 0; m < {past}; m += {depth})"):
            writer.line(f"for (long k = 0; k < {depth}; k++) rows[m + k] = plain[m + order[k]];")

    def multiply(self, product: FewRows) -> None:
        """So many rows at a time by the panel."""
        writer = product.writer
        given = declare_panel(writer, self.packing, product.matrix, "group")
        product.declare_sums()
        writer.line("long row = 0;")
        for count in row_counts(self.rows, self.together):
            with writer.block(f"for (; row + {count} <= {self.rows}; row += {count})"):
                writer.line(f"{product.name}_{count}(rows + row * {self._depth}, {given}, c + row * {self.width});")
        product.finish(self.width)


def is_ordered(packing: PlacedSteps) -> bool:
    """Whether rows are brought into another order."""
    return isinstance(packing, PickedFloats) and packing.ordered
