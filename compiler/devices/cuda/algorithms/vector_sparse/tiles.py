"""Legal tiles of products by weights that neighbouring columns keep together (`vector_sparse.lowering`).

They are the dense ones of as many columns as a panel has, under each size of groups that the weights allow: small
groups keep less, large ones are gathered in larger pieces. The model is a product's of as much of k as an average panel
keeps; beside it pieces are copied, whole sectors are moved for them, and the first of them wait for their numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from compiler.devices.cuda.algorithms.contraction.operand import PIECES
from compiler.devices.cuda.algorithms.contraction.tiles import (
    LATENCY_NS,
    MOST_OFFSET,
    MOST_PROPOSALS,
    MOST_SPLIT_SUMS,
    STAGES,
    THREAD_TILES,
    WARP,
    WARP_TILES,
    Reading,
    Shape,
    Work,
    products_of,
    shape_of,
    splits,
    steps_of,
)
from compiler.devices.cuda.algorithms.integer import shape_of_bytes
from compiler.devices.cuda.algorithms.vector_sparse.form import BYTES, VectorSparse, as_vector_sparse
from compiler.devices.cuda.codegen.fragments import MMA_M
from compiler.devices.cuda.model import PORT_BYTES
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.blocks import WIDTHS
from compiler.encodings.zeros import CLASSES
from compiler.ir.machine import Workload
from compiler.ir.once import once
from compiler.ir.tile import Level, Tile
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


def cuda_vector_sparse_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product by such weights."""
    form = as_vector_sparse(workload)
    if form is None or any(buffer.span >= MOST_OFFSET for buffer in (*workload.inputs, *workload.outputs)):
        return []
    view = form.view
    if not view.batches * view.rows * view.columns:
        return []
    return [*_cheapest(tuple(_products_of(form, workload, precision)), tuple(form.ways), target)]


def _products_of(form: VectorSparse, workload: Workload, precision: str) -> Iterator[tuple[str, Shape, bool]]:
    """The ways to multiply, each with its shape and whether columns of B are summed too."""
    if form.of_bytes is not None:
        if (shape := shape_of_bytes(form.of_bytes, workload)) is not None:
            yield BYTES, shape, form.of_bytes.a.fixed_zero != 0
        return
    for name, element in products_of(form.view, workload, precision):
        yield name, replace(shape_of(form.view, workload, element), b=None), False


@lru_cache(maxsize=256)
def _cheapest(
    products: tuple[tuple[str, Shape, bool], ...], ways: tuple[tuple[int, int, int], ...], target: CudaTarget
) -> tuple[Proposal, ...]:
    """The most promising tiles of products by some algorithms, best first."""
    works = (work for one in products for way in ways for work in _works(*one, *way, target))
    best = heapq.nsmallest(MOST_PROPOSALS, works, key=lambda work: work.ns(target))
    return tuple(work.proposal(target) for work in best)


def _works(
    algorithm: str, dense: Shape, summed: bool, width: int, group: int, fill: int, target: CudaTarget
) -> Iterator[VectorWork]:
    """Those of panels of so many columns that keep `fill` / CLASSES of all groups."""
    shape = replace(dense, depth=max(ceil(dense.depth * fill / CLASSES), 1), a=_gathered(dense, group))
    tiles = (*THREAD_TILES, *NARROW_THREAD_TILES) if algorithm == "ffma" else WARP_TILES
    for m, n, part_m, part_n in tiles:
        if n != width or (algorithm == "mma_3xtf32" and part_m * part_n > MOST_SPLIT_SUMS):
            continue
        for depth, steps in steps_of(shape):
            for stages in STAGES:
                if stages > (2 if shape.is_held else max(steps + 1, 2)) or depth % (2 * group):
                    continue
                for parts, cluster in splits(shape, m, n, steps, target):
                    sizes = (m, n, part_m, part_n, depth, stages, parts, cluster)
                    work = VectorWork(algorithm, shape, *sizes, group, fill, dense.depth, summed)
                    if work.fits(target):
                        yield work


def _gathered(shape: Shape, group: int) -> Reading:
    """How A is read, group by group."""
    a = shape.a
    if a.count == 1:
        return a
    count = min(a.count, group)
    is_copy = a.is_copy and count * shape.element.bytes >= PIECES[-1]
    return Reading(count, a.loads, is_copy, 0.0 if is_copy else PIECE_CYCLES)


@dataclass(frozen=True)
class VectorWork(Work):
    """One tile, of whose `shape` the depth is what an average panel keeps of `whole_depth`, in groups.

    `summed` says whether columns of B are summed too, as products with ones.
    """

    group: int
    fill: int
    whole_depth: int
    summed: bool

    def __post_init__(self) -> None:
        assert self.n in WIDTHS, "a tile's columns are a panel's"

    @property
    def tile(self) -> Tile:
        """These sizes as a tile, by which the lowering reads them."""
        plain = super().tile
        levels = [
            Level(one.name, (*one.extents, ("group", self.group))) if one.name == "block" else one
            for one in plain.levels
        ]
        return Tile(f"sparse_{self.algorithm}", tuple(levels))

    @once
    def _held(self) -> int:
        """Registers for what is not copied: pieces of bytes lie four in one."""
        return -(-super()._held // 4) if self.algorithm == BYTES and self.shape.a.count > 1 else super()._held

    @property
    def _per_clock(self) -> float:
        return 2.0 if self.algorithm == BYTES else super()._per_clock

    @once
    def shared_bytes(self) -> int:
        """Of one block: what a dense one has, and numbers of groups for as many steps as there may be."""
        stages = self.stages * (self.step_bytes + 16 * (self.m + self.n))
        steps = ceil(ceil(self.whole_depth / self.depth) / self.parts)
        numbers = NUMBER_BYTES * steps * (self.depth // self.group)
        return max(stages, self.m * (self.n + 8) * 4) + numbers + 32

    @property
    def _moved_bytes(self) -> float:
        """In a step: of A the sectors in which groups lie, but no more than the rows have between them."""
        size = self.shape.element.bytes
        sectors = min(max(SECTOR_BYTES / (self.group * size), 1.0), CLASSES / self.fill)
        return self.depth * size * (self.m * sectors + self.n)

    def _first_ns(self, together: int, target: CudaTarget) -> float:
        """Before the first step's products: numbers, and what they name."""
        return 2 * LATENCY_NS

    def _moved_ns(self, together: int, target: CudaTarget) -> float:
        busy = min(self.blocks, target.multiprocessors)
        return together * self._moved_bytes / min(PORT_BYTES * target.clock_ghz, target.l2_per_ns / busy)

    def _cycles(self, target: CudaTarget) -> float:
        """Of a multiprocessor, for one block's step, with what the copies of pieces ask of it."""
        pieces = self.m * self.depth / self.shape.a.count / WARP
        return super()._cycles(target) + self._sum_cycles(target) + COPY_CYCLES * pieces / 4

    def _sum_cycles(self, target: CudaTarget) -> float:
        """Of products with ones, 16 rows of them for each warp."""
        if not self.summed:
            return 0.0
        return self.m // self.part_m * MMA_M * self.n * self.depth / (target.mma_per_clock * self._per_clock)
