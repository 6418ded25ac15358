"""Legal tiles of convolutions of few channels (`compiler.devices.cuda.algorithms.image.lowering`).

They are those of a product, each block with a rectangle of pixels and all of k. The model is a product's, whose first
step waits for the image: its elements are loaded, converted and stored one by one, but each once, where im2col takes
one for each tap. Steps are groups of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from compiler.devices.cuda.algorithms.image.geometry import as_few_channels
from compiler.devices.cuda.algorithms.image.staging import HELD, Extents, extents_of
from compiler.devices.cuda.products.costs import (
    LATENCY_NS,
    OTHER_REGISTERS,
    STEP_NS,
    Block,
    Issue,
    Stage,
    cheapest,
    multiplied,
    product_registers,
)
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.tiles import MOST_OFFSET, Shape, Sizes, block_tiles, whole
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal

MOST_PROPOSALS = 20
MORE_WARP_TILES = (
    *((64, 48, 32, 24), (128, 48, 32, 24), (128, 48, 32, 48), (64, 96, 32, 48), (64, 96, 16, 48), (128, 96, 32, 48)),
    *((128, 96, 64, 48), (128, 96, 32, 96), (256, 32, 32, 32), (256, 64, 32, 64), (256, 64, 64, 32)),
    *((64, 32, 16, 32), (64, 64, 16, 64), (128, 64, 32, 64), (128, 64, 16, 64)),
)
"""Columns of three quarters of a power of two; more pixels, whose windows share more of an image."""
COLUMNS = (8, 16, 32)
"""Pixels of a rectangle's row: fragments have rows of 8 pixels that are neighbours."""
GROUPS = (1, 2, 4)
LEAST_GROUP = 2
"""Steps of the tensor cores of a group."""
PRODUCTS = {"mma_image": "mma", "mma_image_tf32": "mma_tf32"}
"""The algorithm that multiplies in the same way."""
LINE_BYTES = 32
"""What memory moves beside a row of an image, which is aligned to nothing."""
LINE, ELEMENT = 12, 15
"""Instructions for a row of an image, of a thread that has a part of it, and for an element: whether it is there, a
load, a conversion, its part of a store."""
MASKED = 2.0
"""Instructions for a register of a fragment of A: a load, and leaving out what is no tap."""


def cuda_image_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first.

    None for what is no convolution of few channels, and in fp32, whose operands tensor cores would round.
    """
    if precision == "fp32":
        return []
    found = as_few_channels(workload)
    if found is None or any(buffer.span >= MOST_OFFSET for buffer in (*workload.inputs, *workload.outputs)):
        return []
    view = found.view
    if not view.rows * view.columns:
        return []
    half = half_of(view, workload, exact=precision == "tf32")
    slots = Slots(workload)
    operand = max(slots.buffers[load.slot].dtype.bytes for load in found.value.loads)
    images = prod(axis.extent for axis in found.outer)
    facts = Facts(images, found.rows.output.extent, found.columns.output.extent, operand, len(set(found.value.loads)))
    window = extents_of(found, 1, COLUMNS[0], half or DType.F32)
    name = "mma_image_tf32" if half is None else "mma_image"
    return [*_cheapest(name, facts, window, view.columns, target)]


@dataclass(frozen=True)
class Facts:
    """What all tiles share: `images` of `rows` x `columns` results, `loads` of `operand` bytes for each position."""

    images: int
    rows: int
    columns: int
    operand: int
    loads: int


@lru_cache(maxsize=256)
def _cheapest(name: str, facts: Facts, least: Extents, columns: int, target: CudaTarget) -> tuple[Proposal, ...]:
    """The most promising tiles, best first; `least` is the image of any rectangle."""
    tiles = _tiles(facts, least, columns)
    blocks = ((one, _block(PRODUCTS[name], facts, *one, target)) for one in tiles)
    return tuple(cheapest(blocks, MOST_PROPOSALS, target, lambda one: _tile(name, *one)))


def _tiles(facts: Facts, least: Extents, columns: int) -> Iterator[tuple[Shape, Sizes, Extents]]:
    """With the shape of the product of whole rectangles, and their images; a stage has a group of weights."""
    window, element = least.window, least.element
    for m, n, part_m, part_n in block_tiles("mma", MORE_WARP_TILES, columns=columns):
        for across in COLUMNS:
            rows = m // across
            if not rows or (rows > 1 and rows >= 2 * facts.rows) or (across > 8 and across >= 2 * facts.columns):
                continue
            extents = Extents(window, rows, across, least.strides, least.dilation, element)
            blocks = facts.images * -(-facts.rows // rows) * -(-facts.columns // across)
            shape = Shape(1, blocks * m, columns, window.depth, element, whole(element), None)
            steps = window.depth * element.bytes // 32
            for groups in GROUPS:
                if groups == 1 or steps // groups >= LEAST_GROUP:
                    yield shape, Sizes(m, n, part_m, part_n, window.depth, groups), extents


def _tile(name: str, shape: Shape, sizes: Sizes, extents: Extents) -> Tile:
    block = (("m", sizes.m), ("n", sizes.n), ("k", sizes.depth), ("rows", extents.rows), ("groups", sizes.stages))
    return Tile(name, (Level("block", block), Level("warp", (("m", sizes.part_m), ("n", sizes.part_n)))))


def _block(algorithm: str, facts: Facts, shape: Shape, sizes: Sizes, extents: Extents, target: CudaTarget) -> Block:
    """Steps are groups of weights, multiplied beside the copies of the next one.

    Before them come the image and the first weights, with one trip for each turn of a thread.
    """
    size, groups, warps = shape.element.bytes, sizes.stages, sizes.shares
    group_bytes = sizes.n * sizes.depth * size // groups
    row_bytes = extents.across * facts.operand * facts.loads + LINE_BYTES
    image_bytes = extents.window.channels * extents.down * row_bytes
    turns = extents.turns(warps * WARP)
    issue = Issue(turns.rows * LINE + turns.words * extents.together * ELEMENT, warps, 4)
    cycles, chain_ns = multiplied(algorithm, sizes, size, target)
    fragments = warps * sizes.part_m * sizes.depth / groups * size / (WARP * 4)  # registers of A
    return Block(
        sizes,
        shape.blocks(sizes),
        warps * WARP,
        max(product_registers(algorithm, sizes) + sizes.part_m // 8, 2 * HELD) + OTHER_REGISTERS,
        max(sizes.n * (sizes.depth * size + 16) + extents.bytes, sizes.sums_bytes),
        Stage(image_bytes + group_bytes, 0.0, issue, STEP_NS, LATENCY_NS * turns.count),
        Stage(
            group_bytes if groups > 1 else 0,
            cycles / groups + fragments * MASKED / 4,
            beside_ns=STEP_NS,
            least_ns=chain_ns / groups + STEP_NS,
        ),
        groups,
    )
