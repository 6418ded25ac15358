"""Keys and values of attention in shared memory: brought by asynchronous copies, read as fragments and multiplied.

Either lies in rows of keys, or the other way round where its tensor does. Fragments of 16-bit elements are read by
ldmatrix, transposed where the rows do not lie along the sum; those of fp32 element by element and rounded to tf32. The
elements t and t + 4 that a lane has of a tf32 fragment along the sum are 2t and 2t + 1 of the rows: any order is as
good, as long as both operands have the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from compiler.codegen.functions import decode
from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.attention.geometry import FlashAttention, FlashBlocks, Operand
from compiler.devices.cuda.codegen.fragments import INSTRUCTIONS, WARP, unrolled
from compiler.devices.cuda.codegen.rounds import in_rounds
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, CudaEmitter, convert
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis

AT_ONCE = 4
"""Copies of a thread that are unrolled: the addresses of more would take registers that the products need."""


@dataclass(frozen=True)
class Products:
    """What both products have in common; `split` says that fp32 operands are the sums of two tf32 numbers."""

    form: FlashAttention
    blocks: FlashBlocks
    slots: Slots
    split: bool

    @property
    def is_short(self) -> bool:
        """Whether elements have 16 bits."""
        return self.form.dtype.bytes == 2

    @property
    def width(self) -> int:
        """Results of one step: two fragments come by one ldmatrix."""
        return 16 if self.is_short else 8

    @property
    def ctype(self) -> str:
        """The elements' type in CUDA C++."""
        return CUDA_TYPES[self.form.dtype]

    @property
    def key_blocks(self) -> int:
        """Blocks of keys that a block of threads goes over."""
        return -(-self.form.view.keys.extent // self.blocks.keys)

    @property
    def is_private(self) -> bool:
        """Whether each warp brings its own keys, so that it need not wait for others."""
        return self.blocks.query_warps == 1

    def emitter(self, writer: Writer, names: dict[Axis, str]) -> CudaEmitter:
        """An emitter of expressions over the kernel's slots, in which axes have these names."""
        elements = {name: buffer.dtype for name, buffer in self.slots.buffers.items()}
        emitter = CudaEmitter(writer, self.slots.address, elements)
        emitter.names = names
        return emitter

    def element(self, value: Expr, emitter: CudaEmitter) -> str:
        """An operand's element in the dtype of the products."""
        if isinstance(value, Load) and self.slots.buffers[value.slot].dtype is self.form.dtype:
            pointer, offset = self.slots.address(value.slot, value.index)
            return f"{pointer}[{emitter.index(offset)}]"
        return convert(emitter.scalar(value), value.dtype, self.form.dtype)

    def round(self, writer: Writer, name: str, count: int, value: str) -> None:
        """unsigned name[count] = elements `value` (of `at`) in tf32.

        name_small = what rounding took from them, where it counts.
        """
        writer.line(f"unsigned {name}[{count}]{f', {name}_small[{count}]' if self.split else ''};")
        with unrolled(writer, count, "at"):
            writer.line(f"const float whole = {value};")
            writer.line(f"{name}[at] = tw_to_tf32(whole);")
            if self.split:
                writer.line(f"{name}_small[at] = tw_to_tf32(whole - __uint_as_float({name}[at]));")


@dataclass(frozen=True)
class StagedOperand:
    """The keys, or the values, called `name`: `stages` blocks of them in shared memory.

    `others` are its axes beside the keys.
    """

    name: str
    products: Products
    operand: Operand
    others: tuple[Axis, ...]
    keys_are_rows: bool

    @property
    def extent(self) -> int:
        """Depth or columns, those included that fill fragments."""
        form = self.products.form
        return form.depth if self.operand is form.k else form.columns

    @property
    def pitch(self) -> int:
        """Elements from one row in shared memory to the next."""
        row = self.extent if self.keys_are_rows else self.products.blocks.keys
        return self.products.form.pitch(self.operand, row)

    @property
    def elements(self) -> int:
        """Of one stage."""
        return (self.products.blocks.keys if self.keys_are_rows else self.extent) * self.pitch

    @property
    def layout(self) -> str:
        """What a comment of the text says of the axes in shared memory."""
        other = "depth" if self.operand is self.products.form.k else "column"
        rows = ("key", other) if self.keys_are_rows else (other, "key")
        return f"[stage][{rows[0]}][{rows[1]}], rows of {self.pitch}"

    def at_stage(self, block: str) -> str:
        """Where a block of keys begins."""
        stages = self.products.blocks.stages
        return self.name if stages == 1 else f"{self.name} + {block} % {stages} * {self.elements}"

    # Copies

    def write_fetch(self, writer: Writer) -> None:
        """A function fetch_name(block).

        A warp brings its own keys where no other warp needs them, else all threads bring those of the block.
        """
        products, blocks, chunk = self.products, self.products.blocks, max(self.operand.chunk, 1)
        count = blocks.warp_keys if products.is_private else blocks.keys
        thread, threads = ("lane", WARP) if products.is_private else ("(int)threadIdx.x", blocks.threads)
        rows, row = (count, self.extent) if self.keys_are_rows else (self.extent, count)
        per_row = row // chunk
        place, other = f"piece / {per_row}", f"piece % {per_row}{f' * {chunk}' if chunk > 1 else ''}"
        if not self.keys_are_rows:
            place, other = other, place
        with writer.block(f"const auto fetch_{self.name} = [&](int block)", "};"):
            with in_rounds(writer, "piece", rows * per_row, thread, threads, AT_ONCE):
                writer.line(
                    f"const int place = {'own_keys + ' if products.is_private else ''}{place}, other = {other};"
                )
                writer.line(f"const int key = {f'block * {blocks.keys} + ' if products.key_blocks > 1 else ''}place;")
                at = f"place * {self.pitch} + other" if self.keys_are_rows else f"other * {self.pitch} + place"
                writer.line(f"{products.ctype} *const into = {self.at_stage('block')} + {at};")
                if self.operand.chunk:
                    self._copy_chunk(writer)
                else:
                    self._copy_element(writer)
            if products.key_blocks == 1:
                writer.line("(void)block;")

    def _copy_chunk(self, writer: Writer) -> None:
        """An asynchronous copy that stops at the last key and at the end of the row: beyond them it writes zeros."""
        products, keys, (other,) = self.products, self.products.form.view.keys, self.others
        size, chunk = products.form.dtype.bytes, self.operand.chunk
        names = {keys: "key", other: "other"}
        whole = {keys: products.key_blocks * products.blocks.keys, other: self.extent}
        along = other if self.keys_are_rows else keys
        conditions = [f"{names[axis]} < {axis.extent}" for axis in (keys, other) if whole[axis] != axis.extent]
        full = str(chunk * size)
        most = f"min(({along.extent} - {names[along]}) * {size}, {full})" if along.extent % chunk else full
        pointer, offset = products.slots.address(self.operand.load.slot, self.operand.load.index)
        place = products.emitter(writer, names).index(offset)
        if conditions:
            writer.line(f"const int bytes = {' && '.join(conditions)} ? {most} : 0;")
            writer.line(f"tw_cp_async_{full}(into, {pointer} + (bytes ? {place} : 0), bytes);")
        else:
            writer.line(f"tw_cp_async_{full}(into, {pointer} + {place}, {full});")

    def _copy_element(self, writer: Writer) -> None:
        """One element, computed; zero beyond the last."""
        products, keys = self.products, self.products.form.view.keys
        writer.line(f"{products.ctype} element = {{}};")
        with writer.block(f"if (key < {keys.extent} && other < {prod(axis.extent for axis in self.others)})"):
            names = {keys: "key"}
            if len(self.others) == 1:
                names[self.others[0]] = "other"
            else:
                decode(writer, self.others, "other", "int")
            writer.line(f"element = {products.element(self.operand.value, products.emitter(writer, names))};")
        writer.line("*into = element;")

    # Fragments

    def write_multiply(self, writer: Writer, into: str, a: str, along: str, across: str) -> None:
        """into[..] += a times B's fragments.

        Their sum runs from `along` on and their results from `across` on; `n` counts the latter. A 16-bit A is the
        array `a`; a tf32 one `a` and, where it is split, `a_small`.
        """
        products = self.products
        instruction = INSTRUCTIONS[products.form.dtype]
        along_rows = self.operand.inner == "result"
        if products.is_short:
            upper, half = "lane / 16 * 8", "lane / 8 % 2 * 8"
            row, column = f"{across} + {upper} + lane % 8", f"{along} + {half}"
            if along_rows:
                row, column = f"{along} + {half} + lane % 8", f"{across} + {upper}"
            writer.line("unsigned b[4];")
            load = f"tw_ldmatrix_x4{'_trans' if along_rows else ''}"
            writer.line(f"{load}(b, {self.name}_now + ({row}) * {self.pitch} + {column});")
            writer.line("const unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};")
            writer.line(f"{instruction}({into}[2 * n], {a}, left);")
            writer.line(f"{instruction}({into}[2 * n + 1], {a}, right);")
            return
        if along_rows:
            writer.line(f"const float *const at_b = {self.name}_now + ({along} + 2 * t) * {self.pitch} + {across} + g;")
            writer.line(f"const float pair[2] = {{at_b[0], at_b[{self.pitch}]}};")
        else:
            place = f"{self.name}_now + ({across} + g) * {self.pitch} + {along} + 2 * t"
            writer.line(f"const float2 both = *(const float2 *)({place});")
            writer.line("const float pair[2] = {both.x, both.y};")
        products.round(writer, "b", 2, "pair[at]")
        if products.split:
            writer.line(f"{instruction}({into}[n], {a}_small, b);")
            writer.line(f"{instruction}({into}[n], {a}, b_small);")
        writer.line(f"{instruction}({into}[n], {a}, b);")
