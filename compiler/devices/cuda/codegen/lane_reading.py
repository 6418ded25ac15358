"""How the lanes of `gemv` read their columns of a packed matrix, and multiply them by rows in shared memory.

FloatLanes   elements as they lie in memory, widened to fp32
CodeLanes    codes of few bits, of which words become floats one after the other (`codegen.codes`)

Names in their text: `group` and `own`, the number of the block's columns and the lane's first among them; `part` of k;
`lane` of those that share a column; `rows`, float[m][depth of the part]; `sum`, float[m][columns of a lane]. What a
lane has requested is `coming`, what it multiplies meanwhile `now`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.codes import HEADER, WORD_BITS, LaneCodes
from compiler.devices.cuda.codegen.lane_columns import LANE_BYTES, QUAD, LaneColumns
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES

WORDS = LANE_BYTES * 8 // WORD_BITS
"""Of what a lane loads at once."""


@contextmanager
def unrolled_each(writer: Writer, **counts: int) -> Iterator[None]:
    """Unrolled loops within each other, over the variables of these names."""
    with ExitStack() as stack:
        for name, count in counts.items():
            writer.line("#pragma unroll")
            stack.enter_context(writer.block(f"for (int {name} = 0; {name} < {count}; {name}++)"))
        yield


@dataclass(frozen=True)
class Lanes:
    """What readers share: `rows` of the product, columns of a lane, loads that it has on its way, of one part of k."""

    matrix: str
    rows: int
    each: int
    ahead: int
    depth: int

    def place(self, step: str, quad: str, packing: LaneColumns) -> str:
        """C for where in `rows` the four elements lie that a lane multiplies its quad of a step by."""
        lanes = packing.lanes
        return f"row * {self.depth} + {step} * {packing.width} + {quad} * {QUAD * lanes} + lane * {QUAD}"


class LaneReading(Protocol):
    """The text that requests a lane's columns and multiplies them."""

    @property
    def header(self) -> str:
        """A file that the text includes; "" where there is none."""
        ...

    @property
    def asked(self) -> tuple[str, int]:
        """C for the first byte of the block's columns, and how many lie there."""
        ...

    def along(self, place: str) -> str:
        """C for the place of k, in a part, of an element at a place of a row in shared memory."""
        ...

    def begin(self, writer: Writer, part: str) -> None:
        """Where the lane's columns are; `part` is C for the block's part of k, "" where k is whole."""
        ...

    def declare(self, writer: Writer, name: str) -> None:
        """Registers for the loads that are on their way, or here."""
        ...

    def load(self, writer: Writer, step: str) -> None:
        """Requests `column`'s stretch of a step as `step` of what is coming."""
        ...

    def keep(self, writer: Writer) -> None:
        """`now` = what has come."""
        ...

    def multiply(self, writer: Writer, held: str, step: str) -> None:
        """sum += rows * the stretches of all columns at a step; `step` also numbers them among those held."""
        ...


@dataclass(frozen=True)
class FloatLanes:
    """Elements of a float dtype, fp32 or shorter."""

    lanes: Lanes
    packing: LaneColumns

    header = ""

    @property
    def _column(self) -> int:
        return self.packing.steps * self.packing.width

    @property
    def asked(self) -> tuple[str, int]:
        """The columns follow one another."""
        at = f"{self.lanes.matrix} + (int64_t)group * {self.packing.whole * self._column}"
        return at, self.packing.whole * self._column * self.packing.dtype.bytes

    def along(self, place: str) -> str:
        """The same: lanes that are side by side hold quads that are."""
        return place

    def begin(self, writer: Writer, part: str) -> None:
        """A pointer to the lane's first element."""
        ctype, (columns, _) = CUDA_TYPES[self.packing.dtype], self.asked
        of_part = f" + {part} * {self.lanes.depth}" if part else ""
        place = f"{columns} + (int64_t)own * {self._column}{of_part} + lane * {self.packing.per_lane}"
        writer.line(f"const {ctype} *const weights = {place};")

    def declare(self, writer: Writer, name: str) -> None:
        """16 bytes for each."""
        writer.line(f"uint4 {name}[{self.lanes.each}][{self.lanes.ahead}];")

    def load(self, writer: Writer, step: str) -> None:
        """By one load."""
        place = f"column * {self._column} + {step} * {self.packing.width}"
        writer.line(f"coming[column][step] = tw_load_once(weights + {place});")

    def keep(self, writer: Writer) -> None:
        """By registers."""
        writer.line("now[column][step] = coming[column][step];")

    def multiply(self, writer: Writer, held: str, step: str) -> None:
        """All of a stretch at once."""
        lanes, per_lane = self.lanes, self.packing.per_lane
        quads = per_lane // QUAD
        writer.line(f"float4 x[{lanes.rows}][{quads}];")
        with unrolled_each(writer, row=lanes.rows, quad=quads):
            writer.line(f"x[row][quad] = *(const float4 *)(rows + {lanes.place(step, 'quad', self.packing)});")
        with unrolled_each(writer, column=lanes.each):
            writer.line(f"float w[{per_lane}];")
            writer.line(f"tw_widen(w, {held}[column][step], weights);")
            with unrolled_each(writer, row=lanes.rows, quad=quads):
                writer.line("sum[row][column] += x[row][quad].x * w[4 * quad] + x[row][quad].y * w[4 * quad + 1];")
                writer.line("sum[row][column] += x[row][quad].z * w[4 * quad + 2] + x[row][quad].w * w[4 * quad + 3];")


