"""Convolutions of few channels as one CUDA kernel: `mma_image` and `mma_image_tf32`.

The kernel is that of a product (`contraction`) whose operand A is an image in shared memory (`staging`, `product`). A
block asks for all weights of its columns before it waits for its predecessor, in groups along k; then it brings the
image, and multiplies group after group, while the weights of later ones may still be under way:

    weights of all groups   |   image   |   products of group 0, 1, ..   |   maps

A sum is never split, and no element of the image is brought twice by a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.image.geometry import FewChannels, QuadPanels, as_few_channels
from compiler.devices.cuda.algorithms.image.product import ImageProduct
from compiler.devices.cuda.algorithms.image.staging import Extents, Staging, extents_of
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import MMA_BYTES, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand
from compiler.devices.cuda.codegen.rectangles import InsideEpilogue
from compiler.devices.cuda.products.floats import plain_a, plain_b, plain_stage_bytes
from compiler.devices.cuda.products.lowering import CudaContraction, switches_of
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.pipeline import Even
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

COPY_BYTES = 16
"""Of weights, that a thread asks for at once."""


def lower_cuda_image(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_few_channels` accepts.

    Levels: `block` (m, n, k: all of it, and of the m pixels `rows`; `groups` of k), `warp` (m, n).
    """
    found = as_few_channels(workload)
    assert found is not None, "the tile stage offers `mma_image` only to kernels of that form"
    rows = tile.extent("block", "rows")
    view = found.product(rows, tile.extent("block", "m") // rows)
    image = Image(found)
    return CudaContraction(
        name, workload, view, tile, ImageOperands(image), Even(counts=False), ImageFlow(image), **switches_of(target)
    ).lower()


@dataclass(frozen=True)
class Image:
    """What a block has of the image, and of the weights of all of its windows."""

    found: FewChannels

    def element(self, of: CudaContraction) -> DType:
        """Of the operands of products."""
        half = half_of(self.found.view, of.workload, exact=False)
        assert half is not None or of.tile.algorithm == "mma_image_tf32", "`mma_image` is for operands of 16 bits"
        return DType.F32 if half is None or of.tile.algorithm == "mma_image_tf32" else half

    def extents(self, of: CudaContraction) -> Extents:
        """The image of a block."""
        rows = of.tile.extent("block", "rows")
        return extents_of(self.found, rows, of.m // rows, self.element(of))

    def staging(self, of: CudaContraction) -> Staging:
        """How the image comes to shared memory."""
        return Staging(self.found, of.slots, self.extents(of), of.product.threads)


@dataclass(frozen=True)
class ImageOperands:
    """Pixels of few channels, and packed weights. Neither comes step by step: see ImageFlow."""

    image: Image
    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"mma_image": "16-bit tensor cores", "mma_image_tf32": "tf32 tensor cores"}
    )

    def product(self, of: CudaContraction) -> ImageProduct:
        """How a block multiplies what lies in shared memory."""
        warps = of.tile.extent("warp", "m"), of.tile.extent("warp", "n")
        return ImageProduct(self.image.element(of), of.m, of.n, *warps, self.image.extents(of))

    def a(self, of: CudaContraction) -> Operand:
        """Only its layout is of use: the image is staged whole."""
        return plain_a(of)

    def b(self, of: CudaContraction) -> Operand:
        """Only its layout is of use: the weights come in groups."""
        return plain_b(of)

    def packing(self, of: CudaContraction) -> None:
        """None in panels: weights are packed by pixels (`ImageFlow.packings`)."""

    def stage_bytes(self, of: CudaContraction) -> int:
        """Of both, which no stage holds."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Sums are what they are."""


