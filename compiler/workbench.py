"""Where generated code meets measuring: candidates built for a machine to time, single calls run for bisection."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from compiler.codegen.build import Stopped, Toolchain, build_library
from compiler.codegen.emit import Candidate, candidate_library, kernel_sources, lower_calls
from compiler.codegen.lower import function_name, lower
from compiler.codegen.lowered import Lowered
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record, Setting, Trial
from compiler.ir.plan import Plan
from compiler.measure.handover import Handover, measure_handover
from compiler.measure.machine import Built, CpuMachine, Entry
from compiler.measure.rates import measure_rates, rates_of
from compiler.measure.timer import TIMER_SOURCE
from compiler.targets.cpu import CpuTarget
from compiler.targets.rates import Rates
from compiler.trace import Hurry, unhurried

HANDOVER = "handover"
"""The kind of record that says what a hand-over between two cores costs."""


def machine_for(
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int,
    seed: int,
    hurry: Hurry = unhurried,
    setting: Setting | None = None,
) -> CpuMachine | None:
    """This machine as one on which trials can be measured; None for a target that does not run here."""
    if not target.is_here:
        return None
    build = partial(build_trials, target=target, toolchain=toolchain, jobs=jobs)
    return CpuMachine(target, build, seed, setting or Setting(), hurry=hurry)


def setting_of(kernels: KernelGraph, target: CpuTarget, toolchain: Toolchain) -> Setting:
    """How a model's kernels are measured: from one run to the next its constants stay in a last cache that holds twice as much."""
    whole = sum(array.nbytes for array in kernels.constants.values())
    return Setting("cache" if 2 * whole <= target.l3_bytes else "memory", toolchain.version)


def build_trials(
    trials: Sequence[Trial], target: CpuTarget, toolchain: Toolchain, jobs: int, hurry: Hurry = unhurried
) -> Built | None:
    """A library of trials with the timer, and how each is called; None when `hurry` called it off."""
    candidates = []
    for number, trial in enumerate(trials):
        name = function_name(trial.workload, number)
        candidates.append(Candidate(trial.workload, lower(name, trial.workload, trial.tile, target)))
    try:
        library = candidate_library(candidates, TIMER_SOURCE, target, toolchain, jobs, hurry)
    except Stopped:
        return None
    return Built(library, tuple(_entry(candidate) for candidate in candidates))


def _entry(candidate: Candidate) -> Entry:
    lowered, operands = candidate.lowered, []
    for position, buffer in enumerate((*candidate.workload.inputs, *candidate.workload.outputs)):
        packing = lowered.packings.get(position)
        operands.append((packing.dtype, packing.elements) if packing else (buffer.type.dtype, buffer.span))
    return Entry(lowered.name, tuple(operands), lowered.tiles, lowered.scratch_bytes)


def with_rates(
    target: CpuTarget, toolchain: Toolchain, known: Sequence[Record], *, measure: bool
) -> tuple[CpuTarget, list[Record]]:
    """The target with the rates of its cores, and the records they are from.

    Records of this hardware if there are any, else measured now if `measure` holds; else the target keeps the rates it came with.
    """
    found = rates_of(known, target)
    if found is None and measure and target.is_here:
        found = rates_of(measure_rates(_timer_library(replace(target, rates=Rates()), toolchain), target), target)
    if found is None:
        return target, []
    rates, records = found
    return replace(target, rates=rates), records


def handover(target: CpuTarget, toolchain: Toolchain, known: Sequence[Record], *, measure: bool) -> Record | None:
    """What it costs one core to see another's result, in the state in which the cores are; None where nobody knows.

    Virtual cores move: with `measure` it is measured now whether they are near or far. A record of this hardware in this state says what
    that costs, if there is one, so that equal records give equal plans; else what was measured does. Without `measure` the last record counts.
    """
    records = [
        record
        for record in known
        if (record.kind, record.target, record.hardware) == (HANDOVER, target.name, target.hardware)
    ]
    if not measure or not target.is_here:
        return records[-1] if records else None
    measured = measure_handover(_timer_library(replace(target, rates=Rates()), toolchain))
    if measured is None:
        return None
    alike = [record for record in records if Handover.of(1e9 * record.seconds).state == measured.state]
    return alike[-1] if alike else _handover_record(measured, target)


def _handover_record(measured: Handover, target: CpuTarget) -> Record:
    return Record(
        kind=HANDOVER,
        workload=HANDOVER,
        operator=HANDOVER,
        description=f"from a store on one core to its being seen on another; the cores are {measured.state}",
        target=target.name,
        hardware=target.hardware,
        variant={"state": measured.state},
        threads=2,
        seconds=1e-9 * measured.ns,
        p10=1e-9 * measured.ns,
        p90=1e-9 * measured.ns,
        samples=1,
    )


@lru_cache(maxsize=1)
def _timer_library(target: CpuTarget, toolchain: Toolchain) -> bytes:
    return build_library({"timer.c": TIMER_SOURCE}, target, toolchain)


class LibraryStepper:
    """Runs single calls of a plan from a library of its kernels: `measure.bisect.Stepper`."""

    def __init__(self, kernels: KernelGraph, plan: Plan, target: CpuTarget, toolchain: Toolchain) -> None:
        self._lowered = lower_calls(kernels, plan, target)
        self._constants = {
            (position, slot): kernels.constants[id]
            for position, call in enumerate(kernels.calls)
            for slot, id in enumerate(call.inputs)
            if id in kernels.constants
        }
        distinct = list({kernel.name: kernel for kernel in self._lowered}.values())
        code = build_library(kernel_sources(distinct), target, toolchain)
        with tempfile.TemporaryDirectory(prefix="tw-step-") as folder:
            path = Path(folder) / "kernels.so"
            path.write_bytes(code)
            self._library = ctypes.CDLL(str(path))

    def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
        """Runs all tiles of a call on flat operands, packing what its kernel wants packed."""
        kernel = self._lowered[position]
        arrays = [self._operand(position, slot, kernel, array) for slot, array in enumerate(operands)]
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        scratch = np.empty(kernel.scratch_bytes + 4096, np.uint8)
        aligned = ctypes.c_void_p(-(-scratch.ctypes.data // 64) * 64)
        getattr(self._library, kernel.name)(pointers, aligned, ctypes.c_long(0), ctypes.c_long(kernel.tiles))

    def _operand(self, position: int, slot: int, kernel: Lowered, array: np.ndarray) -> np.ndarray:
        packing = kernel.packings.get(slot)
        return packing.pack(self._constants[position, slot]) if packing else array


def environment_compiler(environment: Mapping[str, str]) -> str:
    """The user's choice of C compiler."""
    return environment.get("CC", "")
