"""What a plan is like before anybody runs it: hand-overs, launches, and how many of them come one after another."""

from __future__ import annotations

from compiler.ir.plan import Plan


def handovers(plan: Plan) -> int:
    """Results of one lane that another waits for, in one inference; on a GPU the edges between streams."""
    return sum(len(task.waits) for task in plan.tasks)


def launches(plan: Plan) -> int:
    """Times that a lane begins something, in one inference; tasks that share a launch begin at once."""
    return sum(not task.beside for task in plan.tasks)


def depth(plan: Plan) -> int:
    """Launches of the longest chain of which each waits for the one before, by its lane's order or explicitly."""
    ends: list[list[int]] = [[0] for _ in range(plan.lanes)]
    for task in plan.tasks:
        mine = ends[task.lane]
        before = [mine[-1], *(ends[wait.lane][wait.count] for wait in task.waits)]
        mine.append(max(before) if task.beside else max(before) + 1)
    return max(mine[-1] for mine in ends)
