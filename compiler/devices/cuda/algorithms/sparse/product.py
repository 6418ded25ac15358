"""The multiply step of a block tile by sparse tensor cores: C[m, n] += A[m, k] B[n, k], B kept by two of four along k.

`mma.sp` takes its sparse operand as the first: a warp has 16 columns of C as the rows of the product and 8 rows of C as
its columns, so that a tile of 8 rows is not half empty. A lies in shared memory as rows along k, B as
`codegen.sparse_panels` has it: rows of what is kept, behind them the metadata. An instruction takes 64 bytes of a row
of A, and 32 of what is kept, whatever the dtype: of a word of metadata, 16-bit floats are two products, bytes are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.fragments import MMA_M, MMA_N, WARP, Immediate, load_a_fragments, sum_type, unrolled
from compiler.devices.cuda.codegen.rows import Padded, Rows
from compiler.devices.cuda.codegen.sparse_panels import WORD_DEPTH, WORDS_BYTES
from compiler.ir.tensor import DType

INSTRUCTIONS: Mapping[DType, tuple[str, ...]] = {
    DType.F16: ("tw_mma_sp_m16n8k32_f16<0>", "tw_mma_sp_m16n8k32_f16<1>"),
    DType.BF16: ("tw_mma_sp_m16n8k32_bf16<0>", "tw_mma_sp_m16n8k32_bf16<1>"),
    DType.I8: ("tw_mma_sp_m16n8k64_s8",),
    DType.U8: ("tw_mma_sp_m16n8k64_s8_u8",),
}
"""By the dtype of A, the products whose metadata one word of each lane holds, in their order along k. The weights of
bytes are signed."""
ONES = "0x01010101"
"""Four bytes in a register."""


@dataclass(frozen=True)
class SparseProduct(Immediate):
    """A block tile of `m` x `n`, of which each warp has `warp_m` x `warp_n`: 16 of n and 8 of m in an instruction.

    `column_sums` says whether those of B along k are taken as well, which only bytes have.
    """

    element: DType
    m: int
    n: int
    warp_m: int
    warp_n: int

    column_sums: bool = False

    as_tf32 = False

    @property
    def sum_type(self) -> str:
        """C type of a sum."""
        return sum_type(self.element)

    @property
    def threads(self) -> int:
        """Threads of a block: warps, each with a part of the tile."""
        return self.m // self.warp_m * (self.n // self.warp_n) * WARP

    @property
    def sums(self) -> tuple[int, ...]:
        """Of a thread: fragments of 16 columns, fragments of 8 rows, 4 elements of each."""
        return (self.warp_n // MMA_M, self.warp_m // MMA_N, 4)

    def layout(self, depth: int) -> Rows:
        """Rows of A, padded so that fragments are loaded without bank conflicts."""
        return Padded(depth * self.element.bytes)

    def kept_layout(self, depth: int) -> Rows:
        """Rows of what is kept of B, half as many elements, padded likewise."""
        return Padded(depth // 2 * self.element.bytes)

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0, and the place of the thread's warp in the tile."""
        across = self.n // self.warp_n
        pitch, kept = self.layout(depth).pitch, self.kept_layout(depth).pitch
        writer.line(f"const int warp_m = warp / {across} * {self.warp_m}, warp_n = warp % {across} * {self.warp_n};")
        writer.line(f"const int a_lane = (warp_m + lane % 8) * {pitch} + lane / 8 * 16;")
        writer.line(f"const int b_lane = (warp_n + lane % 16) * {kept} + lane / 16 * 16;")
        words = f"warp_n / {MMA_M} * {depth // WORD_DEPTH * WORDS_BYTES}"
        writer.line(f"const int metadata_lane = {self.n * kept} + {words} + lane * 4;")
        writer.line(f"{self.sum_type} acc{''.join(f'[{extent}]' for extent in self.sums)} = {{}};")
        if self.column_sums:
            writer.line(f"int column_sums[{self.sums[0]}][4] = {{}}; /* of B, the same in all rows */")

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """Adds the products of one step of `depth` elements, 64 by a word of metadata."""
        columns, rows, _ = self.sums
        pitch, kept = self.layout(depth).pitch, self.kept_layout(depth).pitch
        row_bytes = WORD_DEPTH * self.element.bytes  # of A, of the elements that a word is for
        instructions = INSTRUCTIONS[self.element]
        writer.line("#pragma unroll")
        with writer.block(f"for (int k = 0; k < {depth // WORD_DEPTH}; k++)"):
            writer.line(f"unsigned metadata[{columns}];")
            with unrolled(writer, columns, "i"):
                place = f"metadata_lane + (i * {depth // WORD_DEPTH} + k) * {WORDS_BYTES}"
                writer.line(f"metadata[i] = *(const unsigned *)(b_tile + {place});")
            for at, instruction in enumerate(instructions):
                of_a, of_b = (
                    f"k * {whole}{f' + {whole // len(instructions) * at}' if at else ''}"
                    for whole in (row_bytes, row_bytes // 2)
                )
                with writer.block(""):
                    load_a_fragments(writer, "b", columns, f"b_tile + b_lane + {of_b}", kept)
                    writer.line(f"unsigned a[{rows}][4];")
                    with unrolled(writer, rows, "j"):
                        writer.line(f"tw_ldmatrix_x4(a[j], a_tile + a_lane + {of_a} + j * {MMA_N * pitch});")
                    with unrolled(writer, columns, "i"), unrolled(writer, rows, "j"):
                        writer.line(f"{instruction}(acc[i][j], b[i], a[j], metadata[i]);")
                    if self.column_sums:
                        writer.line(f"const unsigned ones[4] = {{{', '.join([ONES] * 4)}}};")
                        with unrolled(writer, columns, "i"):
                            writer.line(f"{instruction}(column_sums[i], b[i], ones, metadata[i]);")

    def put(self, writer: Writer, pitch: int) -> None:
        """Stores a thread's sums to `sums`, as [m][pitch] in shared memory."""
        columns, rows, _ = self.sums
        with unrolled(writer, columns, "i"), unrolled(writer, rows, "j"):
            place = f"(warp_m + j * {MMA_N} + lane % 4 * 2) * {pitch} + warp_n + i * {MMA_M} + lane / 4"
            writer.line(f"{self.sum_type} *const at = sums + {place};")
            for element, offset in enumerate((0, pitch, 8, pitch + 8)):
                writer.line(f"at[{offset}] = acc[i][j][{element}];")
