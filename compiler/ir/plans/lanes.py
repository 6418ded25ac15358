"""What the lanes of a plan cost each other.

A schedule has to know this of a device besides the times of its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from compiler.ir.plans.plan import Task
from compiler.ir.tile import Tile

Pair = tuple[int, int]
"""Two cores by position among those of the process, the lower one first."""

UPGRADED = 0.25
"""Of the bytes that cross from lane to lane, those whose memory has to be upgraded when it is written anew: 0.08 to
0.32 in plans whose storages were moved."""


@dataclass(frozen=True)
class LaneCosts:
    """In seconds.

    split_s    what sharing one kernel between lanes costs beside its work; half of it is what a lane waits for
               another's result
    byte_s     how much longer a byte takes to be read, or written, that another lane wrote last
    upgrade_s  how much longer a byte takes to be written that another lane has read since the writer wrote it: the
               cache line is shared, and all other copies are invalidated before it may change (an upgrade from S to M;
               Papamarcos and Patel, ISCA 1984, section 3)
    """

    split_s: float = 0.0
    byte_s: float = 0.0
    upgrade_s: float = 0.0

    @property
    def handover_s(self) -> float:
        """What a lane waits for a result of another."""
        return self.split_s / 2

    @property
    def crossing_s(self) -> float:
        """What a byte that one lane writes and another reads costs, in a plan of which the memory is not known yet."""
        return self.byte_s + UPGRADED * self.upgrade_s


NOTHING = LaneCosts()
"""Lanes that cost each other nothing."""


class StageClock(Protocol):
    """Times parts of a plan on the device."""

    def seconds(self, tiles: Mapping[int, Tile], tasks: Sequence[Task]) -> float | None:
        """What tasks of some calls take, run by themselves: from the beginning of the first to the end of the last.

        `tiles` says how each of these calls is carried out. None where it cannot be timed, or the time for measuring is
        up.
        """
        ...


FAR_NS = 100.0
"""From this median on, in nanoseconds, two cores count as far apart.

Virtual cores that are neighbours hand a cache line over in well under 100 ns, cores that are far apart in 130 to 190
ns.
"""


@dataclass(frozen=True)
class Handover:
    """What a result costs that another core waits for, and whether the cores are `near` or `far`.

    ns         median nanoseconds from a store on one core until the other core sees it
    byte_s     how many seconds longer a byte takes to be read that the other core wrote last than one that the reader
               wrote itself
    upgrade_s  how many seconds longer a byte takes to be written, by the core that wrote it last, when the other core
               has read it since: its cache line is shared then, and the other's copy must be invalidated first
    """

    ns: float
    state: str
    byte_s: float = 0.0
    upgrade_s: float = 0.0

    @staticmethod
    def of(ns: float, byte_s: float = 0.0, upgrade_s: float = 0.0) -> Handover:
        """A measurement with the state of the cores that it shows: `far` from FAR_NS on."""
        return Handover(ns, "far" if ns >= FAR_NS else "near", byte_s, upgrade_s)
