"""Results of a product that lie across the vectors which hold them: the sums are transposed in squares, then stored.

A register holds neighbouring columns of a row. Where the columns of the result lie far apart in memory, and its rows
near, as with channels first, each element of a register would be written to a line of the cache of its own; lines at
distances of a power of two drive each other out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from compiler.codegen.expressions import Vector
from compiler.codegen.writer import Writer
from compiler.forms.contraction import Contraction
from compiler.forms.normal_form import Slots
from compiler.ir.index import Axis
from compiler.ir.kernel import Block

LEAST_ROWS = 8
"""Of an innermost row axis: fewer fill too little of a square."""
Maps = Callable[[Vector, str], None]
"""Writes the maps at a vector, given the vector of sums."""


@dataclass(frozen=True)
class Sums:
    """A block of sums in memory, against one panel of columns.

    of_row   where those of a row begin, in C; rows along the innermost axis are `panel` floats apart, and some that do
             not exist may be read behind the last
    columns  the live columns of each vector of the panel
    lanes    floats of a vector
    """

    of_row: str
    panel: int
    columns: Sequence[int]
    lanes: int


def lie_across(view: Contraction, slots: Slots, epilogue: Sequence[Block]) -> bool:
    """Whether all results lie nearer to each other along the innermost row axis, if that is not short, than columns."""
    if not view.m or view.m[-1].extent < LEAST_ROWS:
        return False
    stores = [store for block in (view.product, *epilogue) for store in block.stores if store.slot in slots.buffers]
    offsets = [slots.address(store.slot, store.index)[1] for store in stores]
    steps = [(offset.coefficient(view.m[-1]), offset.coefficient(view.n)) for offset in offsets]
    return bool(steps) and all(row and column and 0 < row < column for row, column in steps)


def write_across(
    writer: Writer,
    view: Contraction,
    rows: Sequence[tuple[Axis, str, str]],
    sums: Sums,
    maps: Maps,
) -> None:
    """The maps on a block of sums, along its rows.

    rows  of the two innermost row axes, outermost first: the axis, its first row and one past its last, in C
    """
    *outer, (m, first, past) = rows
    n = view.n
    with ExitStack() as stack:
        for axis, begin, end in outer:
            stack.enter_context(writer.block(f"for (long {axis} = {begin}; {axis} < {end}; {axis}++)"))
        for vector, live in enumerate(sums.columns):
            with writer.block(f"for (long {m} = {first}; {m} < {past}; {m} += TW_LANES)"):
                writer.line("vf square[TW_LANES];")
                writer.line(f"const float *const first_sums = {sums.of_row} + {vector * sums.lanes};")
                writer.line(
                    f"for (long at = 0; at < TW_LANES; at++) square[at] = tw_load(first_sums + at * {sums.panel});"
                )
                writer.line("tw_transpose(square);")
                writer.line(f"const long left = tw_least_of(TW_LANES, {past} - {m});")
                for condition, count in (("left == TW_LANES", ""), ("left < TW_LANES", "left")):
                    with (
                        writer.block(f"if ({condition})"),
                        writer.block(f"for (long column = 0; column < {live}; column++)"),
                    ):
                        writer.line(f"const long {n} = panel * {sums.panel} + {vector * sums.lanes} + column;")
                        maps(Vector(m, count), "square[column]")
