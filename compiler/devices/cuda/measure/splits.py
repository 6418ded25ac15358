"""What changing the split of L1 and shared memory from launch to launch takes, and whether one for all is better.

A multiprocessor divides one memory between L1 and the shared memory of its blocks. The driver chooses by what a kernel
asks for; kernels of a plan ask for anything between nothing and all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.measure.apart import BenchApart, Lost
from compiler.devices.cuda.measure.bench import Refused
from compiler.devices.cuda.target import CudaTarget
from compiler.errors import ToolchainFailed
from compiler.ir.machine import Record
from compiler.knowledge.kinds import MACHINE
from compiler.knowledge.making import machine_record
from compiler.knowledge.records import Records
from compiler.measure.spread import Spread

KERNEL = "split_step"
SOURCE = f"""{PREAMBLE}
extern "C" __global__ void __launch_bounds__(32) {KERNEL}(float *x) {{
    float *room = (float *)tw_dynamic_shared();
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    if (threadIdx.x == 0) room[0] = x[0] + 1.0f, x[0] = ((volatile float *)room)[0];
}}
"""
EACH, ONCE = "launch_split_each_s", "launch_split_once_s"
"""Facts: seconds of a launch with a split of its own, and with one for all."""
GAIN = 0.97
"""One for all is taken where it takes less than this part."""


class Alternates(Protocol):
    """What is asked of a bench: `bench.Bench.alternate`."""

    def alternate(self, image: bytes, name: str, shared_bytes: Sequence[int], split: int | None) -> Sequence[float]:
        """Seconds of launches with these sizes of shared memory in turn; without a `split` the driver chooses it."""
        ...

    def close(self) -> None:
        """Gives back what it holds of the device."""
        ...


def known_split(records: Sequence[Record], target: CudaTarget) -> bool | None:
    """Whether one split for all is better, by the records of this hardware; None where they do not say."""
    index = Records.of(records)
    each, once = ([one.seconds for one in index.find(MACHINE, target, workload=name)] for name in (EACH, ONCE))
    return once[-1] < GAIN * each[-1] if each and once else None


def measure_splits(target: CudaTarget, bench: Alternates | None = None) -> list[Record]:
    """Two facts of the GPU that is here; none where it, or NVRTC, does not take the kernel."""
    sizes = (4, 60 << 10, 16 << 10, target.block_shared_bytes)
    try:
        image = nvrtc.compile_cuda(SOURCE, target.architecture, "split.cu").image
        with closing(bench or BenchApart()) as here:
            taken = {EACH: here.alternate(image, KERNEL, sizes, None), ONCE: here.alternate(image, KERNEL, sizes, 100)}
    except (ToolchainFailed, Refused, Lost):
        return []
    about = "one launch of a chain whose shared memory changes, {}"
    labels = {EACH: about.format("each with its own split of L1 and shared memory"), ONCE: about.format("all with one")}
    return [machine_record(name, labels[name], target, Spread.of(taken[name]), 1) for name in (EACH, ONCE)]
