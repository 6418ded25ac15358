"""Plan -> Program for CUDA.

Kernels lowered once each and compiled by NVRTC, the plan as a graph of launches, the host's library.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

from compiler.codegen.build import HOST_UNIT, compile_library, host_headers, small_header
from compiler.codegen.calls import lower_each
from compiler.codegen.weights import Weights
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import CudaLowered, unit_text
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.flow import Flow
from compiler.devices.cuda.emit.host import Image, cuda_host_source
from compiler.devices.cuda.emit.launches import Launch, launches
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.emit.side_by_side import side_by_side
from compiler.devices.cuda.target import CudaTarget
from compiler.devices.cuda.toolchain import HOST, CudaToolchain
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Port, Program

HEADERS, DECIDING = ("tw_cuda_runtime.h", "tw_cuda_driver.h"), "tw_cuda_decisions.h"
"""Of model.c, beside those of every host; where the host decides between graphs one more."""
PERSISTENT = re.compile(
    r"#ifdef PERSISTENT\n(.*?)#else /\* PERSISTENT \*/\n(.*?)#endif /\* PERSISTENT \*/\n", re.DOTALL
)
DECISIONS = re.compile(r"#ifdef DECISIONS\n(.*?)(?:#else\n(.*?))?#endif\n", re.DOTALL)
"""What the runtime has for a persistent kernel, or for a model between whose graphs the host decides, and (`#else`) for
any other. The latter stand also within the former."""
UNITS, MOST_UNITS = 4, 16
"""Kernel source files, for as many threads of NVRTC at a time: fewer where there are few kernels, more of long ones."""
UNIT_LENGTH = 128 << 10
"""Characters of a file where there are more than UNITS: some three seconds of NVRTC."""
ALIGNMENT = 256
"""Bytes at a multiple of which every constant begins, as every other storage does."""


def emit_cuda(
    kernels: KernelGraph,
    plan: Plan,
    target: CudaTarget,
    toolchain: CudaToolchain,
    jobs: int,
    kept: MutableMapping[str, bytes] | None = None,
    weights: Weights | None = None,
) -> Program:
    """Generates and builds the program; equal arguments give equal bytes, whatever `jobs` and `kept` are.

    Images that are kept from other plans of this process are not compiled again.

    Its constants are added to `weights`, which begin with it unless some are given.

    Raises ToolchainFailed when a compiler does not take it, VerifyError for a plan with more than one device or with
    copies.
    """
    plan.tasks_of_one_device()
    lowered = lower_cuda_calls(kernels, plan, target)
    nodes = launches(plan, lowered)
    weights = weights or Weights(ALIGNMENT)
    if plan.residents:
        flow = Flow.of_persistent(kernels, plan, lowered, nodes, target, weights)
    else:
        flow = Flow.of(kernels, plan, lowered, nodes, launched_kernels(nodes, lowered), weights)
    launched = [node.kernel for node in flow.nodes]
    units = cut_in_units(list({kernel.name: kernel for kernel in launched}.values()))
    texts = [unit_text(unit) for unit in units]
    images = compile_units(texts, architectures(target, launched), jobs, {} if kept is None else kept)
    split = target.split_of((one.grid, one.shared_bytes) for one in launched)
    host = cuda_host_source(kernels, plan, flow, units, images, weights.size, toolchain.nvrtc, split=split)
    headers = files("compiler.devices.cuda.runtime")
    runtime = {**host_headers(), **host_runtime(decides=bool(flow.decisions), persistent=flow.times_at is not None)}
    binaries = {image.file: image.content for image in images}
    library = compile_library({HOST_UNIT: host}, runtime, HOST, toolchain.host, jobs, binaries=binaries)
    return Program(
        sources={
            **runtime,
            **{name: (headers / name).read_text() for name in nvrtc.HEADERS},
            **nvrtc.rare_headers(texts),
            **small_header(texts),
            HOST_UNIT: host,
            **{f"kernels_{number}.cu": text for number, text in enumerate(texts)},
        },
        library=library,
        weights=weights.bytes(),
        inputs=Port.of(kernels, kernels.inputs),
        outputs=Port.of(kernels, kernels.outputs),
        toolchain=toolchain.identity(target),
        launches=tuple(node.calls for node in flow.nodes),
        graphs=tuple(map(len, flow.graphs)) if flow.decisions else (),
    )


def host_runtime(*, decides: bool, persistent: bool = False) -> dict[str, str]:
    """The headers of model.c, by file name, with what a model needs whose graphs the host decides between, or not.

    And with what a persistent kernel needs, or not.
    """
    headers = files("compiler.devices.cuda.runtime")
    texts = {name: (headers / name).read_text() for name in (*HEADERS, *([DECIDING] if decides else ()))}
    texts = {name: PERSISTENT.sub(lambda found: found[1 if persistent else 2], text) for name, text in texts.items()}
    return {name: DECISIONS.sub(lambda found: found[1 if decides else 2] or "", text) for name, text in texts.items()}


def lower_cuda_calls(kernels: KernelGraph, plan: Plan, target: CudaTarget) -> list[CudaLowered]:
    """Every call's kernel in CUDA C++, in call order; equal workloads under equal tiles share one."""
    workloads = [cuda_workload_of(kernels, call) for call in kernels.calls]
    return lower_each(workloads, plan, lambda name, workload, tile: lower_cuda(name, workload, tile, target), {})


