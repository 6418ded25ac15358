"""Calls in order, each split so that a lane mostly reads what it wrote itself.

Then lanes wait for each other, and move data, only where halves meet.

Where a task waits for no more than it reads, splitting a call whose operands are split alike costs nothing, while
running it on one lane moves what the others wrote there, and its result back. So lanes, and the variant, are chosen for
each call in turn by when its tasks could end, given where the bytes that they read lie (earliest finish time, as in
Topcuoglu, Hariri and Wu, "Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous Computing", 2002),
and how soon the other lanes could have its result. Lanes drift apart as far as that allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, Accesses, density
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Menu, Variant
from compiler.schedule.problem import Placed
from compiler.schedule.solvers.sequential import variants_on


@dataclass(frozen=True)
class _Written:
    """Bytes [begin, end) of a storage, `density` of which a lane had written by `at`, in seconds."""

    begin: int
    end: int
    density: float
    lane: int
    at: float

    def common(self, access: Access) -> int:
        """How many of these bytes an access has."""
        return min(self.end, access.end) - max(self.begin, access.begin)


@dataclass(frozen=True)
class _Part:
    """A task: tile tasks [first, last) of a call on a lane, from `begin` to `end` in seconds."""

    lane: int
    first: int
    last: int
    begin: float
    end: float


@dataclass(frozen=True)
class _Option:
    """A call under a variant, and when the last lane is free and could have what it needs of the result.

    It needs nothing of others where each lane makes a contiguous range of it, as calls that follow are best split like
    this one.
    """

    variant: Variant
    parts: tuple[_Part, ...]
    done: float

    @property
    def key(self) -> tuple[float, float]:
        """What should be least."""
        return self.done, sum(part.end - part.begin for part in self.parts)


def aligned(
    kernels: KernelGraph, menus: Sequence[Menu], lanes: int, costs: LaneCosts, regions: Regions
) -> tuple[tuple[Variant, ...], tuple[Placed, ...]]:
    """The variant of each call, and on which lanes from when to when; `menus` are in call order.

    O(calls · variants · lanes · tasks that write what a call reads).
    """
    order = _Order(kernels, lanes, costs, regions)
    chosen = [order.add(call, menu) for call, menu in enumerate(menus)]
    placed = tuple(
        Placed(
            call,
            tuple(part.lane for part in option.parts),
            min(part.begin for part in option.parts),
            max(part.end for part in option.parts),
        )
        for call, option in enumerate(chosen)
    )
    return tuple(option.variant for option in chosen), placed


class _Order:
    """What the calls so far have left: when each lane is free, who wrote what, and what each lane has read."""

    def __init__(self, kernels: KernelGraph, lanes: int, costs: LaneCosts, regions: Regions) -> None:
        self._kernels, self._lanes, self._costs = kernels, lanes, costs
        self._accesses = Accesses(kernels, regions)
        self._free = [0.0] * lanes
        self._written: dict[int, list[_Written]] = {}
        self._read: dict[tuple[int, int], Access] = {}

    def add(self, call: int, menu: Menu) -> _Option:
        """Decides on a call."""
        option = min(self._options(call, menu), key=lambda one: one.key)
        for part in option.parts:
            self._free[part.lane] = part.end
            for access in self._touched(call, option.variant, part.first, part.last):
                if access.writes:
                    share = (part.last - part.first) / max(option.variant.tiles, 1)
                    part_of = density(self._kernels.buffers[access.buffer], access, share)
                    written = _Written(access.begin, access.end, part_of, part.lane, part.end)
                    self._written.setdefault(access.storage, []).append(written)
                else:
                    self._read[access.storage, part.lane] = access
        return option

    def _options(self, call: int, menu: Menu) -> Iterator[_Option]:
        for count in range(1, self._lanes + 1):
            for variant, seconds in _on_lanes(menu, count):
                for lanes in _sets(self._lanes, count):
                    yield self._option(call, variant, seconds, lanes)

    def _option(self, call: int, variant: Variant, seconds: float, lanes: Sequence[int]) -> _Option:
        """`seconds` is what the call takes with all its tiles on one lane."""
        parts: list[_Part] = []
        for at, lane in enumerate(lanes):
            first, last = (variant.tiles * part // len(lanes) for part in (at, at + 1))
            begin, moved = self._free[lane], 0.0
            for access in self._touched(call, variant, first, last):
                if not access.writes:
                    ready, crossing = self._arrival(access, lane)
                    begin, moved = max(begin, ready), moved + crossing
            work = seconds * (last - first) / max(variant.tiles, 1)
            parts.append(_Part(lane, first, last, begin, begin + work + moved * self._costs.crossing_s))
        end = max(part.end for part in parts)
        if len(parts) < self._lanes or self._is_mixed(call, variant, parts):
            made = sum(self._kernels.buffers[id].bytes for id in self._kernels.calls[call].outputs)
            end += self._costs.handover_s + made / self._lanes * self._costs.crossing_s
        return _Option(variant, tuple(parts), max(end, *self._free))

    def _is_mixed(self, call: int, variant: Variant, parts: Sequence[_Part]) -> bool:
        """Whether lanes write between each other's results: then a range of them is read of several lanes."""
        written: dict[int, list[tuple[int, int]]] = {}
        for part in parts:
            for access in self._touched(call, variant, part.first, part.last):
                if access.writes:
                    written.setdefault(access.buffer, []).append((access.begin, access.end))
        return any(one[1] > after[0] for own in written.values() for one, after in pairwise(sorted(own)))

    def _arrival(self, access: Access, lane: int) -> tuple[float, float]:
        """When all that a lane reads has been written and seen, and how many bytes of it come from other lanes.

        Bytes that the lane has read before do not count.
        """
        ready = moved = 0.0
        for written in self._written.get(access.storage, ()):
            common = written.common(access)
            if common > 0:
                is_own = written.lane == lane
                ready = max(ready, written.at + (0.0 if is_own else self._costs.handover_s))
                moved += 0.0 if is_own else common * written.density
        known = self._read.get((access.storage, lane))
        if known and known.begin <= access.begin and access.end <= known.end:
            return ready, 0.0
        return ready, moved * density(self._kernels.buffers[access.buffer], access, 1.0)

    def _touched(self, call: int, variant: Variant, first: int, last: int) -> tuple[Access, ...]:
        return self._accesses.of(call, variant.tile, first, last) if variant.tiles else ()


def _on_lanes(menu: Menu, count: int) -> list[tuple[Variant, float]]:
    """Variants on so many lanes, and the seconds of all tiles on one, by what was measured."""
    return [
        (one, one.cost.seconds if one.lanes == 1 else one.cost.seconds * one.tiles / -(-one.tiles // count))
        for one in variants_on(menu, count)
    ]


def _sets(lanes: int, count: int) -> list[range]:
    """Sets of so many lanes next to each other that a call may run on."""
    return [range(first, first + count) for first in range(0, lanes - count + 1, count)]
