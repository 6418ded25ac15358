"""Parts of a plan timed on this machine's cores: tasks of several calls on their lanes, with their waits.

A part runs by itself, over and over. Before each run all lanes write anew what it reads of activations, each its part.
Its weights lie where the setting says. Lanes wait as those of a model do, but none helps another.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from compiler.devices.cpu.emit.lower import source_of
from compiler.devices.cpu.measure.machine import COLD_L2, CpuMachine, Entry, state_now
from compiler.devices.cpu.measure.operands import MOST_COPIES
from compiler.devices.cpu.measure.timer import Region, TimedStage, TimedTask, TimedWait, Timer
from compiler.devices.cpu.target import CpuTarget
from compiler.devices.device import Staged
from compiler.errors import ResourceExhausted
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import LEAST_SECONDS, Record, Trial
from compiler.ir.plans.plan import Task
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.knowledge.budget import Share
from compiler.knowledge.carried import holds, present, together
from compiler.knowledge.kinds import BUDGET_S, STAGE
from compiler.knowledge.making import stage_record, stages_marker
from compiler.knowledge.records import Records
from compiler.measure.memory import PAGE, allocate
from compiler.measure.pattern import greatest_sizes, pattern, reads_indices
from compiler.measure.spread import Spread

WARM_RUNS, RUNS = 3, 15
DIGITS = 24
"""Hexadecimal, of a digest."""
LINE = 64


@dataclass
class Layout:
    """Memory of one kernel graph on which parts of a plan run, one after another, each laid out before it runs.

    Each storage is there once. Constants are so many times that all copies fill `cold_bytes`, and runs take them in
    turn. All values are finite and not denormal; integers are zero where they may be indices.
    """

    kernels: KernelGraph
    cold_bytes: int
    seed: int
    _room: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)
    _patterns: dict[tuple[DType, bool], np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def place(self, entries: Mapping[int, Entry]) -> Placed:
        """Memory for calls, until the next ones are placed."""
        constants, copies, slab = self._constants(entries)
        storages = self._storages(entries)
        tables = {}
        for call, entry in entries.items():
            tables[call] = np.empty((copies, len(entry.operands)), np.uintp)
            for slot, id in enumerate(self._operands(call)):
                if (call, slot) in constants:
                    tables[call][:, slot] = (
                        slab.ctypes.data + constants[call, slot] + len(slab) // copies * np.arange(copies)
                    )
                else:
                    buffer = self.kernels.buffers[id]
                    tables[call][:, slot] = storages[buffer.storage].ctypes.data + buffer.offset * buffer.dtype.bytes
        written = {self.kernels.buffers[id].storage for call in entries for id in self.kernels.calls[call].outputs}
        read = [memory for storage, memory in storages.items() if storage not in written]
        return Placed(tables, storages, slab, read)

    def _constants(self, entries: Mapping[int, Entry]) -> tuple[dict[tuple[int, int], int], int, np.ndarray]:
        """Where each constant (call, operand) lies in the first copy, how many copies there are, and all of them."""
        at: dict[tuple[int, int], int] = {}
        end = 0
        for call, entry in entries.items():
            for slot, id in enumerate(self.kernels.calls[call].inputs):
                if id in self.kernels.constants:
                    dtype, count = entry.operands[slot]
                    at[call, slot] = end
                    end += -(-dtype.bytes * count // LINE) * LINE
        copies = min(max(1, -(-self.cold_bytes // end)), MOST_COPIES) if end else 1
        slab = self._take("constants", copies * end)
        for (call, slot), begin in at.items():
            dtype, count = entries[call].operands[slot]
            zero = reads_indices(self.kernels.calls[call].kernel)
            steered = entries[call].steered.get(slot)
            specimen = steered.specimen().view(np.uint8) if steered else None
            for copy in range(copies):
                part = slab[copy * end + begin :][: dtype.bytes * count]
                if specimen is None:
                    self._fill(part, dtype, zero=zero)
                else:
                    part[:] = specimen
        return at, copies, slab

    def _storages(self, calls: Iterable[int]) -> dict[int, np.ndarray]:
        sizes = self.kernels.storage_bytes
        buffers = {
            self.kernels.buffers[id].storage: self.kernels.buffers[id] for call in calls for id in self._variables(call)
        }
        slab = self._take("storages", sum(-(-sizes[storage] // PAGE) * PAGE for storage in buffers))
        found = {}
        at = 0
        for storage, buffer in sorted(buffers.items()):
            found[storage] = slab[at : at + sizes[storage]]
            at += -(-sizes[storage] // PAGE) * PAGE
            if size := self._limits.get(storage):
                found[storage].view(buffer.dtype.numpy)[:] = size
            else:
                self._fill(found[storage], buffer.dtype, zero=storage in self._indices)
        return found

    def _operands(self, call: int) -> tuple[int, ...]:
        return (*self.kernels.calls[call].inputs, *self.kernels.calls[call].outputs)

    def _variables(self, call: int) -> list[int]:
        return [id for id in self._operands(call) if id not in self.kernels.constants]

    @cached_property
    def _indices(self) -> frozenset[int]:
        """Storages that some kernel reads that may take what is there for an index."""
        readers = [call for call in self.kernels.calls if reads_indices(call.kernel)]
        return frozenset(self.kernels.buffers[id].storage for call in readers for id in call.inputs)

    @cached_property
    def _limits(self) -> Mapping[int, int]:
        """Storages of integers that some kernel reads as sizes, and a size that leaves nothing out."""
        found: dict[int, int] = {}
        for call in self.kernels.calls:
            sizes = greatest_sizes(call.kernel)
            for slot, id in zip(call.kernel.inputs, call.inputs, strict=True):
                storage = self.kernels.buffers[id].storage
                found[storage] = max(found.get(storage, 0), sizes.get(slot.name, 0))
        return found

    def _fill(self, memory: np.ndarray, dtype: DType, *, zero: bool) -> None:
        if (dtype, zero) not in self._patterns:
            self._patterns[dtype, zero] = pattern(dtype, np.random.default_rng(self.seed), zero=zero)
        count = len(memory) // dtype.bytes
        memory[: count * dtype.bytes] = np.resize(self._patterns[dtype, zero], count).view(np.uint8)

    def _take(self, what: str, count: int) -> np.ndarray:
        """Memory that is kept for the next ones to be placed."""
        if what not in self._room or len(self._room[what]) < count:
            self._room[what] = allocate(count)
        return self._room[what][:count]


@dataclass(frozen=True)
class Placed:
    """The operands of some calls in memory.

    tables     by call: addresses of its operands, uintp[copies, operands]
    storages   by number
    constants  all copies, one after another
    read       storages that none of the calls writes
    """

    tables: Mapping[int, np.ndarray]
    storages: Mapping[int, np.ndarray]
    constants: np.ndarray
    read: Sequence[np.ndarray]


@dataclass
class CpuStageClock:
    """`ir.lanes.StageClock` for the cores of this machine: by records where there are some, else measured.

    machine     None: only records answer
    records     that are known; those in the same state of the cores count
    share       of the tuning budget, for all of them together
    add_record  gets each new record

    After `done`, records keep a later clock with no larger budget from measuring again what this one had no time for.
    """

    machine: CpuMachine | None
    staged: Staged
    target: CpuTarget
    records: Sequence[Record]
    share: Share
    add_record: Callable[[Record], None]
    seed: int = 0
    answers: list[Record] = field(default_factory=list, init=False)
    """Records that answered."""

    def __post_init__(self) -> None:
        found = Records.of(self.records).find(STAGE, self.target, state=self.staged.state)
        setting = self.staged.setting
        self._known = {record.workload: record for record in found if setting.is_of(record)}
        self._earlier = {record.workload: record for record in found if setting.is_like(record)}
        self._layout = Layout(self.staged.kernels, COLD_L2 * self.target.l2_bytes, self.seed)
        self._whole = _digest(
            (
                tuple(self.staged.keys),
                self._joins(range(len(self.staged.kernels.calls))),
                self.staged.lanes,
                self.staged.state,
            )
        )
        done = self._known.get(self._whole)
        had = done.variant.get(BUDGET_S) if done else None
        self._is_done = isinstance(had, float | int) and had >= self.share.seconds
        self._gave_up: set[str] = set()
        self._has_asked = False

    def seconds(self, tiles: Mapping[int, Tile], tasks: Sequence[Task]) -> float | None:
        """What the tasks take by themselves; None when the budget is spent, and for what cannot be timed.

        That is tasks that share a launch or wait for others, kernels that would take a computed value for an index, and
        cores that moved meanwhile.
        """
        name = self._name(tiles, tasks)
        if record := self._known.get(name) or self._carried(name, tiles, tasks):
            self.answers.append(record)
            return record.seconds
        machine = self.machine
        if machine is None or self._is_done or name in self._gave_up or not self._can_run(tasks, machine):
            return None
        self._has_asked = True
        if self.share.is_over():
            return None
        with self.share.spending():
            try:
                found = self._measure(machine, tiles, tasks, name, machine.clock() + self.share.left())
            except ResourceExhausted:
                found = None
        if found is None:
            self._gave_up.add(name)
            return None
        self._known[name] = found
        self.answers.append(found)
        self.add_record(found)
        return found.seconds

    def _carried(self, name: str, tiles: Mapping[int, Tile], tasks: Sequence[Task]) -> Record | None:
        """What was measured of the code of an earlier compiler, where that is generated alike now."""
        record = self._earlier.pop(name, None)
        if record is None or not holds(record, lambda: self._source_of(tiles, tasks)):
            return None
        self._known[name] = present(record)
        self.add_record(self._known[name])
        return self._known[name]

    def _source_of(self, tiles: Mapping[int, Tile], tasks: Sequence[Task]) -> str:
        """The digest of the code of all calls of some tasks."""
        calls = sorted({task.call for task in tasks})
        return together(source_of(self.staged.workloads[call], tiles[call], self.target) for call in calls)

    def done(self) -> None:
        """Says in a record that so large a budget was offered for the stages of these kernels."""
        if self.machine is not None and self._has_asked and not self._is_done and not self.machine.stop_requested():
            about = f"parts of a plan of {len(self.staged.keys)} calls; seconds that timing them took"
            here = (self.target, self.staged.setting, self.staged.state)
            self.add_record(
                stages_marker(
                    self._whole,
                    about,
                    *here,
                    self.share.seconds,
                    max(self.share.spent, LEAST_SECONDS),
                    self.staged.lanes,
                )
            )

    def _measure(
        self, machine: CpuMachine, tiles: Mapping[int, Tile], tasks: Sequence[Task], name: str, end: float
    ) -> Record | None:
        calls = sorted({task.call for task in tasks})
        trials = {call: Trial(self.staged.workloads[call], self.staged.keys[call], tiles[call], 1) for call in calls}
        if not machine.built([*trials.values()], lambda: machine.stop_requested() or machine.clock() >= end):
            return None
        timer = machine.entry(trials[calls[0]])[0]
        if state_now(timer) != self.staged.state:
            return None
        placed = self._layout.place({call: machine.entry(trial)[1] for call, trial in trials.items()})
        once = min(run_stage(machine, placed, trials, tasks, WARM_RUNS))
        if machine.stop_requested() or machine.clock() + RUNS * once > end:
            return None
        seconds = run_stage(machine, placed, trials, tasks, 1 + RUNS)
        if state_now(timer) != self.staged.state:
            return None
        families = ", ".join(self.staged.workloads[call].kernel.family for call in calls)
        lanes = 1 + max(task.lane for task in tasks)
        about = f"{len(calls)} calls in {len(tasks)} tasks on {lanes} lanes: {families}"
        spread = Spread.of(seconds[1:])
        here = (self.target, self.staged.setting, spread, self.staged.state)
        source = self._source_of(tiles, tasks)
        return stage_record(name, about[:1000], *here, lanes, self.staged.lanes, source)

    def _can_run(self, tasks: Sequence[Task], machine: CpuMachine) -> bool:
        """Whether all may run here by themselves.

        What a task waits for is among them, and no index is computed by any of them.
        """
        if not tasks or any(task.beside for task in tasks) or any(task.lane >= machine.lanes for task in tasks):
            return False
        counts = [0] * machine.lanes
        for task in tasks:
            if any(wait.lane >= machine.lanes or wait.count > counts[wait.lane] for wait in task.waits):
                return False
            counts[task.lane] += 1
        calls = [self.staged.kernels.calls[call] for call in {task.call for task in tasks}]
        written = {self.staged.kernels.buffers[id].storage for call in calls for id in call.outputs}
        return not any(self._computes_index(call, written) for call in calls)

    def _computes_index(self, call: Call, written: set[int]) -> bool:
        buffers = [self.staged.kernels.buffers[id] for id in call.inputs if id not in self.staged.kernels.constants]
        return reads_indices(call.kernel) and any(
            buffer.storage in written and not buffer.dtype.is_float for buffer in buffers
        )

    def _name(self, tiles: Mapping[int, Tile], tasks: Sequence[Task]) -> str:
        """SHA-256 (24 hex digits) of what identifies these tasks.

        That is the calls' workloads, the buffers that join them, their tiles, and the tasks with calls numbered in
        their order.
        """
        calls = sorted({task.call for task in tasks})
        at = {call: number for number, call in enumerate(calls)}
        described = [
            (at[task.call], task.lane, task.first, task.last, [(wait.lane, wait.count) for wait in task.waits])
            for task in tasks
        ]
        return _digest(
            (
                [self.staged.keys[call] for call in calls],
                self._joins(calls),
                [str(tiles[call]) for call in calls],
                described,
            )
        )

    def _joins(self, calls: Sequence[int]) -> list[list[int]]:
        """The storages of each call's operands, numbered in the order in which they are met."""
        numbers: dict[int, int] = {}
        found = []
        for call in calls:
            ids = (*self.staged.kernels.calls[call].inputs, *self.staged.kernels.calls[call].outputs)
            storages = [self.staged.kernels.buffers[id].storage for id in ids]
            found.append([numbers.setdefault(storage, len(numbers)) for storage in storages])
        return found


