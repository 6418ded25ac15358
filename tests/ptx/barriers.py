"""Barriers of blocks and of clusters, and mbarriers.

Source: "PTX ISA", "Parallel Synchronization and Communication Instructions": bar, barrier.cluster, mbarrier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx.fault import Fault

if TYPE_CHECKING:
    from tests.ptx.gang import Gang

ALL = -1
"""The number of threads of a barrier that is for all of its block that have not ended."""
RUN, WAIT, SPIN, ENDED = range(4)


@dataclass
class _Barrier:
    """A barrier that threads have come to: `wanted` threads, who waits at which instruction, who only arrived."""

    wanted: int
    waiting: list[tuple[np.ndarray, int]] = field(default_factory=list)
    arrived: list[np.ndarray] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    finish: object = None

    @property
    def members(self) -> np.ndarray:
        return np.concatenate([*(ids for ids, _ in self.waiting), *self.arrived])


class BlockBarriers:
    """`bar` and `barrier`, by block and number."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.barriers: dict[tuple[int, int], _Barrier] = {}

    def come(
        self,
        ids: np.ndarray,
        at: int,
        number: np.ndarray,
        wanted: np.ndarray,
        *,
        arrive: bool = False,
        values: np.ndarray | None = None,
        finish: object = None,
    ) -> None:
        """Threads come to barriers `number` of their blocks, for `wanted` threads each (ALL).

        `values` are combined by `finish(ids, values)`, when all have come. Raises Fault where threads do not agree how
        many are to come, or more come.
        """
        gang = self.gang
        for block in np.unique(gang.block[ids]):
            for one in np.unique(number[gang.block[ids] == block]):
                mine = (gang.block[ids] == block) & (number == one)
                count = int(wanted[mine][0])
                barrier = self.barriers.setdefault((int(block), int(one)), _Barrier(count))
                if barrier.wanted != count or (wanted[mine] != count).any():
                    raise Fault("divergence", f"threads at barrier {one} do not agree how many are to come")
                if arrive:
                    barrier.arrived.append(ids[mine])
                    gang.at[ids[mine]] = at + 1
                else:
                    barrier.waiting.append((ids[mine], at))
                    gang.state[ids[mine]] = WAIT
                if values is not None:
                    barrier.values.append(values[mine])
                    barrier.finish = finish
        self.complete()

    def complete(self) -> None:
        """Barriers that all have come to let their threads go on: after arrivals, and after threads have ended."""
        gang = self.gang
        for key, barrier in list(self.barriers.items()):
            members = barrier.members
            wanted = barrier.wanted
            if wanted == ALL:
                wanted = int((gang.state[gang.block == key[0]] != ENDED).sum())
            if members.size > wanted:
                raise Fault("divergence", f"{members.size} threads came to barrier {key[1]}, which is for {wanted}")
            if members.size < wanted:
                continue
            del self.barriers[key]
            if gang.clocks is not None:
                joint = gang.clocks.release(members)
                for ids, _ in barrier.waiting:
                    gang.clocks.acquire(ids, joint)
            for ids, at in barrier.waiting:
                gang.go_on(ids, at)
            if callable(barrier.finish):
                barrier.finish(np.concatenate([ids for ids, _ in barrier.waiting]), np.concatenate(barrier.values))


