"""Random scheduling problems, the same in every run, and brute force over what small ones allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from random import Random

from compiler.schedule.problem import Move, Placed, Problem, makespan, timed


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
    handover, split = random.choice((0.0, 0.25)), random.choice((0.0, 0.5))
    split_too = [(every[0], *(one if one is None else one + split for one in every[1:])) for every in seconds]
    return Problem(tuple(before), tuple(split_too), lanes, handover)


def with_moves(problem: Problem, seed: int) -> Problem:
    """The same with something to move on most edges; some are aligned, some parts read less than all."""
    random = Random(seed)
    return replace(problem, moves=tuple(tuple(_random_move(random, problem.lanes) for _ in e) for e in problem.before))


def _random_move(random: Random, lanes: int) -> Move:
    seconds = random.choice((0.0, 0.5, 1.0, 3.0))
    if random.random() < 0.5:
        return Move(seconds)
    reads = (1.0, *(random.uniform(1 / n, 1.0) for n in range(2, lanes + 1)))
    return Move(seconds, reads, (0.0, *(random.uniform(0.0, min(part, 0.5)) for part in reads[1:])))


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
