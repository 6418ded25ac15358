"""What one thing costs on a GPU, by two kernels that differ in how often they do it.

A hand-over between resident blocks, by which persistent kernels are predicted, and code that a multiprocessor has to
fetch. They are timed as habits are (`switches`); what a figure says is a field of the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.devices.cuda.measure.switches import Switch, known_seconds
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.machine import Record

FEW, MANY = 4, 68
"""Hand-overs of a launch."""
BODIES, STEPS = 24, 1024
"""Stretches of code, and instructions of 16 bytes in each: together three times what a multiprocessor keeps."""
INSTRUCTION_BYTES, KIB = 16, 1024
HANDOVER_COUNTS, CODE_COUNTS = 64, 1024

HANDOVER = """
#include "tw_persistent.h"
extern "C" __global__ void __launch_bounds__({threads}) {name}(float *x, unsigned *counts) {{
    tw_grid_dependency_wait();
    const unsigned mine = blockIdx.x, its = 1 - mine;
    if (mine > 1) return;
    /* As the other block's: each launch counts as far in both. */
    const unsigned begin = threadIdx.x == 0 ? tw_load_relaxed(counts + TW_LINE * mine) : 0;
    float *const place = x + threadIdx.x, value = 0;
    #pragma unroll 1
    for (unsigned turn = 1; turn <= {early} / 2; turn++) {{
        #pragma unroll
        for (unsigned now = 0; now < 2; now++) {{
            if (now == mine) {{
                place[{threads} * mine] = value + 1.0f;
                __syncthreads();
                if (threadIdx.x == 0) tw_count_release(counts + TW_LINE * mine);
            }} else {{
                if (threadIdx.x == 0) tw_await_count(counts + TW_LINE * its, begin + turn);
                __syncthreads();
                value = place[{threads} * its];
            }}
        }}
    }}
    tw_grid_launch_dependents();
}}
"""
CODE = f"""
template <int body> TW_DEVICE float {{name}}_stretch(float value, float added) {{{{
    #pragma unroll
    for (int step = 0; step < {STEPS}; step++) value = value * (0.5f + (body * {STEPS} + step) * 0x1p-20f) + added;
    return value;
}}}}
extern "C" __global__ void __launch_bounds__({{threads}}) {{name}}(float *x, unsigned *counts) {{{{
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    float *const place = x + blockIdx.x * {{threads}} + threadIdx.x, value = *place, added = value * 0.25f;
    unsigned *const count = counts + {HANDOVER_COUNTS} + blockIdx.x; /* benches give both probes the same ones */
    const unsigned turn = *count;
    __syncthreads();
    if (threadIdx.x == 0) *count = turn + {{early}};
    switch (turn % {BODIES}) {{{{
        {" ".join(f"case {body}: value = {{name}}_stretch<{body}>(value, added); break;" for body in range(BODIES))}
    }}}}
    *place = value;
}}}}
"""


@dataclass(frozen=True)
class Cost:
    """What one of `more` things costs that the second kernel does beside the first."""

    probe: Switch
    more: float

    @property
    def field(self) -> str:
        """Of the target, in nanoseconds."""
        return self.probe.field


COSTS = (
    Cost(
        Switch(
            "handover_ns",
            "{} hand-overs between two resident blocks",
            HANDOVER,
            (str(FEW), str(MANY)),
            counters=HANDOVER_COUNTS,
            said=(str(FEW), str(MANY)),
        ),
        MANY - FEW,
    ),
    Cost(
        Switch(
            "code_ns",
            f"{STEPS * INSTRUCTION_BYTES // KIB} KiB of code that {{}}",
            CODE,
            ("0", "1"),
            counters=HANDOVER_COUNTS + CODE_COUNTS,
            said=("ran the launch before", "did not run lately"),
        ),
        STEPS * INSTRUCTION_BYTES / KIB,
    ),
)


def known_costs(records: Sequence[Record], target: CudaTarget) -> dict[str, float]:
    """Figures of the target, by its fields, in nanoseconds, as the records of this hardware say."""
    known = {cost: known_seconds(records, target, cost.probe) for cost in COSTS}
    return {cost.field: 1e9 * max(took[1] - took[0], 0.0) / cost.more for cost, took in known.items() if took}


def describe(found: Mapping[str, float]) -> str:
    """One line for people."""
    if not found:
        return "costs: the GPU or NVRTC did not take the kernels"
    names = {"handover_ns": "a hand-over between resident blocks", "code_ns": "a KiB of cold code"}
    return "costs: " + ", ".join(f"{names[name]} {ns:.0f} ns" for name, ns in found.items())
