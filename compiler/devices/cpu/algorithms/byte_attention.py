"""The `byte_attention` algorithm: products of bytes around a softmax in fp32, for a block of queries at a time.

The keys and values of a head are packed once, in panels of groups for dot products. A tile says which register tiles
both products have, and the block of queries whose scores stay in a cache.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.attention.cuts import QUERIES, by_width, tile_of
from compiler.devices.cpu.attention.frame import Frame
from compiler.devices.cpu.attention.integer import Bytes, Held
from compiler.devices.cpu.attention.lowering import LoweredAttention
from compiler.devices.cpu.blocking import most_rows, parts
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.byte_attention import ByteAttention, as_byte_attention
from compiler.forms.groups import LANE_BYTES
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

SCORE_BYTES = 5
"""Of a score that stays in a cache: as a float, and as the byte of its weight."""
PACK_NS = 0.03
"""One element of the keys or values packed."""
SCORE_NS = 1.0
"""One vector of sums less what zero points add, through the maps; of scores the largest value too."""
WEIGHT_NS = 2.0
"""One vector of scores made exponentials, then bytes."""


def byte_attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of the scores' panels, cheapest by the model first.

    Empty unless the kernel is attention of bytes.
    """
    view = as_byte_attention(workload.kernel)
    return by_width(view, target, lambda vectors: _proposal(view, vectors, target, lanes)) if view else []


def _rows(vectors: int, target: CpuTarget) -> int:
    """The most rows of a register tile of so many vectors."""
    return most_rows(vectors, target, 1 if target.multiplies_bytes else target.parts_of_halves)


def _proposal(view: ByteAttention, vectors: int, target: CpuTarget, lanes: int) -> Proposal:
    most = min(QUERIES, target.l2_bytes // 2 // (SCORE_BYTES * view.keys.extent))
    floats = target.vector_floats
    tile = tile_of("byte_attention", view, vectors, lambda wide: _rows(wide, target), floats, lanes, most)
    return Proposal(tile, _seconds(view, tile, target))


def _seconds(view: ByteAttention, tile: Tile, target: CpuTarget) -> float:
    """Both products under their register tiles, what is done between and behind them, and packing."""
    floats = target.vector_floats
    loads_per_ns = target.rates.l1_per_ns / (LANE_BYTES * floats)
    steps_per_ns = target.rates.fma_per_ns * (1.0 if target.multiplies_bytes else target.halves_per_fma)

    def product(held: Held, level: str, columns: int, depth: int) -> float:
        rows, vectors = tile.extent(level, "m"), tile.extent(level, "n") // floats
        panels = parts(parts(columns, floats), vectors)
        step = max(rows * vectors / steps_per_ns, (rows + vectors) / loads_per_ns)
        return parts(view.queries, rows) * panels * (held.groups(depth) * step + rows * vectors * SCORE_NS)

    keys, columns = view.keys.extent, view.columns.extent
    both = product(Held.of(view.q, view.k, target), "register", keys, view.deep)
    both += product(Held.of(view.w, view.v, target), "vector", columns, keys)
    weights = view.queries * parts(keys, floats) * WEIGHT_NS
    packed = keys * (view.deep + columns) * PACK_NS
    return 1e-9 * (CALL_NS + view.batches * (both + weights + packed))


def byte_attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_byte_attention` accepts.

    Levels: `lane` m, queries of a task; `block` m, queries worked on at a time; `register` m and n, the register tile
    of the scores; `vector` m and n, that of the product with the values.
    """
    view = as_byte_attention(workload.kernel)
    assert view is not None, "the tile stage offers `byte_attention` only to kernels of that form"
    frame = Frame(name, workload, view, tile, target)
    return LoweredAttention(frame, Bytes(frame, view))


BYTE_ATTENTION = Algorithm(("byte_attention",), byte_attention_tiles, byte_attention, takes=any_short)
