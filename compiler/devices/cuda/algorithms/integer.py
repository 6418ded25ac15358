"""The `integer` algorithm of CUDA (`compiler.forms.integer`).

Products of bytes with zero points by 8-bit tensor cores, summed exactly in int32 (`products.bytes`). Pipeline, split k
and maps are those of any contraction. Tiles are those of other products, with 32 elements of k in a fragment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as points
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.algorithm import CudaAlgorithm
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.products.bytes import (
    IntegerProduct,
    padded,
    product_of_bytes,
    reading_bytes,
    shape_of_bytes,
    take_zero_points,
)
from compiler.devices.cuda.products.costs import (
    MOST_HELD,
    Block,
    cheapest,
    divides,
    multiplied,
    pipelined_block,
    product_registers,
)
from compiler.devices.cuda.products.floats import plain_stage_bytes, times_loaded
from compiler.devices.cuda.products.lowering import CudaContraction
from compiler.devices.cuda.products.operand import access_of
from compiler.devices.cuda.products.pipeline import pipelined
from compiler.devices.cuda.products.tiles import (
    ELEMENT_CYCLES,
    MOST_OFFSET,
    MOST_PROPOSALS,
    STAGES,
    WARP_TILES,
    Reading,
    Shape,
    Sizes,
    depths_of,
    parts_of,
)
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.forms.integer import IntegerContraction, as_integer
from compiler.forms.normal_form import Slots
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal


def cuda_integer_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first.

    None for what is no product of bytes, or pads rows of many zero points.
    """
    form = as_integer(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if form is None or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    shape = shape_of_bytes(form, workload)
    if shape is None:
        return []
    if form.packing(workload, 1) is None:
        b = form.b.value
        count = access_of(b, form.view.k[-1], Slots(workload), b.dtype).count
        shape = replace(shape, b=Reading(count, is_copy=count > 1))
    blocks = ((sizes, _block(shape, sizes, target)) for sizes in _sizes(shape))

    def tile(sizes: Sizes) -> Tile:
        return Tile("integer", sizes.levels("warp"))

    return cheapest(blocks, MOST_PROPOSALS, target, tile, in_seconds=True)


def _sizes(shape: Shape) -> Iterator[Sizes]:
    """Of all tiles, however many blocks there are."""
    for tile, depth in points(WARP_TILES, depths_of(shape.element)):
        steps = -(-shape.depth // depth)
        for stages, parts in points(STAGES, parts_of(steps)):
            if stages <= max(steps + 1, 2):
                yield Sizes(*tile, depth, stages, parts)


def _block(shape: Shape, sizes: Sizes, target: CudaTarget) -> Block | None:
    """A product's, with bytes that threads take one by one, if they divide evenly."""
    threads = sizes.shares * WARP
    rows = sizes.m * (shape.a.count == 1) + sizes.n * (shape.b is not None and shape.b.count == 1)
    gathered = rows * sizes.depth // threads
    if gathered > MOST_HELD or not divides(sizes, threads):
        return None
    cycles, chain_ns = multiplied("mma_integer", sizes, 1, target)
    cycles += gathered * threads / WARP * ELEMENT_CYCLES / 4
    registers = product_registers("mma_integer", sizes) + gathered + 56
    step_bytes = (sizes.m + sizes.n) * sizes.depth
    return pipelined_block(shape, sizes, threads, registers, step_bytes, cycles, chain_ns)


def lower_cuda_integer(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_integer` accepts, under levels `grid` (parts of k), `block` (m, n, k, stages) and `warp`."""
    form = as_integer(workload)
    assert form is not None, "the tile stage offers `integer` only to kernels of that form"
    return pipelined(name, workload, form.view, tile, Integers(form), target).lower()


@dataclass(frozen=True)
class Integers:
    """Operands of bytes, multiplied by warps to sums in int32, from which the zero points are taken afterwards."""

    form: IntegerContraction
    total: ClassVar[DType] = DType.I32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = {"integer": "8-bit tensor cores"}

    def product(self, of: CudaContraction) -> IntegerProduct:
        """By warps, with the sums that zero points ask for."""
        return product_of_bytes(self.form, of.tile)

    def a(self, of: CudaContraction) -> Operand:
        """Bytes, the zero point where they are padded."""
        return reading_bytes(of.side("a", padded(self.form.a), of.view.m, "first_m", of.m), self.form.a, of.slots)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed, or where it lies."""
        side = of.side("b", self.form.b.value, (of.view.n,), "first_n", of.n)
        return of.reading_b(replace(side, element=self.form.b.value.dtype))

    def packing(self, of: CudaContraction) -> tuple[int, BlockPanels] | None:
        """A constant that is read nowhere else."""
        found = self.form.packing(of.workload, of.n)
        if found is None or times_loaded(of.view, of.workload.kernel.inputs[found[0]].name) > 1:
            return None
        position, matrix = found
        return position, BlockPanels(replace(matrix, panel=0), of.n, of.depth, self.form.b.value.dtype)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Takes what the zero points add."""
        product = of.product
        assert isinstance(product, IntegerProduct)
        take_zero_points(writer, of, self.form, product)


INTEGER = CudaAlgorithm(("integer",), cuda_integer_tiles, lower_cuda_integer, in_fp32=frozenset({"integer"}))
