"""The multiply step of a block tile by `wgmma`: C[m, n] += A[m, k] B[n, k].

Four warps together read both operands from shared memory. A warpgroup of 128 threads has products of 64 rows by up to
256 columns, whose operands it names by descriptors of swizzled rows. They run while the next step begins: its stage may
not be the one that is read, so there is one more. "Asynchronous Warpgroup Level Matrix Instructions" of the PTX ISA;
one group of products kept under way as in NVIDIA's CUTLASS (sm90_mma_tma_gmma_ss).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.fragments import MMA_BYTES, sum_type, unrolled
from compiler.devices.cuda.codegen.rows import Rows, Swizzled
from compiler.ir.tensor import DType

WARPGROUP = 128
WGMMA_M = 64
WGMMA_NS = (8, 16, 32, 64, 96, 128, 192, 256)
"""Columns of the products that `tw_cuda.h` has."""
INSTRUCTIONS: Mapping[DType, str] = {
    DType.F16: "tw_wgmma_k16_f16<0, 0>",
    DType.BF16: "tw_wgmma_k16_bf16<0, 0>",
    DType.I8: "tw_wgmma_k32_s8",
    DType.U8: "tw_wgmma_k32_u8_s8",
}
"""The products of 64 rows and 32 bytes of each, by the dtype of A. Bytes of B are signed."""
DESCRIPTOR_BYTES = 16
"""In which descriptors count."""


@dataclass(frozen=True)
class Warpgroups:
    """A block tile of `m` x `n`, of which each warpgroup has `part_m` x `part_n`: what all such products share."""

    element: DType
    m: int
    n: int
    part_m: int
    part_n: int

    as_tf32 = False
    lag = 1
    is_asynchronous = True

    @property
    def sum_type(self) -> str:
        """C type of a sum."""
        return sum_type(self.element)

    @property
    def threads(self) -> int:
        """Threads of a block: warpgroups, each with a part of the tile."""
        return self.m // self.part_m * self._across * WARPGROUP

    @property
    def _across(self) -> int:
        return self.n // self.part_n

    def sum(self, *place: str) -> str:
        """The variable with the sum at this place of `sums`."""
        i, j, element = place
        return f"acc[{i}][{j} * 4 + {element}]"

    def layout(self, depth: int) -> Rows:
        """Rows of `depth` elements as wgmma's descriptors describe them: swizzled."""
        return Swizzled(depth * self.element.bytes)

    def declare_group(self, writer: Writer) -> None:
        """The place of the thread's warpgroup in the tile."""
        across = self._across
        group = {
            "group_m": f"warp / {4 * across} * {self.part_m}" if self.m > self.part_m else "0",
            "group_n": f"warp / 4 % {across} * {self.part_n}" if across > 1 else "0",
        }
        writer.line(f"const int {', '.join(f'{name} = {value}' for name, value in group.items())};")

    def declare_descriptors(self, writer: Writer, a: Swizzled, b: Swizzled) -> None:
        """`a_descriptor` and `b_descriptor`, of the rows that the warpgroup reads."""
        for name, rows, first in (("a", a, "group_m"), ("b", b, "group_n")):
            place = f"{name}_tile + {first} * {rows.pitch}"
            descriptor = f"tw_wgmma_descriptor({place}, 1, {rows.atom_bytes}, {rows.mode})"
            writer.line(f"const unsigned long long {name}_descriptor = {descriptor};")

    def finish(self, writer: Writer) -> None:
        """Waits until the last products are in the sums."""
        writer.line("tw_wgmma_wait<0>();")


@dataclass(frozen=True)
class WgmmaProduct(Warpgroups):
    """Rows 64 by 64."""

    def __post_init__(self) -> None:
        assert self.part_m % WGMMA_M == 0
        assert self.part_n in WGMMA_NS
        assert self.element in INSTRUCTIONS

    @property
    def sums(self) -> tuple[int, ...]:
        """Of a thread: products of 64 rows, groups of 8 columns, 4 elements of each."""
        return (self.part_m // WGMMA_M, self.part_n // 8, 4)

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0, and the place of the thread's warpgroup in the tile."""
        self.declare_group(writer)
        writer.line(f"{self.sum_type} acc[{self.part_m // WGMMA_M}][{self.part_n // 2}] = {{}};")

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """One group of products; those of the step before are over afterwards."""
        rows = Swizzled(depth * self.element.bytes)
        self.declare_descriptors(writer, rows, rows)
        writer.line("tw_wgmma_fence();")
        down, step = WGMMA_M * rows.pitch // DESCRIPTOR_BYTES, MMA_BYTES // DESCRIPTOR_BYTES
        with unrolled(writer, rows.row_bytes // MMA_BYTES, "k"), unrolled(writer, self.part_m // WGMMA_M, "i"):
            a, b = f"a_descriptor + i * {down} + k * {step}", f"b_descriptor + k * {step}"
            writer.line(f"{INSTRUCTIONS[self.element]}(acc[i], {a}, {b}, 1);")
        writer.line("tw_wgmma_commit();")
        writer.line(f"tw_wgmma_wait<{self.lag}>();")

    def put(self, writer: Writer, pitch: int) -> None:
        """Stores a thread's sums to `sums`, as [m][pitch] in shared memory."""
        (rows, columns, _), kind = self.sums, self.sum_type
        with unrolled(writer, rows, "i"), unrolled(writer, columns, "j"):
            row = f"group_m + i * {WGMMA_M} + warp % 4 * 16 + lane / 4"
            writer.line(f"{kind} *const at = sums + ({row}) * {pitch} + group_n + j * 8 + lane % 4 * 2;")
            writer.line(f"*({kind}2 *)at = make_{kind}2(acc[i][j * 4], acc[i][j * 4 + 1]);")
            writer.line(f"*({kind}2 *)(at + {8 * pitch}) = make_{kind}2(acc[i][j * 4 + 2], acc[i][j * 4 + 3]);")
