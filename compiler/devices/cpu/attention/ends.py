"""Where the keys of a query begin and end, as a bound on their places says (`compiler.forms.key_bounds`)."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.expressions import Emitter
from compiler.codegen.writer import Writer
from compiler.forms.key_bounds import KeyBound

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
