"""Random scheduling problems, the same in every run, and brute force over what small ones allow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

from compiler.schedule.problem import Placed, Problem, makespan, timed


def random_problem(seed: int, most: int = 12, lanes: int | None = None, least: int = 1) -> Problem:
    """Calls of 1 to 9 seconds, some of which can be split; hand-overs and splits cost something or nothing."""
    random = Random(seed)
    count, lanes = random.randint(least, most), lanes or random.randint(1, 4)
    before = [
        tuple(sorted(random.sample(range(call), min(call, random.choice((0, 1, 1, 2, 3)))))) for call in range(count)
    ]
    seconds: list[tuple[float | None, ...]] = []
    for _ in before:
        alone = float(random.randint(1, 9))
        parts = random.choice((1, 2, 4, 8))
        shares = [alone * -(-parts // n) / parts if n <= parts else None for n in range(1, lanes + 1)]
        seconds.append(tuple(shares))
    return Problem(tuple(before), tuple(seconds), lanes, random.choice((0.0, 0.25)), random.choice((0.0, 0.5)))


def shortest(problem: Problem) -> float:
    """The least makespan, by trying every order of calls on every set of lanes: one of these orders is that of their beginnings."""

    def extended(order: tuple[Placed, ...], left: frozenset[int]) -> Iterator[float]:
        if not left:
            yield makespan(timed(problem, order))
        for call in left:
            if left.isdisjoint(problem.before[call]):
                for count, _ in problem.lengths(call):
                    for lanes in combinations(range(problem.lanes), count):
                        yield from extended((*order, Placed(call, lanes, 0.0, 0.0)), left - {call})

    return min(extended((), frozenset(problem.calls)))


def reaches(problem: Problem) -> list[set[int]]:
    """For each call those that must come before it."""
    found: list[set[int]] = []
    for earlier in problem.before:
        found.append({*earlier}.union(*(found[one] for one in earlier)))
    return found