def launched_kernels(nodes: Sequence[Launch], lowered: Sequence[CudaLowered]) -> list[CudaLowered]:
    """What each launch launches: its call's kernel, or one that holds those of all its calls; equal ones share one."""
    known: dict[tuple[str, ...], CudaLowered] = {}
    for node in nodes:
        members = [lowered[call] for call in node.calls]
        names = tuple(one.name for one in members)
        if names not in known:
            known[names] = members[0] if len(members) == 1 else side_by_side(f"s{len(known)}_kernels", members)
    return [known[tuple(lowered[call].name for call in node.calls)] for node in nodes]


def cut_in_units(kernels: Sequence[CudaLowered]) -> list[list[CudaLowered]]:
    """The kernels over files of about equal length, at least one; each keeps their order.

    How many there are depends on the kernels alone, so that the same plan gives the same bytes on any machine.
    """
    most = min(max(UNITS, sum(len(kernel.text) for kernel in kernels) // UNIT_LENGTH), MOST_UNITS)
    units: list[list[int]] = [[] for _ in range(max(min(most, len(kernels)), 1))]
    for at in sorted(range(len(kernels)), key=lambda at: -len(kernels[at].text)):
        min(units, key=lambda unit: sum(len(kernels[other].text) for other in unit)).append(at)
    return [[kernels[at] for at in sorted(unit)] for unit in units]


def architectures(target: CudaTarget, kernels: Sequence[CudaLowered]) -> tuple[str, ...]:
    """What units are compiled for: the target, and PTX for later GPUs where all kernels allow it."""
    if any(kernel.is_specific for kernel in kernels):
        return (target.architecture,)
    return target.architecture, f"compute_{re.sub('[^0-9]', '', target.architecture)}"


def compile_units(
    texts: Sequence[str], wanted: Sequence[str], jobs: int, kept: MutableMapping[str, bytes]
) -> list[Image]:
    """Every unit for every architecture, on `jobs` threads. Raises ToolchainFailed.

    The first architecture is one of machine code; another is that of the PTX from which this is made. `kept` has the
    images compiled so far, by a digest of everything that they are made from, and takes the new ones.
    """
    machine, *portable = wanted

    def digest(architecture: str, unit: int) -> str:
        return hashlib.sha256("\0".join((architecture, _file(unit), texts[unit])).encode()).hexdigest()

    def compiled(unit: int) -> None:
        if all(digest(architecture, unit) in kept for architecture in wanted):
            return
        made = nvrtc.compile_cuda(texts[unit], machine, _file(unit))
        kept[digest(machine, unit)] = made.image
        for architecture in portable:
            kept[digest(architecture, unit)] = made.portable_ptx

    units = range(len(texts))
    with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        list(pool.map(compiled, units))
    return [Image(unit, name, kept[digest(name, unit)]) for name in wanted for unit in units]


def _file(unit: int) -> str:
    return f"kernels_{unit}.cu"
