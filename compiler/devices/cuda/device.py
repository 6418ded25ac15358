"""GPUs: CUDA kernels compiled by NVRTC.

They are measured where a GPU is, and chosen by the model and what the compiler says where none is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from compiler.codegen.build import environment_compiler
from compiler.codegen.calls import operands_of
from compiler.codegen.weights import Weights
from compiler.contract import CompileOptions
from compiler.contract.kinds import AUTO, CUDA
from compiler.devices.cuda import model
from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.loops import LOOPS
from compiler.devices.cuda.arrays import cupy_arrays
from compiler.devices.cuda.candidates import Candidate, Candidates
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.persistent import Shape, can_be_resident, refusal
from compiler.devices.cuda.emit.program import ALIGNMENT, emit_cuda
from compiler.devices.cuda.emit.side_by_side import fit_together, slots_of
from compiler.devices.cuda.measure.costs import COSTS, known_costs
from compiler.devices.cuda.measure.driver import gpu_here
from compiler.devices.cuda.measure.launches import known_launches, measure_launches
from compiler.devices.cuda.measure.machine import BuiltKernel, CudaMachine
from compiler.devices.cuda.measure.programs import race_apart
from compiler.devices.cuda.measure.splits import known_split, measure_splits
from compiler.devices.cuda.measure.switches import SWITCHES, known_seconds, known_switch, measure_switches
from compiler.devices.cuda.stepper import CudaStepper
from compiler.devices.cuda.target import CudaTarget, resolve
from compiler.devices.cuda.toolchain import CudaToolchain, find_cuda_toolchain
from compiler.devices.device import Runner
from compiler.devices.whole import laid_out
from compiler.encodings.zeros import leaves_out
from compiler.errors import ToolchainFailed, VerifyError
from compiler.fuse.storage import ELEMENTS, with_storage
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.plans.plan import Plan
from compiler.ir.plans.transfers import Transfers
from compiler.ir.program import Program
from compiler.ir.states import Carried
from compiler.ir.tile import Tile, Variant
from compiler.knowledge.budget import Share
from compiler.knowledge.shipped import starting_points
from compiler.measure.plans import Raced
from compiler.pack.loader import Model
from compiler.prove.agree import DEFAULT_TOLERANCE
from compiler.schedule import PERSISTENT, JointLaunch, ResidentBlocks
from compiler.schedule.gpu.launch_load import LaunchLoad
from compiler.schedule.gpu.resident import Resident
from compiler.trace import StopRequest, never_stops
from compiler.tuning.proposal import Proposal

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Cores of this process, and so kernels that NVRTC compiles at a time: nothing is timed meanwhile."""
TRIES = 8
"""Of a kernel's tiles, best by the model first, that are compiled until one needs no memory for want of registers."""


def cuda_backend(options: CompileOptions, environment: Mapping[str, str]) -> CudaBackend:
    """For a job's target, this machine's GPU if it is of that kind. Raises TargetUnavailable, ToolchainMissing."""
    target = resolve(options.target, gpu_here())
    if options.scheduler == PERSISTENT:
        target = target.of_resident_blocks
    toolchain = find_cuda_toolchain(environment_compiler(environment))
    granted = options.tolerance or DEFAULT_TOLERANCE.get(options.precision, max(DEFAULT_TOLERANCE.values()))
    return CudaBackend(target, toolchain, options.sparsity == "auto", granted)


