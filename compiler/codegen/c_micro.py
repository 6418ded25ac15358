"""The micro-kernel: the innermost loops of a contraction, with all sums in registers.

The register tile of rows x vectors follows Goto and van de Geijn (ACM TOMS 34(3), 2008): one step of k loads `vectors` vectors of B, broadcasts
one element of each row of A, and multiplies and adds all pairs.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from compiler.codegen.writer import Writer

STRETCH = 256
"""Products summed in one register before the total is added to."""
MAX_STRETCH = 384
"""A depth up to which one stretch is enough. Shorter ones keep rounding errors from growing with the depth."""


@dataclass(frozen=True)
class MicroKernel:
    """c[rows][panel] = sum over k of a[row, k] b[k][panel], for panel = vectors * lanes columns.

    rows     offset in elements of each row of A from its first
    nest     the loops over k, outermost first, each (extent, step of A in elements); B is dense in the order of this nest
    vectors  of B and of each row of the result
    lanes    floats of a vector
    """

    rows: tuple[int, ...]
    nest: tuple[tuple[int, int], ...]
    vectors: int
    lanes: int

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    def write(self, writer: Writer, name: str) -> None:
        """A C function `name(const float *a, const float *b, float *c)`, inlined where it is called."""
        head = f"static inline __attribute__((always_inline)) void {name}(const float *a, const float *b, float *c)"
        inside = _levels_of_one_stretch(self.nest)
        with writer.block(head):
            if inside == len(self.nest):
                self._stretch(writer, self.nest, "a", "b")
                self._each_place(writer, "tw_store({c}, {acc});")
            else:
                self._stretches(writer, len(self.nest) - inside)
        writer.line()

    def _stretches(self, writer: Writer, levels: int) -> None:
        """Loops over the outer `levels` of the nest; the innermost of them is cut where what it holds is too long for one stretch."""
        outer, inner = self.nest[:levels], self.nest[levels:]
        held = prod(extent for extent, _ in inner)
        self._each_place(writer, "tw_store({c}, (vf){{0}});")
        with ExitStack() as stack:
            for level, (extent, _) in enumerate(outer[:-1]):
                stack.enter_context(writer.block(f"for (long k{level} = 0; k{level} < {extent}; k{level}++)"))
            extent, step = outer[-1]
            part = max(STRETCH // held, 1)
            last = len(outer) - 1
            stack.enter_context(writer.block(f"for (long k{last} = 0; k{last} < {extent}; k{last} += {part})"))
            place, deep = _sum([f"k{level} * {s}L" for level, (_, s) in enumerate(outer)]), "0"
            for level, (size, _) in enumerate(outer):
                deep = f"k{level}" if deep == "0" else f"({deep}) * {size} + k{level}"
            count = f"k{last} + {part} < {extent} ? {part} : {extent} - k{last}" if part > 1 else "1"
            writer.line(f"const float *const a_at = a + {place};")
            writer.line(f"const float *const b_at = b + ({deep}) * {held * self.panel}L;")
            if part == 1:
                self._stretch(writer, inner, "a_at", "b_at")
            else:
                writer.line(f"const long count = {count};")
                self._stretch(writer, ((0, step), *inner), "a_at", "b_at")
            self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")

    def _stretch(self, writer: Writer, nest: tuple[tuple[int, int], ...], a: str, b: str) -> None:
        """acc = a b over a nest of k; an extent of 0 stands for the variable `count`."""
        vectors = range(self.vectors)
        writer.line(f"vf acc[{len(self.rows)}][{self.vectors}] = {{0}};")
        names = [f"i{level}" for level in range(len(nest))]
        with ExitStack() as stack:
            deep = "0"
            for name, (extent, _) in zip(names, nest, strict=True):
                stack.enter_context(writer.block(f"for (long {name} = 0; {name} < {extent or 'count'}; {name}++)"))
                deep = name if deep == "0" else f"({deep}) * {extent} + {name}"
            place = _sum(
                [name if step == 1 else f"{name} * {step}L" for name, (_, step) in zip(names, nest, strict=True)]
            )
            writer.line(f"const float *const x_at = {a} + {place};")
            writer.line(f"const float *const y_at = {b} + ({deep}) * {self.panel}L;")
            for vector in vectors:
                writer.line(f"const vf y{vector} = tw_load(y_at + {vector * self.lanes});")
            for row, offset in enumerate(self.rows):
                writer.line(f"const vf x{row} = tw_splat(x_at[{offset}]);")
                for vector in vectors:
                    writer.line(f"acc[{row}][{vector}] += x{row} * y{vector};")

    def _each_place(self, writer: Writer, statement: str) -> None:
        """A statement for each accumulator `{acc}` and its place `{c}` in the tile."""
        writer.line(f"#pragma GCC unroll {len(self.rows)}")
        with writer.block(f"for (int row = 0; row < {len(self.rows)}; row++)"):
            for vector in range(self.vectors):
                place = f"c + row * {self.panel} + {vector * self.lanes}"
                writer.line(statement.format(c=place, acc=f"acc[row][{vector}]"))


def _levels_of_one_stretch(nest: tuple[tuple[int, int], ...]) -> int:
    """How many of the innermost loops make up one stretch."""
    levels, held = 0, 1
    for extent, _ in reversed(nest):
        if held * extent > MAX_STRETCH:
            break
        held *= extent
        levels += 1
    return levels


def _sum(terms: list[str]) -> str:
    return " + ".join(terms) or "0"
