"""The tile for a recurrent layer: how many steps' input products are made at a time, and the panels of both kinds of products."""

from __future__ import annotations

from compiler.ir.gemv import MAX_ROWS, group_of
from compiler.ir.machine import Workload
from compiler.ir.narrow import NARROW_BYTES
from compiler.ir.recurrence import Recurrence, as_recurrence
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.targets.cpu import CpuTarget
from compiler.tile.algorithms.blocking import most_rows
from compiler.tile.algorithms.gemv import NARROW_ERROR
from compiler.tile.model import CALL_NS, Proposal, read_rate

STEPS = 64
"""Whose input products are made at a time: enough rows to be bound by arithmetic, few enough to stay in a cache."""
VECTORS = 4
MAP_NS = 20.0
"""One vector of hidden units through the gates' functions."""


def recurrent_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """One tile, and where the workload allows it the same with the weights of the state in 24 bits; empty for a kernel that is no recurrence."""
    view = as_recurrence(workload)
    if view is None:
        return []
    floats = target.vector_floats
    streams, vectors = _group(view, target)
    wide = VECTORS if target.vector_registers >= 32 else 2
    levels = (
        Level("block", (("t", STEPS), ("n", streams * vectors * floats))),
        Level("register", (("m", most_rows(wide, target)), ("n", wide * floats))),
        Level("vector", (("n", vectors * floats),)),
    )
    proposals = [Proposal(Tile("recurrent", levels), _seconds(view, DType.F32.bytes, target))]
    narrow = {slot.name for slot, may in zip(workload.kernel.inputs, workload.narrow, strict=True) if may}
    if all(product.matrix in narrow for product in view.products if product.into not in view.ahead):
        proposals.append(Proposal(Tile("recurrent24", levels), _seconds(view, NARROW_BYTES, target), NARROW_ERROR))
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _group(view: Recurrence, target: CpuTarget) -> tuple[int, int]:
    """Panels read side by side, and vectors in each, for the narrowest of the products that wait for the state."""
    floats = target.vector_floats
    columns = min((view.unit(p.matrix) for p in view.products if p.into not in view.ahead), default=floats)
    return group_of(min(view.sequences, MAX_ROWS), columns, target.vector_registers, floats)


def _seconds(view: Recurrence, element_bytes: int, target: CpuTarget) -> float:
    """Every step reads the weights from where they stay, or multiplies with them if that takes longer, and maps the hidden units."""
    floats = target.vector_floats
    elements = sum(product.column.extent * product.depth.extent for product in view.products)
    compute = view.sequences * elements / floats / target.rates.fma_per_ns
    octets = element_bytes * elements
    read = -(-view.sequences // MAX_ROWS) * octets / read_rate(octets, target)
    maps = view.sequences * sum(temp.type.dims[1] for temp in view.kernel.temps) / floats * MAP_NS
    return 1e-9 * (CALL_NS + view.time.extent * (max(compute, read) + maps))
