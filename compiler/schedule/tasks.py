"""A schedule as the tasks of a plan: tiles shared out over each call's lanes, and what each task waits for."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.plan import Task, Wait
from compiler.schedule.problem import Placed


def tasks_of(
    placed: Sequence[Placed], before: Sequence[Sequence[int]], tiles: Sequence[int], lanes: int
) -> tuple[Task, ...]:
    """The tasks of a schedule: tiles shared out evenly over each call's lanes, waits only where a lane's own order does not imply them.

    `placed` holds each call after its predecessors, as `early_start` gives them.
    """
    tasks: list[Task] = []
    reached = [0] * lanes
    known = [[0] * lanes for _ in range(lanes)]
    ends: dict[int, dict[int, int]] = {}
    for one in placed:
        if not tiles[one.call]:
            ends[one.call] = {}
            continue
        needed: dict[int, int] = {}
        for earlier in before[one.call]:
            for lane, count in ends[earlier].items():
                needed[lane] = max(needed.get(lane, 0), count)
        for part, lane in enumerate(one.lanes):
            first, last = (tiles[one.call] * at // len(one.lanes) for at in (part, part + 1))
            waits = tuple(
                Wait(other, count)
                for other, count in sorted(needed.items())
                if other != lane and count > known[lane][other]
            )
            for wait in waits:
                known[lane][wait.lane] = wait.count
            tasks.append(Task(one.call, lane, first, last, waits))
        for lane in one.lanes:
            reached[lane] += 1
        ends[one.call] = {lane: reached[lane] for lane in one.lanes}
    return tuple(tasks)
