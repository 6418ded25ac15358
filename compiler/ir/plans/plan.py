"""Plan: which lane of which device runs which tiles of which kernel after what, and where every buffer lies.

A device reaches its own memory spaces and no others: what one device computes and another one reads is copied, by tasks
of the plan, from a place in a memory of the one to a place in a memory of the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access, Accesses
from compiler.ir.plans.races import Clock, Step, latest, verify_memory, verify_reads
from compiler.ir.plans.spaces import verify_transfers
from compiler.ir.plans.touched import Regions
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

    One that is `beside` runs at the same time as the task before it on its lane, which waits for it too: on a GPU they
    share a launch. `device` is a position in the plan's devices; all tasks of a lane, and all of a call, have the same
    one.
    """

    call: int
    lane: int
    first: int
    last: int
    waits: tuple[Wait, ...] = ()
    beside: bool = False
    device: int = 0

    def __str__(self) -> str:
        beside = " beside" if self.beside else ""
        return f"{_where(self)}: call {self.call} tiles {self.first}..{self.last}{beside}{_after(self)}"


@dataclass(frozen=True)
class Copy:
    """Bytes [begin, end) of a storage, from its place in one memory space to its place in another one.

    A copy is on one lane, in its lane's order. `source` and `target` are positions in the plan's memories. The device
    that carries it out has one of the two.
    """

    storage: int
    source: int
    target: int
    begin: int
    end: int
    lane: int
    waits: tuple[Wait, ...] = ()
    device: int = 0
    beside: bool = field(default=False, init=False)

    def __str__(self) -> str:
        what = f"copy s{self.storage} {self.begin}..{self.end} memory {self.source} -> {self.target}"
        return f"{_where(self)}: {what}{_after(self)}"


@dataclass(frozen=True)
class Place:
    """Where a storage lies.

    `space` is `input` or `output` (position in `at`), `constant`, or `arena` (byte offset in `at`). `memory` is a
    position in the plan's memories.
    """

    space: str
    at: int
    bytes: int
    memory: int = 0


@dataclass(frozen=True)
class Memory:
    """A memory space of the plan's device at position `device`, with an arena of its own."""

    device: int
    arena_bytes: int


