"""Legal tiles of products by weights that are zero at two of each four places along k (`sparse.lowering`).

They are those of `mma`, with 64 elements of k at least in a step, so that a word of metadata is whole, and with tiles
of 8 rows. The model is a product's: tensor cores take twice as many places of k in a cycle, and of B 9 bytes are moved
and read where a dense one has 16; 10 where elements are bytes, of which they take twice as many again. A is moved and
read whole, so that narrow tiles gain less.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from compiler.devices.cuda.algorithms.sparse.form import as_sparse_contraction, as_sparse_integer
from compiler.devices.cuda.products.bytes import shape_of_bytes
from compiler.devices.cuda.products.costs import (
    CHAIN_CYCLES,
    SHARED_BYTES_PER_CLOCK,
    Block,
    cheapest,
    product_block,
)
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.tiles import MOST_OFFSET, MOST_PROPOSALS, Shape, Sizes, shape_of, sizes_of
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.encodings.two_of_four import GROUP, KEPT
from compiler.forms.integer import IntegerContraction
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
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
    return replace(shape_of(view, workload, half), b=None)  # it is packed


def _integer_tiles(form: IntegerContraction, workload: Workload, target: CudaTarget) -> list[Proposal]:
    """Those of products of bytes."""
    shape = shape_of_bytes(form, workload)
    return [] if shape is None else [*_cheapest("sparse_integer", shape, form.a.fixed_zero != 0, target)]


@lru_cache(maxsize=256)
def _cheapest(algorithm: str, shape: Shape, summed: bool, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of a product, best first.

    `summed` says whether columns of B are summed too, as products with ones.
    """
    sizes = sizes_of(TILES, DEPTHS, shape, target)
    blocks = ((one, _block(shape, one, summed, target)) for one in sizes)
    return tuple(cheapest(blocks, MOST_PROPOSALS, target, lambda one: Tile(algorithm, one.levels("warp"))))


def _block(shape: Shape, sizes: Sizes, summed: bool, target: CudaTarget) -> Block | None:
    """A product's of which B is what is kept, with its metadata, and both instructions of a word have operands."""
    m, n, part_m, part_n, depth = sizes.m, sizes.n, sizes.part_m, sizes.part_n, sizes.depth
    row_bytes = depth * shape.element.bytes
    kept_bytes = depth * KEPT / GROUP * (shape.element.bytes + PLACE_BYTES)
    rows = m + (m // part_m * ROWS if summed else 0)
    products = rows * n * row_bytes / 2  # as many as of 16 bits would take
    read = sizes.shares * (part_m * row_bytes + part_n * kept_bytes)
    return product_block(
        shape,
        sizes,
        sizes.shares * WARP,
        part_m * part_n // WARP + 2 * (part_m // 8 * 4 + part_n // 16 * 5) + (part_n // 4 if summed else 0),
        m * row_bytes + int(n * kept_bytes),
        max(products / (target.mma_per_clock * RATE), read / SHARED_BYTES_PER_CLOCK),
        row_bytes / ROW_BYTES * CHAIN_CYCLES / target.clock_ghz,
    )
