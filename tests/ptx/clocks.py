"""Which accesses to memory are ordered: vector clocks of threads, and the last accesses to each place.

Source: "PTX ISA", "Memory Consistency Model" (causality order, data races, proxies); the algorithm is FastTrack
(Flanagan and Freund, PLDI 2009), whose readers are kept for each group of threads and not for each thread.
"""

from __future__ import annotations

import numpy as np

from tests.ptx.fault import Fault

UNDER_WAY = np.iinfo(np.int32).max
"""The time of an access by a copy that nobody has waited for: no thread has seen it, its own included."""
WARP = 32


class Clocks:
    """Of `clusters` times `threads` threads: `seen[i, j]` is the time of thread j that thread i has seen.

    Threads are numbered through all clusters, and in `seen`'s second axis within their cluster. `fenced` is the same as
    far as a `fence.proxy.async` lies on the way: what is not, asynchronous copies and products may not find.
    """

    def __init__(self, clusters: int, threads: int) -> None:
        self.threads = threads
        self.seen = np.zeros((clusters * threads, threads), np.int32)
        self.own = np.arange(clusters * threads) % threads
        self.seen[np.arange(clusters * threads), self.own] = 1
        self.fenced = np.zeros_like(self.seen)

    def release(self, ids: np.ndarray) -> np.ndarray:
        """What these threads, of one cluster, have seen and done so far; what they do next comes after it."""
        joint = np.stack([self.seen[ids].max(axis=0), self.fenced[ids].max(axis=0)])
        self.seen[ids, self.own[ids]] += 1
        return joint

    def acquire(self, ids: np.ndarray, joint: np.ndarray) -> None:
        """These threads have seen what was released."""
        self.seen[ids] = np.maximum(self.seen[ids], joint[0])
        self.fenced[ids] = np.maximum(self.fenced[ids], joint[1])

    def fence(self, ids: np.ndarray) -> None:
        """What these threads have seen and done so far comes before what the asynchronous proxy does from now on."""
        self.fenced[ids] = np.maximum(self.fenced[ids], self.seen[ids])
        self.seen[ids, self.own[ids]] += 1

    def meet(self, ids: np.ndarray) -> None:
        """These threads, of one cluster, have seen what all of them have done."""
        self.acquire(ids, self.release(ids))

    def now(self, ids: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.seen[ids, self.own[ids]]
        return result


class Accesses:
    """The last accesses to each place of memory: who wrote, and who of each `group` of threads, such as a warp, read.

    Places are numbered through all blocks. `written` says where anybody has written at all, `generic` where not by the
    asynchronous proxy.
    """

    def __init__(self, places: int, clocks: Clocks | None, group: int = WARP, *, written: bool = False) -> None:
        self.clocks, self.group = clocks, group
        self.written = np.full(places, written)
        if clocks is not None:
            groups = -(-clocks.threads // group)
            self.generic = np.zeros(places, bool)
            self.writer, self.write_time = np.zeros(places, np.int32), np.zeros(places, np.int32)
            self.reader, self.read_time = np.zeros((places, groups), np.int32), np.zeros((places, groups), np.int32)

    def read(self, ids: np.ndarray, places: np.ndarray, *, under_way: bool = False) -> None:
        """Each thread reads its row of places, at once or for what is under way, by the asynchronous proxy.

        Raises Fault: uninitialised, or a race with a write, or one that no proxy fence makes visible.
        """
        if not self.written[places].all():
            bad = ~self.written[places].all(axis=1)
            raise Fault("uninitialised", f"thread {ids[bad][0]} reads shared memory that nobody has written")
        if self.clocks is None:
            return
        self._after_writes(ids, places, "reads")
        if under_way:
            self._after_fences(ids, places, "reads")
        warp = (self.clocks.own[ids] // self.group)[:, None]
        self.reader[places, warp] = self.clocks.own[ids][:, None]
        self.read_time[places, warp] = UNDER_WAY if under_way else self.clocks.now(ids)[:, None]

    def ended_reading(self, ids: np.ndarray, places: np.ndarray) -> None:
        """What read for each thread has ended, and the thread knows."""
        if self.clocks is not None:
            warp = (self.clocks.own[ids] // self.group)[:, None]
            late = self.read_time[places, warp] == UNDER_WAY
            now = np.broadcast_to(self.clocks.now(ids)[:, None], late.shape)
            self.read_time[places, warp] = np.where(late, now, self.read_time[places, warp])

    def write(self, ids: np.ndarray, places: np.ndarray, *, under_way: bool = False, generic: bool = True) -> None:
        """Each thread writes its row of places, at once or by a copy that is under way, of either proxy.

        Raises Fault for a race.
        """
        self.written[places] = True
        if self.clocks is None:
            return
        self._after_writes(ids, places, "writes")
        if not generic:
            self._after_fences(ids, places, "writes")
        self.generic[places] = generic
        late = self.read_time[places] > self.clocks.seen[ids[:, None, None], self.reader[places]]
        if late.any():
            at = np.argwhere(late)[0]
            other = self.reader[places[at[0], at[1]], at[2]]
            raise Fault("race", f"thread {ids[at[0]]} writes what thread {other} of its cluster reads unordered")
        self.writer[places] = self.clocks.own[ids][:, None]
        if (self.writer[places] != self.clocks.own[ids][:, None]).any():
            raise Fault("race", f"several of the threads {ids.min()} to {ids.max()} write to one place at once")
        self.write_time[places] = UNDER_WAY if under_way else self.clocks.now(ids)[:, None]

    def landed(self, ids: np.ndarray, places: np.ndarray) -> None:
        """A copy of each thread has ended, and the thread knows."""
        self.written[places] = True
        if self.clocks is not None:
            self.writer[places] = self.clocks.own[ids][:, None]
            self.write_time[places] = self.clocks.now(ids)[:, None]

    def update(self, ids: np.ndarray, places: np.ndarray) -> None:
        """Atomic operations, which race with nothing but what is not atomic: they are taken as ordered.

        Raises Fault: uninitialised.
        """
        if not self.written[places].all():
            raise Fault("uninitialised", f"thread {ids[0]} updates shared memory that nobody has written")

    def _after_writes(self, ids: np.ndarray, places: np.ndarray, does: str) -> None:
        assert self.clocks is not None
        late = self.write_time[places] > self.clocks.seen[ids[:, None], self.writer[places]]
        if late.any():
            row, column = np.argwhere(late)[0]
            place, time = places[row, column], self.write_time[places[row, column]]
            what = "which is still being copied" if time == UNDER_WAY else "unordered"
            raise Fault(
                "race", f"thread {ids[row]} {does} what thread {self.writer[place]} of its cluster wrote, {what}"
            )

    def _after_fences(self, ids: np.ndarray, places: np.ndarray, does: str) -> None:
        assert self.clocks is not None
        fenced = self.clocks.fenced[ids[:, None], self.writer[places]]
        late = self.generic[places] & (self.write_time[places] > fenced)
        if late.any():
            row, column = np.argwhere(late)[0]
            writer = self.writer[places[row, column]]
            raise Fault(
                "proxy",
                f"what thread {ids[row]} began {does} what thread {writer} wrote, and no fence.proxy.async between",
            )


class Words:
    """Of device memory that resident blocks share: accesses, and what was released at words by which they wait.

    An access to a place of `GRAIN` bytes is remembered of one reader of each block. Atomic operations race with none.
    """

    GRAIN = 2

    def __init__(self, size: int, clocks: Clocks, block_threads: int) -> None:
        self.clocks = clocks
        self.accesses = Accesses(-(-size // self.GRAIN), clocks, block_threads, written=True)
        self.released: dict[int, np.ndarray] = {}

    def grains(self, places: np.ndarray) -> np.ndarray:
        """Of the accesses to rows of neighbouring bytes."""
        return places[:, :: self.GRAIN] // self.GRAIN

    def read(self, ids: np.ndarray, places: np.ndarray) -> None:
        """Raises Fault for a race."""
        self.accesses.read(ids, self.grains(places))

    def write(self, ids: np.ndarray, places: np.ndarray) -> None:
        """Raises Fault for a race."""
        self.accesses.write(ids, self.grains(places))

    def release(self, ids: np.ndarray, place: int) -> None:
        """At a word: what is released there stays, since a later update continues what it follows."""
        joint = self.clocks.release(ids)
        before = self.released.get(place)
        self.released[place] = joint if before is None else np.maximum(before, joint)

    def acquire(self, ids: np.ndarray, place: int) -> None:
        """From a word."""
        if place in self.released:
            self.clocks.acquire(ids, self.released[place])
