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


@dataclass(frozen=True)
class RowsKernel:
    """c[row][panel][column] = sum over k of x[row][k] b[panel][k][column], for adjacent panels.

    rows     of x, dense
    depth    extent of k
    panels   read side by side
    vectors  of a panel, of `lanes` floats each
    narrow   whether panels hold 24-bit numbers, each 256 times too large (`tw_load_24`), with a factor for each column
             behind them
    fetch    whether lines are asked for ahead, because the matrix comes from beyond this core's caches
    codes    the type of integers in panels (`compiler.forms.groups.Pairs`), which x, then int16[rows][2 * steps], is
             multiplied by without rounding; None for floats
    """

    rows: int
    depth: int
    panels: int
    vectors: int
    lanes: int
    narrow: bool = False
    fetch: bool = False
    codes: DType | None = None

    @property
    def steps(self) -> int:
        """Of k, which takes two integers at a time."""
        return -(-self.depth // 2) if self.codes else self.depth

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def width(self) -> int:
        """Columns of all panels."""
        return self.panels * self.panel

    @property
    def ctype(self) -> str:
        """Of the matrix."""
        return C_TYPES[self.codes] if self.codes else "uint8_t" if self.narrow else "float"

    @property
    def apart(self) -> int:
        """Elements of `ctype` from one panel to the next."""
        return self.panel * (INT24_BYTES * self.depth + 4 if self.narrow else self.step * self.steps)

    @property
    def step(self) -> int:
        """Elements of `ctype` that a column has for one step."""
        return 2 if self.codes else INT24_BYTES if self.narrow else 1

    def factor(self, column: str) -> str:
        """A vector of what the sums at a column are multiplied by where the matrix is narrow.

        The column is counted from panel `b` on.
        """
        behind = INT24_BYTES * self.panel * self.depth
        place = f"b + {column} / {self.panel} * {self.apart}L + {behind}L + {column} % {self.panel} * 4"
        return f"tw_load((const float *)({place}))"

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(const float *x, const ctype *b, float *c)`, inlined where it is called.

        By codes, x is `const int16_t *`.
        """
        arguments = f"const {'int16_t' if self.codes else 'float'} *x, const {self.ctype} *b, float *c"
        with writer.block(f"static inline __attribute__((always_inline)) void {name}({arguments})"):
            if self.depth <= MAX_STRETCH or self.codes:
                self._stretch(writer, "0", str(self.steps))
                self._each_place(writer, f"tw_store({{c}}, {'tw_float_of({acc})' if self.codes else '{acc}'});")
            else:
                self._each_place(writer, "tw_store({c}, (vf){{0}});")
                with writer.block(f"for (long k0 = 0; k0 < {self.depth}; k0 += {STRETCH})"):
                    writer.line(f"const long past = tw_least_of(k0 + {STRETCH}, {self.depth});")
                    self._stretch(writer, "k0", "past")
                    self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")
        writer.line()

    def _stretch(self, writer: Writer, first: str, past: str) -> None:
        """acc = x b over a stretch of k."""
        step, element = self.step, self.codes.bytes if self.codes else 1 if self.narrow else 4
        line = self.panel * step
        writer.line(f"{self._vector} acc[{self.rows}][{self.panels}][{self.vectors}] = {{0}};")
        with writer.block(f"for (long k = {first}; k < {past}; k++)"):
            if not self._holds_matrix:
                for row in range(self.rows):
                    self._element(writer, row)
            for panel in range(self.panels):
                writer.line(f"const {self.ctype} *const b{panel} = b + k * {line}L + {panel * self.apart}L;")
                for at in range(0, line * element, LINE_BYTES) if self.fetch else ():
                    writer.line(f"__builtin_prefetch((const char *)b{panel} + {AHEAD + at});")
                for vector in range(self.vectors):
                    load = f"tw_pairs_{self.codes}" if self.codes else "tw_load_24" if self.narrow else "tw_load"
                    place = f"b{panel} + {vector * self.lanes * step}"
                    writer.line(f"const {self._vector} y{panel}_{vector} = {load}({place});")
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

    @property
    def _vector(self) -> str:
        return "vi" if self.codes else "vf"

    def _add(self, writer: Writer, row: int, panel: int, vector: int) -> None:
        total, x, y = f"acc[{row}][{panel}][{vector}]", f"x{row}", f"y{panel}_{vector}"
        writer.line(f"{total} = tw_dot_halves({total}, {x}, {y});" if self.codes else f"{total} += {x} * {y};")

    def _element(self, writer: Writer, row: int) -> None:
        value = f"tw_group(x + 2 * (k + {row * self.steps}))" if self.codes else f"tw_splat(x[k + {row * self.depth}])"
        writer.line(f"const {self._vector} x{row} = {value};")

    def _each_place(self, writer: Writer, statement: str) -> None:
        """A statement for each sum `{acc}` and its place `{c}`."""
        for row in range(self.rows):
            for panel in range(self.panels):
                for vector in range(self.vectors):
                    place = f"c + {row * self.width + panel * self.panel + vector * self.lanes}"
                    writer.line(statement.format(c=place, acc=f"acc[{row}][{panel}][{vector}]"))


def is_fetched(packing: Packing, l2_bytes: int) -> bool:
    """Whether a packed matrix does not stay in this core's caches between two runs."""
    return packing.elements * packing.dtype.bytes > l2_bytes
