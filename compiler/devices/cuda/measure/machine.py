"""Kernels timed on a GPU of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from compiler.devices.cuda.measure.apart import BenchApart, Lost
from compiler.devices.cuda.measure.bench import Operand, Refused, Subject
from compiler.devices.cuda.measure.nvml import Clock
from compiler.devices.cuda.measure.results import Results
from compiler.devices.cuda.target import CudaTarget
from compiler.errors import InternalError, ResourceExhausted, TargetUnavailable
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.packing import Packing, Steered
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.knowledge.making import kernel_record
from compiler.measure.pattern import reads_indices
from compiler.measure.rounds import clean_rounds, losers
from compiler.measure.spread import Spread
from compiler.trace import StopRequest, never_stops

LEAST_SAMPLE_S = 200e-6
"""The launches of one sample last this long: some hundred times what the start of a graph costs, four hundred ticks of
the events' clock."""
COLD_L2 = 2
"""Copies of the weights fill this many L2 caches."""
CLOCK_LOSS = 0.97
"""A round counts when the multiprocessors' clock was this near to that of the better rounds, and nothing held it
down."""
WARM_S = 0.05
"""For which the device works before the first round: an idle one takes that long to reach its clock."""


@dataclass(frozen=True)
class BuiltKernel:
    """A trial as the driver loads it, and how it is launched.

    `grid` blocks of `block` threads in clusters of `cluster`. Its arguments are the operands (inputs, then outputs),
    each as (dtype, elements), then `scratch_bytes` of memory and so many `counters` that are zero, where there are any.
    """

    image: bytes
    name: str
    grid: int
    block: int
    operands: tuple[tuple[DType, int], ...]
    shared_bytes: int = 0
    scratch_bytes: int = 0
    counters: int = 0
    cluster: int = 1
    packings: Mapping[int, Packing] = field(default_factory=dict)
    """Of inputs that are given packed."""
    source: str = ""
    """Digest of its code."""
    text: str = ""


class Build(Protocol):
    """Makes kernels of trials, one for each or None where that cannot be built.

    None in all after a stop request, which is asked for all the time.
    """

    def __call__(self, trials: Sequence[Trial], *, stop_requested: StopRequest) -> Sequence[BuiltKernel | None] | None:
        """A kernel for each trial, None for one that cannot be built; None in all after a stop request."""
        ...


class Bench(Protocol):
    """Where kernels run: `apart.BenchApart`. `sample` gives the seconds of one launch of the subject placed `at`."""

    def reserve(self, subjects: Sequence[Subject]) -> None:
        """Device memory for what is measured together."""
        ...

    def compute(self, subject: Subject, operands: Sequence[tuple[np.ndarray, int]]) -> Sequence[np.ndarray]:
        """What one launch leaves in the operands that are written: each as bytes, with the offset of the pointer."""
        ...

    def place(self, at: int, subject: Subject) -> None:
        """Takes a subject to the place `at`, ready to be run."""
        ...

    def sample(self, at: int) -> float:
        """Seconds of one launch of the subject at this place."""
        ...

    def clock(self) -> Clock | None:
        """Clocks and temperature now; None if the driver does not say."""
        ...

    def close(self) -> None:
        """Gives back what it holds of the device."""
        ...


def unheard(notice: str) -> None:
    """Where notices go that nobody reads."""


def unkept(title: str, text: str) -> None:
    """Where sources go that nobody reads."""


@dataclass
class _Run:
    """A trial under way: what runs, and its samples in seconds by round."""

    trial: Trial
    subject: Subject
    samples: dict[int, float] = field(default_factory=dict)
    is_placed: bool = False
    is_out: bool = False
    """Slower than others, refused, or at fault: it is run no more."""


