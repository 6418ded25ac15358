"""How the tile tasks of a kernel cut its axes, and which points some of them work on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from compiler.ir.index import Axis, Range
from compiler.ir.interval import Limits
from compiler.ir.kernel import Kernel


@dataclass(frozen=True)
class Cut:
    """One level of a grid: places of some axes, row-major, `take` of them a task; the last task has the remainder.

    A place is one point of each axis, or `steps` neighbouring ones of them (the outputs of a Winograd tile).
    """

    axes: tuple[Axis, ...]
    take: int = 1
    steps: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[int, ...]:
        """Along each axis."""
        return tuple(-(-axis.extent // step) for axis, step in self._stepped)

    @property
    def tasks(self) -> int:
        """Tasks of this level alone."""
        return -(-prod(self.places) // self.take)

    def boxes(self, first: int, last: int) -> list[Limits]:
        """The points of tasks first .. last, both included, as boxes that have none in common."""
        past = min((last + 1) * self.take, prod(self.places))
        return [
            {
                axis: (low * step, min((high + 1) * step, axis.extent) - 1)
                for (axis, step), (low, high) in zip(self._stepped, box, strict=True)
            }
            for box in row_major_boxes(self.places, first * self.take, past - 1)
        ]

    @property
    def _stepped(self) -> list[tuple[Axis, int]]:
        return [*zip(self.axes, self.steps or (1,) * len(self.axes), strict=True)]


@dataclass(frozen=True)
class TaskGrid:
    """Tile tasks counted row-major over levels, outermost first, which cut shared axes of `kernel`.

    `kernel` has the form that its lowering worked on, with axes of its own; its inputs and outputs are in their places.
    """

    kernel: Kernel
    levels: tuple[Cut, ...]

    @property
    def tasks(self) -> int:
        """Tile tasks of the kernel: the product of those of its levels."""
        return prod(level.tasks for level in self.levels)

    def boxes(self, first: int, last: int) -> Iterator[Limits]:
        """The points of tile tasks [first, last) as disjoint boxes; axes that a box does not mention are whole."""
        for counted in row_major_boxes([level.tasks for level in self.levels], first, last - 1):
            parts = [level.boxes(*ends) for level, ends in zip(self.levels, counted, strict=True)]
            for chosen in itertools.product(*parts):
                yield {axis: ends for part in chosen for axis, ends in part.items()}


def one_by_one(axes: Sequence[Axis]) -> tuple[Cut, ...]:
    """A level for each axis, outermost first, of which a task has one point."""
    return tuple(Cut((axis,)) for axis in axes)


def row_major_boxes(extents: Sequence[int], first: int, last: int) -> Iterator[tuple[Range, ...]]:
    """Places first .. last, both included, of a row-major array, as boxes: least and greatest index per dimension."""
    if first > last:
        return
    if not extents:
        yield ()
        return
    inner = extents[1:]
    size = prod(inner)
    (low, head), (high, tail) = divmod(first, size), divmod(last, size)
    if low == high:
        yield from (((low, low), *box) for box in row_major_boxes(inner, head, tail))
        return
    if head > 0:
        yield from (((low, low), *box) for box in row_major_boxes(inner, head, size - 1))
        low += 1
    whole = high if tail == size - 1 else high - 1
    if low <= whole:
        yield ((low, whole), *((0, extent - 1) for extent in inner))
    if whole < high:
        yield from (((high, high), *box) for box in row_major_boxes(inner, 0, tail))
