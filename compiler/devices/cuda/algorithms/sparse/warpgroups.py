"""The multiply step of a block tile by `wgmma.sp`: C[m, n] += A[m, k] B[n, k], B kept by two of four along k.

As `contraction.wgmma`, with the operands exchanged, since the sparse one comes first: a warpgroup has 64 columns of C
as the rows of a product, and 16 to 256 rows of C as its columns. Both operands are read from shared memory. A lane has
the word of metadata that `mma.sp` would have: selector 0 is for the first 32 places of k, 1 for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.contraction.wgmma import DESCRIPTOR_BYTES, WGMMA_M, Warpgroups
from compiler.devices.cuda.codegen.fragments import MMA_M, unrolled
from compiler.devices.cuda.codegen.rows import Rows, Swizzled
from compiler.devices.cuda.codegen.sparse_panels import WORD_DEPTH, WORDS_BYTES
from compiler.ir.tensor import DType

HEADER = "tw_wgmma_sp.h"
WGMMA_SP_NS = (16, 32, 64, 128, 256)
"""Columns of the products that HEADER has, which are rows of C."""
INSTRUCTIONS: Mapping[DType, str] = {DType.F16: "tw_wgmma_sp_k32_f16", DType.BF16: "tw_wgmma_sp_k32_bf16"}
SELECTORS = 2
"""Products for which a word of metadata is enough."""


@dataclass(frozen=True)
class SparseWgmmaProduct(Warpgroups):
    """Columns 64 by 64."""

    def __post_init__(self) -> None:
        assert self.part_n % WGMMA_M == 0
        assert self.part_m in WGMMA_SP_NS
        assert self.element in INSTRUCTIONS

    @property
    def sums(self) -> tuple[int, ...]:
        """Of a thread: products of 64 columns, groups of 8 rows, 4 elements of each."""
        return (self.part_n // WGMMA_M, self.part_m // 8, 4)

    def kept_layout(self, depth: int) -> Rows:
        """Rows of what is kept of B, half as many elements, swizzled likewise."""
        return Swizzled(depth // 2 * self.element.bytes)

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0, and the place of the thread's warpgroup in the tile."""
        assert depth == WORD_DEPTH, "a step has the places of a word"
        self.declare_group(writer)
        words = f"(group_n / {MMA_M} + warp % 4) * {WORDS_BYTES}"
        writer.line(f"const int metadata_lane = {self.n * self.kept_layout(depth).pitch} + {words} + lane * 4;")
        writer.line(f"float acc[{self.sums[0]}][{self.part_m // 2}] = {{}};")

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """One group of products; those of the step before are over afterwards."""
        whole, kept = Swizzled(depth * self.element.bytes), Swizzled(depth // 2 * self.element.bytes)
        writer.line(f"unsigned metadata[{self.sums[0]}];")
        with unrolled(writer, self.sums[0], "i"):
            place = f"metadata_lane + i * {WGMMA_M // MMA_M * WORDS_BYTES}"
            writer.line(f"metadata[i] = *(const unsigned *)(b_tile + {place});")
        self.declare_descriptors(writer, whole, kept)
        writer.line("tw_wgmma_fence();")
        down = WGMMA_M * kept.pitch // DESCRIPTOR_BYTES
        of_a, of_b = (rows.row_bytes // SELECTORS // DESCRIPTOR_BYTES for rows in (whole, kept))
        for selector in range(SELECTORS):
            with unrolled(writer, self.sums[0], "i"):
                a, b = f"a_descriptor + {selector * of_a}", f"b_descriptor + i * {down} + {selector * of_b}"
                writer.line(f"{INSTRUCTIONS[self.element]}<{selector}>(acc[i], {b}, {a}, metadata[i], 1);")
        writer.line("tw_wgmma_commit();")
        writer.line(f"tw_wgmma_wait<{self.lag}>();")

    def put(self, writer: Writer, pitch: int) -> None:
        """Stores a thread's sums to `sums`, float[m][pitch] in shared memory."""
        columns, rows, _ = self.sums
        with unrolled(writer, columns, "i"), unrolled(writer, rows, "j"):
            column = f"group_n + i * {WGMMA_M} + warp % 4 * 16 + lane / 4"
            writer.line(f"float *const at = sums + (group_m + j * 8 + lane % 4 * 2) * {pitch} + {column};")
            for element, offset in enumerate((0, pitch, 8, pitch + 8)):
                writer.line(f"at[{offset}] = acc[i][j * 4 + {element}];")
