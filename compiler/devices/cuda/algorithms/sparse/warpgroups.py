"""The multiply step of a block tile by `wgmma.sp`: C[m, n] += A[m, k] B[n, k], B kept by two of four along k.

As `products.wgmma`, with the operands exchanged, since the sparse one comes first: a warpgroup has 64 columns of C
as the rows of a product, and 16 to 256 rows of C as its columns. Both operands are read from shared memory. A lane has
the word of metadata that `mma.sp` would have: selector 0 is for the first 32 places of k, 1 for the others. Of bytes a
word is for one product of 64 places; a step has two, so that what is kept fills rows that can be swizzled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.fragments import MMA_M, unrolled
from compiler.devices.cuda.codegen.rows import Rows, Swizzled
from compiler.devices.cuda.codegen.sparse_panels import WORD_DEPTH, WORDS_BYTES
from compiler.devices.cuda.products.wgmma import DESCRIPTOR_BYTES, WGMMA_M, Warpgroups
from compiler.ir.tensor import DType

HEADER = "tw_wgmma_sp.h"
WGMMA_SP_NS = (16, 32, 64, 128, 256)
"""Columns of the products that HEADER has, which are rows of C."""
INSTRUCTIONS: Mapping[DType, tuple[str, ...]] = {
    DType.F16: ("tw_wgmma_sp_k32_f16<0>", "tw_wgmma_sp_k32_f16<1>"),
    DType.BF16: ("tw_wgmma_sp_k32_bf16<0>", "tw_wgmma_sp_k32_bf16<1>"),
    DType.I8: ("tw_wgmma_sp_k64_s8",),
    DType.U8: ("tw_wgmma_sp_k64_s8_u8",),
}
"""By the dtype of A, the products whose metadata one word of each lane holds, in their order along k. The weights of
bytes are signed."""
STEP_BYTES = 128
"""Of a row of A in a step."""


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
        assert depth * self.element.bytes == STEP_BYTES, "rows of what is kept have 64 bytes"
        self.declare_group(writer)
        words = f"(group_n / {MMA_M} + warp % 4) * {depth // WORD_DEPTH * WORDS_BYTES}"
        writer.line(f"const int metadata_lane = {self.n * self.kept_layout(depth).pitch} + {words} + lane * 4;")
        writer.line(f"{self.sum_type} acc[{self.sums[0]}][{self.part_m // 2}] = {{}};")

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """One group of products; those of the step before are over afterwards."""
        whole, kept = Swizzled(depth * self.element.bytes), Swizzled(depth // 2 * self.element.bytes)
        words = depth // WORD_DEPTH
        metadata = ["metadata" + f"_{word}" * (word > 0) for word in range(words)]
        writer.line(f"unsigned {', '.join(f'{name}[{self.sums[0]}]' for name in metadata)};")
        with unrolled(writer, self.sums[0], "i"):
            for word, name in enumerate(metadata):
                place = f"metadata_lane + i * {WGMMA_M // MMA_M * words * WORDS_BYTES}"
                place += f" + {word * WORDS_BYTES}" * (word > 0)
                writer.line(f"{name}[i] = *(const unsigned *)(b_tile + {place});")
        self.declare_descriptors(writer, whole, kept)
        writer.line("tw_wgmma_fence();")
        down = WGMMA_M * kept.pitch // DESCRIPTOR_BYTES
        products = [(name, instruction) for name in metadata for instruction in INSTRUCTIONS[self.element]]
        of_a, of_b = (rows.row_bytes // len(products) // DESCRIPTOR_BYTES for rows in (whole, kept))
        for at, (name, instruction) in enumerate(products):
            with unrolled(writer, self.sums[0], "i"):
                a, b = f"a_descriptor + {at * of_a}", f"b_descriptor + i * {down} + {at * of_b}"
                writer.line(f"{instruction}(acc[i], {b}, {a}, {name}[i], 1);")
        writer.line("tw_wgmma_commit();")
        writer.line(f"tw_wgmma_wait<{self.lag}>();")

    def put(self, writer: Writer, pitch: int) -> None:
        """Stores a thread's sums to `sums`, as [m][pitch] in shared memory."""
        columns, rows, _ = self.sums
        with unrolled(writer, columns, "i"), unrolled(writer, rows, "j"):
            column = f"group_n + i * {WGMMA_M} + warp % 4 * 16 + lane / 4"
            writer.line(f"{self.sum_type} *const at = sums + (group_m + j * 8 + lane % 4 * 2) * {pitch} + {column};")
            for element, offset in enumerate((0, pitch, 8, pitch + 8)):
                writer.line(f"at[{offset}] = acc[i][j * 4 + {element}];")
