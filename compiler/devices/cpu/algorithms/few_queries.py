"""The `few_queries` algorithm: attention of so few queries that reading the keys and values is what takes time.

One token of a decoder reads its whole cache to compute a handful of products with each element, so that nothing repays
packing it. `compiler.devices.cpu.attention.few` is the lowering.

A tile says how many keys a block has, and the register tiles of both products.
"""

from __future__ import annotations

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.attention.cuts import column_vectors
from compiler.devices.cpu.attention.few import FOLLOWED, FewQueries, lies_along
from compiler.devices.cpu.attention.frame import Frame
from compiler.devices.cpu.attention.sums import PACK_NS
from compiler.devices.cpu.blocking import even_part, parts
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.model import CALL_NS, EXP_NS, read_rate
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.attention import RUN, Attention, as_few_queries
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

BLOCKS = (64, 256, 1024)
"""Keys of a block."""
SHUFFLES = 3
"""Instructions in which two vectors of products become one of their sums."""


def few_queries_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """A tile for each number of keys that a block may have, cheapest by the model first.

    Empty unless the kernel is attention of few queries over keys and values that lie in vectors.
    """
    view = as_few_queries(workload.kernel)
    if view is None or lies_along(view, Slots(workload)) is None:
        return []
    keys = [RUN] if view.part else sorted({min(block, _whole(view, target)) for block in BLOCKS})
    proposals = [
        Proposal(tile, _seconds(view, tile, target)) for tile in (_tile(view, block, target) for block in keys)
    ]
    return sorted(proposals, key=lambda proposal: proposal.seconds)


def _whole(view: Attention, target: CpuTarget) -> int:
    """All keys, in whole vectors."""
    return parts(view.keys.extent, target.vector_floats) * target.vector_floats


def _tile(view: Attention, keys: int, target: CpuTarget) -> Tile:
    """Sums fill the registers but for a row of operands."""
    rows, free = view.queries, target.vector_registers
    scored = max((free - FOLLOWED) // (FOLLOWED + 1), 1)
    wide = column_vectors(view, target.vector_floats)
    wide = min(2 * wide, parts(view.columns.extent, target.vector_floats)) if rows <= 2 else wide
    mixed = max((free - wide) // (wide + 1), 1)
    return Tile(
        "few_queries",
        (
            Level("lane", (("m", rows),)),
            Level("block", (("m", rows), ("n", keys))),
            Level("register", (("m", even_part(rows, scored)),)),
            Level("vector", (("m", even_part(rows, mixed)), ("n", wide * target.vector_floats))),
        ),
    )


def _seconds(view: Attention, tile: Tile, target: CpuTarget) -> float:
    """Reading all keys and values from where they fit, or both products if these take longer; the softmax besides.

    Reading takes no longer than where `attention` packs what it reads.
    """
    keys, columns, rows, floats = view.most_keys, view.columns.extent, view.queries, target.vector_floats
    elements = keys * (view.deep + columns)
    read = keys * (view.deep * _octets(view.k, view.depth[-1]) + columns * _octets(view.v, view.columns))
    arriving = min(read / read_rate(view.batches * read, target), elements * PACK_NS)
    tiles = parts(rows, tile.extent("register", "m")) + parts(rows, tile.extent("vector", "m"))
    vectors = keys * (parts(view.deep, floats) + parts(columns, floats))
    loads_per_ns = target.rates.l1_per_ns / (DType.F32.bytes * floats)
    products = vectors * max(rows / target.rates.fma_per_ns, (tiles / 2 + rows / FOLLOWED) / loads_per_ns)
    sums = rows * keys * SHUFFLES / target.rates.fma_per_ns
    blocks = parts(keys, tile.extent("block", "n"))
    softmax = rows * (parts(keys, floats) * EXP_NS + blocks * parts(columns, floats))
    return 1e-9 * (CALL_NS + view.batches * (max(arriving, products) + sums + softmax))


def _octets(operand: Expr, along: Axis) -> int:
    """Bytes that are read for an element of keys or values; scales of whole rows are few."""
    return sum(load.dtype.bytes for load in operand.loads if along in load.axes)


def few_queries(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `as_few_queries` accepts. The levels are those of `FewQueries`."""
    view = as_few_queries(workload.kernel)
    assert view is not None, "the tile stage offers `few_queries` only to kernels of that form"
    return FewQueries(Frame(name, workload, view, tile, target), view)


FEW_QUERIES = Algorithm(("few_queries",), few_queries_tiles, few_queries, takes=any_short)
