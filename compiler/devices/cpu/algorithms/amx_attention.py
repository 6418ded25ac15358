"""Attention by tiles (Intel AMX): both products in bf16, the softmax between them in fp32.

As in `attention`, keys and values of a head are packed once and the scores of a block of queries stay in the cache.
Blocks have one or two parts of 16 queries. All keys are one block: more than KEYS are left to `attention`.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.attention.cuts import KEYS, task_of
from compiler.devices.cpu.attention.lowering import LoweredAttention
from compiler.devices.cpu.attention.sums import FloatSums
from compiler.devices.cpu.attention.tiles import STEP, Tiles
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.amx import ROWS, SUMS
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS, EXP_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, as_attention
from compiler.forms.bounds import beyond_bounds, neutral_from
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

PACK_NS = 0.1
"""One element of the keys or values packed."""


def amx_attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for blocks of one and of two parts, cheapest by the model first; empty unless the kernel is attention."""
    view = as_attention(workload.kernel) if target.has_tiles else None
    if view is None or view.keys.extent > KEYS or _has_sizes(view):
        return []
    found = [_proposal(view, many, target, lanes) for many in (1, 2) if many == 1 or view.queries > ROWS]
    return sorted(found, key=lambda proposal: proposal.seconds)


def _has_sizes(view: Attention) -> bool:
    """Whether rows or keys end at a size that is known while running."""
    inputs = frozenset(slot.name for slot in view.kernel.inputs)
    last = (view.scores, *view.maps)[-1].values[0]
    return bool(beyond_bounds(view.kernel) or neutral_from(last, view.keys, float("-inf"), inputs))


def _proposal(view: Attention, many: int, target: CpuTarget, lanes: int) -> Proposal:
    keys, columns, block = view.keys.extent, view.columns.extent, many * ROWS
    panel = SUMS // many * target.vector_floats
    tile = Tile(
        "amx_attention",
        (
            Level("lane", (("m", task_of(view, lanes)),)),
            Level("block", (("m", block), ("n", keys))),
            Level("register", (("m", block), ("n", panel))),
            Level("vector", (("m", block), ("n", panel))),
        ),
    )
    steps = parts(keys, panel) * parts(view.deep, STEP) + parts(columns, panel) * parts(keys, STEP)
    products = parts(view.queries, block) * steps * SUMS * 2 * ROWS / target.rates.fma_per_ns / 2
    powers = view.queries * parts(keys, target.vector_floats) * EXP_NS
    packed = keys * (view.deep + columns) * PACK_NS
    return Proposal(tile, 1e-9 * (CALL_NS + view.batches * (products + powers + packed)))


def amx_attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_attention` accepts, blocked as `amx_attention_tiles` says."""
    sums = FloatSums.of(name, workload, tile, target)
    return LoweredAttention(sums.frame, Tiles(sums))


AMX_ATTENTION = Algorithm(("amx_attention",), amx_attention_tiles, amx_attention, "bf16", any_short)
