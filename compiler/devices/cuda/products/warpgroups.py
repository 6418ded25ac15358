"""Tiles of products by warpgroups, on the architecture that has them, and what they cost.

A is copied in whole pieces of 16 bytes, B is a packed constant. Tensor cores work at twice the rate of `mma`, from
shared memory, and along with what a step takes otherwise; but a tile has 64 rows at least, and one more stage.
"""

from __future__ import annotations

from functools import lru_cache

from compiler.devices.cuda.products.costs import (
    LATENCY_NS,
    OTHER_REGISTERS,
    SHARED_BYTES_PER_CLOCK,
    Block,
    Stage,
    cheapest,
    waiting_ns,
)
from compiler.devices.cuda.products.operand import PIECES
from compiler.devices.cuda.products.tiles import Shape, Sizes, depths_of, sizes_of
from compiler.devices.cuda.products.wgmma import WARPGROUP, WGMMA_M
from compiler.devices.cuda.target import MOST_REGISTERS, CudaTarget
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

MOST_PROPOSALS = 24
WARPGROUP_TILES = (
    *((64, 32, 64, 32), (64, 64, 64, 64), (64, 96, 64, 96), (64, 128, 64, 128), (64, 192, 64, 192), (64, 256, 64, 256)),
    *((64, 128, 64, 64), (64, 256, 64, 128), (128, 32, 64, 32), (128, 64, 64, 64), (128, 96, 64, 96)),
    *((128, 128, 64, 128), (128, 192, 64, 192), (128, 256, 64, 256), (192, 128, 64, 128), (256, 128, 128, 128)),
)
"""m and n of a block tile, m and n of a warpgroup's part of it."""
STAGES = (3, 4, 6)
LAG = 1
"""Steps behind that still read their stages while the next one begins."""
START_NS = 300.0
"""Before the first copy, mbarriers and their fence. And what it loses because such a kernel shares no launch with
others."""
LEAST_STEP_NS = 80.0
"""Of a step beside its products, which run along with it: barriers, a fence, addresses and copies of A."""
BARRIER_NS = 5.0
"""Of every step, even where products or bytes take longest: so that longer ones are preferred."""
RATE = 0.75
"""How near warpgroups come to what tensor cores can do."""


def has_warpgroups(target: CudaTarget) -> bool:
    """Whether a target multiplies by warpgroups."""
    return target.wgmma_per_clock > 0 and target.architecture.endswith("a")


def is_copied_whole(shape: Shape) -> bool:
    """Whether rows of A are copied in pieces of 16 bytes."""
    return shape.a.is_copy and shape.a.count * shape.element.bytes == PIECES[0]


@lru_cache(maxsize=256)
def cheapest_by_warpgroups(algorithm: str, shape: Shape, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of a product, best first."""
    sizes = sizes_of(WARPGROUP_TILES, depths_of(shape.element), shape, target, STAGES, LAG)
    blocks = ((one, dense_warpgroups(shape, one, target)) for one in sizes)

    def tile(sizes: Sizes) -> Tile:
        return Tile(algorithm, sizes.levels("warpgroup"))

    return tuple(cheapest(blocks, MOST_PROPOSALS, target, tile, in_seconds=True))


def dense_warpgroups(shape: Shape, sizes: Sizes, target: CudaTarget) -> Block:
    """A block of a dense product: products read both of their operands from shared memory."""
    row_bytes = sizes.depth * shape.element.bytes
    read = sizes.shares * (sizes.part_m // WGMMA_M) * (WGMMA_M + sizes.part_n) * row_bytes
    step_bytes = (sizes.m + sizes.n) * row_bytes
    return warpgroup_block(shape, sizes, step_bytes, step_bytes, read, target.wgmma_per_clock * RATE)


def warpgroup_block(shape: Shape, sizes: Sizes, step_bytes: int, stage_bytes: int, read: float, rate: float) -> Block:
    """A block of warpgroups that reads so many bytes of shared memory in a step, whose stage is as large as is said.

    `rate` is that of products of 16 bits, of which each takes as long as its bytes.
    """
    threads = sizes.shares * WARPGROUP
    copies = -(-sizes.m * sizes.depth // (threads * shape.a.count))
    products = sizes.m * sizes.n * (sizes.depth * shape.element.bytes / 2)
    cycles = max(products / rate, read / SHARED_BYTES_PER_CLOCK)
    return Block(
        sizes,
        shape.blocks(sizes),
        threads,
        sizes.part_m * sizes.part_n // WARPGROUP + OTHER_REGISTERS + 3 * copies,
        max(sizes.stages * stage_bytes, sizes.sums_bytes) + 8 * sizes.stages,  # an mbarrier for each stage
        Stage(least_ns=LATENCY_NS),
        Stage(step_bytes, cycles, least_ns=max(LEAST_STEP_NS, waiting_ns(shape, sizes.stages, LAG))),
        shape.steps(sizes),
        START_NS,
        BARRIER_NS,
        MOST_REGISTERS,
    )
