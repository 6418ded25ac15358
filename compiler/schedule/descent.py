"""Lanes for each call found by trying: list scheduling again and again with one call's lanes changed, as long as that shortens the schedule.

A descent over allotments with a list scheduler as the judge, as in moldable scheduling generally (Dutot, Mounié and Trystram, "Scheduling parallel tasks:
approximation algorithms", Handbook of Scheduling, 2004, section on two-phase algorithms). It ends in a local optimum of moves of one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.schedule.early_start import Rules, early_start
from compiler.schedule.problem import Placed, Problem, makespan

MOST_TRIES = 150
"""Allotments that may be tried for one block."""


def with_counts(problem: Problem, counts: Sequence[int]) -> tuple[Placed, ...]:
    """Earliest start first, each call on exactly so many lanes; the shorter of the two orders."""

    def seconds(call: int, lanes: int) -> float | None:
        return problem.length(call, lanes) if lanes == counts[call] else None

    found = (
        early_start(problem.before, seconds, problem.lanes, problem.handover_s, Rules(critical_first, fill=False))
        for critical_first in (True, False)
    )
    return min(found, key=makespan)


def descent(problem: Problem, starts: Sequence[Sequence[Placed]], most_tries: int = MOST_TRIES) -> tuple[Placed, ...]:
    """A schedule that is no longer than any of `starts`, from which the lanes to begin with are taken: the shortest first, as long as tries are left."""
    shortest_first = sorted(map(tuple, starts), key=makespan)
    best, left = shortest_first[0], most_tries
    for counts in dict.fromkeys(map(_counts, shortest_first)):
        found, tries = _descended(problem, list(counts), left)
        best, left = min(best, found, key=makespan), left - tries
        if not left:
            break
    return best


def _counts(placed: Sequence[Placed]) -> tuple[int, ...]:
    """For each call how many lanes it has."""
    return tuple(len(one.lanes) for one in sorted(placed, key=lambda one: one.call))


def _descended(problem: Problem, counts: list[int], most_tries: int) -> tuple[tuple[Placed, ...], int]:
    """The end of one descent, and how many schedules were tried on the way."""
    best = with_counts(problem, counts)
    tries, improved = 0, True
    while improved:
        improved = False
        for call in problem.calls:
            for count, _ in problem.lengths(call):
                if count == counts[call] or tries == most_tries:
                    continue
                tries += 1
                kept, counts[call] = counts[call], count
                tried = with_counts(problem, counts)
                if makespan(tried) < makespan(best):
                    best, improved = tried, True
                else:
                    counts[call] = kept
    return best, tries
