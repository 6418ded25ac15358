"""Products without the groups of k that are zero for all columns of a block tile, as one CUDA kernel.

A block's steps are made of the groups that its columns keep, packed side by side (`codegen.vector_panels`); the numbers
of these groups are staged in shared memory before the first step, and rows of A are gathered by them, group by group.
What lies in shared memory is a dense tile of both operands, so that pipeline, products, split k and maps are those of
any contraction (`products.lowering`). Of a convolution a number names a position of the window and channels.

`sparse_mma_integer` is the same of bytes, summed exactly in int32 (`products.bytes`): sums of B over k, by which a
zero point of A is taken off, are those of what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.vector_sparse.form import DENSE_NAMES, OF_BYTES, VectorSparse, as_vector_sparse
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import Product
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import KEPT, Operand, Packed
from compiler.devices.cuda.codegen.vector_panels import VectorPanels
from compiler.devices.cuda.products.bytes import (
    IntegerProduct,
    padded,
    product_of_bytes,
    reading_bytes,
    take_zero_points,
)
from compiler.devices.cuda.products.floats import CALLED, plain_stage_bytes, product_by
from compiler.devices.cuda.products.lowering import CudaContraction, switches_of
from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.pipeline import PIPELINE, fill, prefetch
from compiler.devices.cuda.products.reading import reading
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.integer import IntegerContraction
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile

NUMBER_BYTES = 2
"""Of a group."""


def lower_cuda_vector_sparse(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_vector_sparse` accepts under a tile of `cuda_vector_sparse_tiles`.

    Levels: `grid` or `cluster` (parts of k), `block` (m, n, k, group, stages), `warp` or `thread` (m, n).
    """
    form = as_vector_sparse(workload)
    assert form is not None, "the tile stage offers it only to kernels of that form"
    operands = KeptFloats(form) if form.of_bytes is None else KeptBytes(form, form.of_bytes)
    parts = operands, PanelSteps(), NumberedPipeline()
    return CudaContraction(name, workload, form.view, tile, *parts, **switches_of(target)).lower()


@dataclass(frozen=True)
class PackedVectors(Packed):
    """The tiles of a panel, from its first step on."""

    @property
    def _start(self) -> str:
        assert isinstance(self.panels, VectorPanels)
        return f"(const unsigned char *){self.slot} + {self.panels.parts[2]} + (size_t)panel_step * {self.step_bytes}"


@dataclass(frozen=True)
class KeptFloats:
    """Floats, of which steps along k bring the groups that B keeps."""

    form: VectorSparse
    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = {
        name: f"{CALLED[dense]}, of groups of k that are not zero" for name, dense in DENSE_NAMES.items()
    }

    def product(self, of: CudaContraction) -> Product:
        """As the dense algorithm multiplies."""
        half = half_of(of.view, of.workload, exact=False)
        dense = DENSE_NAMES[of.tile.algorithm]
        return product_by(dense, of.tile, half if half is not None and dense == "mma" else DType.F32)

    def a(self, of: CudaContraction) -> Operand:
        """The places of the groups that are kept."""
        side = of.side("a", of.view.a, of.view.m, "first_m", of.m)
        return reading(replace(side, kept=of.tile.extent("block", "group")), of.slots)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed."""
        return _kept_b(self.form, of)

    def packing(self, of: CudaContraction) -> tuple[int, VectorPanels]:
        """Without the groups that are zero."""
        return self.form.position, _panels(self.form, of, of.product.element)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Sums are what they are."""


@dataclass(frozen=True)
class KeptBytes:
    """The same of bytes, from whose sums the zero points are taken."""

    form: VectorSparse
    of_bytes: IntegerContraction
    total: ClassVar[DType] = DType.I32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = {OF_BYTES: "8-bit tensor cores, of groups of k that are not zero"}

    def product(self, of: CudaContraction) -> IntegerProduct:
        """By warps, with the sums that zero points ask for."""
        return product_of_bytes(self.of_bytes, of.tile)

    def a(self, of: CudaContraction) -> Operand:
        """The places of the groups that are kept."""
        side = of.side("a", padded(self.of_bytes.a), of.view.m, "first_m", of.m)
        return reading_bytes(replace(side, kept=of.tile.extent("block", "group")), self.of_bytes.a, of.slots)

    def b(self, of: CudaContraction) -> Operand:
        """As it is packed."""
        return _kept_b(self.form, of)

    def packing(self, of: CudaContraction) -> tuple[int, VectorPanels]:
        """Without the groups that are zero."""
        product = of.product
        assert isinstance(product, IntegerProduct)
        return self.form.position, _panels(self.form, of, product.b_element)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Rows of both."""
        return plain_stage_bytes(of)

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Takes what the zero points add."""
        product = of.product
        assert isinstance(product, IntegerProduct)
        take_zero_points(writer, of, self.of_bytes, product)


