"""Kernels timed on this machine's cores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from compiler.devices.cpu.measure.operands import Operands, lay_out
from compiler.devices.cpu.measure.results import Kernel, Results
from compiler.devices.cpu.measure.timer import Sample, Timer
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import InternalError, TargetUnavailable
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.packing import Packing, Steered
from compiler.ir.plans.lanes import Handover
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.knowledge.kinds import STATE
from compiler.knowledge.making import kernel_record
from compiler.measure.rounds import clean_rounds, losers
from compiler.measure.spread import Spread
from compiler.trace import StopRequest, never_stops

LEAST_SAMPLE_S = 20e-6
"""Short kernels are repeated until one sample lasts this long: a thousand times the clock's own cost."""
MOST_REPEATS = 100_000
CONTENDS = 1.1
"""Results are looked at of tiles that take less than the fastest one times this: others win nothing."""
COLD_L2 = 2
"""Copies of the weights fill this many L2 caches."""
STATE_ROUNDS = 100
"""Of handing over, to see in which state the cores are; some 10 to 100 microseconds."""
STATE_RALLIES = 5
"""So many times that is tried before cores count as far.

A core that is taken away for a moment makes one rally a thousand times longer.
"""


@dataclass(frozen=True)
class Entry:
    """A built trial: its function, its pointers as (dtype, elements), its tile tasks, its scratch.

    Pointers are in order, inputs, then outputs, of which some inputs are packed. `source` is the digest of its code,
    `text` the code.
    """

    symbol: str
    operands: tuple[tuple[DType, int], ...]
    tiles: int
    scratch_bytes: int = 0
    source: str = ""
    packings: Mapping[int, Packing] = field(default_factory=dict)
    text: str = ""

    @property
    def steered(self) -> Mapping[int, Steered]:
        """Inputs that may hold nothing but specimens while it is timed."""
        return {at: packing for at, packing in self.packings.items() if isinstance(packing, Steered)}


@dataclass(frozen=True)
class Built:
    """A shared library that holds TIMER_SOURCE and one function for each trial.

    The functions are `void symbol(void *const *p, char *scratch, long begin, long end)`.
    """

    library: bytes
    entries: tuple[Entry, ...]


class Build(Protocol):
    """Makes a library of trials; None after a stop request, which is asked for all the time."""

    def __call__(self, trials: Sequence[Trial], *, stop_requested: StopRequest) -> Built | None:
        """A library of the trials; None after a stop request."""
        ...


@dataclass
class Run:
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

    def sample(self, repeats: int) -> Sample:
        """What the timer is to run next: it goes on with the copy of the weights that is in turn."""
        operands = self.operands
        copies, pointers = operands.tables.shape
        first = self.turns % copies
        self.turns = first + repeats
        return Sample(
            kernel=self.address,
            tables=operands.tables.ctypes.data,
            pointers=pointers,
            copies=copies,
            first=first,
            scratch=operands.scratch.ctypes.data,
            scratch_stride=operands.scratch_stride,
            tiles=self.entry.tiles,
            lanes=self.trial.lanes,
            repeats=repeats,
            cold=operands.cold,
            colds=len(operands.cold),
            warm=operands.warm,
            warms=len(operands.warm),
        )


def unheard(notice: str) -> None:
    """Where notices go that nobody reads."""


def unkept(title: str, text: str) -> None:
    """Where sources go that nobody reads."""


