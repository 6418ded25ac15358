"""The multiply step of a block tile in shared memory: C[m, n] += A[m, k] B[n, k].

By tensor cores or by multiply-adds of threads. Both operands lie in shared memory as rows along k (`codegen.rows`). On
tensor cores a step of k is 32 bytes of a row in every dtype: 16 elements of 16 bits, 8 of tf32, or 32 bytes, whose
fragments ldmatrix fetches as if they were of 16 bits. The layouts of fragments stand in `tw_cuda.h`.

    MmaProduct     f16, bf16 or tf32 operands, fp32 sums: each warp has m16n8 tiles of its part of the block tile
    SplitProduct   fp32 operands on tensor cores: x = big + small, both tf32; small * big + big * small + big * big
                   ("3xTF32"), of a few k at a time: long sums are those of threads
    FmaProduct     fp32: each thread has rows and columns of its own, so far apart that neighbours read neighbouring
                   rows
    WgmmaProduct   f16 or bf16 operands, by four warps together, which read both from shared memory: `products.wgmma`
                   (of bytes: `integer_wgmma`)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.rows import Padded, Rows
from compiler.ir.tensor import DType

WARP = 32
MMA_BYTES = 32
"""Bytes of a row that one step of mma takes, whatever its dtype."""
MMA_M, MMA_N = 16, 8
INSTRUCTIONS = {
    DType.F16: "tw_mma_m16n8k16_f16",
    DType.BF16: "tw_mma_m16n8k16_bf16",
    DType.F32: "tw_mma_m16n8k8_tf32",
}


def row_pitch(depth: int, element: DType) -> int:
    """Bytes from one padded row of `depth` elements to the next in shared memory."""
    return Padded(depth * element.bytes).pitch


@contextmanager
def unrolled(writer: Writer, count: int, name: str) -> Iterator[None]:
    """A loop over one variable from 0 to `count` - 1 that the compiler unrolls."""
    writer.line("#pragma unroll")
    with writer.block(f"for (int {name} = 0; {name} < {count}; {name}++)"):
        yield


def declare_fragment_places(writer: Writer, pitch: int, warp_m: str, warp_n: str) -> None:
    """`a_lane` and `b_lane`: where in the tiles of A and B this lane's rows for ldmatrix begin.

    Of the warp's part from `warp_m` and `warp_n` on.
    """
    writer.line(f"const int a_lane = ({warp_m} + lane % 16) * {pitch} + lane / 16 * 16;")
    writer.line(f"const int b_lane = ({warp_n} + lane / 16 * 8 + lane % 8) * {pitch} + lane / 8 % 2 * 16;")


def sum_type(element: DType) -> str:
    """The C type in which products of such elements are summed on tensor cores."""
    return "int" if element.bytes == 1 else "float"


def load_a_fragments(writer: Writer, name: str, count: int, place: str, pitch: int) -> None:
    """unsigned name[count][4] = the m16 fragments of A of one step.

    `place` is this lane's address in the first of them.
    """
    writer.line(f"unsigned {name}[{count}][4];")
    with unrolled(writer, count, "i"):
        writer.line(f"tw_ldmatrix_x4({name}[i], {place} + i * {MMA_M * pitch});")


def load_b_fragments(writer: Writer, name: str, count: int, place: str, pitch: int) -> None:
    """unsigned name[count][2] = the n8 fragments of B of one step, two by one instruction; `count` is 1 or even."""
    writer.line(f"unsigned {name}[{count}][2];")
    if count == 1:
        writer.line(f"tw_ldmatrix_x2({name}[0], {place});")
        return
    writer.line("#pragma unroll")
    with writer.block(f"for (int j = 0; j < {count}; j += 2)"):
        writer.line("unsigned pair[4];")
        writer.line(f"tw_ldmatrix_x4(pair, {place} + j * {MMA_N * pitch});")
        writer.line(f"{name}[j][0] = pair[0], {name}[j][1] = pair[1];")
        writer.line(f"{name}[j + 1][0] = pair[2], {name}[j + 1][1] = pair[3];")


def multiply_fragments(writer: Writer, instruction: str, sums: str, a: str, b: str, rows: int, columns: int) -> None:
    """sums[i][j] += a[i] b[j] for all fragments."""
    with unrolled(writer, rows, "i"), unrolled(writer, columns, "j"):
        writer.line(f"{instruction}({sums}[i][j], {a}[i], {b}[j]);")


class Product(Protocol):
    """One way to multiply a block tile. Names in its text: `thread`, `lane`, `warp`; sums are the array `acc`."""

    @property
    def element(self) -> DType:
        """Of the operands in shared memory."""
        ...

    @property
    def as_tf32(self) -> bool:
        """Whether operands are rounded to tf32 before they are multiplied: whoever brings them may do it."""
        ...

    @property
    def threads(self) -> int:
        """Threads of a block."""
        ...

    @property
    def lag(self) -> int:
        """How many steps are behind that still read their stages while the next one begins."""
        ...

    @property
    def is_asynchronous(self) -> bool:
        """Whether it reads shared memory through the asynchronous proxy.

        What threads have written is to be fenced before that.
        """
        ...

    @property
    def sums(self) -> tuple[int, ...]:
        """The extents of this thread's sums."""
        ...

    def sum(self, *place: str) -> str:
        """One of them; the last index is `element`."""
        ...

    def layout(self, depth: int) -> Rows:
        """How rows of `depth` elements are to lie in shared memory."""
        ...

    def declare(self, writer: Writer, depth: int) -> None:
        """The thread's places in tiles of `depth` elements a row, and `acc`."""
        ...

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """acc += `a_tile` times `b_tile`; `rounded` says of A and B whether they are rounded already."""
        ...

    def finish(self, writer: Writer) -> None:
        """After the last step: then the sums are there."""
        ...

    def put(self, writer: Writer, pitch: int) -> None:
        """sums[row * pitch + column] = acc, for the rows and columns that this thread has; `pitch` is even."""
        ...


