"""Plan: which lane runs which tiles of which kernel after what, and where every buffer lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.text import print_plan
from compiler.ir.tile import Tile


@dataclass(frozen=True)
class Wait:
    """Holds a task back until `lane` has finished its first `count` tasks."""

    lane: int
    count: int


@dataclass(frozen=True)
class Task:
    """Tiles [first, last) of one call, on one lane (a core; on a GPU a stream), in its lane's order.

    One that is `beside` runs at the same time as the task before it on its lane, which waits for it too: on a GPU they share a launch.
    """

    call: int
    lane: int
    first: int
    last: int
    waits: tuple[Wait, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Place:
    """Where a storage lies: `space` is `input` or `output` (position in `at`), `constant`, or `arena` (byte offset in `at`)."""

    space: str
    at: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """`tasks` in one order that respects every wait; `tiles` gives each call its Tile and its number of tile tasks.

    An artifact may hold several plans. It takes the first one whose `most_handover_s` is at least what a hand-over between its cores costs.
    """

    lanes: int
    tasks: tuple[Task, ...]
    tiles: tuple[tuple[Tile, int], ...]
    places: Mapping[int, Place]
    arena_bytes: int
    scheduler: str
    predicted_s: float = 0.0
    most_handover_s: float = math.inf

    def lane(self, lane: int) -> tuple[Task, ...]:
        """The instruction stream of one lane."""
        return tuple(task for task in self.tasks if task.lane == lane)

    def verify(self, kernels: KernelGraph) -> None:
        """Raises VerifyError unless every tile of every call runs once, after its inputs, and no live storages overlap.

        What happens before what is derived from lane order and waits alone, so that a missing wait is found here.
        """
        order = _Order(self.tasks, self.lanes)
        self._verify_tiles(kernels)
        for position, call in enumerate(kernels.calls):
            for buffer in call.inputs:
                storage = kernels.buffers[buffer].storage
                writers = [at for at, other in enumerate(kernels.calls[:position]) if _writes(kernels, other, storage)]
                for writer in writers:
                    order.require(writer, position, f"call {position} `{call}` reads what call {writer} writes")
        self._verify_arena(kernels)

    def _verify_tiles(self, kernels: KernelGraph) -> None:
        covered: dict[int, list[tuple[int, int]]] = {}
        for task in self.tasks:
            covered.setdefault(task.call, []).append((task.first, task.last))
        for position, call in enumerate(kernels.calls):
            reached = 0
            for first, last in sorted(covered.get(position, [])):
                if first != reached or last <= first:
                    raise VerifyError(
                        f"plan runs tiles {first}..{last} of call {position} `{call}`, expected to begin at {reached}"
                    )
                reached = last
            if reached != self.tiles[position][1]:
                raise VerifyError(
                    f"plan runs {reached} of the {self.tiles[position][1]} tiles of call {position} `{call}`"
                )

    def _verify_arena(self, kernels: KernelGraph) -> None:
        users = storage_users(kernels)
        ended = ended_before(self.tasks, self.lanes, len(kernels.calls))
        placed = sorted((place.at, storage) for storage, place in self.places.items() if place.space == "arena")
        for index, (at, storage) in enumerate(placed):
            end = at + self.places[storage].bytes
            if end > self.arena_bytes:
                raise VerifyError(f"storage s{storage} ends at byte {end} of an arena of {self.arena_bytes}")
            for other_at, other in placed[index + 1 :]:
                if other_at >= end:
                    break
                pairs = ((storage, other), (other, storage))
                if not any(self._may_follow(kernels, users, ended, *pair) for pair in pairs):
                    calls = " and ".join(", ".join(map(str, users[one])) for one in pairs[0])
                    raise VerifyError(
                        f"storages s{storage} and s{other} overlap in the arena, and nothing makes the calls that use the one wait "
                        f"for those that use the other (calls {calls})"
                    )

    def _may_follow(
        self,
        kernels: KernelGraph,
        users: Mapping[int, tuple[int, ...]],
        ended: Sequence[int],
        dying: int,
        new: int,
    ) -> bool:
        """Whether the calls that use one storage have ended when those begin that use the other, or it is written exactly over the one."""
        last = {*users[dying]}
        if self._shares(kernels, min(users[new]), dying, new):
            last.discard(min(users[new]))
        return all(ended[user] >> one & 1 for one in last for user in users[new])

    def _shares(self, kernels: KernelGraph, call: int, dying: int, new: int) -> bool:
        """Whether a call may write one storage exactly over another that it reads last: it says so (an in-place alias)."""
        inputs = [kernels.buffers[id].storage for id in kernels.calls[call].inputs]
        outputs = [kernels.buffers[id].storage for id in kernels.calls[call].outputs]
        allowed = {(outputs[out], inputs[into]) for out, into in kernels.calls[call].in_place}
        return (new, dying) in allowed and self.places[dying].at == self.places[new].at

    def __str__(self) -> str:
        return print_plan(self)


def _writes(kernels: KernelGraph, call: object, storage: int) -> bool:
    return any(kernels.buffers[buffer].storage == storage for buffer in call.outputs)  # type: ignore[attr-defined]


def storage_users(kernels: KernelGraph) -> Mapping[int, tuple[int, ...]]:
    """Positions of the calls that touch each storage."""
    users: dict[int, list[int]] = {}
    for position, call in enumerate(kernels.calls):
        for buffer in (*call.inputs, *call.outputs):
            users.setdefault(kernels.buffers[buffer].storage, []).append(position)
    return {storage: tuple(positions) for storage, positions in users.items()}


def ended_before(tasks: Sequence[Task], lanes: int, calls: int) -> tuple[int, ...]:
    """For each call, as bits, the calls of which every task has ended when any task of it begins.

    Raises VerifyError for a task that waits for a later one.
    """
    order = _Order(tasks, lanes)
    unfinished: list[list[int]] = []
    for lane in range(lanes):
        stream = [task.call for task in tasks if task.lane == lane]
        left = [0] * (len(stream) + 1)
        for at in reversed(range(len(stream))):
            left[at] = left[at + 1] | 1 << stream[at]
        unfinished.append(left)
    found = []
    for call in range(calls):
        clocks = order.begins.get(call)
        if clocks is None:
            found.append((1 << call) - 1)  # a call without tasks takes no time
            continue
        running = 0
        for lane in range(lanes):
            running |= unfinished[lane][min(clock[lane] for clock in clocks)]
        found.append((1 << calls) - 1 & ~running)
    return tuple(found)


class _Order:
    """Happens-before between calls, from vector clocks over lane order and waits."""

    def __init__(self, tasks: Sequence[Task], lanes: int) -> None:
        ended = [[(0,) * lanes] for _ in range(lanes)]  # when the first 0, 1, ... tasks of a lane have ended
        begun = [(0,) * lanes] * lanes  # when the last task of a lane began
        self.begins: dict[int, list[tuple[int, ...]]] = {}
        self.ends: dict[int, list[tuple[int, int]]] = {}
        for task in tasks:
            mine = ended[task.lane]
            if task.beside and (task.waits or len(mine) == 1):
                raise VerifyError(
                    f"nothing before task of call {task.call} on lane {task.lane} waits for what it needs"
                )
            clock = begun[task.lane] if task.beside else mine[-1]
            for wait in task.waits:
                if wait.count >= len(ended[wait.lane]):
                    raise VerifyError(
                        f"task of call {task.call} on lane {task.lane} waits for a later task of lane {wait.lane}"
                    )
                clock = _latest(clock, ended[wait.lane][wait.count])
            begun[task.lane] = clock
            self.begins.setdefault(task.call, []).append(clock)
            self.ends.setdefault(task.call, []).append((task.lane, len(mine)))
            own = tuple(len(mine) if lane == task.lane else 0 for lane in range(lanes))
            mine.append(_latest(_latest(clock, mine[-1]), own))

    def require(self, before: int, after: int, why: str) -> None:
        """Raises VerifyError unless every task of `before` has ended when any task of `after` begins."""
        for lane, count in self.ends.get(before, []):
            for clock in self.begins.get(after, []):
                if clock[lane] < count:
                    raise VerifyError(f"{why}, but nothing makes call {after} wait for lane {lane}'s task {count}")


def _latest(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """What has ended on each lane when both have come."""
    return tuple(map(max, one, other))