def _panels(form: VectorSparse, of: CudaContraction, element: DType) -> VectorPanels:
    """How B is packed."""
    group = of.tile.extent("block", "group")
    return VectorPanels(
        *(replace(form.matrix, panel=0), of.n, of.depth, group, form.fill(of.n, group)),
        *(element, of.product.as_tf32),
    )


def _kept_b(form: VectorSparse, of: CudaContraction) -> Operand:
    side = of.side("b", of.view.b, (of.view.n,), "first_n", of.n)
    return PackedVectors(side, _kept(of), of.workload.kernel.inputs[form.position].name, "")


def _kept(of: CudaContraction) -> VectorPanels:
    """How B is packed."""
    assert of.packing is not None
    assert isinstance(of.packing[1], VectorPanels)
    return of.packing[1]


def _weights(of: CudaContraction) -> str:
    """The slot of B."""
    assert of.packing is not None
    return of.workload.kernel.inputs[of.packing[0]].name


@dataclass(frozen=True)
class PanelSteps:
    """Steps are those of a panel, which has as many as it keeps groups: they are counted once the panel is known."""

    def steps(self, of: CudaContraction) -> int:
        """Those of a panel that keeps every group."""
        panels = _kept(of)
        return -(-panels.groups // panels.step_groups)

    def parts(self, of: CudaContraction) -> int:
        """As many as the tile says: how many steps a panel has is not known."""
        return max(of.tile.extent("grid", "k", 1), of.cluster)

    def declare(self, of: CudaContraction, writer: Writer, part: str) -> None:
        """Which part of a panel's steps are the block's."""
        if part:
            writer.line(f"const int part = {part};")

    def begin(self, of: CudaContraction, writer: Writer) -> None:
        """Which steps of the tile's panel are the block's."""
        panel = f" + first_n / {of.n}" if _kept(of).count > 1 else ""
        writer.line(f"const int *const panel = (const int *){_weights(of)}{panel};")
        writer.line("const int panel_step = panel[0], panel_steps = panel[1] - panel_step;")
        const = "" if of.bounds else "const "
        if of.parts == 1:
            writer.line("const int first_step = 0;")
            writer.line(f"{const}int past_step = panel_steps;")
            return
        writer.line(f"const int part_steps = (panel_steps + {of.parts - 1}) / {of.parts};")
        writer.line("const int first_step = min(part * part_steps, panel_steps);")
        writer.line(f"{const}int past_step = min(first_step + part_steps, panel_steps);")


@dataclass(frozen=True)
class NumberedPipeline:
    """The pipeline, with the numbers of the groups by which A is gathered behind its stages."""

    def ahead(self, of: CudaContraction) -> int:
        """As of the pipeline."""
        return PIPELINE.ahead(of)

    def shared_bytes(self, of: CudaContraction) -> int:
        """Numbers for as many steps as the block's part may have included."""
        return _numbers_at(of) + -(-of.part_steps * _kept(of).step_groups * NUMBER_BYTES // 16) * 16

    def packings(self, of: CudaContraction) -> Mapping[int, Packing]:
        """As of the pipeline."""
        return PIPELINE.packings(of)

    def epilogue(self, of: CudaContraction) -> Epilogue:
        """As of the pipeline."""
        return PIPELINE.epilogue(of)

    def notes(self, of: CudaContraction) -> list[str]:
        """As of the pipeline."""
        return PIPELINE.notes(of)

    def declare(self, of: CudaContraction, writer: Writer) -> None:
        """Where the numbers of groups are, what threads keep of both operands, and the functions that bring them."""
        at = f"(unsigned short *)(shared + {_numbers_at(of)})"
        writer.line(f"unsigned short *const {KEPT} = {at}; /* of k, for each step */")
        PIPELINE.declare(of, writer)

    def fill(self, of: CudaContraction, writer: Writer) -> None:
        """The first stages; numbers of groups before A is gathered by them."""
        fill(of, writer, _bring_numbers)

    def multiply(self, of: CudaContraction, writer: Writer) -> None:
        """As of the pipeline."""
        PIPELINE.multiply(of, writer)


def _numbers_at(of: CudaContraction) -> int:
    """Where in shared memory the numbers of groups are."""
    return -(-PIPELINE.shared_bytes(of) // 16) * 16


def _bring_numbers(of: CudaContraction, writer: Writer) -> None:
    """Weights that no stage has room for yet, and then the numbers of the groups by which A is gathered."""
    prefetch(of, writer)
    panels = _kept(of)
    words = panels.step_groups // 2
    start = f"(const unsigned *)((const unsigned char *){_weights(of)} + {panels.parts[1]})"
    writer.line(f"const unsigned *const numbers = {start} + (panel_step + first_step) * {words}; /* two in each */")
    count = f"(past_step - first_step) * {words}"
    with writer.block(f"for (int i = thread; i < {count}; i += {of.product.threads})"):
        writer.line(f"((unsigned *){KEPT})[i] = numbers[i];")
    writer.line("__syncthreads();")
