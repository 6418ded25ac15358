"""Storages placed where the lanes that write them find memory that costs them least.

That is memory that they own, or that they read last.

Which lane used a piece of the arena before decides what writing it anew costs (`compiler.schedule.memory.ownership`).
So storages that were placed to make the arena small are moved, one after another, to where that is cheapest, as long as
it helps: a descent. Each step counts, by cells of the arena, what writing the storage costs, and what writing costs
those that follow it, the last of an inference being before the first of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Task
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Tile
from compiler.schedule.memory.buffers import Lease, Tenant
from compiler.schedule.memory.ownership import Held, Memory, Parts, granule_of, touches

CELLS = 512
"""Of the arena, at most: what moves are worth is judged by the cell."""
SWEEPS = 3
"""Over all storages, largest first."""
WORTH = 1e-4
"""Of what writing all storages may cost at most: a move that saves less is not made, and a storage that is a smaller
part of all stays.
"""


@dataclass(frozen=True)
class Use:
    """What a tenant's memory goes through in one inference, in cells.

    `first` are the parts that lanes write of it first, and `last` is how they leave it. `begins` is the number of the
    first task that touches it.
    """

    begins: int
    first: Parts
    last: Held


@dataclass(frozen=True)
class ByOwner:
    """A `compiler.schedule.memory.buffers.Mover` for the tasks of a plan, in their order, on so many lanes.

    `tiles` are in call order.
    """

    kernels: KernelGraph
    tasks: Sequence[Task]
    tiles: Sequence[tuple[Tile, int]]
    lanes: int
    costs: LaneCosts
    regions: Regions | None = None

    def __call__(self, tenants: Sequence[Tenant], leases: Sequence[Lease], limit: int) -> list[Lease]:
        """Leases moved within the first `limit` bytes.

        O(sweeps · tenants · (cells of all tenants + tenants · places)).
        """
        cell = granule_of(limit, CELLS)
        return _Descent(self._uses(tenants, cell), leases, limit, cell, self.lanes, self.costs).run()

    def _uses(self, tenants: Sequence[Tenant], cell: int) -> list[Use]:
        """Of each tenant."""
        tenant_of = {storage: at for at, tenant in enumerate(tenants) for storage in tenant.storages}
        first, whole = ([Memory(self.lanes, one.bytes, cell) for one in tenants] for _ in range(2))
        begins: dict[int, int] = {}
        eldest: dict[int, int] = {}
        for one in touches(self.kernels, self.tasks, self.tiles, self.regions):
            access, at = one.access, tenant_of.get(one.access.storage)
            if at is None:
                continue
            begins.setdefault(at, one.task)
            if not access.writes:
                whole[at].read(one.lane, access.begin, access.end, one.part)
                continue
            whole[at].write(one.lane, access.begin, access.end, one.part, access.storage)
            if eldest.setdefault(at, access.storage) == access.storage:
                first[at].write(one.lane, access.begin, access.end, one.part, access.storage)
        return [Use(begins.get(at, 0), first[at].now.wrote, whole[at].now) for at in range(len(tenants))]


class _Descent:
    """Moves storages one by one to where writing costs least.

    What writing over others costs is linear in what is written. So all places of a storage are judged at once, by
    correlation over the arena.

    All cells of all storages, those that are used first before others, are the columns of one array for what is written
    first, and of one for what it costs to write over what is left.
    """

    def __init__(
        self, uses: Sequence[Use], leases: Sequence[Lease], limit: int, cell: int, lanes: int, costs: LaneCosts
    ) -> None:
        self._leases, self._limit, self._cell = [*leases], limit, cell
        self._cells = -(-limit // cell)
        self._dearest_s = max(costs.byte_s, costs.upgrade_s)
        self._excluded = [
            [other for other in range(len(leases)) if other != at and lease.excludes(leases[other])]
            for at, lease in enumerate(leases)
        ]
        in_turn = sorted(range(len(uses)), key=lambda at: uses[at].begins)
        ends = np.cumsum([uses[at].first.shape[1] for at in in_turn], dtype=np.int64)
        self._columns = {at: slice(end - uses[at].first.shape[1], end) for at, end in zip(in_turn, ends, strict=True)}
        nobody = np.zeros((lanes, 1), np.float32)
        self._first = np.concatenate([*(uses[at].first for at in in_turn), nobody], axis=1)
        self._price = np.concatenate([*(cell * uses[at].last.prices(costs) for at in in_turn), nobody], axis=1)
        self._nobody = self._first.shape[1] - 1
        """The last column, of memory that is not used."""
        self._cell_of = np.zeros(self._nobody, np.int64)
        """Of the arena, for each column."""
        self._ends = np.zeros((len(leases), 2), np.int64)
        """Where in the arena each storage begins and ends, in bytes."""
        for at, lease in enumerate(leases):
            self._put(at, lease)

    def run(self) -> list[Lease]:
        total = sum(lease.bytes for lease in self._leases)
        able = [at for at, lease in enumerate(self._leases) if lease.bytes > WORTH * total]
        able.sort(key=lambda at: -self._leases[at].bytes)
        for _ in range(SWEEPS):
            if not sum(self._move(at, WORTH * self._dearest_s * total) for at in able):
                break
        return self._leases

    def _move(self, at: int, worth: float) -> bool:
        """Whether there was a place for a storage that saves more than `worth` seconds."""
        places = self._places(at)
        if not len(places):
            return False
        seconds = self._seconds(at)
        each = seconds[places // self._cell]
        best = int(np.argmin(each))
        if each[best] >= seconds[self._leases[at].at // self._cell] - worth:
            return False
        self._put(at, replace(self._leases[at], at=int(places[best])))
        return True

    def _put(self, at: int, lease: Lease) -> None:
        columns = self._columns[at]
        self._leases[at], self._ends[at] = lease, (lease.at, lease.at + lease.bytes)
        self._cell_of[columns] = lease.at // self._cell + np.arange(columns.stop - columns.start)

    def _seconds(self, at: int) -> NDArray[np.float64]:
        """By how much more all writes cost with the storage at each cell than without it."""
        columns = self._columns[at]
        first, price = self._first[:, columns], self._price[:, columns]
        others = np.concatenate([np.arange(columns.stop, self._nobody), np.arange(columns.start)])
        before, after = self._last_of(others), self._last_of(others[::-1])
        met, following = self._price[:, before], self._first[:, after]
        is_free = (before == self._nobody).astype(np.float32)
        found = np.correlate(is_free, (first * price).sum(axis=0), "valid").astype(np.float64)
        for lane in range(len(first)):
            found += np.correlate(met[lane], first[lane], "valid") + np.correlate(following[lane], price[lane], "valid")
        return found - np.correlate((met * following).sum(axis=0), np.ones(first.shape[1], np.float32), "valid")

    def _last_of(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each cell of the arena the last of some columns that lies there."""
        found = np.full(self._cells, self._nobody)
        found[self._cell_of[columns]] = columns
        return found

    def _places(self, at: int) -> NDArray[np.int64]:
        """Where there is room beside other storages, or over where one begins or ends, in bytes from the lowest on."""
        size = self._leases[at].bytes
        ends = self._ends.ravel()
        found = np.unique(np.concatenate([[0], ends, ends - size]))
        found = found[(found >= 0) & (found <= self._limit - size)]
        busy = self._ends[self._excluded[at]]
        meets = (found[:, None] < busy[None, :, 1]) & (busy[None, :, 0] < found[:, None] + size)
        return found[~meets.any(axis=1)]
