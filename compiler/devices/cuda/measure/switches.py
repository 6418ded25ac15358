"""Whether kernels do well to do a thing earlier, by two small kernels for each: one that does it, one that does not.

Each is timed as kernels are when tiles are searched: in a chain of dependent launches, its constants from places that
together exceed the second-level cache. What a figure decides is a field of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.measure.apart import BenchApart, Lost
from compiler.devices.cuda.measure.bench import Operand, Refused, Subject
from compiler.devices.cuda.target import CudaTarget
from compiler.errors import ToolchainFailed
from compiler.ir.machine import Record
from compiler.ir.tensor import DType
from compiler.knowledge.kinds import MACHINE
from compiler.knowledge.making import machine_record
from compiler.knowledge.records import Records
from compiler.measure.spread import Spread

GAIN = 0.97
"""A habit is taken up where launches take less than this part with it."""
SAMPLES = 15
"""Of each kernel, in turn with the other."""
THREADS = 128
PANEL_BYTES = 64 << 10
"""Weights of a block in the probe of `prefetch`: a tile of 64 columns by 512 of k in 16 bits."""
SUMS = 16
"""Of a thread in the probe of `early_constants`, which it leaves in shared memory and reads back."""

PREFETCH = """
extern "C" __global__ void __launch_bounds__({threads}) {name}(const float *weights, float *x) {{
    const unsigned char *const own = (const unsigned char *)weights + (size_t)blockIdx.x * {panel};
    tw_grid_launch_dependents();
    {early}
    tw_grid_dependency_wait();
    float *const place = x + blockIdx.x * {threads} + threadIdx.x;
    const float value = *place;
    unsigned bits = 0;
    #pragma unroll 8
    for (int at = threadIdx.x * 16; at < {panel}; at += {threads} * 16) {{
        const uint4 some = tw_load_once(own + at);
        bits ^= some.x ^ some.y ^ some.z ^ some.w;
    }}
    *place = value + (bits == 0x12345678u);
}}
"""
CONSTANTS = """
extern "C" __global__ void __launch_bounds__({threads}) {name}(const float *bias, float *x) {{
    float *const sums = (float *)tw_dynamic_shared();
    float *const place = x + blockIdx.x * {threads} + threadIdx.x;
    const float *const own = tw_early(bias) + blockIdx.x * {threads} + threadIdx.x;
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    const float value = *place;
    __syncthreads();
    {early}
    #pragma unroll
    for (int i = 0; i < {sums}; i++) sums[(i * {threads} + threadIdx.x * 33) % {room}] = value * i;
    __syncthreads();
    {late}
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < {sums}; i++) sum += sums[i * {threads} + threadIdx.x];
    *place = sum * 0.001f + added;
}}
"""


@dataclass(frozen=True)
class Switch:
    """A habit of kernels, by the field of `CudaTarget` that it is.

    `template` makes a kernel of what it does `early` and `late`, both by whether the habit is there. Of `constants`
    bytes each block reads its own; it has `shared_bytes`, and `counters` that are zero before the first launch. `said`
    is what stands for each of the two in `about`.
    """

    field: str
    about: str
    template: str
    early: tuple[str, str]
    late: tuple[str, str] = ("", "")
    constants: int = 0
    shared_bytes: int = 0
    counters: int = 0
    said: tuple[str, str] = ("nothing of it", "asked for")

    def fact(self, on: bool) -> str:
        """The name of a figure: seconds of a launch with the habit, or without."""
        return f"launch_{self.field}_{'on' if on else 'off'}_s"

    def kernel(self, on: bool) -> str:
        """The name of a kernel."""
        return f"{self.field}_{'on' if on else 'off'}"

    @property
    def source(self) -> str:
        """Both kernels."""
        made = (
            self.template.format(
                name=self.kernel(on),
                early=self.early[on],
                late=self.late[on],
                threads=THREADS,
                panel=PANEL_BYTES,
                sums=SUMS,
                room=SUMS * THREADS,
            )
            for on in (False, True)
        )
        return PREAMBLE + "".join(made)

    def subject(self, image: bytes, on: bool, target: CudaTarget) -> Subject:
        """A kernel with a block for each multiprocessor, as it is timed."""
        blocks = target.multiprocessors
        return Subject(
            image,
            self.kernel(on),
            blocks,
            THREADS,
            (
                *[Operand(DType.F32, blocks * self.constants // 4, rotates=True)] * bool(self.constants),
                Operand(DType.F32, blocks * THREADS, written=True),
            ),
            shared_bytes=self.shared_bytes,
            counters=self.counters,
            cold_bytes=2 * target.l2_bytes,
        )


SWITCHES = (
    Switch(
        "prefetch",
        "64 KiB of weights for each multiprocessor, {} before it waits for the one before it",
        PREFETCH,
        ("", f"tw_prefetch(own, {PANEL_BYTES}, threadIdx.x, {THREADS});"),
        constants=PANEL_BYTES,
    ),
    Switch(
        "early_constants",
        "a bias for each sum, {} before the sums are gathered",
        CONSTANTS,
        ("", "const float added = *own;"),
        ("const float added = *own;", ""),
        4 * THREADS,
        4 * THREADS * SUMS,
    ),
)


class Benches(Protocol):
    """What is asked of a bench (`bench.Bench`)."""

    def reserve(self, subjects: Sequence[Subject]) -> None:
        """Device memory for what is measured together."""
        ...

    def place(self, at: int, subject: Subject) -> None:
        """Takes a subject to the place `at`, ready to be run."""
        ...

    def sample(self, at: int) -> float:
        """Seconds of one launch of the subject at this place."""
        ...

    def close(self) -> None:
        """Gives back what it holds of the device."""
        ...


def known_switch(records: Sequence[Record], target: CudaTarget, switch: Switch) -> bool | None:
    """Whether a habit is better, by the records of this hardware; None where they do not say."""
    known = known_seconds(records, target, switch)
    return None if known is None else known[1] < GAIN * known[0]


def known_seconds(records: Sequence[Record], target: CudaTarget, switch: Switch) -> tuple[float, float] | None:
    """Of a launch without the habit and with it, by the records of this hardware; None where they do not say."""
    index = Records.of(records)
    off, on = ([one.seconds for one in index.find(MACHINE, target, workload=switch.fact(on))] for on in (False, True))
    return (off[-1], on[-1]) if off and on else None


def measure_switches(
    target: CudaTarget, switches: Sequence[Switch] = SWITCHES, bench: Benches | None = None
) -> list[Record]:
    """Two facts of the GPU that is here for each habit; none where it, or NVRTC, does not take the kernels."""
    try:
        subjects = [
            switch.subject(image, on, target)
            for switch in switches
            for image in (nvrtc.compile_cuda(switch.source, target.architecture, f"{switch.field}.cu").image,)
            for on in (False, True)
        ]
        with closing(bench or BenchApart()) as here:
            here.reserve(subjects)
            for at, subject in enumerate(subjects):
                here.place(at, subject)
            turns = [[here.sample(at) for at in range(len(subjects))] for _ in range(SAMPLES)]
    except (ToolchainFailed, Refused, Lost):
        return []
    facts = [(switch, on) for switch in switches for on in (False, True)]
    return [
        machine_record(switch.fact(on), switch.about.format(switch.said[on]), target, Spread.of(taken), 1)
        for (switch, on), taken in zip(facts, zip(*turns, strict=True), strict=True)
    ]
