"""Plan: which lane runs which tiles of which kernel after what, and where every buffer lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.errors import VerifyError
from compiler.ir.accesses import Accesses
from compiler.ir.buffers import KernelGraph
from compiler.ir.races import Clock, Step, latest, verify_memory, verify_reads
from compiler.ir.text import print_plan
from compiler.ir.tile import Tile
from compiler.ir.touched import Regions


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

    def verify(self, kernels: KernelGraph, regions: Regions | None = None) -> None:
        """Raises VerifyError unless every tile of every call runs once, after what it reads, and no live storages overlap.

        What happens before what is derived from lane order and waits alone, so that a missing wait is found here. Without `regions` a task may touch
        all of every operand of its call.
        """
        order = _Order(self.tasks, self.lanes)
        self._verify_tiles(kernels)
        arena = self._verified_arena()
        accesses = Accesses(kernels, regions)
        steps = [
            Step(
                task.call,
                task.lane,
                number,
                begins,
                accesses.of(task.call, self.tiles[task.call][0], task.first, task.last),
            )
            for task, number, begins in zip(self.tasks, order.numbers, order.begins, strict=True)
        ]
        verify_reads(steps, kernels)
        verify_memory(steps, kernels, arena)

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

    def _verified_arena(self) -> dict[int, tuple[int, int]]:
        """The bytes [begin, end) of each storage in the arena. Raises VerifyError for one that does not fit into it."""
        found = {storage: (p.at, p.at + p.bytes) for storage, p in self.places.items() if p.space == "arena"}
        for storage, (_, end) in found.items():
            if end > self.arena_bytes:
                raise VerifyError(f"storage s{storage} ends at byte {end} of an arena of {self.arena_bytes}")
        return found

    def __str__(self) -> str:
        return print_plan(self)


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
    clocks: dict[int, list[Clock]] = {}
    for task, begins in zip(tasks, order.begins, strict=True):
        clocks.setdefault(task.call, []).append(begins)
    found = []
    for call in range(calls):
        if call not in clocks:
            found.append((1 << call) - 1)  # a call without tasks takes no time
            continue
        running = 0
        for lane in range(lanes):
            running |= unfinished[lane][min(clock[lane] for clock in clocks[call])]
        found.append((1 << calls) - 1 & ~running)
    return tuple(found)


class _Order:
    """For each task how many tasks of each lane have ended for certain when it begins, by lane order and waits; and its number on its lane, from 1."""

    def __init__(self, tasks: Sequence[Task], lanes: int) -> None:
        ended = [[(0,) * lanes] for _ in range(lanes)]  # when the first 0, 1, ... tasks of a lane have ended
        begun = [(0,) * lanes] * lanes  # when the last task of a lane began
        self.begins: list[Clock] = []
        self.numbers: list[int] = []
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
                clock = latest(clock, ended[wait.lane][wait.count])
            begun[task.lane] = clock
            self.begins.append(clock)
            self.numbers.append(len(mine))
            own = tuple(len(mine) if lane == task.lane else 0 for lane in range(lanes))
            mine.append(latest(latest(clock, mine[-1]), own))
