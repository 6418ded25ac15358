"""Legal tiles of products of normalised rows on a GPU (`compiler.devices.cuda.algorithms.normalised.lowering`).

They are those of a product whose k is not split, and few rows: every block normalises all of its rows before its first
step, beside the copies of B for that step. The model is a product's, with what normalising takes before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from compiler.devices.cuda.algorithms.contraction.tiles import (
    LATENCY_NS,
    MOST_OFFSET,
    MOST_PROPOSALS,
    MOST_REGISTERS,
    MOST_SPLIT_SUMS,
    STAGES,
    THREAD_TILES,
    WARP,
    WARP_TILES,
    Reading,
    Shape,
    Work,
    product_registers,
    steps_of,
)
from compiler.devices.cuda.algorithms.normalised.geometry import Rows, element_of, rows_of
from compiler.devices.cuda.model import PORT_BYTES, STALL
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.once import once
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
    whole = Reading(max(16 // half.bytes, 1), is_copy=True)
    shape = Shape(1, view.rows, view.columns, view.depth, half, whole, None)
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
    """The most promising tiles of some algorithms, best first."""
    found = (work for name in names for work in _best(name, len(names), shape, sums, target))
    return tuple(sorted((work.proposal(target) for work in found), key=lambda proposal: proposal.seconds))


def _best(name: str, shares: int, shape: Shape, sums: Sums, target: CudaTarget) -> Sequence[NormalisedWork]:
    """The cheapest of one algorithm, which has its share of all proposals."""
    works = ((work.ns(target), at, work) for at, work in enumerate(_works(PRODUCTS[name], shape, sums, target)))
    return [work for _, _, work in heapq.nsmallest(MOST_PROPOSALS // shares, works)]


def _works(algorithm: str, shape: Shape, sums: Sums, target: CudaTarget) -> Iterator[NormalisedWork]:
    for m, n, part_m, part_n in THREAD_TILES if algorithm == "ffma" else (*WARP_TILES, *MORE_WARP_TILES):
        if (algorithm == "mma_3xtf32" and part_m * part_n > MOST_SPLIT_SUMS) or (n > 8 and n >= 2 * shape.columns):
            continue
        for depth, steps in steps_of(shape):
            for stages in STAGES:
                if stages > max(steps + 1, 2):
                    continue
                work = NormalisedWork(algorithm, shape, m, n, part_m, part_n, depth, stages, 1, False, sums)
                if work.fits(target):
                    yield work


@dataclass(frozen=True)
class NormalisedWork(Work):
    """One tile and what it costs."""

    sums: Sums

    @property
    def tile(self) -> Tile:
        """The product's tile under the name of the algorithm that normalises before."""
        plain = super().tile
        name = next(name for name, product in PRODUCTS.items() if product == self.algorithm)
        return Tile(name, plain.levels)

    @once
    def step_bytes(self) -> int:
        """Bytes that a block copies to shared memory in one step: those of B."""
        return self.n * self.depth * self.shape.element.bytes

    @once
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes: stages of B, all steps of A, or the sums that take their place."""
        pitch = self.depth * self.shape.element.bytes + 16
        return max((self.stages * self.n + self.steps * self.m) * pitch, self.m * (self.n + 8) * 4)

    @once
    def registers(self) -> int:
        """Registers of a thread, estimated: those of the product, or those of a row and what is done to it."""
        own = product_registers(self.algorithm, self.part_m, self.part_n)
        return own + 40 + self._elements * self.sums.operands

    @once
    def _elements(self) -> int:
        """Of a row, that a lane holds."""
        count = WARP * self.sums.count
        return -(-self.steps * self.depth // count) * self.sums.count

    def fits(self, target: CudaTarget) -> bool:
        """Whether the device has as much shared memory and as many registers."""
        return self.registers <= MOST_REGISTERS and self.shared_bytes <= target.block_shared_bytes

    def _first_ns(self, together: int, target: CudaTarget) -> float:
        """Rows are loaded and normalised before anything is multiplied; blocks of the same rows share out storing."""
        port = PORT_BYTES * target.clock_ghz
        row_bytes = together * self.m * self.shape.depth
        loaded = row_bytes * self.sums.nbytes / min(port, target.l2_per_ns / min(self.blocks, target.multiprocessors))
        stored = row_bytes * self.sums.kept_bytes / port / -(-self.shape.columns // self.n)
        each = self._elements * (self.sums.sums * STATISTIC + MADE + LOADED) + (self.sums.sums + 1) * ROW
        warps = self.threads // WARP
        pace = max(together * min(warps, self.m) / (target.fma_per_clock / WARP), STALL)
        return LATENCY_NS + loaded + stored + -(-self.m // warps) * each * pace / target.clock_ghz
