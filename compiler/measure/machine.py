"""Kernels timed on this machine's cores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from compiler.errors import InternalError, TargetUnavailable
from compiler.ir.machine import Record, Setting, Trial
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.measure.operands import Operands, lay_out
from compiler.measure.spread import Spread
from compiler.measure.timer import Sample, Timer
from compiler.targets.cpu import CpuTarget
from compiler.trace import Hurry, unhurried

LEAST_SAMPLE_S = 20e-6
"""Short kernels are repeated until one sample lasts this long: a thousand times the clock's own cost."""
MOST_REPEATS = 100_000
COLD_L2 = 2
"""Copies of the weights fill this many L2 caches."""
PROBE_LOSS = 0.85
"""A round counts when multiply-adds ran at least this fast before and after it, relative to the better rounds."""
LEAST_ROUNDS = 3
LOSER = 1.3
"""After LEAST_ROUNDS a trial this much slower than the best for its workload is sampled no further."""


@dataclass(frozen=True)
class Entry:
    """A built trial: its function, its pointers in order (inputs, then outputs) as (dtype, elements), its tile tasks, its scratch."""

    symbol: str
    operands: tuple[tuple[DType, int], ...]
    tiles: int
    scratch_bytes: int = 0


@dataclass(frozen=True)
class Built:
    """A shared library that holds TIMER_SOURCE and one `void symbol(void *const *p, char *scratch, long begin, long end)` for each trial."""

    library: bytes
    entries: tuple[Entry, ...]


class Build(Protocol):
    """Makes a library of trials; None when `hurry`, which is asked all the time, stopped it."""

    def __call__(self, trials: Sequence[Trial], *, hurry: Hurry) -> Built | None: ...


@dataclass
class _Run:
    """A trial under way: what it runs on, and its samples in seconds by round."""

    trial: Trial
    entry: Entry
    timer: Timer
    address: int
    operands: Operands
    repeats: int = 0
    turns: int = 0
    samples: dict[int, float] = field(default_factory=dict)
    is_lost: bool = False