def run_stage(
    machine: CpuMachine, placed: Placed, trials: Mapping[int, Trial], tasks: Sequence[Task], runs: int
) -> list[float]:
    """Seconds of each run of tasks in an order that respects every wait; `trials`, by call, were built.

    Raises ResourceExhausted.
    """
    lanes = 1 + max(task.lane for task in tasks)
    entries = {call: machine.entry(trial) for call, trial in trials.items()}
    ordered = [task for lane in range(lanes) for task in tasks if task.lane == lane]
    waits = [[TimedWait(one.lane, one.count) for one in task.waits if one.count] for task in ordered]
    timed = (TimedTask * len(ordered))(
        *(
            _timed(task, *entries[task.call], placed.tables[task.call], (TimedWait * len(wait))(*wait))
            for task, wait in zip(ordered, waits, strict=True)
        )
    )
    ends = [sum(task.lane < lane for task in tasks) for lane in range(lanes + 1)]
    stride = -(-max(entry.scratch_bytes for _, entry in entries.values()) // PAGE) * PAGE
    scratch = allocate(stride * lanes)
    cold = _regions([placed.constants] if machine.setting.weights == "memory" else [])
    warm = _regions(placed.read)
    seconds = (ctypes.c_double * runs)()
    stage = TimedStage(
        tasks=timed,
        first=(ctypes.c_long * len(ends))(*ends),
        scratch=scratch.ctypes.data,
        scratch_stride=stride,
        lanes=lanes,
        runs=runs,
        cold=cold,
        colds=len(cold),
        warm=warm,
        warms=len(warm),
        seconds=seconds,
    )
    next(iter(entries.values()))[0].stage(stage)
    return list(seconds)


def _timed(task: Task, timer: Timer, entry: Entry, tables: np.ndarray, waits: ctypes.Array[TimedWait]) -> TimedTask:
    return TimedTask(
        kernel=timer.address(entry.symbol),
        tables=tables.ctypes.data,
        pointers=tables.shape[1],
        copies=tables.shape[0],
        begin=task.first,
        end=task.last,
        waits=waits,
        wait_count=len(waits),
    )


def _regions(memories: Sequence[np.ndarray]) -> ctypes.Array[Region]:
    return (Region * len(memories))(*(Region(memory.ctypes.data, len(memory)) for memory in memories))


def _digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:DIGITS]
