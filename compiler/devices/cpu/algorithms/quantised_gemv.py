"""The `gemv_quantised` algorithms: a few rows times a constant matrix that was quantised in blocks, from its codes.

What a product of few rows costs is reading the matrix; codes of 4 bits with their scales are a sixth of its bytes.
Rows are not rounded to the type of the codes, as runtimes do that multiply bytes: they are brought into three digits of
8 bits, which the same instructions multiply exactly (`compiler.devices.cpu.codegen.quantised_rows`). Under
`gemv_quantised16` there are two digits, for jobs whose tolerance admits it. Under `gemm_quantised` the codes are made
floats in the nearest cache, once for all rows: without an instruction for bytes that is less work from some rows on.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.blocking import even_part, part_of_lane
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.codegen.quantised_rows import QuantisedRows
from compiler.devices.cpu.codegen.rows import is_fetched
from compiler.devices.cpu.model import CALL_NS, arrival_rate
from compiler.devices.cpu.products.few_rows.expanded import ExpandedColumns
from compiler.devices.cpu.products.few_rows.product import FewRows
from compiler.devices.cpu.products.few_rows.quantised import QuantisedColumns
from compiler.devices.cpu.target import ARM_BYTE_DOT, CpuTarget
from compiler.encodings.quantised import READ_AS_FLOATS, READ_BY, READ_ROUNDED
from compiler.forms.contraction import Contraction
from compiler.forms.gemv import as_gemv
from compiler.forms.quantised_panels import QuantisedPanels, quantised_along_k
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal, in_registers

DIGITS = {READ_BY: 3, READ_ROUNDED: 2}
"""By the names of the algorithms."""
ROUNDED_ERROR = 1e-4
"""Error of a product with activations of two digits, relative to its largest value: the default tolerance of a job does
not admit it."""
MOST_ROWS = 128
"""More rows are worth to make the matrix dense for."""
MOST_VECTORS = 4
"""Of a panel: as many sums hide what an instruction takes to give one."""
WITHOUT_DOT = 2.3
"""Instructions for one that multiplies and adds four bytes, where there is none."""
DIGIT_NS = 0.5
"""Of a float that is brought into digits."""
ROWS_OF_FLOATS = 4
"""Rows that are multiplied by codes made floats together: sixteen registers hold their sums by two vectors."""
MADE_FLOATS, BY_FLOATS = 3.0, 1.05
"""What a vector of floats costs that is made of codes, and what its product with a row, in products from registers."""


def quantised_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The tile of a product of few rows whose matrix was quantised in blocks; empty for any other kernel."""
    view = as_gemv(workload, MOST_ROWS)
    packed = _packing_of(view, workload, target) if view else None
    if view is None or packed is None:
        return []
    _, packing = packed
    panel = packing.panels.panel
    groups = -(-view.columns // panel)
    levels = (
        Level("block", (("n", part_of_lane(groups, lanes) * panel),)),
        Level("register", (("m", _together(view.rows, target)), ("n", panel))),
    )
    scopes = in_registers(view.kernel)
    found = [
        Proposal(Tile(name, levels, scopes), _seconds(view, packing, digits, target), error)
        for (name, digits), error in zip(DIGITS.items(), (0.0, ROUNDED_ERROR), strict=True)
    ]
    if view.rows == 1 or target.multiplies_bytes:
        return found
    together = Level("register", (("m", even_part(view.rows, ROWS_OF_FLOATS)), ("n", panel)))
    as_floats = Tile(READ_AS_FLOATS, (levels[0], together), scopes)
    return [*found, Proposal(as_floats, _seconds_of_floats(view, packing, target))]


def _packing_of(view: Contraction, workload: Workload, target: CpuTarget) -> tuple[int, QuantisedPanels] | None:
    """The matrix's position and how it is packed; None where its blocks do not lie along k, or are too small."""
    floats = target.vector_floats
    needed = -(-view.columns // floats)
    vectors = next(
        many for many in (MOST_VECTORS, 2, 1) if many <= needed and (many < 4 or target.vector_registers > 16)
    )
    for position, panels, one in quantised_along_k(view, workload, vectors * floats):
        if _multiplies(target, one.bits):
            return position, QuantisedPanels(panels, floats, one.bits, one.block, one.centred, one.scale)
    return None


def _together(rows: int, target: CpuTarget) -> int:
    """Rows that go through a panel together: as many as the registers hold the sums of, for each digit."""
    return even_part(rows, 4 if target.vector_registers > 16 else 3)


def _multiplies(target: CpuTarget, bits: int) -> bool:
    """Whether the target has instructions for codes of so many bits (`tw_digits_dot`)."""
    if target.machine == "aarch64":
        return ARM_BYTE_DOT in target.features and bits < 8
    return True


def _seconds(view: Contraction, packing: QuantisedPanels, digits: int, target: CpuTarget) -> float:
    """What it takes to read the codes from where they stay between two runs, or to multiply them by all digits."""
    halves = 2 if packing.bits == 8 else 1
    dots = digits * view.rows * (1.0 if target.multiplies_bytes else WITHOUT_DOT * halves)
    words = packing.chunks * packing.words * 8 // packing.bits * -(-view.columns // target.vector_floats)
    unpacking = 0.0 if packing.bits == 8 else 1.5
    joining = packing.chunks * -(-view.columns // target.vector_floats) * 7.0 * view.rows
    compute = (words * (dots + unpacking) + joining) / target.rates.fma_per_ns + DIGIT_NS * view.rows * view.depth
    return 1e-9 * (CALL_NS + max(packing.elements / arrival_rate(packing.elements, target), compute))


def _seconds_of_floats(view: Contraction, packing: QuantisedPanels, target: CpuTarget) -> float:
    """What it takes to read the codes, or to make them floats once and multiply them by all rows."""
    vectors = packing.chunks * packing.chunk * -(-view.columns // target.vector_floats)
    compute = vectors * (MADE_FLOATS + BY_FLOATS * view.rows) / target.rates.fma_per_ns
    return 1e-9 * (CALL_NS + max(packing.elements / arrival_rate(packing.elements, target), compute))


def quantised_gemv(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `quantised_tiles` proposes this tile for.

    Levels: `block` n, columns of a task; `register` m, rows that go through a panel together, n, its columns.
    """
    view = as_gemv(workload, MOST_ROWS)
    packed = _packing_of(view, workload, target) if view else None
    assert view is not None, "the tile stage offers `gemv_quantised` only to kernels of that form"
    assert packed is not None, "the tile stage offers `gemv_quantised` only where an encoding tells of blocks"
    position, packing = packed
    together, fetch = tile.extent("register", "m"), is_fetched(packing, target.l2_bytes)
    groups = tile.extent("block", "n") // packing.panels.panel
    if tile.algorithm == READ_AS_FLOATS:
        return FewRows(name, workload, view, position, ExpandedColumns(packing, view.rows, together), groups)
    digits = DIGITS[tile.algorithm]
    kernel = QuantisedRows(together, packing, target.vector_registers, digits, fetch, target.multiplies_bytes)
    return FewRows(name, workload, view, position, QuantisedColumns(kernel, view.rows), groups)


QUANTISED_GEMV = Algorithm((*DIGITS, READ_AS_FLOATS), quantised_tiles, quantised_gemv, takes=any_short)