@dataclass(frozen=True)
class CpuMachine:
    """`ir.machine.Machine` for the cores of this machine.

    build         makes a library of trials
    setting       says where constants are found: `cache` is beyond L2, `memory` beyond all caches. Activations are read
                  once before each sample, so that they lie where a producer would have left them
    samples       clean rounds wanted of each trial
    notice        gets kernels that computed something else than others: they count for nothing
    keep          given the name and the source of each of these
    reference     the tile of a workload's plain loops, by which that is decided; None: results are not looked at
    stop_requested  asked before each trial is prepared and before each sample; once it answers True no more are taken

    Raises TargetUnavailable when the target cannot run here.
    """

    target: CpuTarget
    build: Build
    seed: int = 0
    setting: Setting = field(default_factory=Setting)
    samples: int = 9
    clock: Callable[[], float] = time.monotonic
    stop_requested: StopRequest = never_stops
    notice: Callable[[str], None] = unheard
    keep: Callable[[str, str], None] = unkept
    reference: Callable[[Workload], Tile | None] | None = None
    _known: dict[tuple[str, Tile], tuple[Timer, Entry]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was built so far, loaded: a trial that is measured again is not built again."""

    _wrong: set[tuple[str, Tile]] = field(default_factory=set, init=False, repr=False, compare=False)
    _right: set[tuple[str, Tile]] = field(default_factory=set, init=False, repr=False, compare=False)
    """Tiles whose results were looked at."""
    _fastest: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Seconds of the fastest of them, by the kernel's key."""
    _witnesses: dict[str, Kernel] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of each kernel one that was built before, by its key."""
    _results: Results = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_results", Results(self._loops, self.seed))
        if not self.target.is_here:
            raise TargetUnavailable(
                f"target {self.target.name} cannot be measured on this machine",
                fix="measure on a machine of that kind, or set tuning_budget_s to 0",
            )

    @property
    def hardware(self) -> str:
        """The digest of the machine, as records name it."""
        return self.target.hardware

    @property
    def lanes(self) -> int:
        """Cores that plans may use."""
        return self.target.lanes

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        """Builds the trials not built before, then times all of them interleaved.

        Nothing is built while anything is timed. Yields one record for each trial that ran within `deadline_s` seconds
        from now, before a stop request. One on several lanes counts in the state in which the cores were most of the
        time; its record says in which (STATE).

        Raises TargetUnavailable when a trial wants more lanes than there are, and what `build` raises.
        """
        end = self.clock() + deadline_s
        trials = [trial for trial in trials if _identity(trial) not in self._wrong]
        wanted = max((trial.lanes for trial in trials), default=0)
        if wanted > self.lanes:
            raise TargetUnavailable(
                f"a trial wants {wanted} lanes of {self.lanes}", fix=f"set threads to at most {self.lanes}"
            )
        if not trials or self.clock() >= end or self.stop_requested():
            return
        if not self.built(trials, lambda: self.stop_requested() or self.clock() >= end):
            return
        runs = [self.prepare(trial) for trial in trials if not self.stop_requested()]
        rounds = self._sample(runs, wanted, end)
        self._look_at_results(runs)
        for run in runs:
            if run.samples:
                yield self._record(run, rounds)

    def _look_at_results(self, runs: Sequence[Run]) -> None:
        """Drops what is fastest of a kernel while its results are not those of others; each tile is looked at once."""
        for key in dict.fromkeys(run.trial.key for run in runs if self.reference):
            while not self.stop_requested():
                timed = [run for run in runs if run.trial.key == key and run.samples]
                first = min(timed, key=lambda run: median(run.samples.values()), default=None)
                if first is None or _identity(first.trial) in self._right:
                    break
                took = median(first.samples.values())
                if took > CONTENDS * self._fastest.get(key, math.inf):
                    break
                others = [_kernel(run) for run in timed if run.trial.tile != first.trial.tile]
                witness = self._witnesses.setdefault(key, _kernel(first))
                others += [witness] if witness.tile != first.trial.tile else []
                fault = self._results.fault(first.trial.workload, key, _kernel(first), others)
                if not fault and others:
                    self._right.add(_identity(first.trial))
                if not fault:
                    self._fastest[key] = min(took, self._fastest.get(key, math.inf))
                    break
                self._drop(first.trial, fault, runs)

    def _drop(self, trial: Trial, fault: str, runs: Sequence[Run]) -> None:
        self._wrong.add(_identity(trial))
        for run in runs:
            if _identity(run.trial) == _identity(trial):
                run.samples.clear()
        entry = self.entry(trial)[1]
        self.notice(f"{entry.symbol} ({trial.tile}) is measured no further: {fault}")
        self.keep(entry.symbol, entry.text)

    def _loops(self, workload: Workload) -> Kernel | None:
        """A workload's plain loops; None where there are none, or after a stop request."""
        tile = self.reference(workload) if self.reference else None
        if tile is None:
            return None
        trial = Trial(workload, f"loops of {id(workload)}", tile, 1)
        if not self.built([trial], self.stop_requested):
            return None
        timer, entry = self._known.pop(_identity(trial))
        return Kernel(tile, timer, timer.address(entry.symbol), entry.tiles, entry.scratch_bytes, entry.packings)

    def built(self, trials: Sequence[Trial], stop: StopRequest) -> bool:
        """Builds and loads what was not built before; False when `stop` called it off."""
        unknown = [*{_identity(trial): trial for trial in trials if _identity(trial) not in self._known}.values()]
        return not unknown or self._build(unknown, stop)

    def entry(self, trial: Trial) -> tuple[Timer, Entry]:
        """The library of a trial that was built, and how it is called."""
        return self._known[_identity(trial)]

    def _build(self, trials: Sequence[Trial], stop: StopRequest) -> bool:
        built = self.build(trials, stop_requested=stop)
        if built is None:
            return False
        if len(built.entries) != len(trials):
            raise InternalError(f"{len(trials)} trials were built into {len(built.entries)} entries")
        timer = Timer(built.library)
        for trial, entry in zip(trials, built.entries, strict=True):
            self._known[_identity(trial)] = timer, entry
        return True

    def prepare(self, trial: Trial, weights_bytes: int | None = None) -> Run:
        """Operands for a trial that was built, with copies of the weights that fill so many bytes.

        Where `weights_bytes` is not given they fill COLD_L2 caches.
        """
        timer, entry = self.entry(trial)
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
            COLD_L2 * self.target.l2_bytes if weights_bytes is None else weights_bytes,
            self.seed,
            in_memory=self.setting.weights == "memory",
            steered=entry.steered,
        )
        return Run(trial, entry, timer, timer.address(entry.symbol), operands)

    def _sample(self, runs: Sequence[Run], lanes: int, end: float) -> _Rounds:
        """Takes samples round by round, every run once a round, until enough rounds are clean or the time is up."""
        rates: list[float] = []
        states: list[str] = []
        over = False
        for turn in range(2 * self.samples if runs else 0):
            states.append(state_now(runs[0].timer) if lanes > 1 else "")
            before = runs[0].timer.probe(lanes)
            for run in runs:
                over = over or self.clock() >= end or self.stop_requested()
                if over:
                    break
                if not run.is_lost:
                    run.samples[turn] = _time(run)
            rates.append(min(before, runs[0].timer.probe(lanes)))
            for at in losers(((run.trial.key, run.trial.lanes), run.samples.values()) for run in runs):
                runs[at].is_lost = True
            if over or self.clock() >= end or len(clean_rounds(rates)) >= self.samples:
                break
        return _Rounds(clean_rounds(rates), tuple(states))

    def _record(self, run: Run, rounds: _Rounds) -> Record:
        trial = run.trial
        shared = trial.lanes > 1
        state = rounds.state(run.samples) if shared else ""
        alike = {turn: took for turn, took in run.samples.items() if not shared or rounds.states[turn] == state}
        kept = [took for turn, took in alike.items() if turn in rounds.clean] or [*alike.values()]
        conditions = {STATE: state} if shared else {}
        return kernel_record(trial, self.target, self.setting, Spread.of(kept), run.entry.source, conditions)


