"""A schedule as the tasks of a plan: tiles distributed over each call's lanes, and the waits that nothing implies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compiler.ir.plans.plan import Task, Wait
from compiler.ir.plans.races import Clock, latest
from compiler.schedule.problem import Placed

Counts = Mapping[int, int]
"""How many tasks of some lanes must have ended."""


class Needs(Protocol):
    """What must have ended before a task begins. `add` is called for each task, in the order of the plan."""

    def before(self, call: int, first: int, last: int, known: Clock) -> Counts:
        """For tile tasks [first, last) of a call; what has ended by `known`, for certain, may be left out."""
        ...

    def add(self, call: int, first: int, last: int, lane: int, begins: Clock) -> None:
        """These tile tasks are the next task of a lane; when it begins, so many of each lane have ended for certain."""
        ...


class WholeCalls:
    """All tasks of the calls `before` each call."""

    def __init__(self, before: Sequence[Sequence[int]]) -> None:
        self._before = before
        self._tasks: list[dict[int, int]] = [{} for _ in before]

    def before(self, call: int, first: int, last: int, known: Clock) -> Counts:
        """The last task on each lane of each call before this one."""
        needed: dict[int, int] = {}
        for earlier in self._before[call]:
            for lane, number in self._tasks[earlier].items():
                needed[lane] = max(needed.get(lane, 0), number)
        return needed

    def add(self, call: int, first: int, last: int, lane: int, begins: Clock) -> None:
        """A task of a call."""
        self._tasks[call][lane] = begins[lane] + 1


def tasks_of(
    placed: Sequence[Placed], before: Sequence[Sequence[int]], tiles: Sequence[int], lanes: int
) -> tuple[Task, ...]:
    """The tasks of a schedule, each of which waits for all of the calls `before` its own.

    `placed` holds each call after its predecessors, as `early_start` gives them.
    """
    return tasks_with(placed, tiles, lanes, WholeCalls(before))


def tasks_with(placed: Sequence[Placed], tiles: Sequence[int], lanes: int, needs: Needs) -> tuple[Task, ...]:
    """The tasks of a schedule: tiles distributed evenly over each call's lanes, and waits for what they need.

    No wait is left that another, the order of a lane, or both imply: a vector clock for each lane says what has ended
    when its tasks end, so that the waits are the transitive reduction. O(tasks · lanes²) beside what `needs` takes.
    """
    tasks: list[Task] = []
    ended: list[list[Clock]] = [[(0,) * lanes] for _ in range(lanes)]
    for one in placed:
        if not tiles[one.call]:
            continue
        for part, lane in enumerate(one.lanes):
            first, last = (tiles[one.call] * at // len(one.lanes) for at in (part, part + 1))
            known = ended[lane][-1]
            waits = _not_implied(needs.before(one.call, first, last, known), known, ended)
            for wait in waits:
                known = latest(known, ended[wait.lane][wait.count])
            tasks.append(Task(one.call, lane, first, last, waits))
            ended[lane].append((*known[:lane], known[lane] + 1, *known[lane + 1 :]))
            needs.add(one.call, first, last, lane, known)
    return tuple(tasks)


def _not_implied(needed: Counts, known: Clock, ended: Sequence[Sequence[Clock]]) -> tuple[Wait, ...]:
    """The waits for what a task needs, without what is `known` to have ended and what other waits imply."""
    unknown = [(lane, count) for lane, count in sorted(needed.items()) if count > known[lane]]
    return tuple(
        Wait(lane, count)
        for lane, count in unknown
        if not any(ended[other][more][lane] >= count for other, more in unknown if other != lane)
    )
