"""The `gemv_codebook` algorithm: a few rows times a constant matrix that is kept as indices into few values.

What a product of few rows costs is reading the matrix; indices are a quarter to a thirty-second of its bytes. They are
looked up in tables that stand in registers, along k for one column at a time, and multiplied with the row in fp32: the
result is that of the dense matrix but for the order of sums, which are taken lane by lane of a vector.

Indices of 8 bits are offered where AVX-512VBMI looks up bytes; elsewhere a lookup among 256 values costs more than it
saves. Tables of a column's own have 16 values at most.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.blocking import part_of_lane
from compiler.devices.cpu.codegen.coded_rows import CodedRows
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.rows import is_fetched
from compiler.devices.cpu.model import CALL_NS, arrival_rate
from compiler.devices.cpu.products.few_rows.coded import CodedPanels
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.devices.cpu.target import VBMI, CpuTarget
from compiler.encodings.codebook import CODED, Codebook
from compiler.forms.coded_columns import CodedColumns
from compiler.forms.contraction import Contraction, packing_of
from compiler.forms.gemv import as_gemv
from compiler.ir.buffers import row_major
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

LOOKUPS = {16: 1.0, 8: 3.0, 4: 6.0}
"""What a vector of values costs beside its products, in such, by lanes."""
BYTE_LOOKUPS = 3.5
"""The same of 8 bits."""


def coded_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The tile of a product of few rows whose matrix has a codebook; empty for any other kernel."""
    view = as_gemv(workload)
    packed = _packing_of(view, workload, target) if view else None
    if view is None or packed is None:
        return []
    _, packing = packed
    groups = -(-view.columns // target.vector_floats)
    levels = (
        Level("block", (("n", part_of_lane(groups, lanes) * target.vector_floats),)),
        Level("register", (("m", view.rows), ("n", target.vector_floats))),
    )
    return [Proposal(Tile(CODED, levels, in_registers(view.kernel)), _seconds(view, packing, target))]


def _packing_of(view: Contraction, workload: Workload, target: CpuTarget) -> tuple[int, CodedColumns] | None:
    """The matrix's position and how it is packed; None where no codebook serves whole columns."""
    found = packing_of(view, workload, target.vector_floats)
    if found is None:
        return None
    position, panels = found
    encodings = [one for one in workload.encodings[position] if isinstance(one, Codebook)]
    strides = panels.source
    dims = workload.kernel.inputs[position].type.dims
    step = strides[-1][1]
    for one in sorted(encodings, key=lambda each: each.bits):
        if one.bits == 8 and VBMI not in target.features:
            continue
        if one.axis is None or (dims[one.axis] == view.columns and step == row_major(dims)[one.axis]):
            return position, CodedColumns(panels, one.bits, one.axis is not None)
    return None


def _seconds(view: Contraction, packing: CodedColumns, target: CpuTarget) -> float:
    """What it takes to read the indices from where they stay between two runs, or to look up and multiply."""
    vectors = packing.depth * view.columns / target.vector_floats
    lookups = BYTE_LOOKUPS if packing.bits == 8 else LOOKUPS[target.vector_floats]
    compute = vectors * (view.rows + lookups) / target.rates.fma_per_ns
    return 1e-9 * (CALL_NS + max(packing.elements / arrival_rate(packing.elements, target), compute))


def coded_gemv(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `coded_tiles` proposes this tile for.

    Levels: `block` n, columns of a task; `register` n, columns of a panel.
    """
    view = as_gemv(workload)
    packed = _packing_of(view, workload, target) if view else None
    assert view is not None, "the tile stage offers `gemv_codebook` only to kernels of that form"
    assert packed is not None, "the tile stage offers `gemv_codebook` only where an encoding tells of a codebook"
    position, packing = packed
    rows = CodedRows.of(view.rows, packing, target.vector_registers, is_fetched(packing, target.l2_bytes))
    return FewRows(name, workload, view, position, CodedPanels(rows), tile.extent("block", "n") // target.vector_floats)


CODED_GEMV = Algorithm((CODED,), coded_tiles, coded_gemv, takes=any_short)