def _kernel(run: Run) -> Kernel:
    entry = run.entry
    return Kernel(run.trial.tile, run.timer, run.address, entry.tiles, entry.scratch_bytes, entry.packings)


@dataclass(frozen=True)
class _Rounds:
    """The rounds in which samples were taken: which of them were clean, and the state of the cores in each."""

    clean: frozenset[int]
    states: tuple[str, ...]

    def state(self, turns: Iterable[int]) -> str:
        """In which the cores were in most of these rounds, of the clean ones if there are any."""
        wanted = [*turns]
        seen = [self.states[turn] for turn in wanted if turn in self.clean] or [self.states[turn] for turn in wanted]
        return max(sorted({*seen}), key=seen.count)


def state_now(timer: Timer) -> str:
    """Whether the first two cores of this process are `near` or `far` at this moment.

    What disturbs a rally makes it longer, never shorter: one that is short shows that they are near.
    """
    rallies = (Handover.of(timer.handover(STATE_ROUNDS)) for _ in range(STATE_RALLIES))
    return next((one.state for one in rallies if one.state == "near"), "far")


def _identity(trial: Trial) -> tuple[str, Tile]:
    """What its code depends on: any number of lanes may share its tile tasks."""
    return trial.key, trial.tile


def _time(run: Run) -> float:
    """One sample; the first one of a run comes after a trial run that faults memory in and says how often to repeat."""
    timer = run.timer
    if not run.repeats:
        once = timer.time(run.sample(1))
        run.repeats = min(max(1, math.ceil(LEAST_SAMPLE_S / max(once, 1e-9))), MOST_REPEATS)
        if run.repeats > 1:  # the first run was slowed by page faults: ask again, on the way to the right number
            once = timer.time(run.sample(run.repeats))
            run.repeats = min(max(1, math.ceil(LEAST_SAMPLE_S / max(once, 1e-9))), MOST_REPEATS)
    return timer.time(run.sample(run.repeats))
