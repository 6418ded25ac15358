"""The micro-kernel: the innermost loops of a contraction, with all sums in registers.

The register tile of rows x vectors follows Goto and van de Geijn (ACM TOMS 34(3), 2008): one step of k loads `vectors`
vectors of B, broadcasts one element of each row of A, and multiplies and adds all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from compiler.codegen.writer import Writer
from compiler.forms.cache_lines import LINE

Nest = tuple[tuple[int, int], ...]
"""Loops over k, outermost first: (extent, step of A in elements)."""

STRETCH = 256
"""Products summed in one register before the total is added to."""
MAX_STRETCH = 384
"""A depth up to which one stretch is enough. Shorter ones keep rounding errors from growing with the depth."""


@dataclass(frozen=True)
class MicroKernel:
    """c[rows][panel] = sum over k of a[row, k] b[k][panel], for panel = vectors * lanes columns.

    rows     offset in elements of each row of A from its first
    nest     the loops over k, outermost first, each (extent, step of A in elements); B is dense in the order of this
             nest
    vectors  of B and of each row of the result
    lanes    floats of a vector
    ahead    steps of k by which B is fetched into the cache before it is read; 0: left to the hardware, which stops at
             each page
    wide     floats of a row of B and of the result, where there are more than the vectors hold; 0: there are not
    """

    rows: tuple[int, ...]
    nest: Nest
    vectors: int
    lanes: int
    ahead: int = 0
    wide: int = 0

    @property
    def panel(self) -> int:
        """Floats from one row of B, or of the result, to the next."""
        return self.wide or self.vectors * self.lanes

    def write(self, writer: Writer, name: str, share: int = 0) -> None:
        """A C function `name(a, b, c)`, or `name(a, b, c, next)` where there is a share: the whole sum.

        It is taken segment by segment. Each step of k fetches `share` floats, in turn from `next` on, into the cache
        for the one that reads them next.
        """
        cut = stretches(self.nest)
        with writer.block(_head(name, ("float *c", *(("const float *next",) if share else ())))):
            if not cut.outer:
                self._sums(writer, self.nest, "a", "b", "next" if share else "", share)
                self._each_place(writer, "tw_store({c}, {acc});")
            else:
                self._each_place(writer, "tw_store({c}, (vf){{0}});")
                with cut.loops(writer):
                    ahead = f"next + done * {share}" if share else ""
                    self._sums(writer, cut.inner, "a + a_at", f"b + done * {self.panel}", ahead, share)
                    self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")
        writer.line()

    def write_first(self, writer: Writer, name: str) -> None:
        """A C function `name(a, b, c, some)`: the sum over the first `some` steps of its only loop over k.

        It is taken in the segments of `write`, so that steps left out that would add zeros change no bit.
        """
        ((extent, step),) = self.nest
        cut = stretches(self.nest)
        part = cut.part if cut.outer else extent
        with writer.block(_head(name, ("float *c", "long some"))):
            self._each_place(writer, "tw_store({c}, (vf){{0}});")
            with writer.block(f"for (long k = 0; k < some; k += {part})"):
                writer.line(f"const long count = tw_least_of({part}, some - k);")
                self._sums(writer, ((0, step),), f"a + k * {step}L", f"b + k * {self.panel}", "", 0)
                self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")
        writer.line()

    def write_adding(self, writer: Writer, name: str, share: int) -> None:
        """A C function `name(a, b, c, count, next)`: c += a b for one segment of k.

        Its nest has `count` steps outermost where its extent is 0. Fetches as `write` does.
        """
        with writer.block(_head(name, ("float *c", "long count", "const float *next"))):
            writer.line("(void)count, (void)next;")
            self._sums(writer, self.nest, "a", "b", "next", share)
            self._each_place(writer, "tw_store({c}, tw_load({c}) + {acc});")
        writer.line()

    @contextmanager
    def write_sums(self, writer: Writer, name: str, share: int, more: Sequence[str]) -> Iterator[None]:
        """A C function `name(a, b, next, ...)` with `more` parameters, for a nest of one segment of k.

        It leaves `vf acc[rows][vectors]` = a b in registers for what the caller writes into it. Fetches as `write`
        does.
        """
        with writer.block(_head(name, ("const float *next", *more))):
            writer.line("(void)next;")
            self._sums(writer, self.nest, "a", "b", "next", share)
            yield
        writer.line()

    def _sums(self, writer: Writer, nest: Nest, a: str, b: str, next: str, share: int) -> None:
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
            writer.line(f"const float *x_at = {a} + {place};")
            writer.line(f"const float *const y_at = {b} + ({deep}) * {self.panel}L;")
            writer.line("TW_OPAQUE(x_at);")
            for float_ in range(0, self.panel if self.ahead else 0, LINE):
                writer.line(f"__builtin_prefetch(y_at + {self.ahead * self.panel + float_});")
            for float_ in range(0, share, LINE):
                writer.line(f"__builtin_prefetch({next} + ({deep}) * {share} + {float_});")
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


@dataclass(frozen=True)
class Stretches:
    """k cut into segments: `outer` loops around them, the innermost of which advances by `part`, and the nest inside.

    The nest's outermost extent is 0 where it is not the same for all segments.
    """

    outer: Nest
    part: int
    inner: Nest

    @property
    def held(self) -> int:
        """Steps of k to one step of the innermost outer loop."""
        return prod(extent for extent, _ in self.inner[1 if self.part > 1 else 0 :])

    @property
    def steps(self) -> int:
        """Steps of k in a stretch, of the longest one where they differ."""
        return self.part * self.held

    @contextmanager
    def loops(self, writer: Writer) -> Iterator[None]:
        """Loops over the segments; the caller writes their body.

        In it A is `a_at` elements further, `done` steps of k lie behind, and `count` is the extent that varies.
        """
        with ExitStack() as stack:
            for level, (extent, _) in enumerate(self.outer):
                advance = f"k{level} += {self.part}" if level == len(self.outer) - 1 else f"k{level}++"
                stack.enter_context(writer.block(f"for (long k{level} = 0; k{level} < {extent}; {advance})"))
            deep = "0"
            for level, (extent, _) in enumerate(self.outer):
                deep = f"k{level}" if deep == "0" else f"({deep}) * {extent} + k{level}"
            place = _sum([f"k{level} * {step}L" for level, (_, step) in enumerate(self.outer)])
            writer.line(f"const long a_at = {place};")
            writer.line(f"const long done = ({deep}) * {self.held}L;")
            if self.outer and self.outer[-1][0] % self.part:
                last, extent = f"k{len(self.outer) - 1}", self.outer[-1][0]
                writer.line(f"const long count = tw_least_of({self.part}, {extent} - {last});")
            yield


def stretches(nest: Nest) -> Stretches:
    """Cuts the loops over k so that a stretch has at most MAX_STRETCH steps, about STRETCH where there are several."""
    levels, held = 0, 1
    for extent, _ in reversed(nest):
        if held * extent > MAX_STRETCH:
            break
        held *= extent
        levels += 1
    outer, inner = nest[: len(nest) - levels], nest[len(nest) - levels :]
    if not outer:
        return Stretches((), 1, inner)
    extent, step = outer[-1]
    parts = -(-extent // max(STRETCH // held, 1))
    part = -(-extent // parts)
    if part == 1:
        return Stretches(outer, 1, inner)
    return Stretches(outer, part, ((0 if extent % part else part, step), *inner))


def _head(name: str, more: Sequence[str]) -> str:
    """Not inlined: what goes on around a call would compete with the sums for registers."""
    arguments = ", ".join(("const float *a", "const float *b", *more))
    return f"static __attribute__((noinline)) void {name}({arguments})"


def _sum(terms: list[str]) -> str:
    return " + ".join(terms) or "0"
