"""Legal tiles of products by `wgmma.sp` (`sparse.warpgroups`), on the architecture that has warpgroups.

A is copied in whole pieces of 16 bytes. The model is that of `products.warpgroups`: tensor cores take twice as many
places of k in a cycle, and of B 9 bytes are moved and read where a dense one has 16; 10 where elements are bytes, of
which they take twice as many again. A tile has 64 columns at least.
"""

from __future__ import annotations

from functools import lru_cache

from compiler.devices.cuda.algorithms.sparse.form import as_sparse_integer
from compiler.devices.cuda.algorithms.sparse.tiles import shape_of_halves
from compiler.devices.cuda.algorithms.sparse.warpgroups import STEP_BYTES
from compiler.devices.cuda.codegen.sparse_panels import WORD_COLUMNS, WORD_DEPTH, WORDS_BYTES
from compiler.devices.cuda.products.bytes import shape_of_bytes
from compiler.devices.cuda.products.costs import Block, cheapest
from compiler.devices.cuda.products.tiles import MOST_OFFSET, Shape, Sizes, sizes_of
from compiler.devices.cuda.products.warpgroups import (
    LAG,
    MOST_PROPOSALS,
    RATE,
    STAGES,
    has_warpgroups,
    is_copied_whole,
    warpgroup_block,
)
from compiler.devices.cuda.products.wgmma import WGMMA_M
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.two_of_four import GROUP, KEPT
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
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
    sizes = sizes_of(TILES, (STEP_BYTES // shape.element.bytes,), shape, target, STAGES, LAG)
    blocks = ((one, _block(shape, one, target)) for one in sizes)
    return tuple(cheapest(blocks, MOST_PROPOSALS, target, lambda one: Tile(algorithm, one.levels("warpgroup"))))


def _block(shape: Shape, sizes: Sizes, target: CudaTarget) -> Block:
    """Products read both of their operands from shared memory, and metadata beside them."""
    row_bytes = sizes.depth * shape.element.bytes
    metadata = sizes.n // WORD_COLUMNS * (sizes.depth // WORD_DEPTH) * WORDS_BYTES
    step_bytes = sizes.m * row_bytes + sizes.n * row_bytes * KEPT // GROUP + metadata
    each = WGMMA_M * KEPT // GROUP + sizes.part_m
    read = sizes.shares * (sizes.part_n // WGMMA_M) * each * row_bytes + metadata
    stage = -(-step_bytes // ATOM_BYTES) * ATOM_BYTES
    return warpgroup_block(shape, sizes, step_bytes, stage, read, target.wgmma_per_clock * RATE * PLACES)
