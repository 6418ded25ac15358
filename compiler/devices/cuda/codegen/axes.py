"""Positions: the integers that hold them, the axes that a text mentions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from compiler.devices.cuda.codegen.scalars import MOST_INT
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, Index

ROOM = 1024
"""How far the loops of a block's threads, and its last tile, go past the end of what they count."""


def index_type(indices: Iterable[Index], counts: Iterable[int]) -> str:
    """`int` where all that computing the indices yields on the way fits, and so do numbers of points; else `int64_t`.

    Multiplying and dividing 64-bit integers takes a GPU several instructions.
    """
    largest = max(chain((index.magnitude for index in indices), counts), default=0)
    return "int" if largest <= MOST_INT - ROOM else "int64_t"


def value_axes(value: Expr, slots: Slots) -> frozenset[Axis]:
    """The axes that an expression's text mentions, where its values in registers are held already."""
    found: frozenset[Axis] = frozenset()
    for part in value.walk():
        indices = part.indices
        if isinstance(part, Load):
            indices = (slots.address(part.slot, part.index)[1],) if part.slot in slots.buffers else ()
        found = found.union(*(index.axes for index in indices))
    return found