@dataclass(frozen=True)
class CpuMachine:
    """`ir.machine.Machine` for the cores of this machine.

    build         makes a library of trials
    setting       says where constants are found: `cache` is beyond L2, `memory` beyond all caches. Activations are read once before
                  each sample, so that they lie where a producer would have left them
    samples       clean rounds wanted of each trial
    hurry         asked before each trial is prepared and before each sample; once it answers True no more are taken

    Raises TargetUnavailable when the target cannot run here.
    """

    target: CpuTarget
    build: Build
    seed: int = 0
    setting: Setting = field(default_factory=Setting)
    samples: int = 9
    clock: Callable[[], float] = time.monotonic
    hurry: Hurry = unhurried
    _known: dict[tuple[str, Tile, int], tuple[Timer, Entry]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was built so far, loaded: a trial that is measured again is not built again."""

    def __post_init__(self) -> None:
        if not self.target.is_here:
            raise TargetUnavailable(
                f"target {self.target.name} cannot be measured on this machine",
                fix="measure on a machine of that kind, or set tuning_budget_s to 0",
            )

    @property
    def hardware(self) -> str:
        return self.target.hardware

    @property
    def lanes(self) -> int:
        return self.target.lanes

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        """Builds the trials not built before, then times all of them interleaved: nothing is built while anything is timed.

        Yields one record for each trial that ran within `deadline_s` seconds from now, before `hurry`.

        Raises TargetUnavailable when a trial wants more lanes than there are, and what `build` raises.
        """
        end = self.clock() + deadline_s
        wanted = max((trial.lanes for trial in trials), default=0)
        if wanted > self.lanes:
            raise TargetUnavailable(
                f"a trial wants {wanted} lanes of {self.lanes}", fix=f"set threads to at most {self.lanes}"
            )
        if not trials or self.clock() >= end or self.hurry():
            return
        unknown = [trial for trial in trials if _identity(trial) not in self._known]
        if unknown and not self._build(unknown, lambda: self.hurry() or self.clock() >= end):
            return
        runs = [self._prepare(trial) for trial in trials if not self.hurry()]
        clean = self._sample(runs, wanted, end)
        for run in runs:
            if run.samples:
                yield self._record(run, clean)

    def _build(self, trials: Sequence[Trial], stop: Hurry) -> bool:
        """Builds and loads; False when it was called off."""
        built = self.build(trials, hurry=stop)
        if built is None:
            return False
        if len(built.entries) != len(trials):
            raise InternalError(f"{len(trials)} trials were built into {len(built.entries)} entries")
        timer = Timer(built.library)
        for trial, entry in zip(trials, built.entries, strict=True):
            self._known[_identity(trial)] = timer, entry
        return True

    def _prepare(self, trial: Trial) -> _Run:
        timer, entry = self._known[_identity(trial)]
        workload = trial.workload
        writes = len(workload.outputs)
        if len(entry.operands) != len(workload.inputs) + writes:
            raise InternalError(
                f"{entry.symbol} has {len(entry.operands)} operands for a workload of {len(workload.inputs) + writes}"
            )
        operands = lay_out(
            entry.operands,
            (*workload.constant, *(False for _ in workload.outputs)),
            writes,
            workload.kernel,
            entry.scratch_bytes,
            trial.lanes,
            COLD_L2 * self.target.l2_bytes,
            self.seed,
            in_memory=self.setting.weights == "memory",
        )
        return _Run(trial, entry, timer, timer.address(entry.symbol), operands)

    def _sample(self, runs: Sequence[_Run], lanes: int, end: float) -> frozenset[int]:
        """Takes samples round by round, every run once a round, until enough rounds are clean or the time is up. Returns the clean rounds."""
        rates: list[float] = []
        over = False
        for turn in range(2 * self.samples if runs else 0):
            before = runs[0].timer.probe(lanes)
            for run in runs:
                over = over or self.clock() >= end or self.hurry()
                if over:
                    break
                if not run.is_lost:
                    run.samples[turn] = _time(run)
            rates.append(min(before, runs[0].timer.probe(lanes)))
            _drop_losers(runs)
            if over or self.clock() >= end or len(clean_rounds(rates)) >= self.samples:
                break
        return clean_rounds(rates)

    def _record(self, run: _Run, clean: frozenset[int]) -> Record:
        trial = run.trial
        kept = [seconds for turn, seconds in run.samples.items() if turn in clean] or [*run.samples.values()]
        spread = Spread.of(kept)
        return Record(
            kind="kernel",
            workload=trial.key,
            operator=trial.workload.kernel.family,
            description=trial.workload.shapes,
            target=self.target.name,
            hardware=self.hardware,
            variant={**trial.tile.to_json(), "lanes": trial.lanes, **self.setting.to_json()},
            threads=trial.lanes,
            seconds=spread.median,
            p10=spread.p10,
            p90=spread.p90,
            samples=len(kept),
        )


def clean_rounds(rates: Sequence[float], loss: float = PROBE_LOSS) -> frozenset[int]:
    """Rounds in which no core was taken away or slowed, judged by the probes' rates: near the upper quartile, or the best half when too few are."""
    if not rates:
        return frozenset()
    least = loss * float(np.percentile(rates, 75))
    clean = frozenset(turn for turn, rate in enumerate(rates) if rate >= least)
    if len(clean) >= min(LEAST_ROUNDS, len(rates)):
        return clean
    best = sorted(range(len(rates)), key=lambda turn: -rates[turn])
    return frozenset(best[: math.ceil(len(rates) / 2)])


def _identity(trial: Trial) -> tuple[str, Tile, int]:
    return trial.key, trial.tile, trial.lanes


def _time(run: _Run) -> float:
    """One sample; the first one of a run comes after a trial run that faults memory in and says how often to repeat."""
    timer = run.timer
    if not run.repeats:
        once = timer.time(_sample_of(run, 1))
        run.repeats = min(max(1, math.ceil(LEAST_SAMPLE_S / max(once, 1e-9))), MOST_REPEATS)
        if run.repeats > 1:  # the first run was slowed by page faults: ask again, on the way to the right number
            once = timer.time(_sample_of(run, run.repeats))
            run.repeats = min(max(1, math.ceil(LEAST_SAMPLE_S / max(once, 1e-9))), MOST_REPEATS)
    return timer.time(_sample_of(run, run.repeats))


def _sample_of(run: _Run, repeats: int) -> Sample:
    operands = run.operands
    copies, pointers = operands.tables.shape
    first = run.turns % copies
    run.turns = first + repeats
    return Sample(
        kernel=run.address,
        tables=operands.tables.ctypes.data,
        pointers=pointers,
        copies=copies,
        first=first,
        scratch=operands.scratch.ctypes.data,
        scratch_stride=operands.scratch_stride,
        tiles=run.entry.tiles,
        lanes=run.trial.lanes,
        repeats=repeats,
        cold=operands.cold,
        colds=len(operands.cold),
        warm=operands.warm,
        warms=len(operands.warm),
    )


def _drop_losers(runs: Sequence[_Run]) -> None:
    best: dict[str, float] = {}
    middles: Mapping[int, float] = {
        at: float(np.median([*run.samples.values()])) for at, run in enumerate(runs) if len(run.samples) >= LEAST_ROUNDS
    }
    for at, middle in middles.items():
        key = runs[at].trial.key
        best[key] = min(best.get(key, math.inf), middle)
    for at, middle in middles.items():
        runs[at].is_lost = runs[at].is_lost or middle > LOSER * best[runs[at].trial.key]
