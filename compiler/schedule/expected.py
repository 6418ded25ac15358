"""When each task of a plan is expected to run, as its prediction has it: tasks of one call begin and end together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.ir.plan import Task
from compiler.schedule.contention import contended
from compiler.schedule.problem import Placed, Problem

Spans = tuple[tuple[float, float], ...]
"""Begin and end of each task, in the plan's order, in seconds from the beginning of a run."""


def expected_beside(problem: Problem, placed: Sequence[Placed], tasks: Sequence[Task], wake_s: float) -> Spans:
    """Of calls that run beside each other (`contended_makespan`), after lanes took `wake_s` to wake."""
    return expected(contended(problem, placed), tasks, wake_s)


def expected_in_turn(problem: Problem, placed: Sequence[Placed], tasks: Sequence[Task], wake_s: float) -> Spans:
    """Of calls that are placed one after another, each longer by what it reads of other lanes, after lanes took `wake_s` to wake."""
    done: dict[int, Placed] = {}
    late = 0.0
    found = []
    for one in placed:
        moving = problem.moving(one.call, one.lanes, done)
        found.append(Placed(one.call, one.lanes, one.begin + late, one.end + late + moving))
        done[one.call] = one
        late += moving
    return expected(found, tasks, wake_s)


def expected(placed: Iterable[Placed], tasks: Sequence[Task], wake_s: float) -> Spans:
    """Of calls that run as they are placed, after lanes took `wake_s` to wake."""
    times = {one.call: (wake_s + one.begin, wake_s + one.end) for one in placed}
    return tuple(times[task.call] for task in tasks)
