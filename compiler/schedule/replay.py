"""A plan as a schedule of another problem: what its order and lanes would take there."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.plan import Plan
from compiler.schedule.problem import Placed, Problem, timed


def replayed(plan: Plan, problem: Problem) -> tuple[Placed, ...]:
    """The calls of a plan in its order on its lanes, each as early as a problem of the same calls allows."""
    lanes: dict[int, set[int]] = {}
    for task in plan.tasks:
        lanes.setdefault(task.call, set()).add(task.lane)
    order = dict.fromkeys(before for call in lanes for before in (*_without_tasks(call, lanes, problem), call))
    rest = (call for call in problem.calls if call not in order)
    placed = (Placed(call, tuple(sorted(lanes.get(call, {0}))), 0.0, 0.0) for call in (*order, *rest))
    return timed(problem, placed)


def _without_tasks(call: int, lanes: dict[int, set[int]], problem: Problem) -> Iterator[int]:
    """The calls that a call follows and that have nothing to do, each after those it follows."""
    for one in problem.before[call]:
        if one not in lanes:
            yield from _without_tasks(one, lanes, problem)
            yield one
