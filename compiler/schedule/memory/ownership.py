"""In whose cache the memory of a plan is, and what reading and writing it costs the lanes that have not got it.

A cache line that one core wrote is fetched from there when another reads or writes it. A line that one core wrote and
another has read since is shared by both. Who wrote it may write it again only after the other copies are invalidated:
an upgrade, which between cores of high latency costs several times as much as fetching it. Who read it since owns it,
and writes it as if it had been its own (docs/decisions/tasks-wait-for-bytes.md). So it matters which lane used a piece
of memory before, the last storage of an inference being before the first of the next.

Memory is looked at in granules. Where lanes write between each other's bytes (channels, cut over lanes) each has a part
of every granule, and what the next one meets is taken to be independent of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, Accesses, density
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Place, Plan, Task
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Tile

Parts = NDArray[np.float32]
"""(lanes, granules): which part of the bytes of each granule a lane has touched."""
LINE = 64
MOST_GRANULES = 8192
"""Of the arena, or of an output."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of a task that are not at hand.

    read      that it reads, another lane wrote, and its own has not read since
    fetched   that it writes, and another lane wrote and its own has not read since
    upgraded  that it writes, its own lane wrote last, and another has read since
    """

    read: float = 0.0
    fetched: float = 0.0
    upgraded: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read + other.read, self.fetched + other.fetched, self.upgraded + other.upgraded)

    def seconds(self, costs: LaneCosts) -> float:
        """By how much longer the task takes."""
        return (self.read + self.fetched) * costs.byte_s + self.upgraded * costs.upgrade_s


@dataclass(frozen=True)
class Held:
    """What lanes did to some memory, as parts of its granules: who wrote what is there, and who read it since."""

    wrote: Parts
    read: Parts

    @classmethod
    def nobody(cls, lanes: int, granules: int) -> Self:
        """Memory that was not touched."""
        return cls(np.zeros((lanes, granules), np.float32), np.zeros((lanes, granules), np.float32))

    def __getitem__(self, granules: slice) -> Held:
        return Held(self.wrote[:, granules], self.read[:, granules])

    def missing(self, lane: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What a lane has to do to write each granule: the part of it that it fetches, and the one that it upgrades."""
        others = [other for other in range(len(self.wrote)) if other != lane]
        fetched = self.wrote[others].sum(axis=0) * (1 - self.read[lane])
        return fetched, self.wrote[lane] * self.read[others].max(axis=0, initial=0)

    def prices(self, costs: LaneCosts) -> Parts:
        """By how many seconds longer each lane takes to write a byte of each granule."""
        missing = (self.missing(lane) for lane in range(len(self.wrote)))
        byte_s, upgrade_s = np.float32(costs.byte_s), np.float32(costs.upgrade_s)
        return np.stack([fetched * byte_s + upgraded * upgrade_s for fetched, upgraded in missing])


