"""What a task must wait for because of the bytes that it touches.

These are the tasks that wrote what it reads, and those that used the memory that it uses anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, Accesses
from compiler.ir.plans.plan import Place, storage_users
from compiler.ir.plans.races import Clock
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Tile
from compiler.schedule.plans.tasks import Counts


@dataclass(frozen=True)
class _Done:
    """A task, by its number on its lane, that touched memory [begin, end)."""

    number: int
    call: int
    begin: int
    end: int
    writes: bool


@dataclass
class _History:
    """What was done to a storage, for each lane in order.

    It lies at [at, end) of its memory; `left` are the calls that are yet to touch it.
    """

    at: int
    end: int
    left: set[int]
    done: list[list[_Done]] = field(default_factory=list)

    def is_over(self, clock: Clock) -> bool:
        """Whether all that will ever be done to it has ended by then."""
        return not self.left and all(not own or own[-1].number <= clock[lane] for lane, own in enumerate(self.done))

    def last(self, begin: int, end: int, known: Clock, matters: Callable[[_Done], bool]) -> Iterator[tuple[int, int]]:
        """Lane and number of the last task on each lane that touched some of these bytes and for which `matters` holds.

        Tasks that are `known` to have ended are left out.
        """
        for lane, own in enumerate(self.done):
            for one in reversed(own):
                if one.number <= known[lane]:
                    break
                if one.begin < end and begin < one.end and matters(one):
                    yield lane, one.number
                    break


class Conflicts:
    """`Needs` by bytes.

    A task waits for tasks of earlier calls that wrote what it reads, and for all that touched other storages in the
    same memory where one of both writes. Parts of one call write only over what they alone read (`Call.in_place`), so
    that they never wait for each other. `places` must be such that in the order of the plan one storage follows
    another.
    """

    def __init__(
        self,
        kernels: KernelGraph,
        tiles: Sequence[Tile],
        places: Mapping[int, Place],
        lanes: int,
        regions: Regions | None = None,
    ) -> None:
        self._accesses, self._tiles = Accesses(kernels, regions), tiles
        self._clocks: list[Clock] = [(0,) * lanes] * lanes
        self._call = -1
        users = storage_users(kernels)
        self._in_arena = {storage for storage, place in places.items() if place.space == "arena"}
        self._of: dict[int, _History] = {}
        for storage, place in places.items():
            at = place.at if storage in self._in_arena else 0
            self._of[storage] = _History(at, at + place.bytes, {*users.get(storage, ())}, [[] for _ in range(lanes)])
        self._live: dict[int, _History] = {}

    def before(self, call: int, first: int, last: int, known: Clock) -> Counts:
        """The last task of each lane that touched the same bytes."""
        if call != self._call:
            self._call = call
            self._forget()
        needed: dict[int, int] = {}
        for access in self._accesses.of(call, self._tiles[call], first, last):
            for lane, number in self._met(access, call, known):
                needed[lane] = max(needed.get(lane, 0), number)
        return needed

    def add(self, call: int, first: int, last: int, lane: int, begins: Clock) -> None:
        """What a task touches from now on has a history."""
        number = begins[lane] + 1
        self._clocks[lane] = (*begins[:lane], number, *begins[lane + 1 :])
        for access in self._accesses.of(call, self._tiles[call], first, last):
            history = self._of[access.storage]
            history.left.discard(call)
            begin, end = access.begin + history.at, access.end + history.at
            history.done[lane].append(_Done(number, call, begin, end, access.writes))
            if access.storage in self._in_arena:
                self._live[access.storage] = history

    def _met(self, access: Access, call: int, known: Clock) -> Iterator[tuple[int, int]]:
        own = self._of[access.storage]
        begin, end = access.begin + own.at, access.end + own.at
        if not access.writes:
            yield from own.last(begin, end, known, lambda one: one.writes and one.call < call)
        if access.storage in self._in_arena:
            for other in self._live.values():
                if other is not own and other.at < end and begin < other.end:
                    yield from other.last(
                        begin, end, known, lambda one: one.call != call and (one.writes or access.writes)
                    )

    def _forget(self) -> None:
        """Drops storages that no task can conflict with any more: for every lane, what was done to them has ended."""
        for storage, history in [*self._live.items()]:
            if all(map(history.is_over, self._clocks)):
                del self._live[storage]
