"""The innermost loop of a product by dot products of groups, with all sums of a register tile in registers."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.forms.groups import LANE_BYTES


@dataclass(frozen=True)
class DotKernel:
    """c[row][column] = the sums of products of groups of `rows` rows of A with the first columns of a panel of B.

    rows       of the register tile, `row_bytes` apart in A
    vectors    of columns, of `lanes` sums each
    panel      columns from one group of B to the next
    steps      groups along the sum, in C; "steps" is a parameter of the function
    c_step     sums from one row of c to the next
    load, dot  the C functions that load a group of A, and that add its products with a vector of B
    kind       of the sums in C: "float" or "int32_t"
    """

    rows: int
    vectors: int
    lanes: int
    panel: int
    row_bytes: int
    steps: str
    c_step: int
    load: str
    dot: str
    kind: str

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(a, b, c)`, or `name(a, b, c, steps)`."""
        vectors, is_float = range(self.vectors), self.kind == "float"
        vector, store = ("vf", "tw_store") if is_float else ("vi", "tw_store_i")
        counted = ", long steps" if self.steps == "steps" else ""
        head = f"void {name}(const char *a, const char *b, {self.kind} *c{counted})"
        with writer.block(f"static __attribute__((noinline)) {head}"):
            writer.line(f"{vector} acc[{self.rows}][{self.vectors}] = {{0}};")
            with writer.block(f"for (long k = 0; k < {self.steps}; k++)"):
                for at in vectors:
                    place = f"b + (k * {self.panel} + {at * self.lanes}) * {LANE_BYTES}"
                    writer.line(f"const vi y{at} = tw_groups({place});")
                for row in range(self.rows):
                    writer.line(f"const vi x{row} = {self.load}(a + k * {LANE_BYTES} + {row * self.row_bytes}L);")
                    for at in vectors:
                        acc = f"acc[{row}][{at}]"
                        writer.line(f"{acc} = {self.dot}({acc}, x{row}, y{at});")
            writer.line(f"#pragma GCC unroll {self.rows}")
            with writer.block(f"for (int row = 0; row < {self.rows}; row++)"):
                for at in vectors:
                    writer.line(f"{store}(c + row * {self.c_step} + {at * self.lanes}, acc[row][{at}]);")
        writer.line()