@dataclass(frozen=True)
class Plan:
    """`tasks` in one order that respects every wait; `tiles` gives each call its Tile and its number of tile tasks.

    An artifact may hold several plans. It takes the first one whose `most_handover_s` is at least what a hand-over
    between its cores costs.

    On a GPU so many `residents` may stay on each multiprocessor: blocks that take tile tasks in the order of `tasks`.
    Where there are none, calls are launched.

    `devices` has the target of each device; the empty name is the target of the job. Memory 0 belongs to device 0 and
    holds the inputs, the outputs and an arena of `arena_bytes`; `more_memories` are the others, from number 1 on. A
    storage lies at its place and, where another device reads or writes it too, at one of `replicas` in a memory of that
    device.
    """

    lanes: int
    tasks: tuple[Task | Copy, ...]
    tiles: tuple[tuple[Tile, int], ...]
    places: Mapping[int, Place]
    arena_bytes: int
    scheduler: str
    predicted_s: float = 0.0
    most_handover_s: float = math.inf
    devices: tuple[str, ...] = ("",)
    more_memories: tuple[Memory, ...] = ()
    replicas: tuple[tuple[int, Place], ...] = ()
    residents: int = 0

    def lane(self, lane: int) -> tuple[Task | Copy, ...]:
        """The instruction stream of one lane."""
        return tuple(task for task in self.tasks if task.lane == lane)

    @cached_property
    def runs(self) -> tuple[Task, ...]:
        """The tasks that run tiles of calls, which are all but the copies."""
        return tuple(task for task in self.tasks if isinstance(task, Task))

    @property
    def memories(self) -> tuple[Memory, ...]:
        """All memory spaces."""
        return (Memory(0, self.arena_bytes), *self.more_memories)

    def tasks_of_one_device(self) -> tuple[Task, ...]:
        """The tasks, for those that know one device and one memory.

        Raises VerifyError for a plan with more of them or with copies.
        """
        if len(self.devices) > 1 or self.more_memories or self.replicas:
            raise VerifyError(
                f"the plan is for {len(self.devices)} devices with {len(self.memories)} memories, "
                "where one of each is supported"
            )
        if len(self.runs) < len(self.tasks):
            raise VerifyError("the plan copies between memories, where one device with one memory is supported")
        if any(task.device for task in self.runs):
            raise VerifyError("the plan has tasks on a device that is not the only one")
        return self.runs

    def verify(self, kernels: KernelGraph, regions: Regions | None = None) -> None:
        """Raises VerifyError unless every tile of every call runs once and after what it reads.

        It also raises where live storages overlap. What happens before what is derived from lane order and waits alone,
        so that a missing wait is found here. Without `regions` a task may touch all of every operand of its call. What
        a task reads must have been written in a memory of its device, or copied there.
        """
        order = Order(self.tasks, self.lanes)
        self._verify_tiles(kernels)
        self._verify_devices()
        arenas = self._verified_arenas()
        if len(self.memories) == 1 and len(self.runs) == len(self.tasks):
            steps = self._steps(order, Accesses(kernels, regions))
            verify_reads(steps, kernels)
        else:
            steps = self._steps(order, Accesses(kernels, regions, every=True))
            verify_transfers(steps, kernels, self._filled(kernels), self._asked(kernels))
        for memory, arena in enumerate(arenas):
            verify_memory(steps, kernels, arena, memory)

    def _steps(self, order: Order, accesses: Accesses) -> list[Step]:
        """The tasks with what they touch, in which memory."""
        found = []
        for task, number, begins in zip(self.tasks, order.numbers, order.begins, strict=True):
            if isinstance(task, Copy):
                ends = ((task.source, False), (task.target, True))
                touched = tuple(
                    Access(-1, task.storage, task.begin, task.end, writes, memory) for memory, writes in ends
                )
                found.append(Step(None, task.lane, number, begins, touched))
            else:
                plain = accesses.of(task.call, self.tiles[task.call][0], task.first, task.last)
                touched = plain if len(self.memories) == 1 else tuple(self._placed(task, one) for one in plain)
                found.append(Step(task.call, task.lane, number, begins, touched))
        return found

    def _placed(self, task: Task, access: Access) -> Access:
        """The access in a memory of the task's device."""
        for storage, place in (*self.places.items(), *self.replicas):
            if storage == access.storage and self.memories[place.memory].device == task.device:
                return replace(access, memory=place.memory)
        raise VerifyError(
            f"call {task.call} runs on device {task.device} and touches storage s{access.storage}, "
            "which has no place in its memories"
        )

    def _filled(self, kernels: KernelGraph) -> frozenset[tuple[int, int]]:
        """The (storage, memory) that have their contents before any task runs.

        Inputs, and constants wherever they are placed as such.
        """
        placed = (*self.places.items(), *self.replicas)
        return frozenset((storage, place.memory) for storage, place in placed if place.space in ("input", "constant"))

    def _asked(self, kernels: KernelGraph) -> tuple[tuple[int, int], ...]:
        """The (storage, memory) that the caller reads when all tasks have run."""
        storages = dict.fromkeys(kernels.buffers[value].storage for value in kernels.outputs)
        return tuple((storage, self.places[storage].memory) for storage in storages)

    def _verify_devices(self) -> None:
        """Raises VerifyError unless tasks and memories name devices that there are.

        One device for each lane and each call, and one for each memory. Copies join places of their storage.
        """
        memories = self.memories
        device_of: dict[int, int] = {}
        runs_on: dict[int, int] = {}
        for number, memory in enumerate(memories):
            if not 0 <= memory.device < len(self.devices):
                raise VerifyError(f"memory {number} belongs to device {memory.device} of {len(self.devices)}")
        placed: set[tuple[int, int]] = set()
        devices: dict[int, set[int]] = {}
        for storage, place in (*self.places.items(), *self.replicas):
            if not 0 <= place.memory < len(memories):
                raise VerifyError(f"storage s{storage} lies in memory {place.memory} of {len(memories)}")
            if place.memory and place.space not in ("arena", "constant"):
                raise VerifyError(
                    f"storage s{storage} is the caller's, which has it in memory 0, not in {place.memory}"
                )
            device = memories[place.memory].device
            if device in devices.setdefault(storage, set()):
                raise VerifyError(f"storage s{storage} has two places on device {device}")
            devices[storage].add(device)
            placed.add((storage, place.memory))
        for task in self.tasks:
            if not 0 <= task.device < len(self.devices):
                raise VerifyError(f"a task of lane {task.lane} is on device {task.device} of {len(self.devices)}")
            if device_of.setdefault(task.lane, task.device) != task.device:
                raise VerifyError(f"lane {task.lane} has tasks on devices {device_of[task.lane]} and {task.device}")
            if isinstance(task, Copy):
                self._verify_copy(task, placed)
            elif runs_on.setdefault(task.call, task.device) != task.device:
                raise VerifyError(f"call {task.call} has tasks on devices {runs_on[task.call]} and {task.device}")

    def _verify_copy(self, copy: Copy, placed: set[tuple[int, int]]) -> None:
        for memory in (copy.source, copy.target):
            if (copy.storage, memory) not in placed:
                raise VerifyError(f"a copy of storage s{copy.storage} names memory {memory}, where it has no place")
        if copy.source == copy.target:
            raise VerifyError(f"a copy of storage s{copy.storage} stays in memory {copy.source}")
        if copy.device not in (self.memories[copy.source].device, self.memories[copy.target].device):
            raise VerifyError(
                f"device {copy.device} copies storage s{copy.storage} from memory {copy.source} to {copy.target}, "
                "neither of which it has"
            )
        if not 0 <= copy.begin < copy.end <= self.places[copy.storage].bytes:
            raise VerifyError(
                f"a copy of bytes {copy.begin}..{copy.end} of storage s{copy.storage}, "
                f"which has {self.places[copy.storage].bytes}"
            )
        into = next(
            p
            for s, p in ((copy.storage, self.places[copy.storage]), *self.replicas)
            if (s, p.memory) == (copy.storage, copy.target)
        )
        if into.space in ("input", "constant"):
            raise VerifyError(
                f"a copy writes over storage s{copy.storage}, which is {into.space} in memory {copy.target}"
            )

    def _verify_tiles(self, kernels: KernelGraph) -> None:
        covered: dict[int, list[tuple[int, int]]] = {}
        for task in self.runs:
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

    def _verified_arenas(self) -> list[dict[int, tuple[int, int]]]:
        """For each memory the bytes [begin, end) of each storage in its arena.

        Raises VerifyError for one that does not fit into it.
        """
        found: list[dict[int, tuple[int, int]]] = [{} for _ in self.memories]
        for storage, place in (*self.places.items(), *self.replicas):
            if place.space == "arena":
                found[place.memory][storage] = (place.at, place.at + place.bytes)
                arena = self.memories[place.memory].arena_bytes
                if place.at + place.bytes > arena:
                    raise VerifyError(
                        f"storage s{storage} ends at byte {place.at + place.bytes} of an arena of {arena}"
                    )
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
    order = Order(tasks, lanes)
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