@dataclass(frozen=True)
class CudaMachine:
    """`ir.machine.Machine` for a GPU of this machine: the first one that this process may see.

    build         makes kernels of trials
    setting       says where constants are found: `cache` is L2, `memory` beyond it. Activations lie where a producer
                  leaves them, in L2
    samples       clean rounds wanted of each trial
    stop_requested  asked before each trial is placed and before each sample; once it answers True no more are taken
    bench         where kernels run; None: in a process of this machine's own
    notice        gets kernels that faulted, hung or computed something else: they are measured no further, and
                  nothing else is harmed
    keep          given the name and the source of each of these
    reference     plain loops for a workload, beside whose results those of each trial are held once; None: none are

    Kernels run in a process of their own (`apart`) from the first measurement until `close`. Raises TargetUnavailable
    when the target cannot run here.
    """

    target: CudaTarget
    build: Build
    seed: int = 0
    setting: Setting = field(default_factory=Setting)
    stop_requested: StopRequest = never_stops
    notice: Callable[[str], None] = unheard
    keep: Callable[[str, str], None] = unkept
    reference: Callable[[Workload], BuiltKernel | None] | None = None
    samples: int = 9
    sample_s: float = LEAST_SAMPLE_S
    warm_s: float = WARM_S
    clock: Callable[[], float] = time.monotonic
    bench: Bench | None = field(default=None, compare=False)
    _bench: Bench = field(init=False, repr=False, compare=False)
    _known: dict[tuple[str, Tile], BuiltKernel | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was built so far: a trial that is measured again is not built again. One that cannot run stays out."""
    _right: set[tuple[str, Tile]] = field(default_factory=set, init=False, repr=False, compare=False)
    """Trials whose results were looked at."""
    _results: Results = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bench", self.bench or BenchApart(seed=self.seed))
        object.__setattr__(self, "_results", Results(self._loops, self.seed))
        if not self.target.is_here:
            raise TargetUnavailable(
                f"target {self.target.name} cannot be measured on this machine",
                fix="measure on a machine with such a GPU, or set tuning_budget_s to 0",
            )

    @property
    def hardware(self) -> str:
        """The digest of the device, as records name it."""
        return self.target.hardware

    @property
    def lanes(self) -> int:
        """The target's lanes."""
        return self.target.lanes

    def __enter__(self) -> CudaMachine:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the device; a later measurement takes it again."""
        self._bench.close()

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        """Builds the trials not built before, then times all of them interleaved.

        Nothing is built while anything is timed. Yields one record for each trial that ran within `deadline_s` seconds
        from now, before a stop request.

        Raises TargetUnavailable when the device does not work, ResourceExhausted when its memory does not suffice, and
        what `build` raises.
        """
        end = self.clock() + deadline_s

        def over() -> bool:
            return self.stop_requested() or self.clock() >= end

        if not trials or over():
            return
        unknown = [trial for trial in trials if _identity(trial) not in self._known]
        if unknown and not self._build(unknown, over):
            return
        runs = [
            _Run(trial, self._subject(trial.workload, kernel))
            for trial in trials
            if (kernel := self._known[_identity(trial)]) is not None and kernel.grid
        ]
        self._look_at_results(runs, over)
        self._place(runs, over)
        clocks = self._sample(runs, over)
        clean = clean_rounds([_rate(one) for one in clocks], CLOCK_LOSS)
        for run in runs:
            if run.samples:
                yield self._record(run, clean, clocks)

    def _build(self, trials: Sequence[Trial], stop: StopRequest) -> bool:
        """Builds; False when it was called off."""
        built = self.build(trials, stop_requested=stop)
        if built is None:
            return False
        if len(built) != len(trials):
            raise InternalError(f"{len(trials)} trials were built into {len(built)} kernels")
        for trial, kernel in zip(trials, built, strict=True):
            self._known[_identity(trial)] = kernel
        return True

    def _loops(self, workload: Workload) -> tuple[Subject, Mapping[int, Packing]] | None:
        """A workload's plain loops as the bench takes them."""
        kernel = self.reference(workload) if self.reference else None
        return (self._subject(workload, kernel), kernel.packings) if kernel is not None and kernel.grid else None

    def _look_at_results(self, runs: Sequence[_Run], over: StopRequest) -> None:
        """Drops runs whose results are not those of plain loops; each is looked at once."""
        for run in runs if self.reference else ():
            if over():
                return
            identity = _identity(run.trial)
            kernel = self._known[identity]
            if kernel is None or identity in self._right:
                continue
            trial = run.trial
            try:
                fault = self._results.fault(
                    self._bench, trial.workload, trial.key, trial.tile, run.subject, kernel.packings
                )
            except Lost as reason:
                fault = str(reason)
            if fault:
                self._drop(run, fault)
            else:
                self._right.add(identity)

    def _subject(self, workload: Workload, kernel: BuiltKernel) -> Subject:
        reads, writes = len(workload.inputs), len(workload.outputs)
        if len(kernel.operands) != reads + writes:
            raise InternalError(f"{kernel.name} has {len(kernel.operands)} operands for a workload of {reads + writes}")
        zero = reads_indices(workload.kernel)
        steered = {at: packing for at, packing in kernel.packings.items() if isinstance(packing, Steered)}
        operands = tuple(
            Operand(
                *(dtype, elements),
                rotates=at < reads and workload.constant[at],
                written=at >= reads,
                zero=zero,
                steered=steered.get(at),
            )
            for at, (dtype, elements) in enumerate(kernel.operands)
        )
        return Subject(
            image=kernel.image,
            name=kernel.name,
            grid=kernel.grid,
            block=kernel.block,
            operands=operands,
            shared_bytes=kernel.shared_bytes,
            scratch_bytes=kernel.scratch_bytes,
            counters=kernel.counters,
            cluster=kernel.cluster,
            cold_bytes=COLD_L2 * self.target.l2_bytes if self.setting.weights == "memory" else 0,
            sample_s=self.sample_s,
        )

    def _place(self, runs: Sequence[_Run], over: StopRequest) -> None:
        """Makes all runs that are not out ready to be sampled; anew when one of them takes the device away."""
        while True:
            for run in runs:
                run.is_placed = False
            self._reserve([run.subject for run in runs if not run.is_out])
            if self._place_each(runs, over):
                return

    def _place_each(self, runs: Sequence[_Run], over: StopRequest) -> bool:
        """False when the device was lost on the way."""
        for at, run in enumerate(runs):
            if over():
                break
            if run.is_out:
                continue
            try:
                self._bench.place(at, run.subject)
            except Refused as reason:
                self._drop(run, str(reason))
            except Lost as reason:
                self._drop(run, str(reason))
                return False
            else:
                run.is_placed = True
        return True

    def _reserve(self, subjects: Sequence[Subject]) -> None:
        try:
            self._bench.reserve(subjects)
        except Refused as reason:
            raise ResourceExhausted(
                f"the GPU has no memory left to measure in: {reason}", fix="end other programs that use the GPU"
            ) from reason
        except Lost as reason:
            raise TargetUnavailable(f"the GPU cannot be used: {reason}", fix="see what nvidia-smi says") from reason

    def _drop(self, run: _Run, reason: str) -> None:
        run.is_out = True
        run.samples.clear()
        kernel = self._known[_identity(run.trial)]
        self._known[_identity(run.trial)] = None
        if kernel is not None and kernel.text:
            self.keep(kernel.name, kernel.text)
        self.notice(f"{run.subject.name} ({run.trial.tile}) is measured no further: {reason}")

    def _sample(self, runs: Sequence[_Run], over: StopRequest) -> list[tuple[Clock | None, Clock | None]]:
        """Takes samples round by round, every run once a round, until enough rounds are clean or the time is up.

        Returns the device's clock before and after each round.
        """
        self._warm(runs, over)
        clocks: list[tuple[Clock | None, Clock | None]] = []
        for turn in range(2 * self.samples):
            before = self._clock(runs, over)
            if not self._round(runs, turn, over):
                break
            clocks.append((before, self._clock(runs, over)))
            for at in losers((run.trial.key, run.samples.values()) for run in runs):
                runs[at].is_out = True
            if len(clean_rounds([_rate(one) for one in clocks], CLOCK_LOSS)) >= self.samples:
                break
        return clocks

    def _round(self, runs: Sequence[_Run], turn: int, over: StopRequest) -> bool:
        """One sample of each; False when nothing more is to be done."""
        taken = False
        for at, run in enumerate(runs):
            if over():
                return False
            if run.is_out or not run.is_placed:
                continue
            if (seconds := self._one(runs, at, over)) is not None:
                run.samples[turn] = seconds
                taken = True
        return taken

    def _one(self, runs: Sequence[_Run], at: int, over: StopRequest) -> float | None:
        """A sample; None where the run took the device away, after all others were placed again."""
        try:
            return self._bench.sample(at)
        except Lost as reason:
            self._drop(runs[at], str(reason))
            self._place(runs, over)
            return None

    def _clock(self, runs: Sequence[_Run], over: StopRequest) -> Clock | None:
        """The device's now.

        None where nobody says, or where the device was lost meanwhile: then all runs are placed again.
        """
        try:
            return self._bench.clock()
        except Lost:
            self._place(runs, over)
            return None

    def _warm(self, runs: Sequence[_Run], over: StopRequest) -> None:
        end = self.clock() + self.warm_s
        while self.clock() < end and not over():
            ready = [at for at, run in enumerate(runs) if run.is_placed and not run.is_out]
            if not ready:
                return
            self._one(runs, ready[0], over)

    def _record(self, run: _Run, clean: frozenset[int], clocks: Sequence[tuple[Clock | None, Clock | None]]) -> Record:
        trial = run.trial
        turns = [turn for turn in run.samples if turn in clean] or [*run.samples]
        spread = Spread.of([run.samples[turn] for turn in turns])
        clocks_told = _clock_of([clocks[turn] for turn in turns if turn < len(clocks)])
        kernel = self._known[_identity(trial)]
        source = kernel.source if kernel else ""
        return kernel_record(trial, self.target, self.setting, spread, source, clocks_told)


def _identity(trial: Trial) -> tuple[str, Tile]:
    return trial.key, trial.tile


def _rate(around: tuple[Clock | None, Clock | None]) -> float:
    """By which a round is judged: the lower clock of before and after.

    0 where it was held down; all alike if unknown.
    """
    known = [clock for clock in around if clock is not None]
    if any(clock.throttled for clock in known):
        return 0.0
    return float(min((clock.multiprocessor_mhz for clock in known if clock.multiprocessor_mhz is not None), default=1))


def _clock_of(rounds: Sequence[tuple[Clock | None, Clock | None]]) -> dict[str, Any]:
    """What a record says of the clocks that it was measured at: `clock_mhz`, `throttled`.

    Nothing if unknown.
    """
    known = [clock for around in rounds for clock in around if clock is not None]
    speeds = [clock.multiprocessor_mhz for clock in known if clock.multiprocessor_mhz is not None]
    held = sorted({reason for clock in known for reason in clock.throttled})
    return {
        **({"clock_mhz": int(np.median(speeds))} if speeds else {}),
        **({"throttled": held} if held else {}),
    }
