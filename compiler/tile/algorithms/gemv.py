"""Tiles for a few rows times a constant matrix: how many panels side by side, and how many tasks."""

from __future__ import annotations

from compiler.ir.contraction import Contraction
from compiler.ir.gemv import as_gemv, group_of
from compiler.ir.machine import Workload
from compiler.ir.narrow import NARROW_BYTES
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.blocking import in_registers
from compiler.tile.model import CALL_NS, Proposal, read_rate

TASKS_PER_LANE = 4
NARROW_ERROR = 3e-7
"""Of a product with 24-bit numbers, relative to its largest value: what rounding to about 2^-21 of a usual element comes to."""


def gemv_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """The matrix as it is and, where the workload allows it, in 24 bits; empty for a kernel of another form."""
    view = as_gemv(workload)
    if view is None:
        return []
    streams, vectors = group_of(view.rows, view.columns, target.vector_registers, target.vector_floats)
    panel = vectors * target.vector_floats
    groups = -(-view.columns // (streams * panel))
    tasks = min(groups, TASKS_PER_LANE * lanes) if lanes > 1 else 1
    levels = (
        Level("block", (("n", -(-groups // tasks) * streams * panel),)),
        Level("register", (("m", view.rows), ("n", streams * panel))),
        Level("vector", (("n", panel),)),
    )
    scopes = in_registers(view.kernel)
    slot = view.b.loads[0].slot
    position = [declared.name for declared in workload.kernel.inputs].index(slot)
    proposals = [Proposal(Tile("gemv", levels, scopes), _seconds(view, DType.F32.bytes, target))]
    if workload.narrow[position]:
        proposals.append(Proposal(Tile("gemv24", levels, scopes), _seconds(view, NARROW_BYTES, target), NARROW_ERROR))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _seconds(view: Contraction, element_bytes: int, target: CpuTarget) -> float:
    """What it takes to read the matrix from where it stays between two runs, or to multiply with it if that takes longer."""
    octets = view.depth * view.columns * element_bytes
    compute = view.rows * view.depth * view.columns / target.vector_floats / target.rates.fma_per_ns
    return 1e-9 * (CALL_NS + max(octets / read_rate(octets, target), compute))
