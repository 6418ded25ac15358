"""What is under way: copies of threads, copies of the bulk engine, and operands of wgmma.

All land as late as the manual allows: when somebody waits for them.

Source: "PTX ISA", "Data Movement and Conversion Instructions": cp.async, cp.async.bulk, cp.async.bulk.tensor, and
"Tensors" with its figures of swizzling modes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tests.ptx.fault import Fault
from tests.ptx.memory import aligned

if TYPE_CHECKING:
    from tests.ptx.gang import Gang


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and a box of it, innermost dimension first; strides in bytes of all but that."""

    address: int
    item: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def bytes(self) -> int:
        """Of a box in shared memory."""
        return prod(self.box) * self.item

    def sources(self, corner: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of a box's elements in the order of shared memory, and which of them lie in the tensor."""
        rest = np.arange(prod(self.box))
        address, inside = np.full(rest.size, self.address, np.int64), np.ones(rest.size, bool)
        for first, extent, size, stride in zip(corner, self.box, self.sizes, (self.item, *self.strides), strict=True):
            at = rest % extent + first
            rest = rest // extent
            inside &= (at >= 0) & (at < size)
            address += at * stride
        return address, inside


def swizzled(offsets: np.ndarray, width: int) -> np.ndarray:
    """Where bytes lie in shared memory: the number of 16 bytes is combined with that of the row, by exclusive or.

    Rows are of 128 bytes. Of a swizzle of 128, 64 or 32 bytes the lowest 3, 2 or 1 bits are.
    """
    rows = {128: 7, 64: 3, 32: 1, 0: 0}[width]
    result: np.ndarray = offsets ^ (offsets >> 7 & rows) << 4
    return result


@dataclass
class _Copies:
    """One cp.async of many threads: their numbers, groups, destinations, sources, and bytes that are read."""

    ids: np.ndarray
    group: np.ndarray
    places: np.ndarray
    sources: np.ndarray
    bytes: np.ndarray


@dataclass
class _Landing:
    """What one thread has issued that ends at an mbarrier, or with a group of the thread."""

    thread: int
    land: Callable[[], None]
    group: int = 0


@dataclass
class _Reading:
    """Operands that a product reads for a thread, until a group has ended."""

    group: int
    places: np.ndarray


@dataclass
class Groups:
    """Copies and products that are under way, by thread and group."""

    gang: Gang
    copies: list[_Copies] = field(default_factory=list)
    at_mbarrier: dict[int, list[_Landing]] = field(default_factory=dict)
    bulk: list[_Landing] = field(default_factory=list)
    reading: dict[int, list[_Reading]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.gang.count
        self.copy_group, self.bulk_group, self.product_group = (np.zeros(count, np.int64) for _ in range(3))

    # Copies of threads.

    def copy(self, ids: np.ndarray, shared: np.ndarray, sources: np.ndarray, read: np.ndarray, size: int) -> None:
        """cp.async of `size` bytes, of which `read` are read and the others are zero. Raises Fault."""
        gang = self.gang
        aligned(shared, size)
        aligned(sources[read > 0], size)
        if (read > size).any():
            raise Fault("out-of-bounds", f"cp.async of {size} bytes is to read {int(read.max())}")
        places = gang.shared.places(gang.cluster[ids], shared, size)
        if gang.words is not None:
            for count in np.unique(read[read > 0]):
                mine = read == count
                gang.words.read(ids[mine], gang.memory.places(sources[mine], int(count)))
        gang.shared.accesses.write(ids, gang.shared.grains(places), under_way=True)
        gang.shared.octets[places] = 0xFF
        self.copies.append(_Copies(ids, self.copy_group[ids].copy(), places, sources, read))

    def wait_copies(self, ids: np.ndarray, pending: int) -> None:
        """All but the newest `pending` groups of these threads have ended."""
        self._land_copies(ids, self.copy_group - pending)

    def _land_copies(self, ids: np.ndarray, before: np.ndarray) -> None:
        gang, left = self.gang, []
        waits = np.zeros(gang.count, bool)
        waits[ids] = True
        for one in self.copies:
            lands = waits[one.ids] & (one.group < before[one.ids])
            if lands.any():
                size = one.places.shape[1]
                for read in np.unique(one.bytes[lands]):
                    mine = lands & (one.bytes == read)
                    octets = np.zeros((int(mine.sum()), size), np.uint8)
                    if read:
                        octets[:, :read] = gang.memory.octets[gang.memory.places(one.sources[mine], int(read))]
                    gang.shared.octets[one.places[mine]] = octets
                    gang.shared.accesses.landed(one.ids[mine], gang.shared.grains(one.places[mine]))
                gang.events += 1
            if not lands.all():
                keep = ~lands
                left.append(
                    _Copies(one.ids[keep], one.group[keep], one.places[keep], one.sources[keep], one.bytes[keep])
                )
        self.copies = left

    def arrive_after_copies(self, ids: np.ndarray, addresses: np.ndarray) -> None:
        """cp.async.mbarrier.arrive.noinc: an arrival when all copies of the thread so far have ended."""
        self.copy_group[ids] += 1
        groups = self.copy_group.copy()
        for thread, address, place in zip(
            ids, addresses, self.gang.mbarriers.places(ids, addresses)[:, 0], strict=True
        ):
            one = np.array([thread])

            def land(one: np.ndarray = one, address: int = address) -> None:
                self._land_copies(one, groups)
                self.gang.mbarriers.arrive(one, np.array([address]))

            self.at_mbarrier.setdefault(int(place), []).append(_Landing(int(thread), land))

    # The bulk engine.

    def bring(self, thread: int, places: np.ndarray, octets: Callable[[], np.ndarray], mbarrier: int) -> None:
        """A bulk copy to places of shared memory, counted at an mbarrier (its place) when it has landed."""
        gang, ids = self.gang, np.array([thread])
        rows = self._grains(places)
        gang.shared.accesses.write(ids, rows, under_way=True, generic=False)
        gang.shared.octets[places] = 0xFF

        def land() -> None:
            gang.shared.octets[places] = octets()
            gang.shared.accesses.landed(ids, rows)
            gang.mbarriers.landed(ids, mbarrier, places.size)

        self.at_mbarrier.setdefault(mbarrier, []).append(_Landing(thread, land))

    def take(self, thread: int, places: np.ndarray, deliver: Callable[[np.ndarray], None]) -> None:
        """A bulk copy from places of shared memory, which are read when the thread waits for its group."""
        gang, ids = self.gang, np.array([thread])
        rows = self._grains(places)
        gang.shared.accesses.read(ids, rows, under_way=True)

        def land() -> None:
            deliver(gang.shared.octets[places])
            gang.shared.accesses.ended_reading(ids, rows)

        self.bulk.append(_Landing(thread, land, int(self.bulk_group[thread])))

    def land_at(self, mbarrier: int) -> None:
        """Somebody waits at an mbarrier."""
        for one in self.at_mbarrier.pop(mbarrier, []):
            one.land()
            self.gang.events += 1

    def wait_bulk(self, ids: np.ndarray, pending: int) -> None:
        """All but the newest `pending` bulk groups of these threads have ended."""
        waits = set(ids.tolist())
        ended = [one for one in self.bulk if one.thread in waits and one.group < self.bulk_group[one.thread] - pending]
        self.bulk = [one for one in self.bulk if one not in ended]
        for one in ended:
            one.land()

    def land_all(self) -> None:
        """The kernel ends: what was stored is there. Raises Fault for bytes that nobody has waited for."""
        for one in self.bulk:
            one.land()
        self.bulk.clear()
        if any(self.at_mbarrier.values()):
            raise Fault("unfinished", "a bulk copy that nobody has waited for")

    def _grains(self, places: np.ndarray) -> np.ndarray:
        return np.unique(places // self.gang.shared.grain)[None]

    # Operands of products.

    def read_by_product(self, ids: np.ndarray, places: np.ndarray) -> None:
        """A warpgroup's product reads places of shared memory, until the group that comes next has ended."""
        rows = self._grains(places)
        self.gang.shared.accesses.read(ids[:1], rows, under_way=True)
        thread = int(ids[0])
        self.reading.setdefault(thread, []).append(_Reading(int(self.product_group[thread]), rows))

    def wait_products(self, ids: np.ndarray, pending: int) -> None:
        """All but the newest `pending` groups of a warpgroup's products have ended."""
        thread = int(ids[0])
        before = self.product_group[thread] - pending
        for one in self.reading.get(thread, []):
            if one.group < before:
                self.gang.shared.accesses.ended_reading(ids[:1], one.places)
        self.reading[thread] = [one for one in self.reading.get(thread, []) if one.group >= before]