@dataclass(frozen=True)
class ImageFlow:
    """All weights and the image of a block lie in shared memory; products go on as the weights come, in groups."""

    image: Image

    def ahead(self, of: CudaContraction) -> int:
        """None: there are no stages."""
        return 0

    def packings(self, of: CudaContraction) -> Mapping[int, Packing]:
        """The weights, by pixels of the window."""
        found, product = self.image.found, of.product
        window = self.image.extents(of).window
        panels = QuadPanels(found.source, found.start, window, of.n, product.element, product.as_tf32)
        return {found.position: panels}

    def epilogue(self, of: CudaContraction) -> Epilogue:
        """What is done with sums of pixels inside the image before they are stored."""
        extents = self.image.extents(of)
        sides = tuple(zip(self.image.found.sides, (extents.rows, extents.columns), strict=True))
        return InsideEpilogue(of.view, of.slots, of.m, of.n, of.product.threads, of.total, 1, of.constants, sides)

    def shared_bytes(self, of: CudaContraction) -> int:
        """The weights and behind them the image, or the sums that take their place."""
        return max(_image_at(of) + self.image.extents(of).bytes, of.epilogue.shared_bytes)

    def groups(self, of: CudaContraction) -> tuple[tuple[int, int], ...]:
        """Steps of the tensor cores whose weights come together: the first of each group, and the one past it."""
        product = of.product
        assert isinstance(product, ImageProduct)
        count, steps = of.tile.extent("block", "groups"), product.steps
        ends = [steps * at // count for at in range(count + 1)]
        return tuple(pairwise(ends))

    def notes(self, of: CudaContraction) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        rows, columns = self.image.found.sides
        extents = self.image.extents(of)
        size = f"{extents.rows} x {extents.columns}"
        window = f"windows of {rows.taps} x {columns.taps}, stride {rows.stride} x {columns.stride}"
        tile = f"tiles of {of.m} x {of.n}, all of k in {len(self.groups(of))} groups"
        return [
            f"{window}, at rectangles of {size} pixels, from an image",
            f"{tile}: {of.operands.called[of.tile.algorithm]}",
        ]

    def declare(self, of: CudaContraction, writer: Writer) -> None:
        """Where weights and image lie."""
        self.image.staging(of).declare(writer)
        slot = of.workload.kernel.inputs[self.image.found.position].name
        size = of.n * of.depth * self.image.element(of).bytes
        writer.line(f"unsigned char *const image = shared + {_image_at(of)};")
        place = f" + (size_t)(first_n / {of.n}) * {size}" if of.across > 1 else ""
        writer.line(f"const unsigned char *const b_packed = (const unsigned char *){slot}{place};")

    def fill(self, of: CudaContraction, writer: Writer) -> None:
        """All weights, before the wait for the predecessor, then the image."""
        threads, row_bytes = of.product.threads, of.depth * self.image.element(of).bytes
        for first, past in self.groups(of):
            across = (past - first) * MMA_BYTES // COPY_BYTES
            pieces = of.n * across
            with unrolled(writer, -(-pieces // threads), "i"):
                writer.line(f"const int piece = thread + i * {threads}, row = piece / {across};")
                writer.line(f"const int byte = {first * MMA_BYTES} + piece % {across} * {COPY_BYTES};")
                test = f"if (piece < {pieces}) " if pieces % threads else ""
                into, source = f"shared + row * {_weight_pitch(of)} + byte", f"b_packed + row * {row_bytes} + byte"
                writer.line(f"{test}tw_cp_async_16({into}, {source}, {COPY_BYTES});")
            writer.line("tw_cp_async_commit();")
        writer.line("tw_grid_dependency_wait();")
        self.image.staging(of).write(writer)

    def multiply(self, of: CudaContraction, writer: Writer) -> None:
        """Group after group, each once its weights have come, and with the first one the image."""
        product, groups = of.product, self.groups(of)
        assert isinstance(product, ImageProduct)
        writer.line("const unsigned char *const b_tile = shared;")
        for at, group in enumerate(groups):
            writer.line(f"tw_cp_async_wait<{len(groups) - 1 - at}>();")
            writer.line("__syncthreads();")
            product.multiply_steps(writer, *group)


def _weight_pitch(of: CudaContraction) -> int:
    return of.product.layout(of.depth).pitch


def _image_at(of: CudaContraction) -> int:
    """Where in shared memory the image is: behind the weights."""
    return of.n * _weight_pitch(of)
