"""The innermost loops of a product of few rows: several panels of the matrix read side by side, once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from compiler.codegen.scalars import C_TYPES
from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.micro_kernel import MAX_STRETCH, STRETCH
from compiler.encodings.int24 import INT24_BYTES
from compiler.forms.cache_lines import LINE_BYTES
from compiler.ir.packing import Packing
from compiler.ir.tensor import DType

AHEAD = 2048
"""Bytes of a stream that are asked for ahead of their use."""
PAGES_AHEAD, APART = 8192, 2048
"""Bytes from what one row reads to a line that is asked for, and at least between such lines: the processor's own
prefetching is told of pages to come. Asking for each line takes 1.03 to 1.6 times as long; several rows read so slowly
that lines would come late otherwise."""


@dataclass(frozen=True)
class Elements:
    """How the elements of the matrix lie in panels, and what a step over k makes of them.

    ctype    C type of what panels are made of, `bytes` of it long
    step     how many of these a column has for one step
    depth    how many k a step takes
    behind   bytes behind a panel that each of its columns has: a factor of its sums
    x        C type of the rows
    vector   type of sums, and of what they are made of
    load     C function that makes a vector of the matrix at a place
    element  C of what a step takes of a row, at a place
    add      C of a sum, from what it was, `{x}` and `{y}`
    whole    whether sums are exact: then k is never cut into stretches
    result   C of a sum as floats
    scale    what rows are multiplied by before; empty for nothing
    """

    ctype: str = "float"
    bytes: int = 4
    step: int = 1
    depth: int = 1
    behind: int = 0
    x: str = "float"
    vector: str = "vf"
    load: str = "tw_load"
    element: str = "tw_splat(x[{place}])"
    add: str = "{sum} += {x} * {y};"
    whole: bool = False
    result: str = "{acc}"
    scale: str = ""


FLOATS = Elements()
NARROW = Elements("uint8_t", 1, INT24_BYTES, behind=4, load="tw_load_24", scale="0x1p-31f")
"""24-bit numbers, each 256 times too large, with a factor for each column."""


def codes(dtype: DType) -> Elements:
    """Integers in panels (`compiler.forms.groups.Pairs`), by which int16[rows][2 * steps] is multiplied exactly."""
    return Elements(
        C_TYPES[dtype],
        dtype.bytes,
        step=2,
        depth=2,
        x="int16_t",
        vector="vi",
        load=f"tw_pairs_{dtype}",
        element="tw_group(x + 2 * ({place}))",
        add="{sum} = tw_dot_halves({sum}, {x}, {y});",
        whole=True,
        result="tw_float_of({acc})",
    )


@dataclass(frozen=True)
class RowsKernel:
    """c[row][panel][column] = sum over k of x[row][k] b[panel][k][column], for adjacent panels.

    rows      of x, dense
    depth     extent of k
    panels    read side by side
    vectors   of a panel, of `lanes` floats each
    elements  of the matrix
    fetch     whether lines are asked for ahead, because the matrix comes from beyond this core's caches
    """

    rows: int
    depth: int
    panels: int
    vectors: int
    lanes: int
    elements: Elements = FLOATS
    fetch: bool = False

    @property
    def steps(self) -> int:
        """Of k."""
        return -(-self.depth // self.elements.depth)

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def width(self) -> int:
        """Columns of all panels."""
        return self.panels * self.panel

    @property
    def apart(self) -> int:
        """Elements of `ctype` from one panel to the next."""
        of = self.elements
        return self.panel * (of.step * self.steps + of.behind // of.bytes)

    def factor(self, column: str) -> str:
        """A vector of what the sums at a column are multiplied by, where columns have factors.

        The column is counted from panel `b` on.
        """
        behind = self.elements.step * self.panel * self.depth
        place = f"b + {column} / {self.panel} * {self.apart}L + {behind}L + {column} % {self.panel} * 4"
        return f"tw_load((const float *)({place}))"

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(const X *x, const ctype *b, float *c)`, inlined where it is called."""
        of = self.elements
        arguments = f"const {of.x} *x, const {of.ctype} *b, float *c"
        with writer.block(f"static inline __attribute__((always_inline)) void {name}({arguments})"):
            if self.depth <= MAX_STRETCH or of.whole:
                self._stretch(writer, "0", str(self.steps))
                self._each_place(writer, f"tw_store({{c}}, {of.result});")
            else:
                self._each_place(writer, "tw_store({c}, (vf){{0}});")
                with writer.block(f"for (long k0 = 0; k0 < {self.depth}; k0 += {STRETCH})"):
                    writer.line(f"const long past = tw_least_of(k0 + {STRETCH}, {self.depth});")
                    self._stretch(writer, "k0", "past")
                    self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")
        writer.line()

    def _stretch(self, writer: Writer, first: str, past: str) -> None:
        """acc = x b over a stretch of k."""
        of = self.elements
        line = self.panel * of.step
        writer.line(f"{of.vector} acc[{self.rows}][{self.panels}][{self.vectors}] = {{0}};")
        with writer.block(f"for (long k = {first}; k < {past}; k++)"):
            if not self._holds_matrix:
                for row in range(self.rows):
                    self._element(writer, row)
            for panel in range(self.panels):
                writer.line(f"const {of.ctype} *const b{panel} = b + k * {line}L + {panel * self.apart}L;")
                if self.fetch:
                    ask_ahead(writer, f"(const char *)b{panel}", "k", line * of.bytes, lines=self.rows > 1)
                for vector in range(self.vectors):
                    place = f"b{panel} + {vector * self.lanes * of.step}"
                    writer.line(f"const {of.vector} y{panel}_{vector} = {of.load}({place});")
                    for row in range(0 if self._holds_matrix else self.rows):
                        self._add(writer, row, panel, vector)
            for row in range(self.rows if self._holds_matrix else 0):
                self._element(writer, row)
                for panel, vector in product(range(self.panels), range(self.vectors)):
                    self._add(writer, row, panel, vector)

    @property
    def _holds_matrix(self) -> bool:
        """Whether all vectors of b and one element of x take fewer registers than all of x and a panel's vectors."""
        return self.panels * self.vectors + 1 < self.rows + self.vectors

    def _add(self, writer: Writer, row: int, panel: int, vector: int) -> None:
        names = {"sum": f"acc[{row}][{panel}][{vector}]", "x": f"x{row}", "y": f"y{panel}_{vector}"}
        writer.line(self.elements.add.format(**names))

    def _element(self, writer: Writer, row: int) -> None:
        value = self.elements.element.format(place=f"k + {row * self.steps}")
        writer.line(f"const {self.elements.vector} x{row} = {value};")

    def _each_place(self, writer: Writer, statement: str) -> None:
        """A statement for each sum `{acc}` and its place `{c}`."""
        for row in range(self.rows):
            for panel in range(self.panels):
                for vector in range(self.vectors):
                    place = f"c + {row * self.width + panel * self.panel + vector * self.lanes}"
                    writer.line(statement.format(c=place, acc=f"acc[{row}][{panel}][{vector}]"))


def ask_ahead(writer: Writer, place: str, step: str, taken: int, *, lines: bool) -> None:
    """Asks for what will be read behind a place that moves on by `taken` bytes with each `step`: lines, or pages."""
    if lines:
        writer.line(f"for (long line = 0; line < {taken}; line += {LINE_BYTES})")
        writer.line(f"    __builtin_prefetch({place} + {AHEAD} + line);")
        return
    apart = 1 << max(APART // taken, 1).bit_length() - 1
    when = f"if ({step} % {apart} == 0) " if apart > 1 else ""
    for line in range(max(taken // APART, 1)):
        writer.line(f"{when}__builtin_prefetch({place} + {PAGES_AHEAD + line * APART});")


def is_fetched(packing: Packing, l2_bytes: int) -> bool:
    """Whether a packed matrix does not stay in this core's caches between two runs."""
    return packing.elements * packing.dtype.bytes > l2_bytes
