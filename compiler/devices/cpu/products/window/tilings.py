"""A window's results along one side, in register tiles that the same taps reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.forms.channelwise import Side
from compiler.ir.expr import Expr
from compiler.ir.index import Index
from compiler.ir.interval import Limits, decided


@dataclass(frozen=True)
class Tiles:
    """Register tiles along one side: `size` outputs each; `first` and `last` are where the end tiles begin."""

    side: Side
    size: int
    first: int
    last: int

    @property
    def past(self) -> int:
        """The first output behind the last tile."""
        return self.last + self.size

    @property
    def count(self) -> int:
        """How many tiles there are."""
        return (self.past - self.first) // self.size

    @property
    def limits(self) -> Limits:
        """Outputs at which a tile begins."""
        return {self.side.output: (self.first, self.last)}


def along(side: Side, size: int) -> list[Tiles]:
    """The whole tiles along a side, then the rest as one shorter tile."""
    extent = side.output.extent
    whole, rest = extent // size * size, extent % size
    tiles = [Tiles(side, size, 0, whole - size)] if whole else []
    return tiles + ([Tiles(side, rest, whole, whole)] if rest else [])


@dataclass(frozen=True)
class Shape:
    """Register tiles of one shape. Those that are `inside` read nothing that a guard keeps out."""

    rows: Tiles
    columns: Tiles
    inside: bool

    @property
    def limits(self) -> Limits:
        """Between which outputs the tiles of this shape begin."""
        return {**self.rows.limits, **self.columns.limits}

    def __str__(self) -> str:
        return f"{self.rows.size}x{self.columns.size}{'_inside' if self.inside else ''}"


@dataclass(frozen=True)
class Run:
    """Neighbouring tiles of one shape in one row of tiles."""

    shape: Shape
    first: int
    past: int


def tiles_inside(tiles: Tiles, guards: Sequence[Expr]) -> Tiles | None:
    """The tiles whose guards all hold, from the first to the last; None when they are too few for a function."""

    def hold(first: int, last: int) -> bool:
        part = Tiles(tiles.side, tiles.size, first, last)
        return all(tests_of(guards, part, position) == [] for position in tiles.side.readers(tiles.size))

    first, last = tiles.first, tiles.last
    while first <= last and not hold(first, first):
        first += tiles.size
    while last > first and not hold(last, last):
        last -= tiles.size
    inside = Tiles(tiles.side, tiles.size, first, last)
    return inside if first <= last and 2 * inside.count >= tiles.count and hold(first, last) else None


def tests_of(guards: Sequence[Expr], tiles: Tiles, position: int) -> list[Expr] | None:
    """The guards of a side that have to be tested at a position of these tiles; None where one of them never holds."""
    side, tests = tiles.side, []
    for guard in guards:
        if side.position in guard.axes:
            test = guard.substitute({side.position: Index.of(side.output) * side.stride + position})
            answer = decided(test, tiles.limits)
            if answer is False:
                return None
            if answer is None:
                tests.append(test)
    return tests
