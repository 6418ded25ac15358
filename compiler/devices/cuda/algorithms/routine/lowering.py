"""Routines in CUDA C++: computations that are no loop nests, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.routine.boxes import lower_select_boxes
from compiler.devices.cuda.algorithms.routine.forest import forest_ns, lower_forest
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES, convert
from compiler.devices.cuda.model import seconds
from compiler.devices.cuda.target import WARP, CudaTarget
from compiler.errors import InternalError
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ir.region import Region
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

ENTRY_BYTES = {"uint32_t": 8, "uint64_t": 16}
"""Of a key with its index."""
COUNT_BYTES = 4 * 257
"""TW_COUNTS words."""
SORTED_BYTES = 32 * 1024
"""Shared memory for what is sorted."""
MOST_THREADS = 512


ROUTINE_NS = 1.0
"""One element through a hand-written routine."""


def cuda_routine_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The hand-written form of a Routine; empty for a Kernel and for a Region."""
    if not isinstance(workload.kernel, Routine) or isinstance(workload.kernel, Region):
        return []
    if workload.kernel.name == "forest":
        return [Proposal(Tile("routine"), seconds(forest_ns(workload.kernel), target))]
    elements = sum(buffer.type.elements for buffer in workload.inputs)
    return [Proposal(Tile("routine"), seconds(ROUTINE_NS * elements, target))]


def lower_cuda_routine(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> CudaLowered:
    """A Routine as CUDA C++.

    Raises InternalError for one that has no such form, and where a buffer is not plain and contiguous.
    """
    routine = workload.kernel
    assert isinstance(routine, Routine), routine
    if any(not buffer.is_contiguous or not buffer.layout.is_plain for buffer in (*workload.inputs, *workload.outputs)):
        raise InternalError(f"routine {routine.name} needs plain buffers", fix="report this model: it is our fault")
    if routine.name not in ROUTINES:
        raise InternalError(f"routine {routine.name} has no CUDA form", fix="report this model: it is our fault")
    return ROUTINES[routine.name](name, workload, routine)


# TopK


@dataclass(frozen=True)
class _TopK:
    """What to select: the `k` first of each of `rows` rows of `extent` elements that lie `inner` apart."""

    k: int
    extent: int
    inner: int
    rows: int
    largest: bool

    @staticmethod
    def of(workload: Workload, routine: Routine) -> _TopK:
        axis, k = routine.params["axis"], routine.params["k"]
        assert isinstance(axis, int)
        assert isinstance(k, int)
        dims = workload.inputs[0].type.dims
        outer, inner = prod(dims[:axis]), prod(dims[axis + 1 :])
        return _TopK(k, dims[axis], inner, outer * inner, bool(routine.params["largest"]))


def lower_top_k(name: str, workload: Workload, routine: Routine) -> CudaLowered:
    """The k greatest (least) elements of each row, best first. One block takes one row.

    A tie keeps the lower index, NaN counts as greatest. Elements become unsigned keys that rise in the order of the
    result; (key, index) are all different. A row that fits is sorted in shared memory (Batcher's bitonic sort: Knuth,
    The Art of Computer Programming 3, 5.3.4). Of a longer one the k-th pair is found digit by digit, by counting (radix
    selection), then what does not come after it is collected and sorted.
    """
    top = _TopK.of(workload, routine)
    dtype = workload.inputs[0].dtype
    key = "uint64_t" if dtype.bytes == 8 else "uint32_t"
    is_whole = _power_of_two(top.extent) * ENTRY_BYTES[key] <= SORTED_BYTES
    size = _power_of_two(top.extent if is_whole else top.k)
    entries = size * ENTRY_BYTES[key]
    in_shared = entries <= SORTED_BYTES
    threads = min(MOST_THREADS, max(WARP, (size if is_whole else top.extent) // 2 // WARP * WARP))
    row = f"tw_row<{str(top.largest).lower()}, {CUDA_TYPES[dtype]}>"
    writer = Writer()
    line = writer.line
    first = f"(int64_t)(tile / {top.inner}) * {top.extent * top.inner} + tile % {top.inner}"
    line(f"const {row} row = {{{routine.inputs[0].name} + {first}, {top.extent}, {top.inner}}};")
    line(f"const int64_t to = (int64_t)(tile / {top.inner}) * {top.k * top.inner} + tile % {top.inner};")
    place = "shared" if in_shared else f"scratch + (int64_t)tile * {entries}"
    line(f"tw_ranked<{key}> *const entries = (tw_ranked<{key}> *)({place});")
    if is_whole:
        line(f"tw_sort_row<{threads}>(row, entries, {size});")
    else:
        line(f"uint32_t *const counts = (uint32_t *)(shared + {entries if in_shared else 0});")
        line(f"tw_select_row<{threads}>(row, {top.k}, entries, {size}, counts);")
    best, *where = (slot.name for slot in routine.outputs)
    with writer.block(f"for (int rank = threadIdx.x; rank < {top.k}; rank += {threads})"):
        line("const int64_t index = entries[rank].index;")
        element = convert(f"row.from[index * {top.inner}]", dtype, workload.outputs[0].dtype)
        line(f"{best}[to + (int64_t)rank * {top.inner}] = {element};")
        for slot in where:
            line(f"{slot}[to + (int64_t)rank * {top.inner}] = index;")
    grid = top.rows if top.k else 0
    return framed(
        name,
        workload,
        writer.lines,
        Frame(
            grid=grid,
            block=threads,
            shared_bytes=(entries if in_shared else 0) + (0 if is_whole else COUNT_BYTES),
            scratch_bytes=0 if in_shared else entries * grid,
            header="tw_topk.h",
        ),
        notes=[f"the {top.k} {'greatest' if top.largest else 'least'} of {top.extent}, {top.rows} times"],
    )


def _power_of_two(count: int) -> int:
    """The least power of two that is at least `count`, and 2."""
    return 1 << max(count - 1, 1).bit_length()


ROUTINES: Mapping[str, Callable[[str, Workload, Routine], CudaLowered]] = {
    "topk": lower_top_k,
    "select_boxes": lower_select_boxes,
    "forest": lower_forest,
}
