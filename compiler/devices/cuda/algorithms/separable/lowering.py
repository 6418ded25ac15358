"""Separable convolutions as one CUDA kernel: `separable`, `separable_tf32`, `separable_3xtf32` and `separable_ffma`.

The kernel is that of a product (`contraction`) whose tile of A is computed: a block has a rectangle of pixels, and for
each stretch of channels the window's results at them (`staged_window`). Two such tiles take turns, so that a stretch is
computed while the one before is multiplied and the copies of later ones, positions and weights of both halves, are
under way:

    copies of step s + stages - 1   |   window of step s + 1   |   product of step s

Channels are split over blocks as k of a product is: no part of the window is then computed twice. It is where a block
does not have all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.separable.geometry import Staged, as_staged, element_of
from compiler.devices.cuda.algorithms.separable.staged_window import StagedWindow, aligned
from compiler.devices.cuda.algorithms.separable.tiles import PRODUCTS
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import Product, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand, Packed
from compiler.devices.cuda.codegen.panels import BlockPanels
from compiler.devices.cuda.codegen.rectangles import InsideEpilogue
from compiler.devices.cuda.products.floats import plain_a, plain_b, plain_packing, product_by
from compiler.devices.cuda.products.lowering import CudaContraction, switches_of
from compiler.devices.cuda.products.pipeline import PIPELINE, Even, functions, prefetch
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile


def lower_cuda_separable(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A kernel that `as_staged` accepts.

    Levels: `grid` or `cluster` k (parts of the channels), `block` (m, n, k, stages, and of the m pixels `rows`), `warp`
    or `thread` (m, n); `register` rows and columns of a strip.
    """
    staged = as_staged(workload)
    assert staged is not None, "the tile stage offers `separable` only to kernels of that form"
    rows = tile.extent("block", "rows")
    columns = tile.extent("block", "m") // rows
    product = staged.product(rows, columns)
    pixels = Pixels(staged, rows, columns)
    parts = WindowOperands(pixels), Even(), WindowFlow(pixels)
    return CudaContraction(name, workload, product, tile, *parts, **switches_of(target)).lower()


@dataclass(frozen=True)
class Pixels:
    """Rectangles of `rows` x `columns` pixels, at which the depthwise window is computed."""

    staged: Staged
    rows: int
    columns: int

    def window(self, of: CudaContraction) -> StagedWindow:
        """The depthwise window, whose results are the first operand in shared memory."""
        strip = of.tile.extent("register", "rows", 1), of.tile.extent("register", "columns", 1)
        product = of.product
        return StagedWindow(
            *(self.staged, of.slots, self.rows, self.columns, *strip, of.depth, product.threads),
            *(product.element, product.as_tf32, product.layout(of.depth)),
        )


@dataclass(frozen=True)
class WindowOperands:
    """A are a window's results, which are computed in shared memory; B are the pointwise weights."""

    pixels: Pixels
    total: ClassVar[DType] = DType.F32
    header: ClassVar[str] = ""
    called: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "separable": "16-bit tensor cores",
            "separable_tf32": "tf32 tensor cores",
            "separable_3xtf32": "fp32 by three tf32 products",
            "separable_ffma": "fp32 multiply-adds",
        }
    )

    def product(self, of: CudaContraction) -> Product:
        """How a block multiplies the window's results by the pointwise weights."""
        precision = "fp16" if of.tile.algorithm == "separable" else "fp32"
        return product_by(PRODUCTS[of.tile.algorithm], of.tile, element_of(self.pixels.staged, of.workload, precision))

    def a(self, of: CudaContraction) -> Operand:
        """Only its layout is of use: tiles are computed (`WindowFlow`)."""
        return plain_a(of)

    def b(self, of: CudaContraction) -> Operand:
        """How columns of the pointwise weights come to shared memory."""
        return plain_b(of)

    def packing(self, of: CudaContraction) -> tuple[int, BlockPanels] | None:
        """As of any product of floats."""
        return plain_packing(of)

    def stage_bytes(self, of: CudaContraction) -> int:
        """Of packed B, positions and weights of the window, which one step copies."""
        window = self.pixels.window(of)
        return _b_bytes(of) + window.position_bytes + window.weight_bytes

    def after(self, of: CudaContraction, writer: Writer) -> None:
        """Sums are what they are."""


