"""Recurrent layers by constant weights of which a good part is zero.

They are `recurrent`, but for products with matrices that are kept without zeros. Under `sparse_recurrent` these are
kept without rows that are zero for all columns of a panel (`compiler.encodings.blocks`): a panel goes through the rows
that are left, each of which says which element of the state, or of the input, it is multiplied by. Under
`sparse_picked_recurrent` a panel's steps have for each column a weight from anywhere in a window of the state, whose
element its lane picks (`compiler.encodings.picks`). The products of the input take a register tile of steps at a time.
The matrix of the state is always kept so; that of the input where an encoding tells of its zeros, else it is multiplied
whole.

A tile says what one of `recurrent` says. Its `vector` n is the width of the panels that are kept so, and k the elements
of a window; tiles are offered for the widths and windows that the encodings tell of.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.devices.cpu.algorithms.recurrent.lowering import MAP_NS, STEPS, VECTORS, Recurrent
from compiler.devices.cpu.blocking import most_rows
from compiler.devices.cpu.codegen.kept_rows import KeptRowsKernel
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.placed_panels import declare_panel, panel_kernel
from compiler.devices.cpu.model import CALL_NS, PICK_BYTES, STEP_COST, pick_cost, read_rate
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.blocks import WIDTHS, Blocks
from compiler.encodings.picks import Picks
from compiler.encodings.zeros import CLASSES
from compiler.forms.gemv import MAX_ROWS
from compiler.forms.groups import Groups
from compiler.forms.kept_groups import KeptGroups, PickedFloats, PlacedSteps, recurrent_fill
from compiler.forms.recurrence import Product, Recurrence, as_recurrence
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

KEPT, PICKED = "sparse_recurrent", "sparse_picked_recurrent"
"""Names of the algorithms by which whole rows of a panel are left out, and single weights."""
ROWS = 12
"""Rows of the input, or sequences, that are multiplied by a vector of weights at a time, at most.

So many rows stay in the first-level cache.
"""
MOST_VECTORS = 4
"""Of a panel."""


def sparse_recurrent_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of panels and window, cheapest by the model first; empty for weights without such zeros."""
    if not any(isinstance(one, Blocks | Picks) for each in workload.encodings for one in each):
        return []
    view = as_recurrence(workload)
    if view is None:
        return []
    floats = target.vector_floats
    widths = [width for width in {floats, *WIDTHS} if width % floats == 0 and width <= MOST_VECTORS * floats]
    ways = itertools.product(sorted(widths), (0, *target.float_windows))
    found = (_proposal(workload, view, width, window, target) for width, window in ways)
    return sorted((one for one in found if one is not None), key=lambda proposal: proposal.seconds)


