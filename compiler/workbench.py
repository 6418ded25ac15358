"""Where generated code meets measuring: candidates built for a machine to time, single calls run for bisection."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from compiler.codegen.build import Stopped, Toolchain, build_library
from compiler.codegen.emit import Candidate, candidate_library, kernel_sources, lower_calls
from compiler.codegen.lower import function_name, lower
from compiler.codegen.lowered import Lowered
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record, Trial
from compiler.ir.plan import Plan
from compiler.measure.handover import measure_handover
from compiler.measure.machine import Built, CpuMachine, Entry
from compiler.measure.timer import TIMER_SOURCE
from compiler.targets.cpu import CpuTarget
from compiler.trace import Hurry, unhurried

HANDOVER = "handover"
"""The kind of record that says what a hand-over between two cores costs."""


def machine_for(
    target: CpuTarget, toolchain: Toolchain, jobs: int, seed: int, hurry: Hurry = unhurried
) -> CpuMachine | None:
    """This machine as one on which trials can be measured; None for a target that does not run here."""
    if not target.is_here:
        return None
    build = partial(build_trials, target=target, toolchain=toolchain, jobs=jobs, hurry=hurry)
    return CpuMachine(target, build, seed, hurry=hurry)


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


def handover(
    target: CpuTarget, toolchain: Toolchain, known: Sequence[Record], hurry: Hurry = unhurried
) -> Record | None:
    """What it costs one core to see another's result: a record of this hardware if there is one, else measured now.

    None where it cannot be measured, or no more. The plan depends on it, so that it is kept with the other measurements.
    """
    for record in known:
        if (record.kind, record.target, record.hardware) == (HANDOVER, target.name, target.hardware):
            return record
    measured = None
    if target.is_here and not hurry():
        measured = measure_handover(build_library({"timer.c": TIMER_SOURCE}, target, toolchain))
    if measured is None:
        return None
    return Record(
        kind=HANDOVER,
        workload=HANDOVER,
        operator=HANDOVER,
        description=f"from a store on one core to its being seen on another; the cores are {measured.state}",
        target=target.name,
        hardware=target.hardware,
        variant={},
        threads=2,
        seconds=1e-9 * measured.ns,
        p10=1e-9 * measured.ns,
        p90=1e-9 * measured.ns,
        samples=1,
    )


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
