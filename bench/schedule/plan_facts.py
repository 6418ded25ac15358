"""What a plan is like before anybody runs it: hand-offs, launches, and how many of them come one after another."""

from __future__ import annotations

from compiler.ir.plans.plan import Plan


def handovers(plan: Plan) -> int:
    """Results of one lane that another waits for, in one inference; on a GPU the edges between streams."""
    return sum(len(task.waits) for task in plan.tasks)


def launches(plan: Plan) -> int:
    """Times that a lane begins something, in one inference; tasks that share a launch begin at once.

    Once with resident blocks.
    """
    return 1 if plan.residents else sum(not task.beside for task in plan.tasks)


def depth(plan: Plan) -> int:
    """Launches of the longest chain of which each waits for the one before, by its lane's order or explicitly."""
    return _longest_chain(plan)[0]


def joins(plan: Plan) -> int:
    """Launches of the longest chain that wait for another stream; of equally long chains that with most."""
    return _longest_chain(plan)[1]


def fan_in(plan: Plan) -> int:
    """For how many streams beyond one each the launches of that chain wait."""
    return _longest_chain(plan)[2]


def _longest_chain(plan: Plan) -> tuple[int, int, int]:
    """Its launches, how many of them wait for other streams, and for how many streams beyond one each.

    One launch with resident blocks, which wait for counters.
    """
    if plan.residents:
        return 1, 0, 0
    ends: list[list[tuple[int, int, int]]] = [[(0, 0, 0)] for _ in range(plan.lanes)]
    for task in plan.tasks:
        mine = ends[task.lane]
        before = [mine[-1]] if len(mine) > 1 else []
        before += [ends[wait.lane][wait.count] for wait in task.waits]
        launched, joined, further = max(before, default=(0, 0, 0))
        waits = len(task.waits)
        after = launched + 1, joined + (waits > 0), further + max(waits - 1, 0)
        mine.append(mine[-1] if task.beside else after)
    return max(mine[-1] for mine in ends)
