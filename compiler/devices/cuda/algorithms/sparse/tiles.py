"""Legal tiles of products by weights that are zero at two of each four places along k (`sparse.lowering`).

They are those of `mma`, with 64 elements of k at least in a step, so that a word of metadata is whole, and with tiles
of 8 rows. The model is a product's: tensor cores take twice as many places of k in a cycle, and of B 9 bytes are moved
and read where a dense one has 16; 10 where elements are bytes, of which they take twice as many again. A is moved and
read whole, so that narrow tiles gain less.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from compiler.devices.cuda.algorithms.contraction.operand import half_of
from compiler.devices.cuda.algorithms.contraction.tiles import (
    CHAIN_CYCLES,
    MOST_OFFSET,
    MOST_PROPOSALS,
    SHARED_BYTES_PER_CLOCK,
    STAGES,
    WARP,
    Reading,
    Shape,
    Work,
    shape_of,
    splits,
)
from compiler.devices.cuda.algorithms.integer import shape_of_bytes
from compiler.devices.cuda.algorithms.sparse.form import as_sparse_contraction, as_sparse_integer
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.two_of_four import GROUP, KEPT
from compiler.forms.integer import IntegerContraction
from compiler.ir.machine import Workload
from compiler.ir.once import once
from compiler.tuning.proposal import Proposal

TILES = (
    *((8, 32, 8, 16), (8, 64, 8, 16), (8, 128, 8, 32), (16, 32, 16, 16), (16, 64, 16, 16), (16, 128, 16, 32)),
    *((32, 32, 16, 16), (32, 32, 32, 16), (32, 64, 32, 16), (32, 64, 16, 32), (32, 128, 32, 32)),
    *((64, 32, 32, 16), (64, 64, 32, 32), (64, 64, 64, 16), (64, 128, 64, 32), (64, 128, 32, 64)),
    *(
        (128, 32, 32, 32),
        (128, 64, 64, 32),
        (128, 64, 32, 32),
        (128, 128, 64, 32),
        (128, 128, 32, 64),
        (64, 256, 32, 64),
    ),
)
"""m and n of a block tile, m and n of a warp's part of it."""
DEPTHS = (64, 128)
"""Elements of k in a step."""
ROW_BYTES = 64
"""Of a row of A in an instruction."""
RATE = 2 * 0.8
"""Places of k in a cycle, for one of a dense product (NVIDIA, "A100 Tensor Core GPU Architecture", 2020), and how near
warps come to that."""
PLACE_BYTES = 1 / 4
"""For each element that is kept: two bits."""
ROWS = 8
"""In an instruction."""


def cuda_sparse_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product by such weights."""
    if any(buffer.span >= MOST_OFFSET for buffer in (*workload.inputs, *workload.outputs)):
        return []
    form = as_sparse_integer(workload)
    if form is not None:
        return _integer_tiles(form, workload, target)
    shape = shape_of_halves(workload, precision)
    return [] if shape is None else [*_cheapest("sparse", shape, False, target)]


def shape_of_halves(workload: Workload, precision: str) -> Shape | None:
    """The shape of a product of 16-bit floats by such weights; None for what is none."""
    view = as_sparse_contraction(workload)
    half = half_of(view, workload, exact=precision in ("fp32", "tf32")) if view is not None else None
    if view is None or half is None or not view.batches * view.rows * view.columns:
        return None
    return shape_of(view, workload, half)


def _integer_tiles(form: IntegerContraction, workload: Workload, target: CudaTarget) -> list[Proposal]:
    """Those of products of bytes."""
    shape = shape_of_bytes(form, workload)
    return [] if shape is None else [*_cheapest("sparse_integer", shape, form.a.fixed_zero != 0, target)]


@lru_cache(maxsize=256)
def _cheapest(algorithm: str, shape: Shape, summed: bool, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of a product, best first."""
    works = _works(algorithm, shape, summed, target)
    best = heapq.nsmallest(MOST_PROPOSALS, works, key=lambda work: work.ns(target))
    return tuple(work.proposal(target) for work in best)


def _works(algorithm: str, shape: Shape, summed: bool, target: CudaTarget) -> Iterator[SparseWork]:
    for m, n, part_m, part_n in TILES:
        for depth in DEPTHS:
            steps = -(-shape.depth // depth)
            for stages in STAGES:
                if stages > (2 if not shape.a.is_copy else max(steps + 1, 2)):
                    continue
                for parts, cluster in splits(shape, m, n, steps, target):
                    work = SparseWork(algorithm, shape, m, n, part_m, part_n, depth, stages, parts, cluster, summed)
                    if work.fits(target):
                        yield work


@dataclass(frozen=True)
class SparseWork(Work):
    """One tile and what it costs; `summed` says whether columns of B are summed too, as products with ones."""

    summed: bool

    @property
    def _kept_bytes(self) -> float:
        """Of a column of B in one step of k, metadata included."""
        return self.depth * KEPT / GROUP * (self.shape.element.bytes + PLACE_BYTES)

    @once
    def step_bytes(self) -> int:
        """Bytes of both operands in one step of k."""
        return self.m * self.depth * self.shape.element.bytes + int(self.n * self._kept_bytes)

    @once
    def registers(self) -> int:
        """An estimate: sums, operands of both instructions of a word, addresses, what is gathered."""
        own = self.part_m * self.part_n // WARP + 2 * (self.part_m // 8 * 4 + self.part_n // 16 * 5)
        summed = self.part_n // 4 if self.summed else 0
        return own + summed + 40 + self._held + 3 * (self.m * self.depth // (self.threads * self.shape.a.count))

    @once
    def _sides(self) -> tuple[tuple[Reading, int], ...]:
        """A alone: B is packed."""
        return ((self.shape.a, self.m * self.depth // self.threads),)

    @once
    def _held(self) -> int:
        """Registers for what is not copied: pieces of bytes lie four in one."""
        reading, count = self.shape.a, self.m * self.depth // self.threads
        packed = 4 if self.algorithm == "sparse_integer" and reading.count > 1 else 1
        return 0 if reading.is_copy else -(-count * max(reading.loads, 1) // packed)

    def _cycles(self, target: CudaTarget) -> float:
        rows = self.m + (self.m // self.part_m * ROWS if self.summed else 0)
        products = rows * self.n * self.depth * self.shape.element.bytes / 2  # as many as of 16 bits would take
        warps = self.threads // WARP
        read = warps * (self.part_m * self.depth * self.shape.element.bytes + self.part_n * self._kept_bytes)
        gathered = self._gathered * self.threads / WARP / 4
        return max(products / (target.mma_per_clock * RATE), read / SHARED_BYTES_PER_CLOCK) + gathered

    def _chain_ns(self, target: CudaTarget) -> float:
        return self.depth * self.shape.element.bytes / ROW_BYTES * CHAIN_CYCLES / target.clock_ghz
