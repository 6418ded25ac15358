"""Every schedule of a problem that may turn out fastest when measured, by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from compiler.schedule.problem import Placed, Problem, makespan, timed
from compiler.schedule.rules import CRITICAL_FIRST, LINEAR_CLUSTERS, RUNS_ALONE
from compiler.schedule.solvers.allotment import allotment
from compiler.schedule.solvers.beam import BEGUN, MOST_BEGUN, beam
from compiler.schedule.solvers.critical_path import critical_path_list
from compiler.schedule.solvers.cut import series
from compiler.schedule.solvers.descent import Budget, descent, with_counts
from compiler.schedule.solvers.early_start import Rules, early_start
from compiler.schedule.solvers.refined import StageSeconds
from compiler.schedule.solvers.stage_schedule import CHAINS, blocks, greedy_schedule, stage_schedule

Schedule = tuple[Placed, ...]

RULES = (
    ("early_start", Rules(critical_first=True, fill=True)),
    ("early_start in order", Rules(critical_first=False, fill=True)),
    ("early_start alone", Rules(critical_first=True, fill=False)),
    ("early_start in order, alone", Rules(critical_first=False, fill=False)),
)


class Candidate(NamedTuple):
    """A schedule by name.

    `seconds` is the wall time until it was found, with those that it is made of; `predicted_s` is what it takes by
    prediction.
    """

    name: str
    placed: Schedule
    seconds: float
    predicted_s: float


def candidates(
    problem: Problem, measured: StageSeconds | None = None, without: frozenset[str] = frozenset()
) -> list[Candidate]:
    """The shortest by prediction first; of equal schedules one. Stages are measured where `measured` is given.

    What `without` names of `compiler.schedule.rules` is not applied.

    `early_start ...`  list scheduling, with its switches; `early_start beam` looks ahead in each block
    `allotted`         list scheduling with as many lanes for each call as critical path and area give it
    `critical path`    list scheduling by upward rank, into gaps
    `greedy`           in each stage everything that is ready
    `stages`           dynamic programming over endings
    `blocks`           in each block between two cuts what ended first of all the others there
    `descent`          lanes and order of each block changed as long as that shortens it, then list scheduling or
                       blocks, whichever is shorter
    """
    found = [_timed(problem, name, search) for name, search in _searches(problem, measured, without)]
    known = [one.placed for one in found]
    before = sum(one.seconds for one in found)
    found.append(_timed(problem, "blocks", lambda: best_of_blocks(problem, known), before))
    known.append(found[-1].placed)
    found.append(_timed(problem, "descent", lambda: descent_in_blocks(problem, known), found[-1].seconds))
    first: dict[Schedule, Candidate] = {}
    for one in found:
        first.setdefault(one.placed, one)
    return sorted(first.values(), key=lambda one: one.predicted_s)


def named(
    problem: Problem,
    scheduler: str,
    measured: StageSeconds | None = None,
    without: frozenset[str] = frozenset(),
) -> list[Candidate]:
    """What one scheduler finds; list scheduling finds one schedule for each of its switches."""
    searches = _searches(problem, measured, without)
    return [_timed(problem, name, search) for name, search in searches if name.startswith(scheduler)]


def _searches(
    problem: Problem, measured: StageSeconds | None, without: frozenset[str]
) -> list[tuple[str, Callable[[], Schedule]]]:
    critical, alone = CRITICAL_FIRST not in without, RUNS_ALONE not in without
    lengths = CHAINS[:1] if LINEAR_CLUSTERS in without else CHAINS
    rules = [one for one in RULES if critical >= one[1].critical_first and alone >= (not one[1].fill)]
    return [
        *((name, _of(early_start, problem, switches)) for name, switches in rules),
        ("early_start beam", lambda: beam_in_blocks(problem)),
        ("allotted", lambda: early_start(problem, Rules(critical, fill=False), allotment(problem))),
        ("critical path", lambda: critical_path_list(problem)),
        ("greedy", lambda: greedy_schedule(problem)),
        ("stages", lambda: stage_schedule(problem, measured=measured, lengths=lengths)),
    ]


def _of(search: Callable[[Problem, Rules], Schedule], problem: Problem, rules: Rules) -> Callable[[], Schedule]:
    return lambda: search(problem, rules)


def _timed(problem: Problem, name: str, search: Callable[[], Schedule], before: float = 0.0) -> Candidate:
    begin = time.perf_counter()
    placed = search()
    return Candidate(name, placed, before + time.perf_counter() - begin, makespan(timed(problem, placed)))


def beam_in_blocks(problem: Problem) -> Schedule:
    """List scheduling that looks ahead in each block; equal blocks once."""
    parts = [(calls, problem.part(calls)) for calls in blocks(problem)]
    distinct = dict.fromkeys(block for _, block in parts if len(block.before) > 1)
    begun = min(MOST_BEGUN, BEGUN // max(len(distinct), 1))
    solved: dict[Problem, Schedule] = {}
    order: list[Placed] = []
    for calls, block in parts:
        if block not in solved:
            solved[block] = beam(block, begun)
        order += _renamed(solved[block], calls)
    return timed(problem, order)


def best_of_blocks(problem: Problem, schedules: Sequence[Schedule]) -> Schedule:
    """Blocks in series, each from the schedule of the whole in which it ends first when it begins anew.

    All calls of a block come before all of the next, so that what is best for one is, but for hand-offs and moves at
    its ends, best for the whole.
    """
    order: list[Placed] = []
    solved: dict[tuple[Problem, tuple[Schedule, ...]], Schedule] = {}
    for calls in series(problem.before, problem.calls):
        block = problem.part(calls)
        options = tuple(_alone(block, calls, schedules))
        if (block, options) not in solved:
            solved[block, options] = min(options, key=lambda one: makespan(timed(block, one)))
        order += _renamed(solved[block, options], calls)
    return timed(problem, order)


def descent_in_blocks(problem: Problem, schedules: Sequence[Schedule]) -> Schedule:
    """Descents in each block, from what some schedules of the whole do there; equal blocks once.

    The cells of a graph that has no cuts are blocks too.
    """
    parts = [(calls, problem.part(calls)) for calls in blocks(problem)]
    budget = Budget.of(dict.fromkeys(block for _, block in parts))
    solved: dict[Problem, Schedule] = {}
    order: list[Placed] = []
    for calls, block in parts:
        if block not in solved:
            solved[block] = descent(block, _alone(block, calls, schedules), budget.tries)
        order += _renamed(solved[block], calls)
    counts = {one.call: len(one.lanes) for one in order}
    found = (timed(problem, order), with_counts(problem, [counts[call] for call in problem.calls]))
    return min(found, key=lambda one: makespan(timed(problem, one)))


def _alone(block: Problem, calls: Sequence[int], schedules: Sequence[Schedule]) -> list[Schedule]:
    """What schedules of the whole do with some of its calls, as if these were all there is.

    Calls are numbered within them.
    """
    number = {call: at for at, call in enumerate(calls)}
    found = []
    for placed in schedules:
        lanes_of = [(number[one.call], one.lanes) for one in placed if one.call in number]
        found.append(timed(block, (Placed(call, lanes, 0.0, 0.0) for call, lanes in lanes_of)))
    return found


def _renamed(placed: Sequence[Placed], calls: Sequence[int]) -> list[Placed]:
    """A schedule of a block in the numbers of the whole."""
    return [Placed(calls[one.call], one.lanes, one.begin, one.end) for one in placed]
