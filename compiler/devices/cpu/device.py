"""Cores of a machine: candidates built for it to time, its facts, single calls run for bisection."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from compiler.codegen.build import Objects, Stopped, Toolchain, environment_compiler, find_toolchain
from compiler.codegen.calls import function_name, operands_of, workload_of
from compiler.codegen.weights import Weights
from compiler.contract import CompileOptions
from compiler.contract.kinds import AUTO
from compiler.devices.cpu.algorithms import legal_tiles, takes_short
from compiler.devices.cpu.algorithms.loops import LOOPS
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.emit.lower import count_tiles, digest_of, lower, source_of
from compiler.devices.cpu.emit.program import Candidate, candidate_library, emit, emit_each, kernel_sources, lower_calls
from compiler.devices.cpu.emit.regions import KernelRegions
from compiler.devices.cpu.emit.stream import emit_stream
from compiler.devices.cpu.emulation import emulator_for
from compiler.devices.cpu.emulation.model import emulated_model
from compiler.devices.cpu.measure.handover import cores, measure_handover, measure_pair, state_of_pair
from compiler.devices.cpu.measure.machine import Built, CpuMachine, Entry
from compiler.devices.cpu.measure.pairs import at_once, places_of, rounds_of
from compiler.devices.cpu.measure.rates import measure_rates, rates_of
from compiler.devices.cpu.measure.stages import CpuStageClock
from compiler.devices.cpu.measure.timer import TIMER_SOURCE
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.repacked import repacked_bytes
from compiler.devices.cpu.target import CpuTarget, resolve_for
from compiler.devices.device import COMPILERS, Runner, Staged
from compiler.devices.whole import race_programs
from compiler.encodings.zeros import leaves_out
from compiler.fuse.storage import with_short_activations
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.plans.lanes import Handover, Pair
from compiler.ir.plans.parts import Parts, Portion
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program, StreamProgram
from compiler.ir.states import Carried
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.knowledge.budget import Share
from compiler.knowledge.kinds import UPGRADE_S
from compiler.knowledge.known import known_handovers
from compiler.knowledge.making import handover_record
from compiler.knowledge.records import Records
from compiler.measure.memory import allocate
from compiler.measure.plans import Raced
from compiler.pack.loader import Model
from compiler.trace import StopRequest, never_stops
from compiler.tuning.menus import best_by_model
from compiler.tuning.proposal import Proposal

FEWEST_DOTS = 0.5
"""Dot products of bf16 in the time of a multiply-add, where that was not measured and a job leaves it to the compiler
whether to use them: those of cores that have fewest."""


def cpu_backend(options: CompileOptions, environment: Mapping[str, str]) -> CpuBackend:
    """For a job's target, with the user's C compiler. Raises as `backend_for` does."""
    return backend_for(resolve_for(options.target, options.system), options, environment)


def backend_for(target: CpuTarget, options: CompileOptions, environment: Mapping[str, str]) -> CpuBackend:
    """Raises TargetUnavailable for a precision that the target lacks, and ToolchainMissing."""
    target.check_precision(options.precision)
    toolchain = find_toolchain(environment_compiler(environment), target.machine, target.system)
    return CpuBackend(target, toolchain, leaves_zeros_out=options.sparsity == "auto")


@dataclass(frozen=True)
class CpuBackend:
    """`Backend` for a CPU target and a C compiler."""

    target: CpuTarget
    toolchain: Toolchain
    objects: Objects = field(default_factory=dict, repr=False, compare=False)
    """What was compiled for whole programs so far."""
    leaves_zeros_out: bool = True
    """Whether zero weights may be left out of products."""

    def stored(self, kernels: KernelGraph, precision: str, exact: Collection[int] = ()) -> KernelGraph:
        """In bf16 with activations of bf16 where the calls on both sides take them without a dearer algorithm."""
        if precision not in ("bf16", AUTO) or not self.target.multiplies_bf16:
            return kernels

        def takes(kernels: KernelGraph, at: int) -> bool:
            workload = self.workload_of(kernels, kernels.calls[at])
            return takes_short(workload, self.target, "fp32" if at in exact else "bf16")

        return with_short_activations(replace(kernels, halves=True), DType.BF16, takes, exact)

    @property
    def joins(self) -> frozenset[str]:
        """Names of the joins that there are algorithms for."""
        return frozenset({"separable", "byte_attention", "few_queries", "key_ends", "key_parts"})

    def workload_of(self, kernels: KernelGraph, call: Call) -> Workload:
        """What a call computes."""
        return workload_of(kernels, call)

    def setting(self, kernels: KernelGraph) -> Setting:
        """From one run to the next a model's constants stay in a last cache that holds twice as much."""
        whole = sum(array.nbytes for array in kernels.constants.values())
        return Setting("cache" if 2 * whole <= self.target.l3_bytes else "memory", self.toolchain.version)

    def prepared(
        self, kernels: KernelGraph, known: Sequence[Record], *, measure: bool
    ) -> tuple[CpuBackend, list[Record]]:
        """The target with the rates of its cores, and the records they are from."""
        backend, records = self.with_rates(known, measure=measure)
        rates = replace(backend.target.rates, in_memory=self.setting(kernels).weights == "memory")
        return replace(backend, target=replace(backend.target, rates=rates)), records

    def alike(self, known: Sequence[Record], setting: Setting) -> CpuBackend | None:
        """With the rates that records tell; None under another C compiler."""
        if setting.toolchain != self.toolchain.version:
            return None
        backend, _ = self.with_rates(known, measure=False)
        rates = replace(backend.target.rates, in_memory=setting.weights == "memory")
        return replace(backend, target=replace(backend.target, rates=rates))

    def with_rates(self, known: Sequence[Record], *, measure: bool) -> tuple[CpuBackend, list[Record]]:
        """The target with the rates of its cores, and the records they are from.

        Records of this hardware if there are any, else measured now if `measure` holds; else the target keeps the rates
        it came with.
        """
        target = self.target
        found = rates_of(known, target)
        if found is None and measure and target.is_here:
            found = rates_of(measure_rates(self._timer_library(), target), target)
        if found is None:
            return self, []
        rates, records = found
        return replace(self, target=replace(target, rates=rates)), records

    def starting_points(self, known: Sequence[Record], setting: Setting) -> Sequence[Record]:
        """All that is known: no record of other hardware is adapted."""
        return known

    def machine(
        self,
        seed: int,
        stop_requested: StopRequest,
        setting: Setting,
        notice: Callable[[str], None],
        keep: Callable[[str, str], None],
    ) -> AbstractContextManager[CpuMachine | None]:
        """This machine's cores, on which trials are measured; None if the target is elsewhere."""
        cores = self.cores(seed, stop_requested, setting)
        return nullcontext(cores and replace(cores, notice=notice, keep=keep, reference=self.plain_loops))

    def plain_loops(self, workload: Workload) -> Tile | None:
        """A workload's best plain loops by the model, which decide where results of other tiles differ."""
        tiles = [option.tile for option in LOOPS.tiles(workload, self.target, 1)]
        return tiles[0] if tiles else None

    def cores(
        self, seed: int, stop_requested: StopRequest = never_stops, setting: Setting | None = None
    ) -> CpuMachine | None:
        """This machine as one on which trials can be measured; None for a target that does not run here."""
        if not self.target.is_here:
            return None
        jobs = min(COMPILERS, cores())
        build = partial(build_trials, target=self.target, toolchain=self.toolchain, jobs=jobs)
        return CpuMachine(self.target, build, seed, setting or Setting(), stop_requested=stop_requested)

    def legal_tiles(self, workload: Workload, lanes: int, precision: str) -> list[Proposal]:
        """Every legal tile of a workload with its expected seconds."""
        target = self.target
        if precision == AUTO and target.rates.dots_per_fma is None:
            target = replace(target, rates=replace(target.rates, dots_per_fma=FEWEST_DOTS))
        proposed = legal_tiles(workload, target, lanes, precision)
        return proposed if self.leaves_zeros_out else [one for one in proposed if not leaves_out(one.tile.algorithm)]

    def count_tiles(self, workload: Workload, tile: Tile) -> int:
        """Tasks of the kernel under a tile."""
        return count_tiles(workload, tile, self.target)

    def source_of(self, workload: Workload, tile: Tile) -> str:
        """The C of a workload under a tile."""
        return source_of(workload, tile, self.target)

    def choose(self, options: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
        """For each workload the number of the tile that the cost model ranks first."""
        return best_by_model(options)

    def describe(self, workload: Workload, tile: Tile) -> str:
        """Nothing: the names of tiles say all."""
        return ""

    @property
    def lanes(self) -> CpuBackend:
        """Its cores answer for themselves (`LaneDevice`)."""
        return self

    def handover(self, known: Sequence[Record], *, measure: bool, pair: tuple[int, int] | None = None) -> Record | None:
        """What it costs one core to see another's result, in the state in which the cores are; None if unknown.

        Between a `pair` of cores, or between the first two of this process, which stand for all.

        Virtual cores move: with `measure` it is measured now whether they are near or far. A record of this hardware in
        this state says what that costs, if there is one that tells of UPGRADE_S, so that equal records give equal
        plans; else what was measured does. What bytes cost between a pair is measured once for each state. Without
        `measure` the last record counts.
        """
        target = self.target
        records = known_handovers(known, target, pair)
        if not measure or not target.is_here:
            return records[-1] if records else None
        library = self._timer_library()
        complete = {Handover.of(1e9 * one.seconds).state: one for one in records if UPGRADE_S in one.variant}
        if pair and complete and (alike := complete.get(state_of_pair(library, pair))):
            return alike
        measured = measure_pair(library, pair) if pair else measure_handover(library)
        if measured is None:
            return None
        return complete.get(measured.state) or handover_record(measured, target, pair)

    def pairs(self, cores: Sequence[int]) -> list[list[Pair]]:
        """All pairs of these cores, in rounds of pairs that share none."""
        return rounds_of(cores, places_of(cores))

    def handovers(self, known: Sequence[Record], pairs: Sequence[Pair], *, measure: bool) -> Mapping[Pair, Record]:
        """As `handover`, of the pairs of a round at the same time."""
        records = Records.of(known)
        if measure and self.target.is_here:
            self._timer_library()  # compiled once, before threads ask for it
        return at_once(pairs, lambda pair: self.handover(records, measure=measure, pair=pair))

    def regions(self, kernels: KernelGraph) -> KernelRegions:
        """Which bytes of buffers the tasks of these kernels read and write."""
        return KernelRegions(kernels, self.target)

    def stage_clock(
        self,
        staged: Staged,
        machine: Machine | None,
        known: Sequence[Record],
        share: Share,
        add_record: Callable[[Record], None],
        seed: int,
    ) -> CpuStageClock:
        """Measures what stages of the plan take on these cores, or takes it from records."""
        return CpuStageClock(
            machine if isinstance(machine, CpuMachine) else None, staged, self.target, known, share, add_record, seed
        )

    def moving_seconds(self, moved_bytes: int, working_bytes: int, lanes: int) -> float:
        """At the rate of the cache that lanes share, while it holds what all of them work on twice, else of memory.

        What is moved within a core's second-level cache the costs of kernels contain.
        """
        target = self.target
        if 2 * working_bytes <= target.l2_bytes:
            return 0.0
        level = "L3" if 2 * lanes * working_bytes <= target.l3_bytes else "memory"
        return lanes * moved_bytes / target.ceilings(lanes).bytes_per_s[level]

    def repacked_bytes(self, kernels: KernelGraph, plan: Plan, other: Plan) -> int:
        """Bytes of constants that only one of two plans packs as it does."""
        return repacked_bytes(kernels, plan, other, self.target)

    def stream(
        self,
        kernels: KernelGraph,
        parts: Parts,
        portions: Sequence[Portion],
        cores: Sequence[int | None],
        folders: Sequence[str],
    ) -> StreamProgram:
        """The program that takes many inputs in turn, each part on cores of its own."""
        return emit_stream(kernels, parts, portions, cores, folders, self.target, self.toolchain)

    @property
    def transfers(self) -> None:
        """None: cores work in the host's memory."""

    def joint_launch(self, kernels: KernelGraph) -> None:
        """None: a kernel is no launch."""

    @property
    def resident_tile(self) -> None:
        """None: lanes are cores."""

    def resident_blocks(self, kernels: KernelGraph) -> None:
        """None: lanes are cores."""

    def race(
        self,
        kernels: KernelGraph,
        plans: Sequence[Plan],
        seed: int,
        stop_requested: StopRequest,
        place: Path,
        share: Share | None = None,
        inputs: Mapping[str, np.ndarray] | None = None,
    ) -> Sequence[Raced] | None:
        """Kernels are compiled once for all plans, which share one weights file.

        Each plan is run as artifacts are, on lanes of its own.
        """
        if not self.target.is_here:
            return None
        try:
            programs = emit_each(kernels, plans, self.target, self.toolchain, COMPILERS, self.objects, stop_requested)
        except Stopped:
            return None
        return race_programs(programs, plans, self.target.name, seed, stop_requested, place, share=share, inputs=inputs)

    def weights(self, earlier: Weights | None = None, *, small: bool = True) -> Weights:
        """An empty store of weights; `earlier` is shared where it is equal."""
        return Weights(earlier=earlier, small=small)

    def emit(
        self,
        kernels: KernelGraph,
        plan: Plan,
        others: Sequence[Plan] = (),
        weights: Weights | None = None,
        carried: Sequence[Carried] = (),
    ) -> Program:
        """The program that carries out the plan, and the others where cores are otherwise apart."""
        return emit(
            kernels,
            plan,
            self.target,
            self.toolchain,
            COMPILERS,
            self.objects,
            others=others,
            weights=weights,
            carried=carried,
        )

    @property
    def runner(self) -> Runner | None:
        """What runs an artifact here, under an emulator if need be; None if nothing does."""
        if self.target.is_here:
            return Runner(Model)
        emulator = emulator_for(self.target, self.toolchain)
        return Runner(emulated_model(emulator), str(emulator)) if emulator else None

    def stepper(self, kernels: KernelGraph, plan: Plan) -> AbstractContextManager[LibraryStepper]:
        """Runs a plan call by call, to find the first that is wrong."""
        return LibraryStepper(kernels, plan, self.target, self.toolchain, self.objects)

    def rounded(self, plan: Plan, precision: str) -> frozenset[str]:
        """All that goes through memory, or that the algorithm of a precision multiplies."""
        return frozenset({"bf16" if precision == AUTO else precision} - {"fp32"})

    def _timer_library(self) -> bytes:
        return _timer_library(replace(self.target, rates=Rates()), self.toolchain)

    def __str__(self) -> str:
        return f"{self.target.name}: {self.target.rates}"


def build_trials(
    trials: Sequence[Trial],
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int,
    stop_requested: StopRequest = never_stops,
) -> Built | None:
    """A library of trials with the timer, and how each is called; None after a stop request."""
    candidates = []
    for number, trial in enumerate(trials):
        name = function_name(trial.workload, number)
        candidates.append(Candidate(trial.workload, lower(name, trial.workload, trial.tile, target)))
    try:
        library = candidate_library(candidates, TIMER_SOURCE, target, toolchain, jobs, stop_requested)
    except Stopped:
        return None
    return Built(library, tuple(_entry(candidate, target) for candidate in candidates))


def _entry(candidate: Candidate, target: CpuTarget) -> Entry:
    lowered = candidate.lowered
    operands = operands_of(candidate.workload, lowered.packings)
    return Entry(
        lowered.name,
        operands,
        lowered.tiles,
        lowered.scratch_bytes,
        digest_of(lowered, target),
        lowered.packings,
        lowered.text,
    )


@lru_cache(maxsize=1)
def _timer_library(target: CpuTarget, toolchain: Toolchain) -> bytes:
    return build_library({"timer.c": TIMER_SOURCE}, target, toolchain)


KernelCall = Callable[[str, Sequence[np.ndarray], np.ndarray, int, int], None]
"""Runs tile tasks [first, past) of the kernel of a name, on flat operands and scratch."""


def _calls_of(code: bytes) -> KernelCall:
    """Of the kernels in a library for this machine."""
    with tempfile.TemporaryDirectory(prefix="tw-step-") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(code)
        library = ctypes.CDLL(str(path))

    def call(name: str, operands: Sequence[np.ndarray], scratch: np.ndarray, first: int, past: int) -> None:
        pointers = (ctypes.c_void_p * len(operands))(*(array.ctypes.data for array in operands))
        getattr(library, name)(
            pointers, ctypes.c_void_p(scratch.ctypes.data), ctypes.c_long(first), ctypes.c_long(past)
        )

    return call


class LibraryStepper:
    """Runs single calls of a plan from a library of its kernels: `measure.bisect.Stepper`."""

    def __init__(
        self, kernels: KernelGraph, plan: Plan, target: CpuTarget, toolchain: Toolchain, objects: Objects
    ) -> None:
        self._lowered = lower_calls(kernels, plan, target)
        self._constants = {
            (position, slot): kernels.constants[id]
            for position, call in enumerate(kernels.calls)
            for slot, id in enumerate(call.inputs)
            if id in kernels.constants
        }
        distinct = list({kernel.name: kernel for kernel in self._lowered}.values())
        code = build_library(kernel_sources(distinct), target, toolchain, objects=objects)
        emulator = emulator_for(target, toolchain)
        self._guest = emulator.open(code) if emulator else None
        self._call: KernelCall = self._guest.call if self._guest else _calls_of(code)

    def __enter__(self) -> LibraryStepper:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._guest:
            self._guest.close()

    def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
        """Runs all tiles of a call on flat operands, packing what its kernel wants packed."""
        kernel = self._lowered[position]
        arrays = [self._operand(position, slot, kernel, array) for slot, array in enumerate(operands)]
        self._call(kernel.name, arrays, allocate(kernel.scratch_bytes), 0, kernel.tiles)

    def _operand(self, position: int, slot: int, kernel: Lowered, array: np.ndarray) -> np.ndarray:
        packing = kernel.packings.get(slot)
        return packing.pack(self._constants[position, slot]) if packing else array