class Immediate:
    """What products have in common that are done with a step when its last instruction is."""

    lag = 0
    is_asynchronous = False

    def sum(self, *place: str) -> str:
        """The variable with the sum at this place of `sums`."""
        return f"acc{''.join(f'[{at}]' for at in place)}"

    def finish(self, writer: Writer) -> None:
        """Nothing: products are in the sums at once."""
        pass


@dataclass(frozen=True)
class MmaProduct(Immediate):
    """Tensor cores: a block tile of `m` x `n`, of which each warp has `warp_m` x `warp_n`."""

    element: DType
    m: int
    n: int
    warp_m: int
    warp_n: int

    @property
    def sum_type(self) -> str:
        """C type of a sum."""
        return sum_type(self.element)

    @property
    def as_tf32(self) -> bool:
        """Whether elements of fp32 are rounded to TF32."""
        return self.element is DType.F32

    @property
    def threads(self) -> int:
        """Threads of a block: warps, each with a part of the tile."""
        return self.m // self.warp_m * (self.n // self.warp_n) * WARP

    @property
    def sums(self) -> tuple[int, ...]:
        """Of a thread: fragments of 16 rows, fragments of 8 columns, 4 elements of each."""
        return (self.warp_m // MMA_M, self.warp_n // MMA_N, 4)

    def layout(self, depth: int) -> Rows:
        """Rows of `depth` elements, padded so that fragments are loaded without bank conflicts."""
        return Padded(depth * self.element.bytes)

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0, and the place of the thread's warp in the tile."""
        across = self.n // self.warp_n
        writer.line(f"const int warp_m = warp / {across} * {self.warp_m}, warp_n = warp % {across} * {self.warp_n};")
        declare_fragment_places(writer, row_pitch(depth, self.element), "warp_m", "warp_n")
        writer.line(f"float acc{''.join(f'[{extent}]' for extent in self.sums)} = {{}};")

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """Adds the products of one step of `depth` elements; `rounded` says which operands are TF32 already."""
        pitch = row_pitch(depth, self.element)
        rows, columns, _ = self.sums
        writer.line("#pragma unroll")
        with writer.block(f"for (int k = 0; k < {depth * self.element.bytes}; k += {MMA_BYTES})"):
            load_a_fragments(writer, "a", rows, "a_tile + a_lane + k", pitch)
            load_b_fragments(writer, "b", columns, "b_tile + b_lane + k", pitch)
            self._multiply_step(writer, rows, columns, rounded)

    def _multiply_step(self, writer: Writer, rows: int, columns: int, rounded: tuple[bool, bool]) -> None:
        if self.as_tf32:
            for name, count, registers, done in (("a", rows, 4, rounded[0]), ("b", columns, 2, rounded[1])):
                if not done:
                    with unrolled(writer, count, "i"), unrolled(writer, registers, "part"):
                        writer.line(f"{name}[i][part] = tw_to_tf32(__uint_as_float({name}[i][part]));")
        multiply_fragments(writer, INSTRUCTIONS[self.element], "acc", "a", "b", rows, columns)

    def put(self, writer: Writer, pitch: int) -> None:
        """Stores a thread's sums to `sums`, float[m][pitch] in shared memory."""
        rows, columns, _ = self.sums
        with unrolled(writer, rows, "i"), unrolled(writer, columns, "j"):
            place = f"(warp_m + i * {MMA_M} + lane / 4) * {pitch} + warp_n + j * {MMA_N} + lane % 4 * 2"
            writer.line(f"{self.sum_type} *const at = sums + {place};")
            writer.line(f"*({self.sum_type}2 *)at = make_{self.sum_type}2(acc[i][j][0], acc[i][j][1]);")
            writer.line(f"*({self.sum_type}2 *)(at + {8 * pitch}) = make_{self.sum_type}2(acc[i][j][2], acc[i][j][3]);")


@dataclass(frozen=True)
class SplitProduct(MmaProduct):
    """fp32 by three tf32 products; what is left out, small * small, is 2^-22 of a product.

    Tensor cores cut off what they add to a sum, below the last bit of a float or the one behind it. A sum of thousands
    of products in them drifts by as many such bits, always toward zero. So theirs begins anew with each step of the
    block, and the thread, which rounds to nearest, adds it to the sum of all steps; as CUTLASS does
    (`kStagedAccumulation` of its multistage products).
    """

    @property
    def as_tf32(self) -> bool:
        """False: operands stay fp32 until they are split in two."""
        return False

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """Adds the products of one step of `depth` elements, which are summed from 0 before."""
        rows, columns, elements = self.sums
        writer.line(f"float step_sums[{rows}][{columns}][{elements}] = {{}};")
        super().multiply(writer, depth, rounded)
        with unrolled(writer, rows, "i"), unrolled(writer, columns, "j"), unrolled(writer, elements, "element"):
            writer.line("acc[i][j][element] += step_sums[i][j][element];")

    def _multiply_step(self, writer: Writer, rows: int, columns: int, rounded: tuple[bool, bool]) -> None:
        for name, count, registers in (("a", rows, 4), ("b", columns, 2)):
            writer.line(f"unsigned {name}_small[{count}][{registers}];")
            with unrolled(writer, count, "i"), unrolled(writer, registers, "part"):
                writer.line(f"const float whole = __uint_as_float({name}[i][part]);")
                writer.line(f"{name}[i][part] = tw_to_tf32(whole);")
                writer.line(f"{name}_small[i][part] = tw_to_tf32(whole - __uint_as_float({name}[i][part]));")
        for a, b in (("a_small", "b"), ("a", "b_small"), ("a", "b")):
            multiply_fragments(writer, INSTRUCTIONS[DType.F32], "step_sums", a, b, rows, columns)


@dataclass(frozen=True)
class FmaProduct(Immediate):
    """fp32 multiply-adds: a block tile of `m` x `n`, of which each thread has `thread_m` x `thread_n`."""

    m: int
    n: int
    thread_m: int
    thread_n: int

    @property
    def element(self) -> DType:
        """fp32."""
        return DType.F32

    @property
    def as_tf32(self) -> bool:
        """False: nothing is rounded."""
        return False

    @property
    def threads(self) -> int:
        """Threads of a block, each with a part of the tile."""
        return self.m // self.thread_m * self._across

    @property
    def _across(self) -> int:
        return self.n // self.thread_n

    @property
    def sums(self) -> tuple[int, ...]:
        """Of a thread: rows and columns."""
        return (self.thread_m, self.thread_n)

    def layout(self, depth: int) -> Rows:
        """Rows of `depth` elements, padded so that threads read them without bank conflicts."""
        return Padded(depth * self.element.bytes)

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0, and the place of the thread in the tile."""
        writer.line(f"const int own_m = thread / {self._across}, own_n = thread % {self._across};")
        writer.line(f"float acc[{self.thread_m}][{self.thread_n}] = {{}};")

    def multiply(self, writer: Writer, depth: int, rounded: tuple[bool, bool]) -> None:
        """Adds the products of one step of `depth` elements, four at a time."""
        pitch = row_pitch(depth, self.element)
        down = self.m // self.thread_m
        writer.line("#pragma unroll")
        with writer.block(f"for (int k = 0; k < {depth * self.element.bytes}; k += 16)"):
            writer.line(f"float4 b[{self.thread_n}];")
            with unrolled(writer, self.thread_n, "j"):
                writer.line(f"b[j] = *(const float4 *)(b_tile + (own_n + j * {self._across}) * {pitch} + k);")
            with unrolled(writer, self.thread_m, "i"):
                writer.line(f"const float4 a = *(const float4 *)(a_tile + (own_m + i * {down}) * {pitch} + k);")
                with unrolled(writer, self.thread_n, "j"):
                    for part in "xyzw":
                        writer.line(f"acc[i][j] = fmaf(a.{part}, b[j].{part}, acc[i][j]);")

    def put(self, writer: Writer, pitch: int) -> None:
        """Stores a thread's sums to `sums`, float[m][pitch] in shared memory."""
        with unrolled(writer, self.thread_m, "i"), unrolled(writer, self.thread_n, "j"):
            row = f"(own_m + i * {self.m // self.thread_m})"
            writer.line(f"sums[{row} * {pitch} + own_n + j * {self._across}] = acc[i][j];")