@dataclass(frozen=True)
class CodeLanes:
    """Codes of few bits: a lane has the places of k of a step that follow one another, so that they share a scale."""

    lanes: Lanes
    packing: LaneCodes

    header = HEADER

    @property
    def _numbers(self) -> int:
        """Of a word."""
        return WORD_BITS // self.packing.codes.bits

    @property
    def asked(self) -> tuple[str, int]:
        """Codes alone."""
        size = self.packing.whole * self.packing.stored.row_bytes
        return f"{self.lanes.matrix} + (int64_t)group * {size}", size

    def along(self, place: str) -> str:
        """A row's quads lie as lanes read them side by side: of all lanes the first, then the second, and so on."""
        packing, at = self.packing, place if place.isidentifier() else f"({place})"
        if packing.lanes == 1:
            return place
        width, quad = packing.width, QUAD * packing.lanes
        lane = f"{at} % {quad} / {QUAD} * {packing.per_lane}"
        return f"{at} / {width} * {width} + {lane} + {at} % {width} / {quad} * {QUAD} + {at} % {QUAD}"

    def begin(self, writer: Writer, part: str) -> None:
        """Pointers to the lane's first codes and to the scales and zero points of its first column."""
        packing, stored, (columns, _) = self.packing, self.packing.stored, self.asked
        of_part = f" + {part} * {self.lanes.depth * packing.codes.bits // 8}" if part else ""
        own = f"(int64_t)own * {stored.row_bytes}{of_part} + lane * {LANE_BYTES}"
        writer.line(f"const unsigned char *const codes = {columns} + {own};")
        first = f"((int64_t)group * {packing.whole} + own) * {stored.blocks}"
        scales = f"(const float *)({self.lanes.matrix} + {stored.scales_at})"
        writer.line(f"const float *const scales = tw_early({scales}) + {first};")
        if not packing.codes.centred:
            writer.line(
                f"const unsigned char *const zeros = tw_early({self.lanes.matrix} + {stored.zeros_at}) + {first};"
            )
        if stored.blocks > 1:
            of_part = f"{part} * {self.lanes.depth} + " if part else ""
            writer.line(f"const unsigned first_k = {of_part}lane * {packing.per_lane};")

    def declare(self, writer: Writer, name: str) -> None:
        """16 bytes for each, a scale for each block of them, and perhaps a zero point."""
        shape = f"[{self.lanes.each}][{self.lanes.ahead}]"
        writer.line(f"uint4 {name}{shape};")
        writer.line(f"float {name}_scale{shape}[{self.packing.runs}];")
        if not self.packing.codes.centred:
            writer.line(f"unsigned char {name}_zero{shape}[{self.packing.runs}];")

    def load(self, writer: Writer, step: str) -> None:
        """Codes by one load, scales and zero points by one for each block."""
        packing, stored = self.packing, self.packing.stored
        place = f"column * {stored.row_bytes} + {step} * {packing.lanes * LANE_BYTES}"
        writer.line(f"coming[column][step] = tw_load_once(codes + {place});")
        with unrolled_each(writer, run=packing.runs):
            block = stored.block_of(f"first_k + {step} * {packing.width} + run * {packing.codes.block}")
            writer.line(f"const int block = column * {stored.blocks} + (int)({block});")
            writer.line("coming_scale[column][step][run] = scales[block];")
            if not packing.codes.centred:
                writer.line("coming_zero[column][step][run] = zeros[block];")

    def keep(self, writer: Writer) -> None:
        """By registers."""
        writer.line("now[column][step] = coming[column][step];")
        with unrolled_each(writer, run=self.packing.runs):
            for name in ("scale", *([] if self.packing.codes.centred else ["zero"])):
                writer.line(f"now_{name}[column][step][run] = coming_{name}[column][step][run];")

    def multiply(self, writer: Writer, held: str, step: str) -> None:
        """Word by word, so that few elements of the rows are in registers at once."""
        lanes, codes, quads = self.lanes, self.packing.codes, self._numbers // QUAD
        run = f"[column][step][word / {WORDS // self.packing.runs}]"
        zero = f"{1 << (codes.bits - 1)}.0f" if codes.centred else f"(float){held}_zero{run}"
        with unrolled_each(writer, word=WORDS):
            writer.line(f"float4 x[{lanes.rows}][{quads}];")
            with unrolled_each(writer, row=lanes.rows, quad=quads):
                place = lanes.place(step, f"(word * {quads} + quad)", self.packing)
                writer.line(f"x[row][quad] = *(const float4 *)(rows + {place});")
            with unrolled_each(writer, column=lanes.each):
                writer.line(f"float w[{self._numbers}];")
                word = f"tw_word({held}[column][step], word)"
                writer.line(f"tw_weights<{codes.bits}>(w, {word}, {held}_scale{run}, {zero});")
                with unrolled_each(writer, row=lanes.rows, quad=quads):
                    for at, part in enumerate("xyzw"):
                        factor = f"w[{QUAD} * quad + {at}]" if at else f"w[{QUAD} * quad]"
                        writer.line(f"sum[row][column] = fmaf(x[row][quad].{part}, {factor}, sum[row][column]);")


def lane_reading(lanes: Lanes, packing: LaneColumns) -> LaneReading:
    """As a packing asks for."""
    return CodeLanes(lanes, packing) if isinstance(packing, LaneCodes) else FloatLanes(lanes, packing)
