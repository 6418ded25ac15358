"""Decision trees (Forest), in CUDA C++."""

from __future__ import annotations

from compiler.codegen.writer import Writer
from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.codegen.scalars import CUDA_TYPES
from compiler.devices.cuda.target import WARP
from compiler.ir.kernel import Routine
from compiler.ir.machine import Workload
from compiler.ops.forest import GROUP, layout_of

MOST_THREADS = 256
CHUNK = 2048
"""Trees whose leaves are kept at once."""
LEVEL_NS = 1.0
"""A step of one sample in one tree, by one of many threads."""


def forest_ns(routine: Routine) -> float:
    """By the model: every level of every group for each sample."""
    return LEVEL_NS * routine.outputs[0].type.dims[0] * GROUP * sum(level + 1 for level in _levels(routine))


def lower_forest(name: str, workload: Workload, routine: Routine) -> CudaLowered:
    """One block takes one sample; its threads walk a tree each."""
    x, nodes, roots, firsts, weights, *size = (slot.name for slot in routine.inputs)
    (y,) = (slot.name for slot in routine.outputs)
    features, (samples, targets) = routine.inputs[0].type.dims[1], routine.outputs[0].type.dims
    levels = _levels(routine)
    trees, width = GROUP * len(levels), routine.inputs[4].type.dims[1]
    real, layout = routine.inputs[0].type.dtype, layout_of(routine.inputs[1].type.dtype)
    threads = min(MOST_THREADS, -(-trees // WARP) * WARP)
    chunk = min(CHUNK, trees)
    aggregate = str(routine.params["aggregate"])
    start = {"SUM": "0", "MIN": "INFINITY", "MAX": "-INFINITY"}[aggregate]
    kind = CUDA_TYPES[real]
    writer = Writer()
    line = writer.line
    with writer.block(f"if ((int64_t)tile < {size[0]}[0])" if size else ""):
        forms = [str(bool(routine.params[each])).lower() for each in ("strict", "missing")]
        form = f"{', '.join(forms)}, {layout.step_bits}, {layout.leaf_bits}"
        line(f"const {kind} *const from = {x} + (int64_t)tile * {features};")
        walk = f"tw_leaf<{form}>(from, {nodes}, {roots}[tree], {max(levels)})"
        totals = f"({kind} *)shared"
        leaves = f"(int *)(shared + {real.bytes * targets})"
        line(f"tw_forest<{threads}, TW_{aggregate}>(")
        line(f"    [=](int tree) {{ return {walk}; }}, {trees}, {chunk}, {firsts}, {weights}, {width}, {targets},")
        line(f"    ({kind}){start}, {leaves}, {totals}, {y} + (int64_t)tile * {targets});")
    if size:
        with writer.block("else"):
            zero = f"{y}[(int64_t)tile * {targets} + at] = 0;"
            line(f"for (int at = threadIdx.x; at < {targets}; at += {threads}) {zero}")
    frame = Frame(
        grid=samples,
        block=threads,
        shared_bytes=real.bytes * targets + 4 * chunk,
        scratch_bytes=0,
        header="tw_forest.h",
    )
    note = f"{trees} trees of up to {max(levels)} levels, {samples} times"
    return framed(name, workload, writer.lines, frame, notes=[note])


def _levels(routine: Routine) -> list[int]:
    levels = routine.params["levels"]
    assert isinstance(levels, tuple)
    return [level for level in levels if isinstance(level, int)]
