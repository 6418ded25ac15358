"""What lowering one kernel to CUDA gives, and the frame that every kernel's text has.

    __device__ void name_tile(inputs..., outputs..., [scratch], [counters], [shared], tile)     what one block does
    extern "C" __global__ void name(inputs..., outputs..., [scratch], [counters])               one launch (`entry`)

A __global__ function may call the tile functions of several kernels, some blocks by each (`side_by_side`). So a tile
function learns which block it is from `tile` alone, and how many threads there are from its own text: the block may
have had more, which have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.codegen.functions import describe
from compiler.codegen.scalars import with_small
from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.entry import SM90A, Part, TileFunction, declaration, entry_text, under
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES
from compiler.ir.machine import Workload
from compiler.ir.packing import Packing

PREAMBLE = '#include "tw_cuda.h"\n#include "tw_scalar.h"\n'
"""What the texts of kernels stand below."""
COUNTER_BYTES = 4
"""Of one of a kernel's counters."""


@dataclass(frozen=True)
class CudaLowered:
    """A kernel as CUDA C++, launched once.

    `name(inputs..., outputs..., [unsigned char *scratch], [unsigned *counters])`. `grid` blocks of `block` threads, in
    clusters of `cluster` of them, with `shared_bytes` of dynamic shared memory; a grid of 0 is not to be launched.
    Arguments point to the buffers' first elements, whose dtypes are `Buffer.dtype`; an input with a Packing is given
    packed. `scratch` points to `scratch_bytes` that hold anything; `counters` to so many 32-bit words that are zero
    when the kernel begins and that it leaves zero. `text` stands below PREAMBLE. Of a kernel that can share a launch it
    consists of its `tiles`, the functions that its blocks carry out, and its `entry`; other kernels have neither.

    A kernel that `waits` calls `tw_grid_dependency_wait` before it reads what others wrote, so that it may begin before
    they end. It runs on architectures that have what it `needs`: SM90 or SM90A; empty: on all.
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
    tiles: tuple[TileFunction, ...] = ()
    entry: str = ""
    waits: bool = False
    needs: str = ""

    @property
    def is_specific(self) -> bool:
        """Whether it uses what one architecture alone has: with it there is no PTX for later GPUs."""
        return self.needs == SM90A


def unit_text(kernels: Sequence[CudaLowered]) -> str:
    """Source of a unit that holds kernels: each tile function once, however many of them call it."""
    functions = dict.fromkeys(tile.text for kernel in kernels for tile in kernel.tiles)
    return "\n".join([PREAMBLE, *functions, *(kernel.entry or kernel.text for kernel in kernels)])


@dataclass(frozen=True)
class Frame:
    """How the blocks of a kernel are launched, and what each may use.

    Bytes are of a block, but for `scratch_bytes`, which all share.

    index      the type of `tile`, the number of a block
    waits      the body itself calls `tw_grid_dependency_wait`
    resident   so many blocks at least are to fit a multiprocessor; 0: the assembler may spill a few registers for the
               sake of occupancy
    header     a file that the body needs
    condition  what the architecture must have for the text to be there: SM90 or SM90A
    needs      the same where the text is there for others too that cannot compile it
    alone      the body asks for what is the launch's and not one tile function's (blockIdx, blockDim, gridDim,
               registers dealt out anew): such a kernel shares no launch
    """

    grid: int
    block: int
    shared_bytes: int = 0
    scratch_bytes: int = 0
    counters: int = 0
    cluster: int = 1
    index: str = "int"
    waits: bool = False
    resident: int = 0
    header: str = ""
    condition: str = ""
    needs: str = ""
    alone: bool = False


def framed(
    name: str,
    workload: Workload,
    body: Sequence[str],
    launch: Frame,
    packings: Mapping[int, Packing] | None = None,
    notes: Sequence[str] = (),
) -> CudaLowered:
    """A kernel around the lines of its tile function.

    These may use the slots' names, `scratch`, `counters`, `shared` and `tile`. `notes` are further lines of the
    comment.
    """
    meets = launch.cluster > 1 or launch.alone or not any("tw_cluster_" in line for line in body)
    assert meets, f"{name} asks for a cluster and has none of its own: beside kernels with clusters it gets any rank"
    packings = packings or {}
    parameters = [*_slots(workload, packings)]
    parameters += [("unsigned char *", "scratch")] * (launch.scratch_bytes > 0)
    parameters += [("unsigned *", "counters")] * (launch.counters > 0)
    shared = launch.shared_bytes > 0
    taken = [*parameters, *[("unsigned char *", "shared")] * shared, (f"{launch.index} ", "tile")]
    writer = Writer()
    if launch.header:
        writer.line(f'#include "{launch.header}"')
    describe(writer, workload, *notes)
    with writer.block(f"__device__ __forceinline__ void {name}_tile({declaration(taken)})"):
        for line in body:
            writer.line(line)
    text = with_small(under(launch.condition, writer.text()))
    tile = TileFunction(
        name, text, tuple(parameters), launch.block, shared, launch.waits, launch.resident, launch.condition
    )
    entry = entry_text(name, [Part(tile)])
    return CudaLowered(
        name,
        f"{text}\n{entry}",
        launch.grid,
        launch.block,
        launch.shared_bytes,
        launch.scratch_bytes,
        launch.counters,
        launch.cluster,
        packings,
        () if launch.alone else (tile,),
        "" if launch.alone else entry,
        waits=True,
        needs=max(launch.condition, launch.needs),
    )


def _slots(workload: Workload, packings: Mapping[int, Packing]) -> Sequence[tuple[str, str]]:
    """Pointers to the kernel's inputs and outputs: type and name.

    Only constants are known to overlap with no output.
    """
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