def _proposal(workload: Workload, view: Recurrence, width: int, window: int, target: CpuTarget) -> Proposal | None:
    """The tile with panels of so many columns; None where a matrix of the state is not kept in such.

    `window` says of how many elements lanes pick theirs; 0 where whole rows are left out.
    """
    kept = _kept(workload, view, width, window)
    if not all(product.matrix in kept for product in view.products if product.into not in view.ahead):
        return None
    floats = target.vector_floats
    wide = VECTORS if target.vector_registers >= 32 else 2
    dense = any(product.matrix not in kept for product in view.products)
    rows = most_rows(wide, target) if dense else min(most_rows(width // floats, target), ROWS)
    levels = (
        Level("block", (("t", STEPS), ("n", width))),
        Level("register", (("m", rows), ("n", wide * floats))),
        Level("vector", (("n", width), *((("k", window),) if window else ()))),
    )
    return Proposal(Tile(PICKED if window else KEPT, levels), _seconds(view, kept, target))


def _kept(workload: Workload, view: Recurrence, width: int, window: int) -> dict[str, PlacedSteps]:
    """How matrices are packed in panels of so many columns, those that are kept without zeros, by their slots."""
    found: dict[str, PlacedSteps] = {}
    matrices = {product.matrix for product in view.products}
    for slot, encodings in zip(workload.kernel.inputs, workload.encodings, strict=True):
        if slot.name in matrices:
            groups = Groups(view.panels(slot.name, width), DType.F32)
            known = (one for one in encodings if isinstance(one, Blocks | Picks) and _window(one) == window)
            fills = (recurrent_fill(groups, one, slot.type.dims) for one in known)
            fill = next((fill for fill in fills if fill is not None), CLASSES)
            if fill < CLASSES:
                found[slot.name] = PickedFloats(groups, fill, window=window) if window else KeptGroups(groups, fill)
    return found


def _window(encoding: Blocks | Picks) -> int:
    """Elements that lanes pick from; 0 of blocks."""
    return encoding.window if isinstance(encoding, Picks) else 0


def _seconds(view: Recurrence, kept: Mapping[str, PlacedSteps], target: CpuTarget) -> float:
    """Every step reads what is kept of the weights, or multiplies with it if that takes longer, and maps hidden units.

    The weights are read from the level in which they stay.
    """
    floats = target.vector_floats
    multiplied = stored = 0.0
    for product in view.products:
        packing = kept.get(product.matrix)
        elements = product.column.extent * product.depth.extent * (packing.fill / CLASSES if packing else 1.0)
        if isinstance(packing, PickedFloats):
            multiplied += elements * pick_cost(packing.window, packing.panel, target)
            stored += DType.F32.bytes * elements * PICK_BYTES
        else:
            multiplied += elements * (STEP_COST if packing else 1.0)
            stored += DType.F32.bytes * elements
    compute = view.sequences * multiplied / floats / target.rates.fma_per_ns
    read = -(-view.sequences // MAX_ROWS) * stored / read_rate(int(stored), target)
    maps = view.sequences * sum(temp.type.dims[1] for temp in view.kernel.temps) / floats * MAP_NS
    return 1e-9 * (CALL_NS + view.time.extent * (max(compute, read) + maps))


def sparse_recurrent(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel for which `sparse_recurrent_tiles` proposed the tile."""
    view = as_recurrence(workload)
    assert view is not None, "the tile stage offers `sparse_recurrent` only to recurrences"
    return _SparseRecurrent(name, workload, view, tile, target)


@dataclass
class _SparseRecurrent(Recurrent):
    """`recurrent` with some matrices kept without zeros."""

    def __post_init__(self) -> None:
        super().__post_init__()
        width, window = (self.tile.extent("vector", axis) for axis in "nk")
        self.kept = _kept(self.workload, self.view, width, window)

    def _packing(self, matrix: str) -> Packing:
        return self.kept[matrix] if matrix in self.kept else super()._packing(matrix)

    def _write_tiles(self, name: str, product: Product) -> None:
        if product.matrix not in self.kept:
            super()._write_tiles(name, product)
            return
        for rows in sorted({self.rows, 1}):
            self._kernel(product, rows).write(self.writer, f"{name}_{rows}")

    def _write_rows(self, name: str, product: Product) -> None:
        for rows in self._row_counts():
            self._kernel(product, rows).write(self.writer, f"{name}_{rows}")

    def _row_counts(self) -> list[int]:
        """How many elements of the batch share what is read of the weights: the most there are, and those left over."""
        most = min(self.view.sequences, ROWS * self.lanes // self.tile.extent("vector", "n"))
        return sorted({most, self.view.sequences % most} - {0}, reverse=True)

    def _many_steps(self, name: str, product: Product) -> None:
        """The product for the steps first .. past: [step][b][column]."""
        if product.matrix not in self.kept:
            super()._many_steps(name, product)
            return
        view = self.view
        with self._each_step(), self._each_sequence():
            place = f"(({view.time} - first) * {view.sequences} + {view.batch or 0}) * {product.depth.extent}"
            self._gather(product, f"rows + {place}")
        self._kept_rows(name, product, sorted({self.rows, 1}, reverse=True), f"(past - first) * {view.sequences}")

    def _product(self, name: str, product: Product) -> None:
        """The product at this step, for all elements of the batch."""
        with self._each_sequence():
            self._gather(product, f"rows + {self.view.batch or 0} * {product.depth.extent}")
        self._kept_rows(name, product, self._row_counts(), str(self.view.sequences))

    def _kept_rows(self, name: str, product: Product, heights: list[int], count: str) -> None:
        """The product for `count` rows, panel by panel for as many of them as a register tile has."""
        with self.writer.block(""):
            self.writer.line("long row = 0;")
            for rows in heights:
                with self.writer.block(f"for (; row + {rows} <= {count}; row += {rows})"):
                    self._panels(f"{name}_{rows}", product, rows)

    def _panels(self, kernel: str, product: Product, rows: int) -> None:
        """All panels of the product's matrix, for the rows from `row` on."""
        writer, packing, panel = self.writer, self.kept[product.matrix], self._panel(product)
        unit = self.view.unit(product.matrix)
        each, pieces = -(-unit // panel), product.column.extent // unit
        with writer.block(f"for (long at = 0; at < {pieces * each}; at++)"):
            first = self.view.first_piece(product) * each
            given = declare_panel(writer, packing, product.matrix, f"{first} + at")
            given = f"rows + row * {product.depth.extent}, {given}"
            if unit % panel == 0:
                place = f"{product.into} + row * {product.column.extent} + at * {panel}"
                writer.line(f"{kernel}({given}, {place});")
            else:
                writer.line(f"float c[{rows * panel}] __attribute__((aligned(64)));")
                writer.line(f"{kernel}({given}, c);")
                writer.line(f"const long piece = at / {each}, column = at % {each} * {panel};")
                self._store(product, unit, rows, panel)

    def _kernel(self, product: Product, rows: int) -> KeptRowsKernel:
        packing = self.kept[product.matrix]
        wide = packing.panel if self.view.unit(product.matrix) % packing.panel else product.column.extent
        return panel_kernel(packing, rows, self.lanes, wide)

    def _panel(self, product: Product) -> int:
        """Columns of a panel of the product's matrix."""
        return self.tile.extent("vector", "n") if product.matrix in self.kept else super()._panel(product)
