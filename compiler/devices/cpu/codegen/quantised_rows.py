"""The innermost loops of a product of few rows by weights in blocks of few bits.

A row is brought once into digits to base 256 (tw_digits.h), signed bytes that one instruction multiplies by four codes
of a column and adds up, exactly, in 32 bits. Three digits hold what 24 bits of a float do, so that no activation is
rounded further than fp32 products are; two hold 16. A code is read once for all digits and rows; only once for each
block are sums made floats and multiplied by its scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.micro_kernel import MAX_STRETCH, STRETCH
from compiler.devices.cpu.codegen.rows import ask_ahead
from compiler.forms.quantised_panels import WORD, QuantisedPanels

SPARE = 6
"""Registers for codes, what they are masked by, and what they are multiplied by."""
LOADS = {32: ("tw_load", "float"), 16: ("tw_load_f16", "uint16_t")}
"""Functions that give a vector of scales of so many bits as floats, and what they read."""


@dataclass(frozen=True)
class QuantisedRows:
    """c[row][column] = sum over k of x[row][k] b[k][column], for the columns of one panel.

    rows       of x
    packing    of b
    registers  of vectors that the target has
    digits     of a number of x: two or three
    fetch      whether lines are asked for ahead, because the matrix comes from beyond this core's caches
    dots       whether one instruction adds four products to a lane; else products with at most 4 bits of a code are
               added in 16 bits first, those with the upper ones of 8 apart
    """

    rows: int
    packing: QuantisedPanels
    registers: int
    digits: int
    fetch: bool
    dots: bool

    @property
    def lanes(self) -> int:
        """Floats of a vector."""
        return self.packing.lanes

    @property
    def vectors(self) -> int:
        """Of a panel."""
        return self.packing.panels.panel // self.lanes

    @property
    def pitch(self) -> int:
        """Floats from one row to the next: zeros fill the last chunk."""
        return self.packing.chunks * self.packing.taken

    @property
    def digit_bytes(self) -> int:
        """Of a row."""
        return self.digits * self.packing.chunks * self.packing.chunk

    @property
    def _together(self) -> int:
        """Vectors whose sums the registers hold."""
        left, each = self.registers - SPARE, self.digits * self.rows * len(self._halves)
        return next(many for many in (self.vectors, self.vectors // 2 or 1, 1) if many == 1 or many * each <= left)

    @property
    def _halves(self) -> tuple[tuple[str, int], ...]:
        """Sums of parts of codes, by name, and what each counts."""
        return (("p", 1),) if self.dots else (("t", 1), ("u", 16)) if self.packing.bits == 8 else (("t", 1),)

    @property
    def _is_slow(self) -> bool:
        """Whether memory gives codes sooner than they are multiplied, so that lines that are asked for come in time.

        One row of 4 bits on Zen 1, the only such machine that was measured: with pages asked for it is 0.81 as fast,
        with nothing 0.92.
        """
        return not self.dots and self.registers <= 16

    def write(self, writer: Writer, name: str) -> None:
        """An inlined `name(const int8_t *digits, const tw_digits_head *heads, const uint8_t *b, float *c)`."""
        packing = self.packing
        arguments = "const int8_t *digits, const tw_digits_head *heads, const uint8_t *b, float *c"
        include(writer, packing)
        with writer.block(f"static inline __attribute__((always_inline)) void {name}({arguments})"):
            long = packing.chunks > MAX_STRETCH
            if long:
                self._each_sum(writer, "tw_store({c}, (vf){{0}});")
                writer.line(f"for (long first = 0, past = 0; first < {packing.chunks}; first = past) {{")
                writer.line(f"past = tw_least_of(first + {STRETCH}, {packing.chunks});")
            writer.line(f"vf acc[{self.rows}][{self.vectors}] = {{0}};")
            head = "first; chunk < past" if long else f"0; chunk < {packing.chunks}"
            with writer.block(f"for (long chunk = {head}; chunk++, b += {packing.chunk_bytes}L)"):
                self._chunk(writer)
            self._each_sum(writer, "tw_store({c}, tw_load({c}) + {acc});" if long else "tw_store({c}, {acc});")
            if long:
                writer.line("}")
        writer.line()

    def _chunk(self, writer: Writer) -> None:
        """Adds a chunk's products."""
        packing = self.packing
        if self.fetch:
            ask_ahead(writer, "b", "chunk", packing.chunk_bytes, lines=self.rows > 1 or self._is_slow)
        for row in range(self.rows):
            writer.line(f"const tw_digits_head *const h{row} = heads + {row * packing.chunks} + chunk;")
            start = f"digits + {row * self.digit_bytes}L + chunk * {self.digits * packing.chunk}L"
            writer.line(f"const int8_t *x{row} = {start};")
        for first in range(0, self.vectors, self._together):
            with writer.block(""):
                if first:
                    for row in range(self.rows):
                        writer.line(f"TW_OPAQUE(x{row});")
                self._sums(writer, first)

    def _sums(self, writer: Writer, first: int) -> None:
        """The same for some vectors of the panel."""
        packing, vectors = self.packing, range(first, first + self._together)
        if self.dots:
            self._starts(writer, vectors)
            with writer.block(f"for (long word = 0; word < {packing.words}; word++)"):
                self._word(writer, vectors, "tw_digits_dot")
        elif packing.words <= packing.bits:
            self._narrow(writer, vectors, "0", f"{packing.words}")
            self._starts(writer, vectors)
            self._wide(writer, vectors)
        else:
            self._starts(writer, vectors)
            with writer.block(f"for (long from = 0; from < {packing.words}; from += {packing.bits})"):
                self._narrow(writer, vectors, "from", f"tw_least_of(from + {packing.bits}, {packing.words})")
                self._wide(writer, vectors)
        for vector in vectors:
            writer.line(f"const vf s{vector} = {scales(packing, vector)};")
            if not packing.centred:
                writer.line(f"const vf z{vector} = s{vector} * {zeros(packing, vector)};")
            for row in range(self.rows):
                joined = ", ".join(f"p{row}_{vector}_{digit}" for digit in range(self.digits))
                total = f"acc[{row}][{vector}]"
                join = "tw_digits_three" if self.digits > 2 else "tw_digits_two"
                writer.line(f"{total} += {join}({joined}) * (s{vector} * h{row}->unit);")
                if not packing.centred:
                    writer.line(f"{total} -= z{vector} * h{row}->total;")

    def _starts(self, writer: Writer, vectors: range) -> None:
        """What sums of a chunk begin with."""
        for row, digit in self._digits():
            start = f"tw_splat_i(h{row}->starts[{digit}])" if self.packing.centred else "(vi){0}"
            for vector in vectors:
                writer.line(f"vi p{row}_{vector}_{digit} = {start};")

    def _narrow(self, writer: Writer, vectors: range, first: str, past: str) -> None:
        """Sums in 16 bits, of as many words as they hold."""
        for half, _ in self._halves:
            for row, digit in self._digits():
                writer.line(f"vi {', '.join(f'{half}{row}_{vector}_{digit} = {{0}}' for vector in vectors)};")
        with writer.block(f"for (long word = {first}; word < {past}; word++)"):
            self._word(writer, vectors, "tw_digits_pairs")

    def _wide(self, writer: Writer, vectors: range) -> None:
        """Adds these to the sums of the chunk."""
        for half, times in self._halves:
            for row, digit in self._digits():
                for vector in vectors:
                    total = f"p{row}_{vector}_{digit}"
                    writer.line(f"{total} = tw_digits_wide({total}, {half}{total[1:]}, {times});")

    def _word(self, writer: Writer, vectors: range, add: str) -> None:
        """Products of one word of codes of each vector of columns."""
        packing, parts, halves = self.packing, 8 // self.packing.bits, self._halves
        bits = packing.bits // len(halves)
        mask = int.from_bytes(bytes([(1 << bits) - 1]) * WORD, "little")
        for vector in vectors:
            place = f"b + (word * {self.vectors} + {vector}) * {WORD * self.lanes}L"
            writer.line(f"const vi w{vector} = tw_groups({place});")
        for part in range(parts):
            for vector in vectors:
                for at_half, (name, _) in enumerate(halves):
                    shift = bits * (part + at_half)
                    shifted = f"(vi)((vu)w{vector} >> {shift})" if shift else f"w{vector}"
                    code = f"{shifted} & tw_splat_i({mask})" if bits < 8 else shifted
                    writer.line(f"const vi {name}q{vector}_{part} = {code};")
            for row, digit in self._digits():
                at = f"x{row} + {digit * packing.chunk} + word * {WORD * parts} + {WORD * part}"
                writer.line(f"const vi d{row}_{part}_{digit} = tw_group({at});")
                for vector, (half, _) in product(vectors, halves):
                    total = f"{half}{row}_{vector}_{digit}"
                    writer.line(f"{total} = {add}({total}, {half}q{vector}_{part}, d{row}_{part}_{digit});")

    def _digits(self) -> Iterator[tuple[int, int]]:
        """Rows with the numbers of their digits."""
        return ((row, digit) for row in range(self.rows) for digit in range(self.digits))

    def write_plain(self, writer: Writer, name: str) -> None:
        """A C function `name(const float *x, const uint8_t *b, float *c)` for rows that are not finite.

        Infinities and NaN are multiplied weight by weight, as by the dense matrix.
        """
        packing, parts = self.packing, 8 // self.packing.bits
        arguments = "const float *x, const uint8_t *b, float *c"
        with writer.block(f"static __attribute__((noinline, unused)) void {name}({arguments})"):
            self._each_sum(writer, "tw_store({c}, (vf){{0}});")
            with (
                writer.block(f"for (long chunk = 0; chunk < {packing.chunks}; chunk++, b += {packing.chunk_bytes}L)"),
                writer.block(f"for (long vector = 0; vector < {self.vectors}; vector++)"),
            ):
                writer.line(f"const vf s = {scales(packing, 'vector')}, z = {zeros(packing, 'vector')};")
                with writer.block(f"for (long k = 0; k < {packing.taken}; k++)"):
                    writer.line(f"const long word = k / {WORD * parts}, shift = k % {WORD} * 8;")
                    place = f"b + (word * {self.vectors} + vector) * {WORD * self.lanes}L"
                    shift = f"shift + k / {WORD} % {parts} * {packing.bits}"
                    code = f"(vi)((vu)tw_groups({place}) >> (int)({shift})) & {(1 << packing.bits) - 1}"
                    writer.line(f"const vf w = (tw_float_of({code}) - z) * s;")
                    at = f"c + vector * {self.lanes}"
                    value = f"tw_splat(x[chunk * {packing.taken} + k])"
                    writer.line(f"tw_store({at}, tw_load({at}) + {value} * w);")
        writer.line()

    def _each_sum(self, writer: Writer, statement: str) -> None:
        """A statement for each sum `{acc}` and its place `{c}`."""
        for row in range(self.rows):
            for vector in range(self.vectors):
                place = f"c + {row * self.packing.panels.panel + vector * self.lanes}"
                writer.line(statement.format(c=place, acc=f"acc[{row}][{vector}]"))


def include(writer: Writer, packing: QuantisedPanels) -> None:
    """What kernels include that read such panels."""
    writer.include("tw_digits.h")
    if packing.scale == 16:
        writer.include("tw_short.h")


def scales(packing: QuantisedPanels, vector: int | str) -> str:
    """Of a vector of columns of the chunk at `b`, in C."""
    load, element = LOADS[packing.scale]
    return f"{load}((const {element} *)(b + {packing.code_bytes}) + {vector} * {packing.lanes})"


def zeros(packing: QuantisedPanels, vector: int | str) -> str:
    """Zero points of the same, as floats."""
    if packing.centred:
        return f"tw_splat({packing.centre}.0f)"
    behind = packing.code_bytes + packing.scale // 8 * packing.panels.panel
    return f"tw_float_of(tw_load_u8(b + {behind} + {vector} * {packing.lanes}))"
