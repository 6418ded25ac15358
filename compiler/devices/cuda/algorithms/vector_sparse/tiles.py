"""Legal tiles of products by weights that neighbouring columns keep together (`vector_sparse.lowering`).

They are the dense ones of as many columns as a panel has, under each size of groups that the weights allow: small
groups keep less, large ones are gathered in larger pieces. The model is a product's of as much of k as an average panel
keeps; beside it pieces are copied, whole sectors are moved for them, and the first of them wait for their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from compiler.devices.cuda.algorithms.vector_sparse.form import BYTES, VectorSparse, as_vector_sparse
from compiler.devices.cuda.codegen.fragments import MMA_M
from compiler.devices.cuda.products.bytes import shape_of_bytes
from compiler.devices.cuda.products.costs import LATENCY_NS, PER_CLOCK, Block, Stage, cheapest, dense_block
from compiler.devices.cuda.products.operand import PIECES
from compiler.devices.cuda.products.tiles import (
    MOST_OFFSET,
    MOST_PROPOSALS,
    Reading,
    Shape,
    Sizes,
    block_tiles,
    depths_of,
    inner_of,
    products_of,
    shape_of,
    sizes_of,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.encodings.zeros import CLASSES
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

NARROW_THREAD_TILES = ((64, 16, 4, 2), (128, 16, 8, 2), (64, 8, 4, 1), (128, 8, 8, 1))
"""m and n of a block tile, m and n of a thread's part of it: beside the dense ones of a panel's columns."""
SECTOR_BYTES = 32
"""What memory and caches move at least."""
NUMBER_BYTES = 2
"""Of a group."""
COPY_CYCLES = 4.0
"""Instructions of a warp for a piece of each lane: an address, a test, a copy, or instead a load and a store."""
PIECE_CYCLES = 6.0
"""Beside these, of a single element that goes through registers: a conversion, a shorter store."""


@dataclass(frozen=True)
class Way:
    """A way to multiply by what an average panel keeps: `fill` / CLASSES of all groups of k, `group` elements each.

    shape        the product's, of as much of k as is kept, whose A is gathered by groups; of all `whole_depth` of it
    width        columns of a panel
    summed       whether columns of B are summed too, as products with ones
    """

    algorithm: str
    shape: Shape
    whole_depth: int
    width: int
    group: int
    fill: int
    summed: bool


def cuda_vector_sparse_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product by such weights."""
    form = as_vector_sparse(workload)
    if form is None or any(buffer.span >= MOST_OFFSET for buffer in (*workload.inputs, *workload.outputs)):
        return []
    view = form.view
    if not view.batches * view.rows * view.columns:
        return []
    return [*_cheapest(tuple(_ways(form, workload, precision)), target)]


def _ways(form: VectorSparse, workload: Workload, precision: str) -> Iterator[Way]:
    """Each way to multiply, under each size of groups."""
    for name, dense, summed in _products_of(form, workload, precision):
        for width, group, fill in form.ways:
            depth = max(ceil(dense.depth * fill / CLASSES), 1)
            shape = replace(dense, depth=depth, a=_gathered(dense, group))
            yield Way(name, shape, dense.depth, width, group, fill, summed)


def _products_of(form: VectorSparse, workload: Workload, precision: str) -> Iterator[tuple[str, Shape, bool]]:
    """The ways to multiply, each with its shape and whether columns of B are summed too."""
    if form.of_bytes is not None:
        if (shape := shape_of_bytes(form.of_bytes, workload)) is not None:
            yield BYTES, shape, form.of_bytes.a.fixed_zero != 0
        return
    for name, element in products_of(form.view, workload, precision):
        yield name, replace(shape_of(form.view, workload, element), b=None), False


@lru_cache(maxsize=256)
def _cheapest(ways: tuple[Way, ...], target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of products in some ways, best first."""
    blocks = (((way, sizes), _block(way, sizes, target)) for way in ways for sizes in _sizes(way, target))
    return tuple(cheapest(blocks, MOST_PROPOSALS, target, lambda of: _tile(*of)))


def _sizes(way: Way, target: CudaTarget) -> Iterator[Sizes]:
    """Of tiles as wide as a panel, whose steps are whole groups."""
    tiles = (tile for tile in block_tiles(way.algorithm, more_threads=NARROW_THREAD_TILES) if tile[1] == way.width)
    depths = [depth for depth in depths_of(way.shape.element) if depth % (2 * way.group) == 0]
    return sizes_of(tiles, depths, way.shape, target)


def _tile(way: Way, sizes: Sizes) -> Tile:
    """The product's, with the size of groups."""
    return Tile(f"sparse_{way.algorithm}", sizes.levels(inner_of(way.algorithm), group=way.group))


def _gathered(shape: Shape, group: int) -> Reading:
    """How A is read, group by group."""
    a = shape.a
    if a.count == 1:
        return a
    count = min(a.count, group)
    is_copy = a.is_copy and count * shape.element.bytes >= PIECES[-1]
    return Reading(count, a.loads, is_copy, 0.0 if is_copy else PIECE_CYCLES)


def _block(way: Way, sizes: Sizes, target: CudaTarget) -> Block | None:
    """A product's, with numbers of groups, whole sectors of A, and copies of pieces."""
    block = dense_block(way.algorithm, way.shape, sizes, target)
    if block is None:
        return None
    steps = ceil(ceil(way.whole_depth / sizes.depth) / sizes.parts)  # as many as there may be
    numbers = NUMBER_BYTES * steps * (sizes.depth // way.group)
    pieces = sizes.m * sizes.depth / way.shape.a.count / WARP
    cycles = block.step.cycles + _sum_cycles(way, sizes, target) + COPY_CYCLES * pieces / 4
    return replace(
        block,
        shared_bytes=block.shared_bytes + numbers + 32,
        first=Stage(least_ns=2 * LATENCY_NS),  # numbers, and what they name
        step=replace(block.step, nbytes=_moved_bytes(way, sizes), cycles=cycles),
    )


def _moved_bytes(way: Way, sizes: Sizes) -> float:
    """In a step: of A the sectors in which groups lie, but no more than the rows have between them."""
    size = way.shape.element.bytes
    sectors = min(max(SECTOR_BYTES / (way.group * size), 1.0), CLASSES / way.fill)
    return sizes.depth * size * (sizes.m * sectors + sizes.n)


def _sum_cycles(way: Way, sizes: Sizes, target: CudaTarget) -> float:
    """Of products with ones, 16 rows of them for each warp."""
    if not way.summed:
        return 0.0
    rows = sizes.m // sizes.part_m * MMA_M
    return rows * sizes.n * sizes.depth / (target.mma_per_clock * PER_CLOCK[way.algorithm])