class ClusterBarriers:
    """`barrier.cluster`: a thread arrives, and later waits for all threads of its cluster to have arrived."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.arrived = np.zeros(gang.count, bool)
        self.phase, self.seen = np.zeros(gang.count // gang.cluster_threads, np.int64), np.zeros(gang.count, np.int64)
        self.joint: dict[int, np.ndarray] = {}

    def arrive(self, ids: np.ndarray) -> None:
        """Raises Fault where a thread arrives twice without waiting."""
        if self.arrived[ids].any():
            raise Fault("divergence", "a thread arrives a second time at a barrier of its cluster")
        self.arrived[ids] = True
        self._complete(ids)

    def wait(self, ids: np.ndarray) -> np.ndarray:
        """Which of the threads may go on."""
        self._complete(ids)
        passed = self.seen[ids] < self.phase[self.gang.cluster[ids]]
        going = ids[passed]
        self.seen[going] += 1
        if self.gang.clocks is not None:
            for cluster in np.unique(self.gang.cluster[going]):
                self.gang.clocks.acquire(going[self.gang.cluster[going] == cluster], self.joint[int(cluster)])
        result: np.ndarray = passed
        return result

    def _complete(self, ids: np.ndarray) -> None:
        gang = self.gang
        for cluster in np.unique(gang.cluster[ids]):
            members = gang.ids[gang.cluster == cluster]
            if self.arrived[members].any() and (self.arrived[members] | (gang.state[members] == ENDED)).all():
                if gang.clocks is not None:
                    self.joint[int(cluster)] = gang.clocks.release(members[self.arrived[members]])
                self.arrived[members] = False
                self.phase[cluster] += 1
                gang.events += 1


@dataclass
class Mbarrier:
    """An mbarrier: arrivals that a phase has, those that are pending, bytes that are to come, phases that are over.

    `coming` is what the threads that arrived in this phase have seen, `joint` the same of phases that are over.
    """

    count: int
    pending: int
    bytes: int = 0
    phase: int = 0
    coming: np.ndarray | None = None
    joint: np.ndarray | None = None


class Mbarriers:
    """By position in the shared memory of all blocks."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.at: dict[int, Mbarrier] = {}

    def places(self, ids: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """Where mbarriers lie. Raises Fault: misaligned, out-of-bounds."""
        if (addresses % 8).any():
            raise Fault("misaligned", "an mbarrier is aligned to 8 bytes")
        return self.gang.shared.places(self.gang.cluster[ids], addresses, 8)

    def begin(self, ids: np.ndarray, addresses: np.ndarray, counts: np.ndarray) -> None:
        """mbarrier.init."""
        places = self.places(ids, addresses)
        self.gang.shared.accesses.write(ids, self.gang.shared.grains(places))
        for place, count in zip(places[:, 0], counts, strict=True):
            self.at[int(place)] = Mbarrier(int(count), int(count))

    def find(self, place: int) -> Mbarrier:
        """Raises Fault: uninitialised."""
        if place not in self.at:
            raise Fault("uninitialised", "there is no mbarrier at this address")
        return self.at[place]

    def arrive(self, ids: np.ndarray, addresses: np.ndarray, expected: np.ndarray | None = None) -> None:
        """One arrival of each thread, with the bytes that it announces. Raises Fault where more arrive than are to."""
        for at, place in enumerate(self.places(ids, addresses)[:, 0]):
            one = self.find(int(place))
            if expected is not None:
                one.bytes += int(expected[at])
            if self.gang.clocks is not None:
                joint = self.gang.clocks.release(ids[at : at + 1])
                one.coming = joint if one.coming is None else np.maximum(one.coming, joint)
            one.pending -= 1
            if one.pending < 0:
                raise Fault("deadlock", f"more than {one.count} arrivals in a phase of an mbarrier")
            self._complete(one)

    def landed(self, ids: np.ndarray, place: int, size: int) -> None:
        """A copy that a thread has issued has brought bytes that are counted at an mbarrier."""
        one = self.find(place)
        if self.gang.clocks is not None:
            joint = self.gang.clocks.release(ids)
            one.coming = joint if one.coming is None else np.maximum(one.coming, joint)
        one.bytes -= size
        self._complete(one)

    def over(self, ids: np.ndarray, addresses: np.ndarray, parity: np.ndarray) -> np.ndarray:
        """Of which threads the phase with this parity is over; copies land where that is waited for."""
        places = self.places(ids, addresses)[:, 0]
        for place in np.unique(places):
            self.gang.groups.land_at(int(place))
        found = np.array(
            [self.find(int(place)).phase % 2 != int(want) & 1 for place, want in zip(places, parity, strict=True)]
        )
        if self.gang.clocks is not None:
            for place in np.unique(places[found]):
                joint = self.find(int(place)).joint
                if joint is not None:
                    self.gang.clocks.acquire(ids[found & (places == place)], joint)
        return found

    def _complete(self, one: Mbarrier) -> None:
        if one.pending == 0 and one.bytes == 0:
            one.pending, one.phase = one.count, one.phase + 1
            if one.coming is not None:
                one.joint = one.coming if one.joint is None else np.maximum(one.joint, one.coming)
            self.gang.events += 1
