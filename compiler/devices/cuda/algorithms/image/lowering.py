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
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.contraction.floats import Floats
from compiler.devices.cuda.algorithms.contraction.lowering import CudaContraction, switches_of
from compiler.devices.cuda.algorithms.contraction.operand import half_of
from compiler.devices.cuda.algorithms.image.geometry import FewChannels, QuadPanels, as_few_channels
from compiler.devices.cuda.algorithms.image.product import ImageProduct
from compiler.devices.cuda.algorithms.image.staging import Extents, Staging, extents_of
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import MMA_BYTES, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.rectangles import InsideEpilogue
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
    return CudaImage(name, workload, view, tile, OPERANDS, found, **switches_of(target)).lower()


OPERANDS = Floats({"mma_image": "16-bit tensor cores", "mma_image_tf32": "tf32 tensor cores"})


@dataclass(frozen=True)
class CudaImage(CudaContraction):
    """`view` is the product over rectangles of pixels."""

    found: FewChannels

    counts_steps: ClassVar[bool] = False

    @cached_property
    def element(self) -> DType:
        """Of the operands of products."""
        half = half_of(self.found.view, self.workload, exact=False)
        assert half is not None or self.tile.algorithm == "mma_image_tf32", "`mma_image` is for operands of 16 bits"
        return DType.F32 if half is None or self.tile.algorithm == "mma_image_tf32" else half

    @cached_property
    def extents(self) -> Extents:
        """The image of a block."""
        rows = self.tile.extent("block", "rows")
        return extents_of(self.found, rows, self.m // rows, self.element)

    @cached_property
    def product(self) -> ImageProduct:
        """How a block multiplies what lies in shared memory."""
        warps = self.tile.extent("warp", "m"), self.tile.extent("warp", "n")
        return ImageProduct(self.element, self.m, self.n, *warps, self.extents)

    @cached_property
    def staging(self) -> Staging:
        """How the image comes to shared memory."""
        return Staging(self.found, self.slots, self.extents, self.product.threads)

    @cached_property
    def panels(self) -> QuadPanels:
        """How the weights are packed."""
        found, product = self.found, self.product
        window = self.extents.window
        return QuadPanels(found.source, found.start, window, self.n, product.element, product.as_tf32)

    @property
    def packings(self) -> Mapping[int, Packing]:
        """Inputs that are given packed."""
        return {self.found.position: self.panels}

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is done with sums of pixels inside the image before they are stored."""
        sizes = self.extents.rows, self.extents.columns
        sides = tuple(zip(self.found.sides, sizes, strict=True))
        return InsideEpilogue(
            self.view, self.slots, self.m, self.n, self.product.threads, self.total, 1, self.constants, sides
        )

    # Shared memory: the weights, behind them the image

    @property
    def _weight_pitch(self) -> int:
        return self.product.layout(self.depth).pitch

    @property
    def _image_at(self) -> int:
        return self.n * self._weight_pitch

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes."""
        return max(self._image_at + self.extents.bytes, self.epilogue.shared_bytes)

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """Steps of the tensor cores whose weights come together: the first of each group, and the one past it."""
        count, steps = self.tile.extent("block", "groups"), self.product.steps
        ends = [steps * at // count for at in range(count + 1)]
        return tuple(pairwise(ends))

    # The text

    def notes(self) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        rows, columns = self.found.sides
        size = f"{self.extents.rows} x {self.extents.columns}"
        window = f"windows of {rows.taps} x {columns.taps}, stride {rows.stride} x {columns.stride}"
        tile = f"tiles of {self.m} x {self.n}, all of k in {len(self.groups)} groups"
        return [
            f"{window}, at rectangles of {size} pixels, from an image",
            f"{tile}: {self.operands.called[self.tile.algorithm]}",
        ]

    def declare_operands(self, writer: Writer) -> None:
        """Where weights and image lie."""
        self.staging.declare(writer)
        slot = self.workload.kernel.inputs[self.found.position].name
        size = self.n * self.depth * self.element.bytes
        writer.line(f"unsigned char *const image = shared + {self._image_at};")
        place = f" + (size_t)(first_n / {self.n}) * {size}" if self.across > 1 else ""
        writer.line(f"const unsigned char *const b_packed = (const unsigned char *){slot}{place};")

    def _fill(self, writer: Writer) -> None:
        """All weights, before the wait for the predecessor, then the image."""
        threads, row_bytes = self.product.threads, self.depth * self.element.bytes
        for first, past in self.groups:
            across = (past - first) * MMA_BYTES // COPY_BYTES
            pieces = self.n * across
            with unrolled(writer, -(-pieces // threads), "i"):
                writer.line(f"const int piece = thread + i * {threads}, row = piece / {across};")
                writer.line(f"const int byte = {first * MMA_BYTES} + piece % {across} * {COPY_BYTES};")
                test = f"if (piece < {pieces}) " if pieces % threads else ""
                into, source = f"shared + row * {self._weight_pitch} + byte", f"b_packed + row * {row_bytes} + byte"
                writer.line(f"{test}tw_cp_async_16({into}, {source}, {COPY_BYTES});")
            writer.line("tw_cp_async_commit();")
        writer.line("tw_grid_dependency_wait();")
        self.staging.write(writer)

    def _steps(self, writer: Writer) -> None:
        """Group after group, each once its weights have come, and with the first one the image."""
        writer.line("const unsigned char *const b_tile = shared;")
        for at, group in enumerate(self.groups):
            writer.line(f"tw_cp_async_wait<{len(self.groups) - 1 - at}>();")
            writer.line("__syncthreads();")
            self.product.multiply_steps(writer, *group)
