"""Loops over vectors along one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.codegen.expressions import Emitter, Vector
from compiler.codegen.functions import nest
from compiler.codegen.writer import Writer
from compiler.ir.expr import Expr
from compiler.ir.index import Axis, row_major

SUM_STRETCH = 64
"""Elements of a long sum that are added one by one before the total is."""


def strips(
    writer: Writer, axis: Axis, lanes: int, body: Callable[[Vector], None], first: int = 0, past: str = ""
) -> None:
    """Whole vectors along an axis, from `first` on, then the rest as one partial vector.

    With `past`, a C expression, only those that begin before it.
    """
    whole = axis.extent // lanes * lanes
    if whole > first:
        test = f"{axis} < {whole}{f' && {axis} < {past}' if past else ''}"
        with writer.block(f"for (long {axis} = {first}; {test}; {axis} += TW_LANES)"):
            body(Vector(axis))
    if axis.extent % lanes:
        with writer.block(f"if ({whole} < {past})" if past else ""):
            writer.line(f"const long {axis} = {whole};")
            body(Vector(axis, str(axis.extent % lanes)))


def ranged_strips(
    writer: Writer, axis: Axis, past: str, body: Callable[[Vector], None], *, step: str = "TW_LANES", tail: bool = True
) -> None:
    """Vectors along an axis from its C variable's value on, `step` at a time, up to `past`: then what is left.

    Without `tail` nothing is done with what a whole step exceeds.
    """
    with writer.block(f"for (; {axis} + {step} <= {past}; {axis} += {step})"):
        body(Vector(axis))
    if tail:
        with writer.block(f"if ({axis} < {past})"):
            writer.line(f"const long count = {past} - {axis};")
            body(Vector(axis, "count"))


def panel_strips(writer: Writer, axis: Axis, panel: int, lanes: int, body: Callable[[Vector, str], None]) -> None:
    """Strips along the part of an axis that falls into the panel number `panel` (a C variable), of so many columns.

    `body` is given the vector and the C expression of its column in the panel.
    """
    whole, rest = axis.extent // lanes * lanes, axis.extent % lanes
    limit = f" && panel * {panel} + column < {whole}" if axis.extent % panel else ""
    if whole:
        with writer.block(f"for (long column = 0; column < {panel}{limit}; column += TW_LANES)"):
            writer.line(f"const long {axis} = panel * {panel} + column;")
            body(Vector(axis), "column")
    if rest:
        with writer.block(f"if (panel == {axis.extent // panel})"):
            writer.line(f"const long {axis} = {whole};")
            body(Vector(axis, str(rest)), str(whole % panel))


def padded_strip(writer: Writer, axis: Axis, panel: int, line: str, value: Callable[[Vector], str]) -> None:
    """line[column] = the value at one vector of columns of the panel number `panel`, from `column` on.

    Past the axis's end there are zeros.
    """
    writer.line(f"const long {axis} = panel * {panel} + column;")
    with writer.block(f"if ({axis} + TW_LANES <= {axis.extent})"):
        writer.line(f"tw_store({line} + column, {value(Vector(axis))});")
    with writer.block(f"else if ({axis} < {axis.extent})"):
        writer.line(f"const long live = {axis.extent} - {axis};")
        writer.line(f"tw_store({line} + column, {value(Vector(axis, 'live'))});")
    writer.line(f"else tw_store({line} + column, tw_splat(0.0f));")


def copy_row(
    writer: Writer,
    at: Callable[[Vector], Emitter],
    lanes: int,
    axes: Sequence[Axis],
    value: Expr,
    into: str,
    *,
    factor: str = "",
    suffix: str = "",
) -> None:
    """into[k] = value at each point k of the axes, the last one fastest; times `factor` if given.

    `at` gives the emitter at a vector; `suffix` is that of `store_vector`.
    """
    *outer, inner = axes
    with nest(writer, outer):
        place = row_major(axes)

        def copy(vector: Vector) -> None:
            emitter = at(vector)
            text = f"{emitter.vf(value)} * {factor}" if factor else emitter.vf(value)
            store_vector(writer, f"{into} + {emitter.index(place)}", text, vector, suffix)

        strips(writer, inner, lanes, copy)


def store_vector(writer: Writer, place: str, value: str, vector: Vector, suffix: str = "") -> None:
    """The live lanes of a vector, to memory; `suffix` ends the name of the C function that stores their type."""
    tail = f"_n({place}, {value}, {vector.count})" if vector.count else f"({place}, {value})"
    writer.line(f"tw_store{suffix}{tail};")
