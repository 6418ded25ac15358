"""How kernels get on with what runs on other cores: each beside a standard load that only reads from memory.

Two numbers per kernel stand for all pairs: what it suffers from one such load, and how hard it presses on others, in units of what such a load does to
another (the sensitivity and the pressure of Mars, Tang, Hundt, Skadron and Soffa, "Bubble-Up", MICRO 2011, section 4, with a bubble of one size).

What that is worth, on two cores of a Zen 5 with kernels of Inception V3, NASNet-A mobile, ResNet-50 and ViT, 32 pairs a run: convolutions suffer less than
LEAST whatever runs beside them, on near cores as on far ones; matrix products of one or few rows whose weights come from memory suffer up to 0.5 of
such a load on near cores, nothing on far ones. The slowdowns of pairs are predicted to 0.4 % where weights lie in the last cache (median; worst 1.2 %),
to 0.4-0.8 % where they come from memory (worst 20 %, not explained): as well as if there were no contention. Of pairs in which both live on memory, the
only ones for which the two numbers say something, too few were drawn on near cores to tell.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.devices.cpu.measure.machine import CpuMachine, Run, state_now
from compiler.devices.cpu.measure.timer import STREAM, STREAM_CHUNK, Region, Sample, Stream, Timer
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import ResourceExhausted
from compiler.ir.lanes import Beside
from compiler.ir.machine import Record, Setting, Trial
from compiler.ir.target import Target
from compiler.knowledge.kinds import PAIR, STATE
from compiler.knowledge.making import pair_record
from compiler.knowledge.records import Records
from compiler.measure.memory import allocate
from compiler.measure.spread import Spread

BEYOND_L3 = 2
"""The load reads so many times the last cache, over and over, so that it finds nothing there."""
MOST_BYTES = 256 * 1024**2
"""But no more than this."""
WINDOW_S = 400e-6
"""For so long a kernel runs beside the load in each round."""
ROUNDS = 5
RUNS = 2 * ROUNDS + 1
"""Of a kernel, at least: one to see how long it takes, then in each round alone and beside the load."""
LEAST = 0.1
"""A slowdown below this is none: it varies by half as much from one time to the next, and predicted times of plans err by as much."""
BEYOND = 100.0
"""No record is believed that says a kernel suffers or presses more."""
MOST = 2.0
"""Of what a kernel can press: who reads and writes presses twice as hard as who only reads, beyond that a sample was disturbed."""


@dataclass
class Load:
    """The standard load, from the library of a timer."""

    memory: np.ndarray
    stream: Stream = field(init=False)
    table: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.stream = Stream(len(self.memory), 0, 0)
        self.table = np.array([self.memory.ctypes.data, ctypes.addressof(self.stream)], np.uintp)

    @staticmethod
    def of(target: CpuTarget) -> Load:
        count = min(BEYOND_L3 * target.l3_bytes, MOST_BYTES) // STREAM_CHUNK * STREAM_CHUNK
        return Load(allocate(max(count, STREAM_CHUNK)))

    def another(self) -> Load:
        """One that reads the same memory, half of it ahead."""
        other = Load(self.memory)
        other.stream.at = len(self.memory) // 2 // STREAM_CHUNK * STREAM_CHUNK
        return other

    def sample(self, timer: Timer, repeats: int = 1) -> Sample:
        nothing = (Region * 0)()
        return Sample(
            kernel=timer.address(STREAM),
            tables=self.table.ctypes.data,
            pointers=2,
            copies=1,
            tiles=1,
            lanes=1,
            repeats=repeats,
            cold=nothing,
            warm=nothing,
        )


@dataclass(frozen=True)
class Loads:
    """Two loads beside each other, in seconds a chunk: what a kernel's pressure is measured in. A load runs `repeats` chunks in a window."""

    load: Load
    repeats: int
    alone_s: float
    beside_s: float

    @property
    def contention(self) -> float:
        """How much longer one takes beside the other, as a part of its time alone."""
        return self.beside_s / self.alone_s - 1

    @staticmethod
    def measured(target: CpuTarget, timer: Timer) -> Loads:
        load = Load.of(target)
        other = load.another()
        repeats = max(math.ceil(WINDOW_S / max(timer.beside(load.sample(timer, 16), None)[0], 1e-9)), 1)
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone.append(timer.beside(load.sample(timer, repeats), None)[0])
            beside.append(timer.beside(load.sample(timer, repeats), other.sample(timer))[0])
        return Loads(load, repeats, min(alone), min(beside))