@dataclass(frozen=True)
class WindowFlow:
    """Stages of positions, weights of the window and packed B; behind them two tiles of A."""

    pixels: Pixels

    def ahead(self, of: CudaContraction) -> int:
        """Steps whose copies begin before the first is computed."""
        return min(max(of.stages - 1, 1), of.part_steps)

    def shared_bytes(self, of: CudaContraction) -> int:
        """Stages and tiles, or the sums that take their place."""
        return max(_tiles_at(of) + min(of.part_steps, 2) * _tile_bytes(of), of.epilogue.shared_bytes)

    def packings(self, of: CudaContraction) -> Mapping[int, Packing]:
        """By input, how constants are packed: those of the product, and the window's weights."""
        weights = self.pixels.staged.weights
        return {**PIPELINE.packings(of), **dict([weights] if weights else [])}

    def epilogue(self, of: CudaContraction) -> Epilogue:
        """What is done with sums of pixels inside the image before they are stored."""
        pixels = self.pixels
        sizes = tuple(zip(pixels.staged.sides, (pixels.rows, pixels.columns), strict=True))
        return InsideEpilogue(
            of.view, of.slots, of.m, of.n, of.product.threads, of.total, of.cluster, of.constants, sizes
        )

    def notes(self, of: CudaContraction) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        window, staged = self.pixels.staged.window, self.pixels.window(of)
        taps = f"{window.rows.taps} x {window.columns.taps} taps, stride {window.rows.stride} x {window.columns.stride}"
        strip = f"{staged.strip_rows} x {staged.strip_columns}"
        before = (
            f"{taps}, at rectangles of {self.pixels.rows} x {self.pixels.columns} pixels in strips of {strip}, then"
        )
        return [before, *PIPELINE.notes(of)]

    def declare(self, of: CudaContraction, writer: Writer) -> None:
        """Functions that fetch positions and weights of a step."""
        self.pixels.window(of).declare(writer)
        of.b.declare(writer)
        functions(writer, of.b)
        with writer.block("const auto fetch_positions = [&](int step, unsigned char *into)", "};"):
            self.pixels.window(of).fetch_positions(writer)
        if self.pixels.staged.weights:
            slot = of.workload.kernel.inputs[self.pixels.staged.weights[0]].name
            with writer.block("const auto fetch_weights = [&](int step, unsigned char *into)", "};"):
                self.pixels.window(of).fetch_weights(writer, slot)
        parameters = "int step, const unsigned char *from, const unsigned char *weights, unsigned char *into"
        with writer.block(f"const auto compute = [&]({parameters})", "};"):
            self.pixels.window(of).compute(writer)

    def fill(self, of: CudaContraction, writer: Writer) -> None:
        """The copies of the first steps: constants before the wait for the predecessor."""
        for constant in (True, False):
            if not constant:
                prefetch(of, writer)
                writer.line("tw_grid_dependency_wait();")
            with unrolled(writer, of.ahead, "stage"):
                with writer.block("if (first_step + stage < past_step)"):
                    self._copy(of, writer, "first_step + stage", "stage", constant=constant)
                if not constant:
                    writer.line("tw_cp_async_commit();")

    def _copy(self, of: CudaContraction, writer: Writer, step: str, stage: str, *, constant: bool) -> None:
        base = f"shared + ({stage}) * {of.stage_bytes}"
        if not constant:
            writer.line(f"fetch_positions({step}, {base} + {_b_bytes(of)});")
            return
        assert isinstance(of.b, Packed)
        writer.line(f"fetch_b({step}, {base});")
        if self.pixels.staged.weights:
            writer.line(f"fetch_weights({step}, {base} + {_b_bytes(of) + self.pixels.window(of).position_bytes});")

    def _compute(self, of: CudaContraction, writer: Writer, step: str, stage: str, tile: str) -> None:
        base = f"shared + {stage} * {of.stage_bytes} + {_b_bytes(of)}"
        into = f"shared + {_tiles_at(of)} + {tile}"
        writer.line(f"compute({step}, {base}, {base} + {self.pixels.window(of).position_bytes}, {into});")

    def multiply(self, of: CudaContraction, writer: Writer) -> None:
        """The loop over steps.

        What a step needs has come or was computed. Start copies, compute the next one's tile, multiply.
        """
        last, more = of.stages - 1, of.part_steps > 1
        assert not more or of.stages > 2, (
            "copies are under way while a stage is computed from and another is multiplied"
        )
        writer.line(f"tw_cp_async_wait<{of.ahead - 1}>();")
        writer.line("__syncthreads();")
        self._compute(of, writer, "first_step", "0", "0")
        if more:
            writer.line(f"int stage = 0, free_stage = {last};")
        with writer.block("for (int step = first_step; step < past_step; step++)" if more else ""):
            if more:
                writer.line(f"tw_cp_async_wait<{max(of.ahead - 2, 0)}>();")
            writer.line("__syncthreads();")
            if of.part_steps > of.ahead:
                with writer.block(f"if (step + {of.ahead} < past_step)"):
                    for constant in (True, False):
                        self._copy(of, writer, f"step + {of.ahead}", "free_stage", constant=constant)
            tile = "0"
            if more:
                writer.line("tw_cp_async_commit();")
                tile = f"(step - first_step) % 2 * {_tile_bytes(of)}"
                with writer.block("if (step + 1 < past_step)"):
                    writer.line(f"const int next = stage == {last} ? 0 : stage + 1;")
                    self._compute(of, writer, "step + 1", "next", f"(step - first_step + 1) % 2 * {_tile_bytes(of)}")
            writer.line(f"const unsigned char *const a_tile = shared + {_tiles_at(of)} + {tile};")
            writer.line(f"const unsigned char *const b_tile = shared + {'stage' if more else 0} * {of.stage_bytes};")
            of.product.multiply(writer, of.depth, (True, True))
            if more:
                writer.line(f"stage = stage == {last} ? 0 : stage + 1;")
                writer.line(f"free_stage = free_stage == {last} ? 0 : free_stage + 1;")
        of.product.finish(writer)


def _b_bytes(of: CudaContraction) -> int:
    return of.n * of.product.layout(of.depth).pitch


def _tiles_at(of: CudaContraction) -> int:
    return of.stages * of.stage_bytes


def _tile_bytes(of: CudaContraction) -> int:
    """Of A."""
    return aligned(of.m * of.product.layout(of.depth).pitch)
