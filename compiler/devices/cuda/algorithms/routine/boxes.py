"""Boxes chosen one after another (SelectBoxes), in CUDA C++."""

from __future__ import annotations

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.target import WARP
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload

MOST_THREADS = 512
CANDIDATE_BYTES = 8


def lower_select_boxes(name: str, workload: Workload, routine: Routine) -> CudaLowered:
    """One block takes one row of scores.

    For each box that is chosen its threads go through those that are left, drop what the last one overlaps too much,
    and find the best of the rest.
    """
    count, classes = workload.inputs[0].type.dims[1], workload.inputs[1].type.dims[1]
    rows, most = workload.outputs[1].type.elements, workload.outputs[0].type.dims[2]
    boxes, scores, size, limit, overlap, *least = (slot.name for slot in routine.inputs)
    found, counts = (slot.name for slot in routine.outputs)
    threads = _threads(count)
    writer = Writer()
    line = writer.line
    line(f"const int extent = (int)({size}[0] < {count} ? ({size}[0] < 0 ? 0 : {size}[0]) : {count});")
    line(f"const int most = (int)({limit}[0] < {most} ? ({limit}[0] < 0 ? 0 : {limit}[0]) : {most});")
    line(f"int64_t *const to = {found} + (int64_t)tile * {most};")
    may = f"score > {least[0]}[0]" if routine.params["bounded"] else "score == score"
    form = f"{threads}, {str(bool(routine.params['centred'])).lower()}"
    line(f"const int chosen = tw_select_boxes<{form}>(")
    line(f"    {boxes} + (int64_t)(tile / {classes}) * {4 * count}, {scores} + (int64_t)tile * {count},")
    line(f"    extent, most, {overlap}[0], [=](float score) {{ return {may}; }},")
    line(f"    scratch + (int64_t)tile * {count}, (tw_candidate *)shared, to);")
    line(f"for (int at = chosen + (int)threadIdx.x; at < {most}; at += {threads}) to[at] = 0;")
    line(f"if (threadIdx.x == 0) {counts}[tile] = chosen;")
    frame = Frame(
        grid=rows,
        block=threads,
        shared_bytes=CANDIDATE_BYTES * threads,
        scratch_bytes=rows * count,
        header="tw_boxes.h",
    )
    return framed(name, workload, writer.lines, frame, notes=[f"of {count} boxes up to {most}, {rows} times"])


def _threads(count: int) -> int:
    """A power of two."""
    return min(MOST_THREADS, max(WARP, 1 << max(count - 1, 1).bit_length()))