def measure_beside(machine: CpuMachine, trials: Sequence[Trial], end: float) -> Iterator[Record]:
    """A record of kind PAIR for each trial, a kernel on one lane, in order, as long as `machine.clock` has not reached `end` and nobody is in a hurry.

    A kernel that was not built before is built. A round in which the cores moved does not count. Takes some milliseconds a kernel.
    """

    def stop() -> bool:
        return machine.clock() >= end or machine.hurry()

    if not trials or stop() or not machine.built(trials, stop):
        return
    loads: dict[str, Loads] = {}
    for trial in trials:
        if stop():
            return
        timer, _ = machine.entry(trial)
        before = state_now(timer)
        try:
            if before not in loads:
                loads[before] = Loads.measured(machine.target, timer)
            found = _measured(machine.prepare(trial), timer, loads[before])
        except ResourceExhausted:
            return  # no second thread, or no memory for the load
        if state_now(timer) == before:
            yield _record(machine, trial, found, before)


def beside_of(records: Sequence[Record], target: Target, setting: Setting, state: str) -> Mapping[str, Beside]:
    """By workload key what records of this target, hardware and setting say; those in another state of the cores where there are none in this."""
    found: dict[str, tuple[bool, Beside]] = {}
    for record in Records.of(records).find(PAIR, target, setting=setting):
        if not all(_is_degree(record.variant.get(name)) for name in ("suffers", "presses")):
            continue
        is_now = record.variant.get(STATE) == state
        if is_now or not found.get(record.workload, (False,))[0]:
            found[record.workload] = is_now, Beside(record.variant["suffers"], record.variant["presses"])
    return {key: beside for key, (_, beside) in found.items()}


def _is_degree(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and 0 <= value <= BEYOND


@dataclass(frozen=True)
class _Pair:
    """Seconds beside the load, and what they show."""

    seconds: Spread
    beside: Beside


def _measured(run: Run, timer: Timer, loads: Loads) -> _Pair:
    """In turn alone, beside the load, and the load alone.

    Of those beside each other the fastest round counts: what else slows a round, such as a core that was taken away, is no contention.
    Weights that are to be found in memory are driven out before each round, in which each copy of them is used once.
    """
    once = max(timer.time(run.sample(1)), 1e-9)
    repeats = max(math.ceil(WINDOW_S / once), 1)
    if len(run.operands.cold):
        repeats = min(repeats, len(run.operands.tables))
    alone, beside, quiet, load = [], [], [], []
    for _ in range(ROUNDS):
        alone.append(timer.beside(run.sample(repeats), None)[0])
        own, other = timer.beside(run.sample(repeats), loads.load.sample(timer))
        beside.append(own)
        quiet.append(timer.beside(loads.load.sample(timer, loads.repeats), None)[0])
        load += [other] if other else []
    suffers = _that_counts(min(beside) / Spread.of(alone).median - 1)
    slowed = _that_counts(min(load) / Spread.of(quiet).median - 1) if load else 0.0
    presses = slowed / loads.contention if loads.contention >= LEAST else 0.0
    return _Pair(Spread.of(beside), Beside(suffers, min(presses, MOST)))


def _that_counts(slowdown: float) -> float:
    return slowdown if slowdown >= LEAST else 0.0


def _record(machine: CpuMachine, trial: Trial, found: _Pair, state: str) -> Record:
    suffers, presses = found.beside.suffers, found.beside.presses
    return pair_record(trial, machine.target, machine.setting, found.seconds, state, suffers, presses)
