"""Legal tiles of products by warpgroups (`compiler.devices.cuda.algorithms.contraction.wgmma`).

They are large block tiles of large products, on the architecture that has warpgroups. A is copied in whole pieces of 16
bytes, B is a packed constant. Tensor cores work at twice the rate of `mma`, from shared memory, and along with what a
step takes otherwise; but a tile has 64 rows at least, and one more stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from compiler.devices.cuda.algorithms.contraction.operand import PIECES, half_of
from compiler.devices.cuda.algorithms.contraction.tiles import (
    MOST_OFFSET,
    SHARED_BYTES_PER_CLOCK,
    STEP_NS,
    Shape,
    Work,
    shape_of,
    splits,
    steps_of,
)
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, as_contraction
from compiler.ir.machine import Workload
from compiler.ir.once import once
from compiler.tuning.proposal import Proposal

MOST_PROPOSALS = 24
WARPGROUP = 128
WGMMA_M = 64
WARPGROUP_TILES = (
    *((64, 32, 64, 32), (64, 64, 64, 64), (64, 96, 64, 96), (64, 128, 64, 128), (64, 192, 64, 192), (64, 256, 64, 256)),
    *((64, 128, 64, 64), (64, 256, 64, 128), (128, 32, 64, 32), (128, 64, 64, 64), (128, 96, 64, 96)),
    *((128, 128, 64, 128), (128, 192, 64, 192), (128, 256, 64, 256), (192, 128, 64, 128), (256, 128, 128, 128)),
)
"""m and n of a block tile, m and n of a warpgroup's part of it."""
STAGES = (3, 4, 6)
START_NS = 300.0
"""Before the first copy, mbarriers and their fence. And what it loses because such a kernel shares no launch with
others."""
LEAST_STEP_NS = 80.0
"""Of a step beside its products, which run along with it: barriers, a fence, addresses and copies of A."""
BARRIER_NS = 5.0
"""Of every step, even where products or bytes take longest: so that longer ones are preferred."""
RATE = 0.75
"""How near warpgroups come to what tensor cores can do."""


def cuda_wgmma_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none where the target or the operands do not allow them."""
    view = as_contraction(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if view is None or not has_warpgroups(target) or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    half = half_of(view, workload, exact=precision in ("fp32", "tf32"))
    if half is None or not view.batches * view.rows * view.columns:
        return []
    shape = shape_of(view, workload, half)
    if not is_copied_whole(shape) or shape.b is not None or _is_read_again(view):
        return []
    return [*cheapest_by_warpgroups("wgmma", shape, target)]


def has_warpgroups(target: CudaTarget) -> bool:
    """Whether a target multiplies by warpgroups."""
    return target.wgmma_per_clock > 0 and target.architecture.endswith("a")


def is_copied_whole(shape: Shape) -> bool:
    """Whether rows of A are copied in pieces of 16 bytes."""
    return shape.a.is_copy and shape.a.count * shape.element.bytes == PIECES[0]


@lru_cache(maxsize=256)
def cheapest_by_warpgroups(algorithm: str, shape: Shape, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of a product, best first."""
    return tuple(sorted(_tiles(algorithm, shape, target), key=lambda proposal: proposal.seconds)[:MOST_PROPOSALS])


def _is_read_again(view: Contraction) -> bool:
    """Whether what B is loaded from is loaded elsewhere too: then it cannot be packed."""
    values = [value for block in (view.product, *view.epilogue) for value in block.values]
    slots = {load.slot for load in view.b.loads}
    return len({load for value in values for load in value.loads if load.slot in slots}) > 1


def _tiles(algorithm: str, shape: Shape, target: CudaTarget) -> Iterator[Proposal]:
    for m, n, part_m, part_n in WARPGROUP_TILES:
        for depth, steps in steps_of(shape):
            for stages in STAGES:
                if stages > max(steps + 2, 3):
                    continue
                for parts, cluster in splits(shape, m, n, steps, target):
                    work = WarpgroupWork(algorithm, shape, m, n, part_m, part_n, depth, stages, parts, cluster)
                    if work.fits(target):
                        yield work.proposal(target)


@dataclass(frozen=True)
class WarpgroupWork(Work):
    """One tile, of whose `m` x `n` each warpgroup has `part_m` x `part_n`."""

    lag: ClassVar[int] = 1

    @property
    def _inner(self) -> str:
        return "warpgroup"

    @once
    def threads(self) -> int:
        """Threads of a block."""
        return self.m // self.part_m * (self.n // self.part_n) * WARPGROUP

    @once
    def shared_bytes(self) -> int:
        """Of one block: its stages, or the sums that take their place, and an mbarrier for each stage."""
        return max(self.stages * self.step_bytes, self.m * (self.n + 8) * 4) + 8 * self.stages

    @once
    def registers(self) -> int:
        """An estimate: sums, places of copies, addresses."""
        return self.part_m * self.part_n // WARPGROUP + 40 + 3 * self._copies

    @property
    def _copies(self) -> int:
        """Pieces of A that a thread copies in a step."""
        return -(-self.m * self.depth // (self.threads * self.shape.a.count))

    def fits(self, target: CudaTarget) -> bool:
        """Whether shared memory and registers of a multiprocessor hold at least one block."""
        return (
            self.shared_bytes <= target.block_shared_bytes
            and target.blocks_at_once(self.threads, self.registers, self.shared_bytes) > 0
        )

    def ns(self, target: CudaTarget) -> float:
        """Expected nanoseconds, with what it takes to begin."""
        return START_NS + super().ns(target)

    def _step_ns(self, together: int, target: CudaTarget) -> float:
        return BARRIER_NS + super()._step_ns(together, target)

    def _units_ns(self, units: float) -> float:
        return max(units, LEAST_STEP_NS)

    def _cycles(self, target: CudaTarget) -> float:
        """Products, each of which reads both of its operands from shared memory."""
        rows = self.threads // WARPGROUP * (self.part_m // WGMMA_M) * (WGMMA_M + self.part_n)
        size = self.shape.element.bytes
        halves = self.depth * size / 2  # as many products of 16 bits would take as long
        products = self.m * self.n * halves / (target.wgmma_per_clock * RATE)
        return max(products, rows * self.depth * size / SHARED_BYTES_PER_CLOCK)

    def _chain_ns(self, target: CudaTarget) -> float:
        return LEAST_STEP_NS - STEP_NS
