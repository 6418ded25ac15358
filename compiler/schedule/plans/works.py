"""What each task of a plan takes by itself.

That is its part of what its call was measured to take, and the reading and writing of memory that its lane does not
own.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.plans.touched import Regions
from compiler.ir.tile import Menu, Variant
from compiler.schedule.memory.ownership import traffic


def works_of(
    plan: Plan, kernels: KernelGraph, menus: Sequence[Menu], costs: LaneCosts, regions: Regions | None = None
) -> tuple[float, ...]:
    """Seconds, in the order of the plan's tasks; `menus` are in call order, and offer the tiles of the plan.

    A tile that was measured on as many lanes as its call has counts as it was there, the part with most tiles taking
    all of that; else as on one lane, shared by tiles. What is not at hand (`ownership.Traffic`) takes as much longer as
    `costs` say.
    """
    lanes: dict[int, set[int]] = {}
    for task in plan.tasks_of_one_device():
        lanes.setdefault(task.call, set()).add(task.lane)
    found = []
    for task, moved in zip(plan.tasks_of_one_device(), traffic(plan, kernels, regions), strict=True):
        tile, tiles = plan.tiles[task.call]
        menu, count = menus[task.call], len(lanes[task.call])
        variant = _measured([one for one in menu.variants if one.tile == tile], count)
        most = -(-tiles // variant.lanes)
        found.append(variant.cost.seconds * (task.last - task.first) / most + moved.seconds(costs))
    return tuple(found)


def _measured(alike: Sequence[Variant], lanes: int) -> Variant:
    """The variant of one tile that says most of it on so many lanes."""
    return next((one for one in alike if one.lanes == lanes), None) or next(one for one in alike if one.lanes == 1)
