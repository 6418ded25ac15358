"""Where the keys of a query begin and end, as a bound on their places says (`compiler.forms.key_bounds`)."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.expressions import Emitter
from compiler.codegen.scalars import literal
from compiler.codegen.writer import Writer
from compiler.forms.key_bounds import KeyBound, KeyBounds
from compiler.ir.index import Axis
from compiler.ir.tensor import DType

VANISHES = 104.0
"""An exponential in fp32 of less than minus this is 0."""


def declare_ends(writer: Writer, emitter: Emitter, bounds: Sequence[KeyBound], extent: int) -> None:
    """Declares `first` and `past`: of the `extent` keys, those that no bound leaves out at the axes' present values."""
    writer.line(f"long first = 0, past = {extent};")
    for bound in bounds:
        most = extent + abs(bound.more)
        limit = f"tw_between({-most}, (long){emitter.scalar(bound.limit)}, {most})"
        place = (
            f"tw_between(0, {limit} + {bound.more}, {extent})" if bound.more else f"tw_between(0, {limit}, {extent})"
        )
        name, less = ("past", "<") if bound.is_end else ("first", ">")
        with writer.block(""):
            writer.line(f"const long place = {place};")
            writer.line(f"if (place {less} {name}) {name} = place;")


def kept_keys(writer: Writer, masked: KeyBounds, keys: Axis, row: str, value: str) -> str:
    """The C name of a vector of scores from the key at `keys` on, the lowest score where a bound leaves keys out.

    Those of query `row` begin at `firsts[row]` and end at `pasts[row]`.
    """
    lowest = f"tw_splat({literal(masked.lowest, DType.F32)})"
    if any(bound.is_end for bound in masked.bounds):
        kept, live = writer.name("kept"), f"tw_between(0, pasts[{row}] - {keys}, TW_LANES)"
        writer.line(f"const vf {kept} = tw_first_n({value}, {live}, {lowest});")
        value = kept
    if any(not bound.is_end for bound in masked.bounds):
        kept, dead = writer.name("kept"), f"tw_between(0, firsts[{row}] - {keys}, TW_LANES)"
        writer.line(f"const vf {kept} = tw_first_n({lowest}, {dead}, {value});")
        value = kept
    return value
