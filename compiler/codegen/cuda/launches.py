"""A plan as launches: which kernels of a CUDA graph run after which, which share a launch, and where in scratch memory each works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from compiler.codegen.cuda.lowered import CudaLowered
from compiler.codegen.cuda.side_by_side import fit_together, independent
from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plan import Plan
from compiler.targets.cuda import CudaTarget

SCRATCH_ALIGNMENT = 256
"""Bytes; what cuMemAlloc aligns to."""


@dataclass(frozen=True)
class Launch:
    """One node of the graph: the calls that it carries out side by side, and the earlier launches that it waits for.

    None of these waits for another of them.
    """

    calls: tuple[int, ...]
    after: tuple[int, ...]


def launches(plan: Plan, lowered: Sequence[CudaLowered]) -> list[Launch]:
    """One launch for each call in the plan's order; a call without blocks has none, and those after it wait for what it would have waited for.

    Raises VerifyError where a call is cut in parts: a launch is a whole kernel.
    """
    found: list[Launch] = []
    before: list[int] = []  # of each launch, those that end before it begins, as bits
    lanes: list[list[tuple[int, ...]]] = [[] for _ in range(plan.lanes)]
    for task in plan.tasks:
        kernel = lowered[task.call]
        if (task.first, task.last) != (0, kernel.grid):
            raise VerifyError(f"call {task.call} has {kernel.grid} blocks and a task for {task.first}..{task.last}")
        lane = lanes[task.lane]
        direct = set(lane[-1] if lane else ())
        direct.update(*(lanes[wait.lane][wait.count - 1] for wait in task.waits if wait.count))
        after = tuple(one for one in sorted(direct) if not any(before[other] >> one & 1 for other in direct))
        if not kernel.grid:
            lane.append(after)
            continue
        lane.append((len(found),))
        found.append(Launch((task.call,), after))
        before.append(reduce(or_, (before[one] | 1 << one for one in after), 0))
    return found


def merged(
    single: Sequence[Launch], kernels: KernelGraph, plan: Plan, lowered: Sequence[CudaLowered], target: CudaTarget
) -> list[Launch]:
    """Neighbours of a plan of one lane that do not depend on each other share a launch where they gain by it; those with clusters are named first.

    The order stays the plan's, so that memory lies as it was placed.
    """
    if plan.lanes > 1:
        return list(single)
    groups: list[tuple[int, ...]] = []
    for launch in single:
        (call,) = launch.calls
        group = groups[-1] if groups else ()
        fits = fit_together([lowered[at] for at in (*group, call)], target)
        if group and fits and all(independent(kernels, plan, earlier, call) for earlier in group):
            groups[-1] = (*group, call)
        else:
            groups.append((call,))
    ordered = [tuple(sorted(group, key=lambda call: -lowered[call].cluster)) for group in groups]
    return [Launch(group, (at - 1,) if at else ()) for at, group in enumerate(ordered)]


def scratch_offsets(plan: Plan, lowered: Sequence[CudaLowered], nodes: Sequence[Launch]) -> tuple[list[int], int]:
    """Where each call's scratch begins, and the bytes of all.

    Launches of one lane never overlap, so each lane has one piece, in which calls that share a launch have their own.
    """
    lane_of = {task.call: task.lane for task in plan.tasks}
    needed = [0] * plan.lanes
    within = [0] * len(lowered)
    for node in nodes:
        end = 0
        for call in node.calls:
            within[call] = end
            end += -(-lowered[call].scratch_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        lane = lane_of[node.calls[0]]
        needed[lane] = max(needed[lane], end)
    return [sum(needed[: lane_of.get(call, 0)]) + at for call, at in enumerate(within)], sum(needed)
