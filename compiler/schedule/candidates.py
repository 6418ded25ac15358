"""Every schedule of a problem that may turn out fastest when measured, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.schedule.allotment import allotment
from compiler.schedule.cut import series
from compiler.schedule.descent import descent, with_counts
from compiler.schedule.early_start import Rules, early_start
from compiler.schedule.problem import Placed, Problem, makespan, timed
from compiler.schedule.stage_schedule import blocks, stage_schedule

RULES = (
    ("early_start", Rules(critical_first=True, fill=True)),
    ("early_start in order", Rules(critical_first=False, fill=True)),
    ("early_start alone", Rules(critical_first=True, fill=False)),
    ("early_start in order, alone", Rules(critical_first=False, fill=False)),
)


def candidates(problem: Problem) -> list[tuple[str, tuple[Placed, ...]]]:
    """Names and schedules, the shortest by prediction first; of equal schedules one.

    `early_start ...`  list scheduling, with its switches
    `allotted`         list scheduling with as many lanes for each call as critical path and area give it
    `stages`           dynamic programming over endings
    `blocks`           in each block between two cuts what ended first of all the others there
    `descent`          the lanes of each call changed as long as that shortens its block, then list scheduling or blocks, whichever is shorter
    """
    known = dict(_whole(problem))
    known["blocks"] = best_of_blocks(problem, list(known.values()))
    known["descent"] = descent_in_blocks(problem, list(known.values()))
    first: dict[tuple[Placed, ...], str] = {}
    for name, placed in known.items():
        first.setdefault(placed, name)
    return sorted(((name, placed) for placed, name in first.items()), key=lambda one: makespan(one[1]))


def _whole(problem: Problem) -> Iterator[tuple[str, tuple[Placed, ...]]]:
    for name, rules in RULES:
        yield name, early_start(problem.before, problem.length, problem.lanes, problem.handover_s, rules)
    yield "allotted", allotted(problem)
    yield "stages", stage_schedule(problem)


def allotted(problem: Problem) -> tuple[Placed, ...]:
    """Earliest start first, no call on more lanes than its allotment."""
    most = allotment(problem)

    def seconds(call: int, lanes: int) -> float | None:
        return problem.length(call, lanes) if lanes <= most[call] else None

    return early_start(problem.before, seconds, problem.lanes, problem.handover_s, Rules(fill=False))


def best_of_blocks(problem: Problem, schedules: list[tuple[Placed, ...]]) -> tuple[Placed, ...]:
    """Blocks in series taken from different schedules of the whole, each from the one in which it ends first when it begins anew.

    All calls of a block come before all of the next, so that what is best for one is, but for hand-overs at its ends, best for the whole.
    """
    order: list[Placed] = []
    for calls in series(problem.before, problem.calls):
        best = min(_alone(problem, calls, schedules), key=makespan)
        order += _renamed(best, calls)
    return timed(problem, order)


def descent_in_blocks(problem: Problem, schedules: list[tuple[Placed, ...]]) -> tuple[Placed, ...]:
    """In each block, also the cells of a graph that has no cuts, descents from what some schedules of the whole do there; equal blocks once."""
    solved: dict[Problem, tuple[Placed, ...]] = {}
    order: list[Placed] = []
    for calls in blocks(problem):
        block = problem.part(calls)
        if block not in solved:
            solved[block] = descent(block, _alone(problem, calls, schedules))
        order += _renamed(solved[block], calls)
    counts = {one.call: len(one.lanes) for one in order}
    found = (timed(problem, order), with_counts(problem, [counts[call] for call in problem.calls]))
    return min(found, key=makespan)


def _alone(problem: Problem, calls: Sequence[int], schedules: list[tuple[Placed, ...]]) -> list[tuple[Placed, ...]]:
    """What schedules of the whole do with some of its calls, as if these were all there is; calls numbered within them."""
    block, number = problem.part(calls), {call: at for at, call in enumerate(calls)}
    parts = ([one for one in placed if one.call in number] for placed in schedules)
    return [timed(block, (Placed(number[one.call], one.lanes, 0.0, 0.0) for one in part)) for part in parts]


def _renamed(placed: Sequence[Placed], calls: Sequence[int]) -> list[Placed]:
    """A schedule of a block in the numbers of the whole."""
    return [Placed(calls[one.call], one.lanes, one.begin, one.end) for one in placed]