@dataclass(frozen=True)
class CudaBackend:
    """`Backend` for a CUDA target, NVRTC and a C compiler for the host's side.

    leaves_zeros_out  whether kernels may leave out weights that are zero
    granted           by what part of an output's largest value two plans of a model may differ
    """

    target: CudaTarget
    toolchain: CudaToolchain
    leaves_zeros_out: bool = True
    granted: float = DEFAULT_TOLERANCE["fp32"]
    candidates: Candidates = field(init=False, repr=False, compare=False)
    _images: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of the plans that were emitted so far: those that race share most kernels, and one of them is emitted again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", Candidates(self.target))

    def stored(self, kernels: KernelGraph, precision: str, exact: Collection[int] = ()) -> KernelGraph:
        """The kernels with the elements in memory that a precision asks for."""
        asked = _arithmetic(precision)
        return with_storage(kernels, ELEMENTS[asked], exact) if asked in ELEMENTS else kernels

    @property
    def joins(self) -> frozenset[str]:
        """Names of the joins that there are algorithms for."""
        return frozenset({"separable", "excitation", "normalised"})

    def workload_of(self, kernels: KernelGraph, call: Call) -> Workload:
        """What a call computes, with constants that are known to kernels on GPUs."""
        return cuda_workload_of(kernels, call)

    def alike(self, known: Sequence[Record], setting: Setting) -> None:
        """Not yet: kernels are measured by the job's own worker."""

    def setting(self, kernels: KernelGraph) -> Setting:
        """From one run to the next a model's constants stay in a second-level cache that holds twice as much."""
        whole = sum(array.size * kernels.buffers[id].dtype.bytes for id, array in kernels.constants.items())
        major, minor = self.toolchain.nvrtc
        return Setting("cache" if 2 * whole <= self.target.l2_bytes else "memory", f"NVRTC {major}.{minor}")

    def prepared(
        self, kernels: KernelGraph, known: Sequence[Record], *, measure: bool
    ) -> tuple[CudaBackend, list[Record]]:
        """With what launches cost and gain by; else a GPU is what its profile and its driver say."""
        target, found = self.target, list[Record]()
        if measure and target.is_here:
            found += measure_splits(target) if known_split(known, target) is None else []
            found += [] if known_launches(known, target) else measure_launches(target)
            new = [one for one in (*SWITCHES, *(cost.probe for cost in COSTS)) if not known_seconds(known, target, one)]
            found += measure_switches(target, new) if new else []
        facts = [*known, *found]
        said: dict[str, Any] = {"one_split": known_split(facts, target)}
        said |= {switch.field: known_switch(facts, target, switch) for switch in SWITCHES}
        said |= known_launches(facts, target) | known_costs(facts, target)
        changed: dict[str, Any] = {
            name: on for name, on in said.items() if on is not None and on != getattr(target, name)
        }
        return (replace(self, target=replace(target, **changed)) if changed else self), found

    def starting_points(self, known: Sequence[Record], setting: Setting) -> Sequence[Record]:
        """Records of which tiles are tried first, those of like hardware included."""
        return starting_points(known, self.target, setting)

    def machine(
        self,
        seed: int,
        stop_requested: StopRequest,
        setting: Setting,
        notice: Callable[[str], None],
        keep: Callable[[str, str], None],
    ) -> AbstractContextManager[CudaMachine | None]:
        """This machine's GPU, which is free again afterwards; None where the target is another."""
        if not self.target.is_here:
            return nullcontext()
        return CudaMachine(
            self.target,
            self.build,
            seed,
            setting,
            stop_requested=stop_requested,
            notice=notice,
            keep=keep,
            reference=self.plain_loops,
        )

    def plain_loops(self, workload: Workload) -> BuiltKernel | None:
        """A workload's cheapest plain loops by the model, beside whose results those of other tiles are held.

        None where they cannot be built.
        """
        tiles = [proposal.tile for proposal in LOOPS.tiles(workload, self.target, "fp32")]
        candidate = self.candidates.sound(workload, tiles[0]) if tiles else None
        return None if candidate is None else built(candidate, workload)

    def build(
        self, trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops
    ) -> Sequence[BuiltKernel | None] | None:
        """Each trial compiled, None for one that is not worth measuring; None after a stop request."""

        def kernel(trial: Trial) -> BuiltKernel | None:
            workload, tile = trial.workload, trial.tile
            candidate = None if stop_requested() else self.candidates.sound(workload, tile)
            return None if candidate is None else built(candidate, workload, self.source_of(workload, tile))

        with ThreadPoolExecutor(CORES) as pool:
            kernels = list(pool.map(kernel, trials))
        return None if stop_requested() else kernels

    def legal_tiles(self, workload: Workload, lanes: int, precision: str) -> list[Proposal]:
        """Every legal tile of a workload with its expected seconds."""
        proposed = legal_tiles(workload, self.target, lanes, _arithmetic(precision))
        return proposed if self.leaves_zeros_out else [one for one in proposed if not leaves_out(one.tile.algorithm)]

    def count_tiles(self, workload: Workload, tile: Tile) -> int:
        """Blocks of the kernel's grid under a tile."""
        return self.candidates.lowered(workload, tile).grid

    def source_of(self, workload: Workload, tile: Tile) -> str:
        """The CUDA C++ of a workload under a tile."""
        return self.candidates.source_of(workload, tile)

    def choose(self, options: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
        """The first that is worth measuring, of at most TRIES."""
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(lambda option: self._soundest(*option), options))

    def _soundest(self, workload: Workload, tiles: Sequence[Tile]) -> int:
        """The first tile that is worth measuring; else, of those that can run, the one that spills least.

        Raises ToolchainFailed where no tile compiles or none fits a multiprocessor.
        """
        spilled: dict[int, int] = {}
        failures: list[ToolchainFailed] = []
        for at, tile in enumerate(tiles[:TRIES]):
            try:
                candidate = self.candidates.compiled(workload, tile)
            except ToolchainFailed as error:
                failures.append(error)
                continue
            if candidate.is_sound(self.target):
                return at
            if candidate.fits(self.target):
                spilled[at] = candidate.spilled_bytes
        if not spilled:
            raise (
                failures[0]
                if failures
                else ToolchainFailed(f"no tile of this kernel fits a multiprocessor:\n{workload}")
            )
        return min(spilled, key=lambda at: (spilled[at], at))

    def describe(self, workload: Workload, tile: Tile) -> str:
        """Registers, threads and shared memory, of kernels that were compiled."""
        return str(self.candidates.known(workload, tile) or "")

    @property
    def lanes(self) -> None:
        """None: launches share no tile tasks, and what one waits for another is part of its measured time."""

    @property
    def transfers(self) -> Transfers:
        """Through the host's page-locked memory, as the runtime of artifacts copies."""
        return self.target.transfers

    def joint_launch(self, kernels: KernelGraph) -> JointLaunch:
        """By the text of the kernels and the model of costs; what a variant was measured to take counts as that."""
        workloads = [self.workload_of(kernels, call) for call in kernels.calls]

        from_memory = self._from_memory(kernels)

        @cache
        def lowered(call: int, tile: Tile) -> CudaLowered:
            return self.candidates.lowered(workloads[call], tile)

        def load(calls: Sequence[tuple[int, Variant]]) -> LaunchLoad | None:
            members = [lowered(call, variant.tile) for call, variant in calls]
            if len(calls) > 1 and not fit_together(members, self.target):
                return None
            kernels = [(variant.cost.seconds, variant.tiles) for _, variant in calls]
            weights = sum(from_memory(workloads[call], one) for (call, _), one in zip(calls, members, strict=True))
            made = [self.candidates.known(workloads[call], variant.tile) for call, variant in calls]
            code = {one.lowered.text: one.code(self.target) for one in made if one is not None}
            return model.load(kernels, slots_of(members, self.target), self.target, weights, [*code.values()])

        return load

    @property
    def resident_tile(self) -> Callable[[Tile], bool]:
        """By what a tile names: no cluster, no wgmma."""
        return can_be_resident

    def resident_blocks(self, kernels: KernelGraph) -> ResidentBlocks:
        """By the model of costs, and by the registers that NVRTC says each call's kernel needs."""
        workloads = [self.workload_of(kernels, call) for call in kernels.calls]
        from_memory = self._from_memory(kernels)

        def accepts(call: int, variant: Variant) -> bool:
            return not refusal(self.candidates.lowered(workloads[call], variant.tile))

        def load(calls: Sequence[tuple[int, Variant]]) -> Resident | None:
            with ThreadPoolExecutor(CORES) as pool:
                made = list(pool.map(lambda one: self.candidates.compiled(workloads[one[0]], one[1].tile), calls))
            shape = Shape.of([one.lowered for one in made])
            needs = [
                model.Need(
                    *(variant.cost.seconds, variant.tiles, one.lowered.block, one.resources.registers),
                    one.shared_bytes,
                    from_memory(workloads[call], one.lowered),
                    (one.code(self.target),),
                )
                for (call, variant), one in zip(calls, made, strict=True)
            ]
            return model.resident(needs, shape.threads, shape.shared_bytes, self.target)

        return ResidentBlocks(accepts, load)

    def _from_memory(self, kernels: KernelGraph) -> Callable[[Workload, CudaLowered], float]:
        """Bytes of a kernel's weights where those of the model do not stay in the second-level cache, else 0."""
        if self.setting(kernels).weights == "cache":
            return lambda workload, lowered: 0.0
        return weight_bytes

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
        """Each plan is run as artifacts are, in a process that it may take with it: one that fails is left out.

        One CUDA graph a run, from and to memory of the GPU, until its outputs are there. Raises RunError where the
        first plan fails.
        """
        if not self.target.is_here:
            return None
        programs = []
        for plan in plans:
            if stop_requested():
                return None
            programs.append(self.emit(kernels, plan))
        with share.spending() if share else nullcontext():
            try:
                with laid_out(programs, plans, self.target.name, place) as folders:
                    left = share.left if share else None
                    return race_apart(folders, self.granted, seed, stop_requested, left, inputs)
            except OSError:
                return None

    def weights(self, earlier: Weights | None = None, *, small: bool = True) -> Weights:
        """An empty store of weights, aligned as kernels read them; `earlier` is shared where it is equal."""
        return Weights(ALIGNMENT, earlier)

    def emit(
        self,
        kernels: KernelGraph,
        plan: Plan,
        others: Sequence[Plan] = (),
        weights: Weights | None = None,
        carried: Sequence[Carried] = (),
    ) -> Program:
        """The program that carries out the plan. Raises VerifyError if there are `others`, or states."""
        if others:
            raise VerifyError("a GPU has one plan: its streams do not depend on how far cores are apart")
        if carried:
            raise VerifyError("a program for a GPU keeps no states")
        return emit_cuda(kernels, plan, self.target, self.toolchain, CORES, self._images, weights)

    @property
    def runner(self) -> Runner | None:
        """What runs an artifact on this machine; None if the target is elsewhere."""
        return Runner(Model, arrays=cupy_arrays) if self.target.is_here else None

    def stepper(self, kernels: KernelGraph, plan: Plan) -> CudaStepper:
        """Runs a plan call by call, to find the first that is wrong."""
        return CudaStepper(kernels, plan, self.candidates, self.emit)

    def rounded(self, plan: Plan, precision: str) -> frozenset[str]:
        """All that goes through memory, or that tensor cores multiply."""
        return frozenset({_arithmetic(precision)} - {"fp32"})

    def __str__(self) -> str:
        target = self.target
        return (
            f"{target.name}: {target.product}, {target.multiprocessors} multiprocessors, L2 {target.l2_bytes >> 20} MiB"
        )


def weight_bytes(workload: Workload, lowered: CudaLowered) -> float:
    """Of a kernel's constants, as they lie in memory."""
    return float(
        sum(
            packing.elements * packing.dtype.bytes
            if (packing := lowered.packings.get(at))
            else buffer.span * buffer.dtype.bytes
            for at, (buffer, constant) in enumerate(zip(workload.inputs, workload.constant, strict=True))
            if constant
        )
    )


def _arithmetic(precision: str) -> str:
    """Of a kernel that is not exact, in this precision of a job."""
    return CUDA.short if precision == AUTO else precision


def built(candidate: Candidate, workload: Workload, source: str = "") -> BuiltKernel:
    """A candidate, of code with this digest, as it is launched, with its operands in order: packed ones as packed."""
    lowered = candidate.lowered
    return BuiltKernel(
        image=candidate.image,
        name=lowered.name,
        grid=lowered.grid,
        block=lowered.block,
        operands=operands_of(workload, lowered.packings),
        shared_bytes=lowered.shared_bytes,
        scratch_bytes=lowered.scratch_bytes,
        counters=lowered.counters,
        cluster=lowered.cluster,
        packings=lowered.packings,
        source=source,
        text=lowered.text,
    )