class Memory:
    """So many bytes as lanes use them, in granules of `granule` bytes.

    before  what was done to each granule up to when its present tenant, a storage, was first written there
    now     what was done since
    """

    def __init__(self, lanes: int, bytes: int, granule: int) -> None:
        count = -(-bytes // granule)
        self._granule = granule
        self._tenant = np.full(count, -1, np.int64)
        self.before, self.now = Held.nobody(lanes, count), Held.nobody(lanes, count)

    def read(self, lane: int, begin: int, end: int, part: float) -> Traffic:
        """A lane reads `part` of bytes [begin, end)."""
        where, part = self._granules(begin, end, part)
        held = self.now[where]
        made = held.wrote.sum(axis=0)
        theirs = np.divide(made - held.wrote[lane], made, out=np.zeros_like(made), where=made > 0)
        missing = np.maximum(part - held.read[lane], 0)
        np.maximum(held.read[lane], part, out=held.read[lane])
        return Traffic(read=float((missing * theirs).sum()) * self._granule)

    def write(self, lane: int, begin: int, end: int, part: float, tenant: int) -> Traffic:
        """A lane writes `part` of bytes [begin, end).

        With the first byte that `tenant` writes to a granule what was there before is gone.
        """
        where, part = self._granules(begin, end, part)
        self._begin(where, tenant)
        fetched, upgraded = (part * float(one.sum()) * self._granule for one in self.before[where].missing(lane))
        wrote = self.now.wrote[lane, where]
        np.minimum(wrote + part, 1, out=wrote)
        return Traffic(fetched=fetched, upgraded=upgraded)

    def _begin(self, where: slice, tenant: int) -> None:
        new = self._tenant[where] != tenant
        if not new.any():
            return
        self._tenant[where][new] = tenant
        for before, now in ((self.before.wrote, self.now.wrote), (self.before.read, self.now.read)):
            before[:, where][:, new] = now[:, where][:, new]
            now[:, where][:, new] = 0

    def _granules(self, begin: int, end: int, part: float) -> tuple[slice, float]:
        """Those that hold bytes of [begin, end), and which part of all of them is `part` of these."""
        first, last = begin // self._granule, -(-end // self._granule)
        return slice(first, last), part * (end - begin) / ((last - first) * self._granule)


def granule_of(bytes: int, most: int = MOST_GRANULES) -> int:
    """Bytes of a granule of so much memory: as few whole cache lines as make at most `most` of them."""
    return LINE * max(1, -(-bytes // (LINE * most)))


@dataclass(frozen=True)
class Touch:
    """A task, by its number, at some memory, with the part of the bytes there that it touches."""

    task: int
    lane: int
    access: Access
    part: float


def touches(
    kernels: KernelGraph, tasks: Sequence[Task], tiles: Sequence[tuple[Tile, int]], regions: Regions | None = None
) -> list[Touch]:
    """Of all tasks in their order, each of which reads before it writes; `tiles` are in call order."""
    accesses = Accesses(kernels, regions)
    found = []
    for number, task in enumerate(tasks):
        tile, count = tiles[task.call]
        share = (task.last - task.first) / count
        for access in sorted(accesses.of(task.call, tile, task.first, task.last), key=lambda one: one.writes):
            part = density(kernels.buffers[access.buffer], access, share)
            found.append(Touch(number, task.lane, access, part))
    return found


def traffic(plan: Plan, kernels: KernelGraph, regions: Regions | None = None) -> tuple[Traffic, ...]:
    """For each task of a plan the bytes that are not at hand, in an inference that follows another.

    O(tasks · granules that they touch).
    """
    found = [Traffic()] * len(plan.tasks)
    if plan.lanes == 1:
        return tuple(found)
    memories = _Memories(plan)
    touched = touches(kernels, plan.tasks_of_one_device(), plan.tiles, regions)
    for one in touched:
        memories.touch(one, inference=0)
    for one in touched:
        found[one.task] += memories.touch(one, inference=1)
    return tuple(found)


def crossing_bytes(plan: Plan, kernels: KernelGraph, regions: Regions | None = None) -> int:
    """Bytes per inference that a lane reads and another lane wrote; what a lane reads more than once counts once."""
    return round(sum(one.read for one in traffic(plan, kernels, regions)))


class _Memories:
    """The arena, and each output, which is where it was in the inference before."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._storages = 1 + max(plan.places, default=0)
        self._of: dict[int | None, Memory] = {}
        """By the position of an output; the arena by None."""

    def touch(self, one: Touch, inference: int) -> Traffic:
        """In the first inference or another."""
        access, place = one.access, self._plan.places[one.access.storage]
        memory, at = self._memory(place), place.at if place.space == "arena" else 0
        begin, end = at + access.begin, at + access.end
        if not access.writes:
            return memory.read(one.lane, begin, end, one.part)
        return memory.write(one.lane, begin, end, one.part, inference * self._storages + access.storage)

    def _memory(self, place: Place) -> Memory:
        key, bytes = (None, self._plan.arena_bytes) if place.space == "arena" else (place.at, place.bytes)
        if key not in self._of:
            self._of[key] = Memory(self._plan.lanes, bytes, granule_of(bytes))
        return self._of[key]
