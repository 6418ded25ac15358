"""The CPU's parts beside an accelerator: programs of this compiler, and what they take on the CPUs of such devices."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.accelerate.cores import CORES, MODELLED, modelled_times
from compiler.accelerate.interpreter import program
from compiler.contract import CompileOptions, CompileReport
from compiler.contract.devices import HOST
from compiler.devices.kind import CompilePart
from compiler.errors import ToolchainMissing
from compiler.request import Request

MEASURED_S = 0.05
"""Seconds in which a part is run again and again."""


@dataclass(frozen=True)
class Beside:
    """What was made of a part.

    core        what it is priced for: one of CORES, or this machine, HOST
    programs    artifacts by the target that they are for
    machines    of each, what `platform.machine()` says where it runs
    measured_s  of the first program, on `hardware`, which is this machine; 0 where nothing could be timed
    modelled    seconds on each of CORES; None where a kernel has no model (a loop, a branch)
    nodes       of the model: its share of the first of these, by name
    """

    core: str
    programs: Mapping[str, bytes]
    machines: Mapping[str, str]
    measured_s: float
    hardware: str
    modelled: Mapping[str, float | None]
    nodes: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """What it is priced at: on this machine as measured, on a core as modelled, else as measured here."""
        modelled = self.modelled.get(self.core)
        return self.measured_s if modelled is None else modelled

    @property
    def source(self) -> str:
        """Where `seconds` come from."""
        if self.modelled.get(self.core) is None:
            return f"measured on {self.hardware}" if self.measured_s else "not known: a loop or a branch"
        return f"{self.core}, {MODELLED}"


def compiled_beside(
    model: bytes,
    sample: Mapping[str, np.ndarray],
    compile_part: CompilePart,
    tuning_budget_s: float,
    core: str = CORES[0],
) -> Beside:
    """Compiles a part for this machine and, where a compiler and an emulator are, for the `core` that it is priced on.

    Where that is this machine, HOST, the part has all cores, else one.

    Each program is proved against the float64 reference of the part on the sample, which is what the parts before give.
    Raises what `compile_part` does.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-part-") as folder:
        path, archive, artifact = (Path(folder) / name for name in ("part.onnx", "sample.npz", "part.tw"))
        path.write_bytes(model)
        np.savez(archive, **sample)  # type: ignore[arg-type]
        programs: dict[str, bytes] = {}
        machines: dict[str, str] = {}
        here: CompileReport | None = None
        threads = None if core == HOST else 1
        for target, seconds in {HOST: tuning_budget_s, core: 0.0 if core != HOST else tuning_budget_s}.items():
            options = CompileOptions(target=target, threads=threads, tuning_budget_s=seconds)
            try:
                report = compile_part(Request(path, artifact, options, samples={"sample": archive}))
            except ToolchainMissing:
                if here is None:
                    raise
                continue
            if here is not None and not report.errors:
                continue  # nothing here runs it, so that nothing proved it
            here = here or report
            programs[report.target] = artifact.read_bytes()
            with zipfile.ZipFile(artifact) as archived:
                machines[report.target] = json.loads(archived.read("manifest.json"))["requires"]["machine"]
        assert here is not None
        modelled, nodes = modelled_times(path)
    measured_s = 0.0
    if here.latency_s:
        with program(programs[here.target]) as runs:
            measured_s = float(runs.bench(MEASURED_S, sample)["median"])
    return Beside(core, programs, machines, measured_s, here.hardware, modelled, nodes)