class Order:
    """For each task how many tasks of each lane have ended for certain when it begins, and its number on its lane.

    The former by lane order and waits; the latter from 1.
    """

    def __init__(self, tasks: Sequence[Task | Copy], lanes: int) -> None:
        ended = [[(0,) * lanes] for _ in range(lanes)]  # when the first 0, 1, ... tasks of a lane have ended
        begun = [(0,) * lanes] * lanes  # when the last task of a lane began
        self.begins: list[Clock] = []
        self.numbers: list[int] = []
        for task in tasks:
            mine = ended[task.lane]
            if task.beside and (task.waits or len(mine) == 1):
                raise VerifyError(f"nothing before {_named(task)} on lane {task.lane} waits for what it needs")
            clock = begun[task.lane] if task.beside else mine[-1]
            for wait in task.waits:
                if wait.count >= len(ended[wait.lane]):
                    raise VerifyError(f"{_named(task)} on lane {task.lane} waits for a later task of lane {wait.lane}")
                clock = latest(clock, ended[wait.lane][wait.count])
            begun[task.lane] = clock
            self.begins.append(clock)
            self.numbers.append(len(mine))
            own = tuple(len(mine) if lane == task.lane else 0 for lane in range(lanes))
            mine.append(latest(latest(clock, mine[-1]), own))


def _where(task: Task | Copy) -> str:
    """The lane, and the device where it is not the first."""
    return f"lane {task.lane}{f' of device {task.device}' if task.device else ''}"


def _after(task: Task | Copy) -> str:
    return f" after {', '.join(f'{wait.count} of lane {wait.lane}' for wait in task.waits)}" if task.waits else ""


def _named(task: Task | Copy) -> str:
    return f"copy of storage s{task.storage}" if isinstance(task, Copy) else f"task of call {task.call}"
