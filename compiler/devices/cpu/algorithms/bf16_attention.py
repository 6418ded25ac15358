"""The `bf16_attention` algorithm: both products by dot products of pairs of bf16 (VDPBF16PS), the softmax in fp32.

As in `attention`, keys and values of a head are packed once and the scores of a block of queries stay in the cache, as
floats.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.attention.cuts import by_width, keys_read, tile_of
from compiler.devices.cpu.attention.lowering import LoweredAttention
from compiler.devices.cpu.attention.online import Online
from compiler.devices.cpu.attention.pairs import Pairs
from compiler.devices.cpu.attention.sums import PACK_NS, FloatSums
from compiler.devices.cpu.blocking import most_rows, parts
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, as_attention
from compiler.forms.groups import LANE_BYTES, PAIR
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

SUMS_NS = 0.3
"""One vector of sums leaving registers."""
POWER_NS = 1.8
"""One vector of scores through the maps, the largest value and the exponential."""


def bf16_attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of the scores' panels, cheapest by the model first.

    Empty unless the kernel is attention and the target multiplies pairs of bf16 in vectors: tiles of bf16 are
    `amx_attention`'s.
    """
    view = as_attention(workload.kernel) if target.multiplies_bf16 and not target.has_tiles else None
    return by_width(view, target, lambda vectors: _proposal(view, vectors, target, lanes)) if view else []


def _proposal(view: Attention, vectors: int, target: CpuTarget, lanes: int) -> Proposal:
    floats = target.vector_floats
    tile = tile_of("bf16_attention", view, vectors, lambda wide: most_rows(wide, target), floats, lanes)
    return Proposal(tile, _seconds(view, tile, target))


def _seconds(view: Attention, tile: Tile, target: CpuTarget) -> float:
    """Both products under their register tiles, with the exponentials and packing."""
    floats, keys, columns = target.vector_floats, keys_read(view, tile), view.columns.extent
    loads_per_ns = target.rates.l1_per_ns / (LANE_BYTES * floats)
    dots_per_ns = target.rates.fma_per_ns * (target.rates.dots_per_fma or 1.0)

    def product(level: str, vectors: int, depth: int) -> float:
        """Of all queries with so many vectors of columns."""
        rows, wide = tile.extent(level, "m"), tile.extent(level, "n") // floats
        step = max(rows / dots_per_ns, (rows / wide + 1) / loads_per_ns)
        return parts(view.queries, rows) * vectors * (parts(depth, PAIR) * step + rows * SUMS_NS)

    wide = tile.extent("vector", "n")
    both = product("register", parts(keys, floats), view.deep)
    both += product("vector", parts(columns, wide) * wide // floats, keys)
    powers = view.queries * parts(keys, floats) * POWER_NS
    packed = view.keys.extent * (view.deep + columns) * PACK_NS
    return 1e-9 * (CALL_NS + view.batches * (both + powers + packed))


def bf16_attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_attention` accepts, blocked as in `attention`."""
    sums = FloatSums.of(name, workload, tile, target)
    return LoweredAttention(sums.frame, Online(sums, Pairs(sums)))


BF16_ATTENTION = Algorithm(("bf16_attention",), bf16_attention_tiles, bf16_attention, "bf16", any_short)
