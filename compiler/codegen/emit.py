"""Plan -> Program: kernels lowered once each, the host tables, the weights file, the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.codegen.build import Toolchain, build_library, runtime_headers
from compiler.codegen.host import host_source
from compiler.codegen.lower import function_name, lower, workload_of
from compiler.codegen.lowered import Lowered
from compiler.codegen.weights import Weights
from compiler.codegen.writer import Writer
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.plan import Plan
from compiler.ir.program import Port, Program
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget
from compiler.trace import Hurry, unhurried

UNITS = 2
"""Kernel source files: one for each compiler process; the vector intrinsics' header alone costs 0.1 s in each."""


def emit(kernels: KernelGraph, plan: Plan, target: CpuTarget, toolchain: Toolchain, jobs: int) -> Program:
    """Generates and builds the program. Raises ToolchainFailed when the C compiler does not take it."""
    lowered = lower_calls(kernels, plan, target)
    weights = Weights()
    host = host_source(kernels, plan, lowered, weights, target)
    sources = {"model.c": host, **kernel_sources(list({kernel.name: kernel for kernel in lowered}.values()))}
    library = build_library(sources, target, toolchain, jobs)
    return Program(
        sources={**runtime_headers(), **sources},
        library=library,
        weights=weights.bytes(),
        inputs=tuple(Port(kernels.buffers[value].name, kernels.buffers[value].type) for value in kernels.inputs),
        outputs=tuple(Port(kernels.buffers[value].name, kernels.buffers[value].type) for value in kernels.outputs),
        toolchain=toolchain.identity(target),
    )


def lower_calls(kernels: KernelGraph, plan: Plan, target: CpuTarget) -> list[Lowered]:
    """Every call's kernel in C, in call order; equal workloads under equal tiles share one."""
    known: dict[tuple[Workload, Tile], Lowered] = {}
    result = []
    for call, (tile, _) in zip(kernels.calls, plan.tiles, strict=True):
        workload = workload_of(kernels, call)
        key = (replace(workload, kernel=replace(workload.kernel, family="")), tile)
        if key not in known:
            known[key] = lower(function_name(workload, len(known)), workload, tile, target)
        result.append(known[key])
    return result


def kernel_sources(kernels: Sequence[Lowered]) -> dict[str, str]:
    """The kernels over UNITS files of about equal length, and a header that declares them."""
    units: list[list[Lowered]] = [[] for _ in range(min(UNITS, len(kernels)))]
    for kernel in sorted(kernels, key=lambda one: -len(one.text)):
        min(units, key=lambda unit: sum(len(other.text) for other in unit)).append(kernel)
    header = Writer()
    header.line("/* One function per distinct kernel: runs tile tasks begin .. end-1. */")
    header.line("#pragma once")
    for kernel in kernels:
        header.line(
            f'__attribute__((visibility("default"))) void {kernel.name}(void *const *p, char *scratch, long begin, long end);'
        )
    sources = {"kernels.h": header.text()}
    for number, unit in enumerate(units):
        ordered = sorted(unit, key=lambda one: int(one.name[1:].split("_")[0]))
        bodies = "\n".join(kernel.text for kernel in ordered)
        sources[f"kernels_{number}.c"] = f'#include "tw_kernel.h"\n#include "kernels.h"\n\n{bodies}'
    return sources


@dataclass(frozen=True)
class Candidate:
    """One way to carry out one workload, lowered for measuring."""

    workload: Workload
    lowered: Lowered


def candidate_library(
    candidates: Sequence[Candidate],
    extra: str,
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int,
    stop: Hurry = unhurried,
) -> bytes:
    """A library of kernels to be measured, with `extra` C source (the timer) beside them. Raises Stopped."""
    sources = {**kernel_sources([c.lowered for c in candidates]), "timer.c": extra}
    return build_library(sources, target, toolchain, jobs, stop=stop)
