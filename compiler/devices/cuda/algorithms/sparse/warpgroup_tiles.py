"""Legal tiles of products by `wgmma.sp` (`sparse.warpgroups`), on the architecture that has warpgroups.

A is copied in whole pieces of 16 bytes. The model is that of `contraction.wgmma_tiles`: tensor cores take twice as many
places of k in a cycle, and of B 9 bytes are moved and read where a dense one has 16; 10 where elements are bytes, of
which they take twice as many again. A tile has 64 columns at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from compiler.devices.cuda.algorithms.contraction.tiles import MOST_OFFSET, SHARED_BYTES_PER_CLOCK, Shape, splits
from compiler.devices.cuda.algorithms.contraction.wgmma_tiles import (
    MOST_PROPOSALS,
    RATE,
    STAGES,
    WARPGROUP,
    WGMMA_M,
    WarpgroupWork,
    has_warpgroups,
    is_copied_whole,
)
from compiler.devices.cuda.algorithms.integer import shape_of_bytes
from compiler.devices.cuda.algorithms.sparse.form import as_sparse_integer
from compiler.devices.cuda.algorithms.sparse.tiles import shape_of_halves
from compiler.devices.cuda.algorithms.sparse.warpgroups import STEP_BYTES
from compiler.devices.cuda.codegen.sparse_panels import WORD_COLUMNS, WORD_DEPTH, WORDS_BYTES
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.two_of_four import GROUP, KEPT
from compiler.ir.machine import Workload
from compiler.ir.once import once
from compiler.tuning.proposal import Proposal

TILES = (
    *((16, 64, 16, 64), (32, 64, 32, 64), (64, 64, 64, 64), (128, 64, 128, 64), (256, 64, 256, 64)),
    *((16, 128, 16, 64), (32, 128, 32, 64), (64, 128, 64, 64), (128, 128, 128, 64), (256, 128, 256, 64)),
    *((64, 128, 64, 128), (128, 128, 128, 128), (128, 256, 128, 128), (128, 192, 128, 64)),
)
"""m and n of a block tile, m and n of a warpgroup's part of it."""
PLACES = 2
"""Of k, for one of a dense product in the same time ("NVIDIA H100 Tensor Core GPU Architecture", 2022)."""
ATOM_BYTES = 1024
"""What a stage is filled up to."""


def cuda_sparse_wgmma_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none where the target or the operands do not allow them."""
    if not has_warpgroups(target) or any(
        buffer.span >= MOST_OFFSET for buffer in (*workload.inputs, *workload.outputs)
    ):
        return []
    form = as_sparse_integer(workload)
    name = "sparse_wgmma" if form is None else "sparse_wgmma_integer"
    shape = shape_of_halves(workload, precision) if form is None else shape_of_bytes(form, workload)
    if shape is None or not is_copied_whole(shape):
        return []
    return [*_cheapest(name, shape, target)]


@lru_cache(maxsize=256)
def _cheapest(algorithm: str, shape: Shape, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of a product, best first."""
    works = sorted(_works(algorithm, shape, target), key=lambda work: work.ns(target))
    return tuple(work.proposal(target) for work in works[:MOST_PROPOSALS])


def _works(algorithm: str, shape: Shape, target: CudaTarget) -> Iterator[SparseWarpgroupWork]:
    depth = STEP_BYTES // shape.element.bytes
    steps = -(-shape.depth // depth)
    for m, n, part_m, part_n in TILES:
        for stages in STAGES:
            if stages > max(steps + 2, 3):
                continue
            for parts, cluster in splits(shape, m, n, steps, target):
                sizes = (m, n, part_m, part_n, depth, stages, parts, cluster)
                work = SparseWarpgroupWork(algorithm, shape, *sizes)
                if work.fits(target):
                    yield work


@dataclass(frozen=True)
class SparseWarpgroupWork(WarpgroupWork):
    """One tile, of whose `m` x `n` each warpgroup has `part_m` x `part_n`."""

    @once
    def step_bytes(self) -> int:
        """Bytes of both operands in one step of k, metadata included."""
        size = self.shape.element.bytes
        return self.m * self.depth * size + self.n * self.depth * KEPT // GROUP * size + self._metadata_bytes

    @property
    def _metadata_bytes(self) -> int:
        return self.n // WORD_COLUMNS * (self.depth // WORD_DEPTH) * WORDS_BYTES

    @once
    def shared_bytes(self) -> int:
        """Of one block: its stages, or the sums that take their place, and an mbarrier for each stage."""
        stage = -(-self.step_bytes // ATOM_BYTES) * ATOM_BYTES
        return max(self.stages * stage, self.m * (self.n + 8) * 4) + 8 * self.stages

    def _cycles(self, target: CudaTarget) -> float:
        """Products, each of which reads both of its operands from shared memory."""
        size = self.shape.element.bytes
        each = WGMMA_M * KEPT // GROUP + self.part_m
        products = self.threads // WARPGROUP * (self.part_n // WGMMA_M)
        read = products * each * self.depth * size + self._metadata_bytes
        halves = self.depth * size / 2  # as many products of 16 bits would take as long
        rate = target.wgmma_per_clock * RATE * PLACES
        return max(self.m * self.n * halves / rate, read / SHARED_BYTES_PER_CLOCK)
