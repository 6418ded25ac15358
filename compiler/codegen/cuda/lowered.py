"""What lowering one kernel to CUDA gives, and the frame that every kernel's text has.

    __device__ void name_tile(inputs..., outputs..., [scratch], [counters], [shared], tile)     what one block does
    extern "C" __global__ void name(inputs..., outputs..., [scratch], [counters])               one launch: tile is blockIdx.x

On sm_90 and later a launch may begin before the kernel that it depends on has ended (programmatic dependent launch). So the wrapper lets its
own dependents start, then waits for its predecessor before anything but constants is read; a kernel that fetches its
weights first waits in its tile function instead (`waits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.codegen.cuda.cu_scalar import CUDA_TYPES
from compiler.codegen.lowered import describe
from compiler.codegen.writer import Writer
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing

PREAMBLE = '#include "tw_cuda.h"\n#include "tw_scalar.h"\n'
"""What the texts of kernels stand below."""


@dataclass(frozen=True)
class CudaLowered:
    """A kernel as CUDA C++, launched once: `name(inputs..., outputs..., [unsigned char *scratch], [unsigned *counters])`.

    `grid` blocks of `block` threads, in clusters of `cluster` of them, with `shared_bytes` of dynamic shared memory; a grid of 0 is not to be
    launched. Arguments point to the buffers' first elements, whose dtypes are `Buffer.dtype`; an input with a Packing is given packed.
    `scratch` points to `scratch_bytes` that hold anything; `counters` to so many 32-bit words that are zero when the kernel begins and that it
    leaves zero. `text` stands below PREAMBLE.
    """

    name: str
    text: str
    grid: int
    block: int
    shared_bytes: int = 0
    scratch_bytes: int = 0
    counters: int = 0
    cluster: int = 1
    packings: Mapping[int, Packing] = field(default_factory=dict)


def framed(
    name: str,
    workload: Workload,
    body: Sequence[str],
    *,
    grid: int,
    block: int,
    shared_bytes: int = 0,
    scratch_bytes: int = 0,
    counters: int = 0,
    cluster: int = 1,
    packings: Mapping[int, Packing] | None = None,
    waits: bool = False,
    notes: Sequence[str] = (),
    index: str = "int",
    resident: int = 0,
) -> CudaLowered:
    """A kernel around the lines of its tile function, which may use the slots' names, `scratch`, `counters`, `shared` and `tile`, of type `index`.

    `waits` says that the body itself calls `tw_grid_dependency_wait`. `notes` are further lines of the comment. `resident` blocks at least
    are to fit a multiprocessor: left out, the assembler may spill a few registers for the sake of occupancy.
    """
    packings = packings or {}
    parameters = [*_slots(workload, packings)]
    parameters += [("unsigned char *", "scratch")] * (scratch_bytes > 0)
    parameters += [("unsigned *", "counters")] * (counters > 0)
    declared = ", ".join(f"{kind}{called}" for kind, called in parameters)
    shared = shared_bytes > 0
    tile = f"{declared}{', unsigned char *shared' if shared else ''}, {index} tile"
    writer = Writer()
    describe(writer, workload, *notes)
    with writer.block(f"__device__ void {name}_tile({tile})"):
        for line in body:
            writer.line(line)
    writer.line()
    bounds = f"__launch_bounds__({block}{f', {resident}' if resident else ''})"
    with writer.block(f'extern "C" __global__ void {bounds} {name}({declared})'):
        writer.line("tw_grid_launch_dependents();")
        if not waits:
            writer.line("tw_grid_dependency_wait();")
        given = [called for _, called in parameters] + ["tw_dynamic_shared()"] * shared + ["blockIdx.x"]
        writer.line(f"{name}_tile({', '.join(given)});")
    return CudaLowered(name, writer.text(), grid, block, shared_bytes, scratch_bytes, counters, cluster, packings)


def _slots(workload: Workload, packings: Mapping[int, Packing]) -> Sequence[tuple[str, str]]:
    """Pointers to the kernel's inputs and outputs: type and name. Only constants are known to overlap with no output."""
    kernel = workload.kernel
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = (*workload.inputs, *workload.outputs)
    found = []
    for at, (slot, buffer) in enumerate(zip(slots, buffers, strict=True)):
        const = "const " if at < len(kernel.inputs) else ""
        restrict = "__restrict__ " if const and workload.constant[at] else ""
        dtype = packings[at].dtype if at in packings else buffer.dtype
        found.append((f"{const}{CUDA_TYPES[dtype]} *{restrict}", slot.name))
    return found
