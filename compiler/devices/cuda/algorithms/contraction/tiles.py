"""Legal tiles of products on a GPU, for `mma`, `mma_tf32`, `mma_3xtf32` and `ffma`.

They are lowered by `compiler.devices.cuda.products.lowering`, and cost what `products.costs` says.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from compiler.devices.cuda.products.costs import cheapest, dense_block
from compiler.devices.cuda.products.operand import source
from compiler.devices.cuda.products.tiles import (
    ELEMENT_CYCLES,
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
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, as_contraction
from compiler.ir.expr import conjuncts
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

DECODED_CYCLES = 3.5
"""As ELEMENT_CYCLES, for each further axis that a place is decoded to, and each condition. Counted in the machine code
of first layers: 22 an element for three such axes, 36 with four conditions beside them."""


def cuda_contraction_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none for what is no product."""
    view = as_contraction(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if view is None or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    if not view.batches * view.rows * view.columns:
        return []
    ways = [(name, shape_of(view, workload, element)) for name, element in products_of(view, workload, precision)]
    if precision != "fp32":  # where an image competes with elements that are gathered one by one
        ways = [(name, replace(shape, a=_counted(shape.a, view))) for name, shape in ways]
    return [*_cheapest(tuple(ways), target)]


@lru_cache(maxsize=256)
def _cheapest(ways: tuple[tuple[str, Shape], ...], target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles of products by some algorithms, best first."""
    blocks = (
        ((name, sizes), dense_block(name, shape, sizes, target))
        for name, shape in ways
        for sizes in sizes_of(block_tiles(name), depths_of(shape.element), shape, target)
    )

    def tile(of: tuple[str, Sizes]) -> Tile:
        name, sizes = of
        return Tile(name, sizes.levels(inner_of(name)))

    return tuple(cheapest(blocks, MOST_PROPOSALS, target, tile, in_seconds=True))


def _counted(reading: Reading, view: Contraction) -> Reading:
    """How A is read, with what decoding the places of single elements and their conditions ask for."""
    if reading.count > 1:
        return reading
    condition, value = source(view.a)
    conditions = conjuncts(condition) if condition is not None else []
    axes = value.axes.union(*(one.axes for one in conditions))
    decoded = sum(max(len(axes & set(side)) - 1, 0) for side in (view.m, view.k))
    return replace(reading, instructions=ELEMENT_CYCLES + DECODED_CYCLES * (decoded + len(conditions)))
