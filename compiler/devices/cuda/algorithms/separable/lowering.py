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
from functools import cached_property

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.contraction.floats import Floats, product_by
from compiler.devices.cuda.algorithms.contraction.lowering import CudaContraction, switches_of
from compiler.devices.cuda.algorithms.separable.geometry import Staged, as_staged, element_of
from compiler.devices.cuda.algorithms.separable.staged_window import StagedWindow, aligned
from compiler.devices.cuda.algorithms.separable.tiles import PRODUCTS
from compiler.devices.cuda.codegen.epilogue import Epilogue
from compiler.devices.cuda.codegen.fragments import Product, unrolled
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.operands import Operand, Packed
from compiler.devices.cuda.codegen.rectangles import InsideEpilogue
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing
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
    return CudaSeparable(name, workload, product, tile, OPERANDS, staged, rows, columns, **switches_of(target)).lower()


OPERANDS = Floats(
    {
        "separable": "16-bit tensor cores",
        "separable_tf32": "tf32 tensor cores",
        "separable_3xtf32": "fp32 by three tf32 products",
        "separable_ffma": "fp32 multiply-adds",
    }
)


@dataclass(frozen=True)
class CudaSeparable(CudaContraction):
    """`view` is the product over rectangles of `rows` x `columns` pixels."""

    staged: Staged
    rows: int
    columns: int

    @cached_property
    def product(self) -> Product:
        """How a block multiplies the window's results by the pointwise weights."""
        precision = "fp16" if self.tile.algorithm == "separable" else "fp32"
        return product_by(PRODUCTS[self.tile.algorithm], self.tile, element_of(self.staged, self.workload, precision))

    @cached_property
    def window(self) -> StagedWindow:
        """The depthwise window, whose results are the first operand in shared memory."""
        strip = self.tile.extent("register", "rows", 1), self.tile.extent("register", "columns", 1)
        product = self.product
        return StagedWindow(
            *(self.staged, self.slots, self.rows, self.columns, *strip, self.depth, product.threads),
            *(product.element, product.as_tf32, product.layout(self.depth)),
        )

    @cached_property
    def b(self) -> Operand:
        """How columns of the pointwise weights come to shared memory."""
        return self.reading_b(self.side("b", self.view.b, (self.view.n,), "first_n", self.n))

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is done with sums of pixels inside the image before they are stored."""
        sizes = tuple(zip(self.staged.sides, (self.rows, self.columns), strict=True))
        return InsideEpilogue(
            self.view, self.slots, self.m, self.n, self.product.threads, self.total, self.cluster, self.constants, sizes
        )

    @property
    def packings(self) -> Mapping[int, Packing]:
        """By input, how constants are packed: those of the product, and the window's weights."""
        return {**super().packings, **dict([self.staged.weights] if self.staged.weights else [])}

    # Shared memory: stages of positions, weights of the window and packed B; behind them two tiles of A

    @cached_property
    def ahead(self) -> int:
        """Steps whose copies begin before the first is computed."""
        return min(max(self.stages - 1, 1), self.part_steps)

    @property
    def _b_bytes(self) -> int:
        return self.n * self.product.layout(self.depth).pitch

    @cached_property
    def stage_bytes(self) -> int:
        """Shared memory of what one step copies."""
        return self._b_bytes + self.window.position_bytes + self.window.weight_bytes

    @property
    def _tiles_at(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def _tile_bytes(self) -> int:
        """Of A."""
        return aligned(self.m * self.product.layout(self.depth).pitch)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes."""
        return max(self._tiles_at + min(self.part_steps, 2) * self._tile_bytes, self.epilogue.shared_bytes)

    # The text

    def notes(self) -> list[str]:
        """What stands in the comment above the kernel, line by line."""
        window = self.staged.window
        taps = f"{window.rows.taps} x {window.columns.taps} taps, stride {window.rows.stride} x {window.columns.stride}"
        strip = f"{self.window.strip_rows} x {self.window.strip_columns}"
        before = f"{taps}, at rectangles of {self.rows} x {self.columns} pixels in strips of {strip}, then"
        return [before, *super().notes()]

    def declare_operands(self, writer: Writer) -> None:
        """Functions that fetch positions and weights of a step."""
        self.window.declare(writer)
        self.b.declare(writer)
        self._functions(writer, self.b)
        with writer.block("const auto fetch_positions = [&](int step, unsigned char *into)", "};"):
            self.window.fetch_positions(writer)
        if self.staged.weights:
            slot = self.workload.kernel.inputs[self.staged.weights[0]].name
            with writer.block("const auto fetch_weights = [&](int step, unsigned char *into)", "};"):
                self.window.fetch_weights(writer, slot)
        parameters = "int step, const unsigned char *from, const unsigned char *weights, unsigned char *into"
        with writer.block(f"const auto compute = [&]({parameters})", "};"):
            self.window.compute(writer)

    def _fill(self, writer: Writer) -> None:
        """The copies of the first steps: constants before the wait for the predecessor."""
        for constant in (True, False):
            if not constant:
                self._prefetch(writer)
                writer.line("tw_grid_dependency_wait();")
            with unrolled(writer, self.ahead, "stage"):
                with writer.block("if (first_step + stage < past_step)"):
                    self._copy(writer, "first_step + stage", "stage", constant=constant)
                if not constant:
                    writer.line("tw_cp_async_commit();")

    def _copy(self, writer: Writer, step: str, stage: str, *, constant: bool) -> None:
        base = f"shared + ({stage}) * {self.stage_bytes}"
        if not constant:
            writer.line(f"fetch_positions({step}, {base} + {self._b_bytes});")
            return
        assert isinstance(self.b, Packed)
        writer.line(f"fetch_b({step}, {base});")
        if self.staged.weights:
            writer.line(f"fetch_weights({step}, {base} + {self._b_bytes + self.window.position_bytes});")

    def _compute(self, writer: Writer, step: str, stage: str, tile: str) -> None:
        base = f"shared + {stage} * {self.stage_bytes} + {self._b_bytes}"
        into = f"shared + {self._tiles_at} + {tile}"
        writer.line(f"compute({step}, {base}, {base} + {self.window.position_bytes}, {into});")

    def _steps(self, writer: Writer) -> None:
        """The loop over steps.

        What a step needs has come or was computed. Start copies, compute the next one's tile, multiply.
        """
        last, more = self.stages - 1, self.part_steps > 1
        assert not more or self.stages > 2, (
            "copies are under way while a stage is computed from and another is multiplied"
        )
        writer.line(f"tw_cp_async_wait<{self.ahead - 1}>();")
        writer.line("__syncthreads();")
        self._compute(writer, "first_step", "0", "0")
        if more:
            writer.line(f"int stage = 0, free_stage = {last};")
        with writer.block("for (int step = first_step; step < past_step; step++)" if more else ""):
            if more:
                writer.line(f"tw_cp_async_wait<{max(self.ahead - 2, 0)}>();")
            writer.line("__syncthreads();")
            if self.part_steps > self.ahead:
                with writer.block(f"if (step + {self.ahead} < past_step)"):
                    for constant in (True, False):
                        self._copy(writer, f"step + {self.ahead}", "free_stage", constant=constant)
            tile = "0"
            if more:
                writer.line("tw_cp_async_commit();")
                tile = f"(step - first_step) % 2 * {self._tile_bytes}"
                with writer.block("if (step + 1 < past_step)"):
                    writer.line(f"const int next = stage == {last} ? 0 : stage + 1;")
                    self._compute(writer, "step + 1", "next", f"(step - first_step + 1) % 2 * {self._tile_bytes}")
            writer.line(f"const unsigned char *const a_tile = shared + {self._tiles_at} + {tile};")
            writer.line(f"const unsigned char *const b_tile = shared + {'stage' if more else 0} * {self.stage_bytes};")
            self.product.multiply(writer, self.depth, (True, True))
            if more:
                writer.line(f"stage = stage == {last} ? 0 : stage + 1;")
                writer.line(f"free_stage = free_stage == {last} ? 0 : free_stage + 1;")
        self.product.finish(writer)
