"""The innermost loops of a product of few rows by weights that are looked up in codebooks."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.micro_kernel import MAX_STRETCH, STRETCH
from compiler.devices.cpu.codegen.rows import AHEAD
from compiler.forms.coded_columns import CodedColumns


@dataclass(frozen=True)
class CodedRows:
    """c[row][column] = sum over k of x[row][k] b[column][k], for the columns of one panel.

    rows     of x, each packing.depth floats, zeros past the end of k
    packing  of b
    columns  worked on at a time, a divisor of the lanes
    fetch    whether lines are asked for ahead, because the matrix comes from beyond this core's caches
    """

    rows: int
    packing: CodedColumns
    columns: int
    fetch: bool

    @staticmethod
    def of(rows: int, packing: CodedColumns, registers: int, fetch: bool) -> CodedRows:
        """With as many columns as registers hold the sums, indices and tables of."""
        if packing.bits == 8:
            return CodedRows(rows, packing, max(4 // rows, 1), fetch)
        table = TABLE_LANES // packing.panels.panel
        left = registers - rows - SPARE - (0 if packing.own else table)
        each = rows + 1 + (table if packing.own else 0)
        columns = next((one for one in (4, 2) if one * each <= left), 1)
        return CodedRows(rows, packing, columns, fetch)

    @property
    def lanes(self) -> int:
        """Of a vector, and columns of a panel."""
        return self.packing.panels.panel

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(const float *x, const uint8_t *table, const uint8_t *b, float *c)`, inlined."""
        packing, chunks = self.packing, self.packing.depth // self.packing.chunk
        most = MAX_STRETCH * self.lanes // packing.chunk
        kind, at = ("tw_coded_bytes", "tw_coded_bytes_at") if packing.bits == 8 else ("tw_coded_table", "tw_coded_at")
        arguments = "const float *x, const uint8_t *table, const uint8_t *b, float *c"
        writer.include("tw_codebook.h")
        with writer.block(f"static inline __attribute__((always_inline)) void {name}({arguments})"):
            if not packing.own:
                writer.line(f"const {kind} shared = {at}(table);")
            with writer.block(f"for (long first = 0; first < {self.lanes}; first += {self.columns})"):
                for column in range(self.columns):
                    line = f"b + (first + {column}) * {packing.column_bytes}L"
                    writer.line(f"const uint8_t *const b{column} = {line};")
                    writer.line(f"const {kind} t{column} = {f'{at}(b{column})' if packing.own else 'shared'};")
                if chunks <= most:
                    self._stretch(writer, "0", str(chunks))
                    self._each_sum(writer, "{c} = tw_sum({acc});")
                else:
                    self._each_sum(writer, "{c} = 0.0f;")
                    step = STRETCH * self.lanes // packing.chunk
                    with writer.block(f"for (long from = 0; from < {chunks}; from += {step})"):
                        writer.line(f"const long past = tw_least_of(from + {step}, {chunks});")
                        self._stretch(writer, "from", "past")
                        self._each_sum(writer, "{c} += tw_sum({acc});")
        writer.line()

    def _stretch(self, writer: Writer, first: str, past: str) -> None:
        """acc = x b over some chunks of k."""
        packing = self.packing
        writer.line(f"vf acc[{self.rows}][{self.columns}] = {{0}};")
        with writer.block(f"for (long chunk = {first}; chunk < {past}; chunk++)"):
            writer.line(f"const float *at = x + chunk * {packing.chunk};")
            behind = packing.table_bytes if packing.own else 0
            for column in range(self.columns):
                writer.line(f"const uint8_t *const p{column} = b{column} + {behind} + chunk * {4 * self.lanes}L;")
                if self.fetch:
                    writer.line(f"__builtin_prefetch(p{column} + {AHEAD});")
            if packing.bits == 8:
                self._bytes(writer)
            else:
                self._words(writer)

    def _words(self, writer: Writer) -> None:
        """The lookups of one vector of indices of up to 4 bits for each column."""
        for column in range(self.columns):
            writer.line(f"vi w{column} = tw_coded_load(p{column});")
        steps = 32 // self.packing.bits
        with writer.block(f"for (int step = 0; step < {steps}; step++, at += TW_LANES)"):
            for row in range(self.rows):
                writer.line(f"const vf x{row} = tw_load(at + {row * self.packing.depth});")
            for column in range(self.columns):
                writer.line(f"const vf y{column} = tw_coded(w{column}, t{column});")
                writer.line(f"w{column} = tw_coded_next(w{column}, {self.packing.bits});")
                for row in range(self.rows):
                    writer.line(f"acc[{row}][{column}] += x{row} * y{column};")

    def _bytes(self, writer: Writer) -> None:
        """The lookups of one vector of bytes for each column."""
        for column in range(self.columns):
            writer.line(f"vf y{column}[4];")
            writer.line(f"tw_coded_64(p{column}, &t{column}, y{column});")
            for row in range(self.rows):
                for quarter in range(4):
                    x = f"tw_load(at + {row * self.packing.depth + quarter * self.lanes})"
                    writer.line(f"acc[{row}][{column}] += {x} * y{column}[{quarter}];")

    def _each_sum(self, writer: Writer, statement: str) -> None:
        """A statement for each sum `{acc}` and its place `{c}`."""
        for row in range(self.rows):
            for column in range(self.columns):
                place = f"c[{row * self.lanes + column} + first]"
                writer.line(statement.format(c=place, acc=f"acc[{row}][{column}]"))


TABLE_LANES = 16
"""Values of a table that stands in registers."""
SPARE = 3
"""Registers for what is looked up and shifted."""
