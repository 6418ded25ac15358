"""Legal tiles of convolutions of few channels (`compiler.devices.cuda.algorithms.image.lowering`).

They are those of a product, each block with a rectangle of pixels and all of k. The model is a product's, whose first
step waits for the image: its elements are loaded, converted and stored one by one, but each once, where im2col takes
one for each tap. Steps are groups of weights.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from compiler.devices.cuda.algorithms.contraction.operand import half_of
from compiler.devices.cuda.algorithms.contraction.tiles import (
    LATENCY_NS,
    MOST_OFFSET,
    MOST_REGISTERS,
    STEP_NS,
    WARP,
    WARP_TILES,
    Reading,
    Shape,
    Work,
    product_registers,
)
from compiler.devices.cuda.algorithms.image.geometry import as_few_channels
from compiler.devices.cuda.algorithms.image.staging import HELD, Extents, extents_of
from compiler.devices.cuda.model import STALL
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.once import once
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
    works = (work for work in _works(name, facts, least, columns) if work.fits(target))
    best = heapq.nsmallest(MOST_PROPOSALS, ((work.ns(target), at, work) for at, work in enumerate(works)))
    return tuple(work.proposal(target) for _, _, work in best)


def _works(name: str, facts: Facts, least: Extents, columns: int) -> Iterator[ImageWork]:
    window, element = least.window, least.element
    whole = Reading(16 // element.bytes, is_copy=True)
    for m, n, part_m, part_n in (*WARP_TILES, *MORE_WARP_TILES):
        if n > 8 and n >= 2 * columns:
            continue
        for across in COLUMNS:
            rows = m // across
            if not rows or (rows > 1 and rows >= 2 * facts.rows) or (across > 8 and across >= 2 * facts.columns):
                continue
            extents = Extents(window, rows, across, least.strides, least.dilation, element)
            blocks = facts.images * -(-facts.rows // rows) * -(-facts.columns // across)
            shape = Shape(1, blocks * m, columns, window.depth, element, whole, None)
            steps = window.depth * element.bytes // 32
            for groups in GROUPS:
                if groups == 1 or steps // groups >= LEAST_GROUP:
                    sizes = m, n, part_m, part_n, window.depth, groups + 1, 1, False
                    yield ImageWork(PRODUCTS[name], shape, *sizes, extents, facts)


@dataclass(frozen=True)
class ImageWork(Work):
    """One tile and what it costs."""

    extents: Extents
    facts: Facts

    @property
    def groups(self) -> int:
        """Of weights, which are the steps of the model."""
        return self.stages - 1

    @property
    def tile(self) -> Tile:
        """These sizes as a tile, by which the lowering reads them."""
        sizes = (("m", self.m), ("n", self.n), ("k", self.depth), ("rows", self.extents.rows), ("groups", self.groups))
        name = next(name for name, product in PRODUCTS.items() if product == self.algorithm)
        return Tile(name, (Level("block", sizes), Level("warp", (("m", self.part_m), ("n", self.part_n)))))

    @once
    def steps(self) -> int:
        """Of one block."""
        return self.groups

    @once
    def step_bytes(self) -> int:
        """Bytes of weights of a group."""
        return self.n * self.depth * self.shape.element.bytes // self.groups

    @once
    def image_bytes(self) -> int:
        """That a block loads for its image."""
        extents = self.extents
        row = extents.across * self.facts.operand * self.facts.loads + LINE_BYTES
        return extents.window.channels * extents.down * row

    @once
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes."""
        weights = self.n * (self.depth * self.shape.element.bytes + 16)
        return max(weights + self.extents.bytes, self.m * (self.n + 8) * 4)

    @once
    def registers(self) -> int:
        """Registers of a thread, estimated."""
        return max(product_registers(self.algorithm, self.part_m, self.part_n) + self.part_m // 8, 2 * HELD) + 40

    def fits(self, target: CudaTarget) -> bool:
        """Whether the device has as much shared memory and as many registers."""
        return self.shared_bytes <= target.block_shared_bytes and self.registers <= MOST_REGISTERS

    def _first_ns(self, together: int, target: CudaTarget) -> float:
        """The image and the first weights, behind which nothing is multiplied; one trip for each turn of a thread."""
        turns = self.extents.turns(self.threads).count
        per_ns = self.step_bytes / max(self._moved_ns(1, target), 1e-9)
        moved = together * (self.image_bytes + self.step_bytes) / per_ns
        return LATENCY_NS * turns + moved + self._staged_ns(together, target) + STEP_NS

    def _staged_ns(self, together: int, target: CudaTarget) -> float:
        """Instructions that bring the image, of so many blocks, on four schedulers."""
        turns = self.extents.turns(self.threads)
        each = turns.rows * LINE + turns.words * self.extents.together * ELEMENT
        warps = together * self.threads / WARP
        return each * max(warps / 4, STALL) / target.clock_ghz

    def _step_ns(self, together: int, target: CudaTarget) -> float:
        """A group: its products beside the copies of the next one."""
        moved = self._moved_ns(together, target) if self.groups > 1 else 0.0
        units = together * self._cycles(target) / target.clock_ghz
        return max(moved, units + STEP_NS, self._chain_ns(target) + STEP_NS)

    def _cycles(self, target: CudaTarget) -> float:
        """Of a multiprocessor, for one block's group.

        Products, or reading shared memory; beside it, what fragments of A ask for.
        """
        products = self.m * self.n * self.depth / self.groups
        per_clock = {"mma": 1.0, "mma_tf32": 0.5}[self.algorithm]
        warps = self.threads / WARP
        element = self.shape.element.bytes
        read = warps * (self.part_m + self.part_n) * self.depth / self.groups * element
        registers = warps * self.part_m * self.depth / self.groups * element / (WARP * 4)
        rate = target.mma_per_clock * per_clock * 0.8
        return max(products / rate, read / 128) + registers * MASKED / 4

    def _chain_ns(self, target: CudaTarget) -> float:
        """The products of a group that wait for one another."""
        return super()._chain_ns(target) / self.groups
