"""The innermost loops of a product by one panel of which only some rows are kept, each with its place in k."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cpu.codegen.micro_kernel import MAX_STRETCH, STRETCH

CHAINS = 8
"""Sums that are added to in turn: as many additions as are on their way at a time."""


@dataclass(frozen=True)
class KeptRowsKernel:
    """c[row][column] = sum over steps of x[row][places[step]] b[step][column], for one panel of columns.

    rows     of x, dense
    depth    extent of k
    vectors  of a panel, of `lanes` floats each
    lanes    floats of a vector
    wide     floats from one row of c to the next
    """

    rows: int
    depth: int
    vectors: int
    lanes: int
    wide: int

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def arguments(self) -> str:
        """Of the C function."""
        return "const float *x, const float *b, const uint16_t *places, long steps, float *c"

    @property
    def turns(self) -> int:
        """Steps that are taken at a time, each with sums of its own."""
        return max(CHAINS // (self.rows * self.vectors), 1)

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(x, b, places, steps, c)`, inlined where it is called."""
        with writer.block(f"static inline __attribute__((always_inline)) void {name}({self.arguments})"):
            if self.depth <= MAX_STRETCH:
                writer.line("long step = 0;")
                self._stretch(writer, "steps")
                self._each_place(writer, "tw_store({c}, {acc});")
            else:
                self._each_place(writer, "tw_store({c}, (vf){{0}});")
                with writer.block("for (long step = 0; step < steps;)"):
                    writer.line(f"const long past = tw_least_of(step + {STRETCH}, steps);")
                    self._stretch(writer, "past")
                    self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")
        writer.line()

    def _stretch(self, writer: Writer, past: str) -> None:
        """acc[0] = x b over the steps from `step` on."""
        writer.line(f"vf acc[{self.turns}][{self.rows}][{self.vectors}] = {{0}};")
        if self.turns > 1:
            with writer.block(f"for (; step + {self.turns} <= {past}; step += {self.turns})"):
                for turn in range(self.turns):
                    self._step(writer, turn)
        with writer.block(f"for (; step < {past}; step++)"):
            self._step(writer, 0)
        for row in range(self.rows if self.turns > 1 else 0):
            for vector in range(self.vectors):
                others = " + ".join(f"acc[{turn}][{row}][{vector}]" for turn in range(1, self.turns))
                writer.line(f"acc[0][{row}][{vector}] += {others};")

    def _step(self, writer: Writer, turn: int) -> None:
        """The step `turn` steps from `step` on, added to the sums of its turn."""
        writer.line(f"const long k{turn} = places[step + {turn}];")
        for vector in range(self.vectors):
            writer.line(f"const vf y{turn}_{vector} = tw_load(b + {self._place(turn, vector)});")
        for row in range(self.rows):
            writer.line(f"const vf x{turn}_{row} = tw_splat(x[k{turn} + {row * self.depth}]);")
            for vector in range(self.vectors):
                writer.line(f"acc[{turn}][{row}][{vector}] += x{turn}_{row} * y{turn}_{vector};")

    def _place(self, turn: int, vector: int) -> str:
        """Which column of which step: that of a vector, `turn` steps from `step` on."""
        return f"(step + {turn}) * {self.panel} + {vector * self.lanes}"

    def _each_place(self, writer: Writer, statement: str) -> None:
        """A statement for each sum `{acc}` and its place `{c}`."""
        for row in range(self.rows):
            for vector in range(self.vectors):
                place = f"c + {row * self.wide + vector * self.lanes}"
                writer.line(statement.format(c=place, acc=f"acc[0][{row}][{vector}]"))
