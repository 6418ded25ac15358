"""The `attention` algorithm: both products and the softmax between them, for a block of queries at a time.

The keys and values of a head are packed in panels once. The scores of a block of queries stay in the cache. Maps are
applied to them and their maxima taken as the products are made. Then they become exponentials of their distances to the
maximum, and are multiplied with the values. Each row is divided by its sum at the end.

Where there are more keys than a block of them, the sums so far are scaled to the new maximum block by block: the online
softmax of Milakov and Gimelshein, arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135.

A tile says which register tiles both products have, and the block of queries whose scores stay in a cache.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.attention.cuts import by_width, keys_read, tile_of
from compiler.devices.cpu.attention.fp32 import Fp32
from compiler.devices.cpu.attention.lowering import LoweredAttention
from compiler.devices.cpu.attention.online import Online
from compiler.devices.cpu.attention.sums import PACK_NS, FloatSums
from compiler.devices.cpu.blocking import parts
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS, EXP_NS
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import Attention, as_attention
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal


def attention_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each width of the scores' panels, cheapest by the model first.

    Empty unless the kernel is attention.
    """
    view = as_attention(workload.kernel)
    return by_width(view, target, lambda vectors: _proposal(view, vectors, target, lanes)) if view else []


def _most_rows(vectors: int, target: CpuTarget) -> int:
    """Rows of a register tile of so many vectors.

    Sums and a row of B fill the registers; elements of A are broadcast from memory.
    """
    return max(target.vector_registers // vectors - 1, 1)


def _proposal(view: Attention, vectors: int, target: CpuTarget, lanes: int) -> Proposal:
    tile = tile_of("attention", view, vectors, lambda wide: _most_rows(wide, target), target.vector_floats, lanes)
    return Proposal(tile, _seconds(view, tile, target))


def _seconds(view: Attention, tile: Tile, target: CpuTarget) -> float:
    """Both products under their register tiles, with the exponentials and packing.

    The products are bound by arithmetic or loads.
    """
    floats = target.vector_floats
    loads_per_ns = target.rates.l1_per_ns / (4 * floats)

    def product(level: str, columns: int, depth: int) -> float:
        rows, vectors = tile.extent(level, "m"), tile.extent(level, "n") // floats
        panels = parts(parts(columns, floats), vectors)
        step = max(rows * vectors / target.rates.fma_per_ns, (rows + vectors) / loads_per_ns)
        return parts(view.queries, rows) * panels * (depth * step + rows * vectors)

    keys, columns = keys_read(view, tile), view.columns.extent
    both = product("register", keys, view.deep) + product("vector", columns, keys)
    powers = view.queries * parts(keys, floats) * EXP_NS
    packed = view.keys.extent * (view.deep + columns) * PACK_NS
    return 1e-9 * (CALL_NS + view.batches * (both + powers + packed))


def attention(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_attention` accepts.

    Levels: `lane` m, queries of a task; `block` m and n, queries and keys worked on at a time; `register` m and n, the
    register tile of the scores; `vector` m and n, that of the product with the values.
    """
    sums = FloatSums.of(name, workload, tile, target)
    return LoweredAttention(sums.frame, Online(sums, Fp32(sums)))


ATTENTION = Algorithm(("attention",), attention_tiles, attention, takes=any_short)
