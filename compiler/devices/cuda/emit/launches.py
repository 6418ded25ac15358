"""A plan as launches.

Which kernels of a CUDA graph run after which, which share a launch, and where in scratch memory each works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.emit.side_by_side import can_share
from compiler.errors import VerifyError
from compiler.ir.plans.plan import Plan, Task

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
    """The launches of a plan, in its order.

    A call without blocks has none, and those after it wait for what it would have waited for. A call that the plan runs
    beside another shares its launch; those with clusters are named first. Raises VerifyError where a call is cut in
    parts, since a launch is a whole kernel, and where calls cannot share a launch.
    """
    found: list[Launch] = []
    before: list[int] = []  # of each launch, those that end before it begins, as bits
    lanes: list[list[tuple[int, ...]]] = [[] for _ in range(plan.lanes)]
    for first, *beside in _groups(plan.tasks_of_one_device()):
        for task in (first, *beside):
            if (task.first, task.last) != (0, lowered[task.call].grid):
                raise VerifyError(
                    f"call {task.call} has {lowered[task.call].grid} blocks and a task for {task.first}..{task.last}"
                )
        lane = lanes[first.lane]
        direct = set(lane[-1] if lane else ())
        direct.update(*(lanes[wait.lane][wait.count - 1] for wait in first.waits if wait.count))
        after = tuple(one for one in sorted(direct) if not any(before[other] >> one & 1 for other in direct))
        calls = [task.call for task in (first, *beside) if lowered[task.call].grid]
        lane += [(len(found),) if calls else after] * (1 + len(beside))
        if not calls:
            continue
        if len(calls) > 1 and not can_share([lowered[call] for call in calls]):
            raise VerifyError(f"calls {', '.join(map(str, calls))} cannot share a launch")
        found.append(Launch(tuple(sorted(calls, key=lambda call: -lowered[call].cluster)), after))
        before.append(reduce(or_, (before[one] | 1 << one for one in after), 0))
    return found


def _groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """Each task with those that run beside it, by the first of them."""
    found: list[list[Task]] = []
    last: dict[int, list[Task]] = {}
    for task in tasks:
        if task.beside:
            last[task.lane].append(task)
        else:
            last[task.lane] = [task]
            found.append(last[task.lane])
    return found


def scratch_offsets(plan: Plan, lowered: Sequence[CudaLowered], nodes: Sequence[Launch]) -> tuple[list[int], int]:
    """Where each call's scratch begins, and the bytes of all.

    Launches of one lane never overlap, so each lane has one piece, in which calls that share a launch have their own.
    """
    lane_of = {task.call: task.lane for task in plan.tasks_of_one_device()}
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
