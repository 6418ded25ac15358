"""Plan -> Program: kernels lowered once each, the host tables, the weights file, the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from compiler.codegen.build import HOST_UNIT, Objects, Toolchain
from compiler.codegen.calls import lower_each, workload_of
from compiler.codegen.weights import Weights
from compiler.codegen.writer import Writer
from compiler.codegen.zig import spelled_for
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.host import host_source
from compiler.devices.cpu.emit.library import build_library, runtime_headers
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.plans.guards import by_limit
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Port, Program
from compiler.ir.states import Carried
from compiler.ir.tile import Tile
from compiler.trace import StopRequest, never_stops

UNITS = 2
"""Kernel source files: one for each compiler process; the vector intrinsics' header alone costs 0.1 s in each."""


def emit(
    kernels: KernelGraph,
    plan: Plan,
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int,
    objects: Objects | None = None,
    *,
    others: Sequence[Plan] = (),
    weights: Weights | None = None,
    carried: Sequence[Carried] = (),
) -> Program:
    """Generates and builds the program of `plan` and of `others`, which keeps the states `carried`.

    Its constants are added to `weights`, which begin with it unless some are given.

    `plan` is for the state in which the cores were when it was selected, `others` are for other states.

    Raises ToolchainFailed when the C compiler does not take it, VerifyError unless the plans' limits differ and one of
    them is infinite, and each plan is for one device.
    """
    plans = by_limit((plan, *others))
    (program,) = _programs(
        kernels, (plan, *others), [plans], target, toolchain, jobs, objects, never_stops, weights, carried
    )
    return program


def emit_each(
    kernels: KernelGraph,
    plans: Sequence[Plan],
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int,
    objects: Objects | None = None,
    stop: StopRequest = never_stops,
) -> list[Program]:
    """A program for each plan; kernels are compiled once for all of them.

    All have one weights file, which holds what any of them needs. Units with the kernels of the first plan are as if it
    were alone; what only others need is in units of its own. Object files are taken from `objects` where they are
    there, and left there.

    Raises ToolchainFailed, Stopped, and VerifyError for a plan with more than one device or with copies.
    """
    return _programs(kernels, plans, [[plan] for plan in plans], target, toolchain, jobs, objects, stop)


def _programs(
    kernels: KernelGraph,
    plans: Sequence[Plan],
    groups: Sequence[Sequence[Plan]],
    target: CpuTarget,
    toolchain: Toolchain,
    jobs: int,
    objects: Objects | None,
    stop: StopRequest,
    weights: Weights | None = None,
    carried: Sequence[Carried] = (),
) -> list[Program]:
    """A program for each group of `plans`, which holds the plans of the group in its order."""
    for plan in plans:
        plan.tasks_of_one_device()
    known: dict[tuple[Workload, Tile], Lowered] = {}
    first = _distinct(lower_calls(kernels, plans[0], target, known))
    more = _distinct([one for plan in plans for one in lower_calls(kernels, plan, target, known)])[len(first) :]
    units = [kernel_sources(first), *([kernel_sources(more, "more")] if more else [])]
    headers = [name for unit in units for name in unit if name.endswith(".h")]
    shared = {name: text for unit in units for name, text in unit.items()}
    weights = weights or Weights()
    hosts = []
    for group in groups:
        lowered = [lower_calls(kernels, plan, target, known) for plan in group]
        hosts.append(host_source(kernels, group, lowered, weights, target, headers, carried))
    whole = weights.bytes()
    kept: Objects = {} if objects is None else objects
    inputs, outputs = Port.of(kernels, kernels.inputs), Port.of(kernels, kernels.outputs)
    programs = []
    for host in hosts:
        sources = {HOST_UNIT: host, **shared}
        library = build_library(sources, target, toolchain, jobs, stop=stop, objects=kept)
        sources = spelled_for(target.system, {**runtime_headers(sources.values()), **sources})
        made = Program(sources, library, whole, inputs, outputs, toolchain.identity(target))
        programs.append(replace(made, machine=target.machine, features=target.features, system=target.system))
    return programs


def _distinct(lowered: Sequence[Lowered]) -> list[Lowered]:
    return list({kernel.name: kernel for kernel in lowered}.values())


def lower_calls(
    kernels: KernelGraph, plan: Plan, target: CpuTarget, known: dict[tuple[Workload, Tile], Lowered] | None = None
) -> list[Lowered]:
    """Every call's kernel in C, in call order.

    Equal workloads under equal tiles share one, also with plans lowered into `known` before.
    """
    known = {} if known is None else known
    workloads = [workload_of(kernels, call) for call in kernels.calls]
    return lower_each(workloads, plan, lambda name, workload, tile: lower(name, workload, tile, target), known)


def kernel_sources(kernels: Sequence[Lowered], name: str = "kernels", units: int = UNITS) -> dict[str, str]:
    """The kernels over so many files of about equal length, and a header that declares them, named after `name`."""
    parts: list[list[Lowered]] = [[] for _ in range(min(units, len(kernels)))]
    for kernel in sorted(kernels, key=lambda one: -len(one.text)):
        min(parts, key=lambda part: sum(len(other.text) for other in part)).append(kernel)
    header = Writer()
    header.line("/* One function per distinct kernel: runs tile tasks begin .. end-1. */")
    header.line("#pragma once")
    for kernel in kernels:
        header.line(
            f'__attribute__((visibility("default"))) void {kernel.name}'
            "(void *const *p, char *scratch, long begin, long end);"
        )
    sources = {f"{name}.h": header.text()}
    for number, part in enumerate(parts):
        ordered = sorted(part, key=lambda one: int(one.name[1:].split("_")[0]))
        bodies = "\n".join(kernel.text for kernel in ordered)
        sources[f"{name}_{number}.c"] = f'#include "tw_kernel.h"\n#include "{name}.h"\n\n{bodies}'
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
    stop: StopRequest = never_stops,
) -> bytes:
    """A library of kernels to be measured, with `extra` C source (the timer) beside them. Raises Stopped.

    There is a file of kernels for each of `jobs`, since each pays for the headers. `extra` is compiled once for all.
    """
    sources = {**kernel_sources([c.lowered for c in candidates], units=min(jobs, UNITS)), "timer.c": extra}
    objects = dict(_objects_of(extra, target, toolchain))
    return build_library(sources, target, toolchain, jobs, stop=stop, objects=objects)


@lru_cache(maxsize=2)
def _objects_of(extra: str, target: CpuTarget, toolchain: Toolchain) -> Objects:
    """The object file of `extra`, as libraries of candidates hold it."""
    objects: Objects = {}
    build_library({"timer.c": extra}, target, toolchain, objects=objects)
    return objects
