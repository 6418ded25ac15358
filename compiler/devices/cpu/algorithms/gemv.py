"""The `gemv` algorithm: a few rows times a constant matrix, read once at the speed of the memory it lies in.

The matrix is packed in panels, some of which are read side by side, each along memory. One pass over k fills the sums
of all their columns for all rows, and the maps that follow are applied to them at once. Under `gemv24` the panels hold
24 bits for each element (`compiler.encodings`). Long sums are taken in segments of k, which keeps rounding errors
from growing with the depth.

A tile says how many panels lie side by side, and into how many tasks the columns are cut.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.blocking import part_of_lane
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.rows import FLOATS, NARROW, RowsKernel, is_fetched
from compiler.devices.cpu.model import CALL_NS, INT24_ERROR, arrival_rate, widen_cost
from compiler.devices.cpu.products.few_rows.dense import DensePanels
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.devices.cpu.target import CpuTarget
from compiler.encodings.int24 import INT24, INT24_BYTES
from compiler.forms.contraction import Contraction, packing_of
from compiler.forms.gemv import as_gemv, group_of
from compiler.forms.int24_panels import Int24Panels
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers


def gemv_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The matrix as it is and, where the workload allows it, in 24 bits; empty for a kernel of another form."""
    view = as_gemv(workload)
    if view is None:
        return []
    streams, vectors = group_of(view.rows, view.columns, target.vector_registers, target.vector_floats)
    panel = vectors * target.vector_floats
    groups = -(-view.columns // (streams * panel))
    levels = (
        Level("block", (("n", part_of_lane(groups, lanes) * streams * panel),)),
        Level("register", (("m", view.rows), ("n", streams * panel))),
        Level("vector", (("n", panel),)),
    )
    scopes = in_registers(view.kernel)
    slot = view.b.loads[0].slot
    position = [declared.name for declared in workload.kernel.inputs].index(slot)
    proposals = [Proposal(Tile("gemv", levels, scopes), _seconds(view, DType.F32.bytes, 0.0, target))]
    if INT24 in workload.encodings[position]:
        seconds = _seconds(view, INT24_BYTES, widen_cost(target), target)
        proposals.append(Proposal(Tile("gemv24", levels, scopes), seconds, INT24_ERROR))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _seconds(view: Contraction, element_bytes: int, widening: float, target: CpuTarget) -> float:
    """What it takes to read the matrix from where it stays between two runs, or to multiply with it if that is more.

    `widening` is what a vector takes beside the multiply-adds of its rows, in multiply-adds.
    """
    octets = view.depth * view.columns * element_bytes
    vectors = view.depth * view.columns / target.vector_floats
    compute = (view.rows + widening) * vectors / target.rates.fma_per_ns
    return 1e-9 * (CALL_NS + max(octets / arrival_rate(octets, target), compute))


def gemv(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_gemv` accepts.

    Levels: `block` n, columns of a task; `register` n, columns worked on at a time; `vector` n, columns of a panel.
    """
    view = as_gemv(workload)
    assert view is not None, "the tile stage offers `gemv` only to kernels of that form"
    lanes, panel = target.vector_floats, tile.extent("vector", "n")
    found = packing_of(view, workload, panel)
    assert found is not None
    position, panels = found
    narrow = tile.algorithm == "gemv24"
    packing: Packing = Int24Panels(panels) if narrow else panels
    group = tile.extent("register", "n") // panel
    fetch = is_fetched(packing, target.l2_bytes)
    elements = NARROW if narrow else FLOATS
    rows = RowsKernel(view.rows, view.depth, group, panel // lanes, lanes, elements, fetch)
    groups = tile.extent("block", "n") // rows.width
    return FewRows(name, workload, view, position, DensePanels(packing, rows, view.columns), groups)


GEMV = Algorithm(
    (
        "gemv",
        "gemv24",
    ),
    gemv_tiles,
    gemv,
    takes=any_short,
)
