"""Legal tiles of products of normalised rows on a GPU (`compiler.devices.cuda.algorithms.normalised.lowering`).

They are those of a product whose k is not split, and few rows: every block normalises all of its rows before its first
step, beside the copies of B for that step. The model is a product's, with what normalising takes before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as points

from compiler.devices.cuda.algorithms.normalised.geometry import Rows, element_of, rows_of
from compiler.devices.cuda.model import PORT_BYTES
from compiler.devices.cuda.products.costs import (
    LATENCY_NS,
    OTHER_REGISTERS,
    Block,
    Issue,
    Stage,
    cheapest,
    multiplied,
    pipelined_block,
    product_registers,
    threads_of,
)
from compiler.devices.cuda.products.tiles import (
    MOST_OFFSET,
    MOST_PROPOSALS,
    STAGES,
    Shape,
    Sizes,
    block_tiles,
    depths_of,
    inner_of,
    whole,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

PRODUCTS = {
    "normalised": "mma",
    "normalised_tf32": "mma_tf32",
    "normalised_3xtf32": "mma_3xtf32",
    "normalised_ffma": "ffma",
}
"""The algorithm that multiplies in the same way, by algorithm of normalised rows."""
EXACT = ("normalised_3xtf32", "normalised_ffma")
"""Those of fp32."""
MORE_WARP_TILES = ((16, 64, 16, 8), (16, 128, 16, 16), (32, 64, 16, 8), (32, 128, 16, 16), (32, 128, 32, 16))
"""More warps than the product alone has a use for, as all of them normalise."""
STATISTIC, MADE, LOADED = 3, 5, 2
"""Instructions of a lane for each element: in a sum over the row, to make an element of it, to load and store it."""
ROW = 20
"""Instructions of a lane for each sum over a row, and for the row, beside those for elements: shuffles, a division."""


@dataclass(frozen=True)
class Sums:
    """What normalising a row takes: how many sums, over so many operands that move with the row.

    `nbytes` are of one element of these; `count` elements lie side by side. `kept_bytes` are of an element of the
    result, 0 where it is none.
    """

    sums: int
    nbytes: int
    operands: int
    count: int
    kept_bytes: int


def cuda_normalised_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product of normalised rows."""
    rows = rows_of(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if rows is None or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    half, view = element_of(rows, workload, precision), rows.normalised.contraction
    made = Slots(workload).buffers.get(rows.normalised.made.slot)
    if not view.rows * view.columns or (made is not None and made.dtype is not half):
        return []
    names = ("normalised",) if half is not DType.F32 else EXACT if precision == "fp32" else ("normalised_tf32",)
    shape = Shape(1, view.rows, view.columns, view.depth, half, whole(half), None)
    return [*_cheapest(names, shape, _sums_of(rows, workload, half), target)]


def _sums_of(rows: Rows, workload: Workload, half: DType) -> Sums:
    buffers, found = Slots(workload).buffers, rows.normalised
    return Sums(
        sum(bool(block.monoid) for block in found.statistics),
        sum(buffers[load.slot].dtype.bytes for load in rows.moved),
        len(rows.fixed) + len(rows.moved),
        rows.count(half),
        buffers[found.made.slot].dtype.bytes if found.is_kept else 0,
    )


@lru_cache(maxsize=256)
def _cheapest(names: tuple[str, ...], shape: Shape, sums: Sums, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of some algorithms, best first; each has its share of them."""
    found = (one for name in names for one in _best(name, MOST_PROPOSALS // len(names), shape, sums, target))
    return tuple(sorted(found, key=lambda proposal: proposal.seconds))


def _best(name: str, most: int, shape: Shape, sums: Sums, target: CudaTarget) -> list[Proposal]:
    algorithm = PRODUCTS[name]
    blocks = ((sizes, _block(algorithm, shape, sums, sizes, target)) for sizes in _sizes(algorithm, shape))
    return cheapest(blocks, most, target, lambda sizes: Tile(name, sizes.levels(inner_of(algorithm))))


def _sizes(algorithm: str, shape: Shape) -> Iterator[Sizes]:
    """All of k is a block's."""
    tiles = block_tiles(algorithm, MORE_WARP_TILES, columns=shape.columns)
    for tile, depth in points(tiles, depths_of(shape.element)):
        for stages in STAGES:
            if stages <= max(-(-shape.depth // depth) + 1, 2):
                yield Sizes(*tile, depth, stages)


def _block(algorithm: str, shape: Shape, sums: Sums, sizes: Sizes, target: CudaTarget) -> Block:
    """Stages are of B; all steps of A lie in shared memory, or the sums that take the place of both."""
    size, threads = shape.element.bytes, threads_of(algorithm, sizes)
    held = WARP * sums.count
    elements = -(-shape.steps(sizes) * sizes.depth // held) * sums.count  # of a row, that a lane holds
    registers = product_registers(algorithm, sizes) + OTHER_REGISTERS + elements * sums.operands
    multiplying = multiplied(algorithm, sizes, size, target)
    block = pipelined_block(shape, sizes, threads, registers, sizes.n * sizes.depth * size, *multiplying)
    rows = sizes.stages * sizes.n + block.steps * sizes.m
    shared_bytes = max(rows * (sizes.depth * size + 16), sizes.sums_bytes)
    return replace(block, shared_bytes=shared_bytes, first=_normalising(shape, sums, sizes, threads, elements, target))


def _normalising(shape: Shape, sums: Sums, sizes: Sizes, threads: int, elements: int, target: CudaTarget) -> Stage:
    """Rows are loaded and normalised before anything is multiplied; blocks of the same rows share out storing."""
    warps, row_elements = threads // WARP, sizes.m * shape.depth
    stored = row_elements * sums.kept_bytes / PORT_BYTES / -(-shape.columns // sizes.n)
    each = elements * (sums.sums * STATISTIC + MADE + LOADED) + (sums.sums + 1) * ROW
    issue = Issue(-(-sizes.m // warps) * each, min(warps, sizes.m), target.fma_per_clock / WARP)
    return Stage(row_elements * sums.nbytes, stored, issue, least_ns=LATENCY_NS)
