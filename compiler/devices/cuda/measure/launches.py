"""What launches cost beside their work: of a chain, where they wait for another stream, and for several of them.

The figures of the target that predictions of plans rest on (`launch_ns`, `cross_ns`, `fan_in_ns`), measured by graphs
of a kernel that does next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Protocol

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.measure.apart import BenchApart, Lost
from compiler.devices.cuda.measure.bench import Refused
from compiler.devices.cuda.model import BLOCK_NS
from compiler.devices.cuda.target import CudaTarget
from compiler.errors import ToolchainFailed
from compiler.ir.machine import Record
from compiler.knowledge.kinds import MACHINE
from compiler.knowledge.making import machine_record
from compiler.knowledge.records import Records
from compiler.measure.spread import Spread

KERNEL = "launch_step"
SOURCE = f"""{PREAMBLE}
extern "C" __global__ void __launch_bounds__(32) {KERNEL}(float *x) {{
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    if (threadIdx.x == 0) x[0] += 1.0f;
}}
"""
FEW, MANY = 2, 6
"""Launches between a fork and its join."""
CHAIN, FORK, WIDE_FORK = "launch_chain_s", f"launch_fork_{FEW}_s", f"launch_fork_{MANY}_s"
"""Facts: seconds of two launches in a chain, and of a fork into so many launches with their join."""
WIDTHS: Mapping[str, int] = {CHAIN: 1, FORK: FEW, WIDE_FORK: MANY}
LEAST_NS = 100.0
"""Of a launch, whatever was measured."""


class Forks(Protocol):
    """What is asked of a bench: `bench.Bench.forks`."""

    def forks(self, image: bytes, name: str, width: int) -> Sequence[float]:
        """Seconds of launches of a kernel that does nothing, beside each other between a fork and a join."""
        ...

    def close(self) -> None:
        """Gives the device back."""
        ...


def known_launches(records: Sequence[Record], target: CudaTarget) -> dict[str, float]:
    """Figures of the target, by its fields, as the records of this hardware say; empty where they do not.

    Two launches of a chain cost 2 (launch + block); a fork into n and its join 2 cross + (n - 2) fan-in more.
    """
    index = Records.of(records)
    each = {name: [one.seconds for one in index.find(MACHINE, target, workload=name)] for name in WIDTHS}
    if not all(each.values()):
        return {}
    chain, few, many = (1e9 * each[name][-1] for name in WIDTHS)
    return {
        "launch_ns": max(chain / 2 - BLOCK_NS, LEAST_NS),
        "cross_ns": max(few - chain, 0.0) / 2,
        "fan_in_ns": max(many - few, 0.0) / (MANY - FEW),
    }


def measure_launches(target: CudaTarget, bench: Forks | None = None) -> list[Record]:
    """Three facts of the GPU that is here; none where it, or NVRTC, does not take the kernel."""
    try:
        image = nvrtc.compile_cuda(SOURCE, target.architecture, "launches.cu").image
        with closing(bench or BenchApart()) as here:
            taken = {name: here.forks(image, KERNEL, width) for name, width in WIDTHS.items()}
    except (ToolchainFailed, Refused, Lost):
        return []
    about = {CHAIN: "two launches, one after the other"}
    about |= {name: f"a fork into {WIDTHS[name]} launches, and their join" for name in (FORK, WIDE_FORK)}
    return [machine_record(name, about[name], target, Spread.of(taken[name]), 1) for name in WIDTHS]


def describe(found: Mapping[str, float]) -> str:
    """One line for people."""
    if not found:
        return "launches: the GPU or NVRTC did not take the kernel"
    names = {"launch_ns": "a launch", "cross_ns": "waiting for another stream", "fan_in_ns": "for each further one"}
    return "launches: " + ", ".join(f"{names[name]} {1e-3 * ns:.2f} µs" for name, ns in found.items())
