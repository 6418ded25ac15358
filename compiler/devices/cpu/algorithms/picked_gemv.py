"""A few rows times a constant matrix in fp32 of which a good part is zero: `gemv` without the zeros.

Under `sparse_kept_gemv` the matrix is kept without rows that are zero for all columns of a panel
(`compiler.encodings.blocks`). Under `sparse_picked_gemv` a panel's steps have for each column a weight from anywhere in
a window of a row, whose element its lane picks (`compiler.encodings.picks`). Both read less of the memory that the
matrix lies in, which is what such a product takes. Where columns of the matrix can be combined, rows are brought into
the order in which those of a group are neighbours, so that hardly a lane is idle in a step.

More rows than `gemv` takes gain by the products that are left out. Those whose sums the registers hold go through a
panel together, and the next ones find its steps in a cache.

A tile says what one of `gemv` says. Its `register` m is the rows that go through a panel together, its `vector` k the
elements of a window.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.blocking import even_part, part_of_lane
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS, PICK_BYTES, STEP_COST, arrival_rate, pick_cost
from compiler.devices.cpu.products.few_rows.placed import PlacedPanels, is_ordered
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.blocks import WIDTHS, Blocks
from compiler.encodings.picks import Picks
from compiler.encodings.zeros import CLASSES
from compiler.forms.contraction import Contraction, packing_of
from compiler.forms.gemv import SPARSE_ROWS, as_gemv
from compiler.forms.groups import Groups
from compiler.forms.kept_groups import KeptGroups, PickedFloats, PlacedSteps, block_fill, pick_fill
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

KEPT, PICKED = "sparse_kept_gemv", "sparse_picked_gemv"
"""Names of the algorithms by which whole rows of a panel are left out, and single weights."""
MOST_VECTORS = 2
"""Of a panel."""
WORKING = 2
"""Registers for a row's window and what is picked out of it."""
ORDER_NS = 0.4
"""Of an element of a row that is brought into another order."""


def picked_gemv_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of panels and window, cheapest by the model first; empty for weights without such zeros."""
    if not any(isinstance(one, Blocks | Picks) for each in workload.encodings for one in each):
        return []
    view = as_gemv(workload, SPARSE_ROWS)
    if view is None:
        return []
    floats = target.vector_floats
    widths = [width for width in {floats, *WIDTHS} if width % floats == 0 and width <= MOST_VECTORS * floats]
    found = []
    for width, window in itertools.product(sorted(widths), (0, *target.float_windows)):
        packing = _packing(workload, view, width, window)
        if packing is not None:
            found.append(_proposal(view, packing[1], window, target, lanes))
    return sorted(found, key=lambda proposal: proposal.seconds)


def _proposal(view: Contraction, packing: PlacedSteps, window: int, target: CpuTarget, lanes: int) -> Proposal:
    panel = packing.panel
    levels = (
        Level("block", (("n", part_of_lane(packing.count, lanes) * panel),)),
        Level("register", (("m", even_part(view.rows, _most_rows(panel, target))), ("n", panel))),
        Level("vector", (("n", panel), *((("k", window),) if window else ()))),
    )
    return Proposal(
        Tile(PICKED if window else KEPT, levels, in_registers(view.kernel)), _seconds(view, packing, target)
    )


def _most_rows(panel: int, target: CpuTarget) -> int:
    """Whose sums the registers hold beside a step's weights, what its lanes pick, and what they pick from."""
    vectors = panel // target.vector_floats
    return max((target.vector_registers - 2 * vectors - WORKING) // vectors, 1)


def _seconds(view: Contraction, packing: PlacedSteps, target: CpuTarget) -> float:
    """What it takes to read what is kept from where it stays between runs, or to multiply with it if that is more."""
    elements = packing.fill / CLASSES * view.depth * view.columns
    octets, cost = DType.F32.bytes * elements, STEP_COST
    if isinstance(packing, PickedFloats):
        octets, cost = octets * PICK_BYTES, pick_cost(packing.window, packing.panel, target)
    compute = view.rows * elements * cost / target.vector_floats
    ordering = ORDER_NS * view.rows * view.depth if is_ordered(packing) else 0.0
    return 1e-9 * (
        CALL_NS + max(octets / arrival_rate(int(octets), target), compute / target.rates.fma_per_ns) + ordering
    )


def _packing(workload: Workload, view: Contraction, width: int, window: int) -> tuple[int, PlacedSteps] | None:
    """The matrix's position, and how it is packed; None where no encoding tells of zeros in such panels."""
    found = packing_of(view, workload, width)
    if found is None:
        return None
    position, panels = found
    groups = Groups(panels, DType.F32)
    packing = next(_packings(workload, position, groups, window), None)
    return None if packing is None or packing.fill >= CLASSES else (position, packing)


def _packings(workload: Workload, position: int, groups: Groups, window: int) -> Iterator[PlacedSteps]:
    """By what encodings say is kept, of steps with such a window, or of rows where it is 0."""
    dims = workload.kernel.inputs[position].type.dims
    for one in workload.encodings[position]:
        if window and isinstance(one, Picks):
            fill = pick_fill(groups, one, dims, window)
            if fill is not None:
                yield PickedFloats(groups, fill, window=window, ordered=one.ordered)
        elif not window and isinstance(one, Blocks) and one.group == groups.group:
            fill = block_fill(groups, one, dims)
            if fill is not None:
                yield KeptGroups(groups, fill)


def picked_gemv(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel for which `picked_gemv_tiles` proposed the tile."""
    view = as_gemv(workload, SPARSE_ROWS)
    assert view is not None, "the tile stage offers `picked_gemv` only to kernels of that form"
    lanes, panel = target.vector_floats, tile.extent("vector", "n")
    found = _packing(workload, view, panel, tile.extent("vector", "k"))
    assert found is not None, "tiles are offered only where an encoding tells of zeros"
    position, packing = found
    groups, together = tile.extent("block", "n") // panel, tile.extent("register", "m")
    return FewRows(name, workload, view, position, PlacedPanels(packing, lanes, view.rows, together), groups)


PICKED_GEMV = Algorithm((KEPT, PICKED), picked_gemv_tiles, picked_gemv)
