from __future__ import annotations

from compiler.schedule.problem import Problem, ways_to_the_end
from compiler.schedule.solvers.allotment import allotment
from tests.compiler.schedule.problems import random_problem
from tests.seeds import each

HALVED = (4.0, 2.0)


def test_a_chain_gets_the_lanes_and_what_runs_beside_it_does_not() -> None:
    chain = Problem(((), (0,), (1,)), (HALVED,) * 3, lanes=2)
    assert allotment(chain) == (2, 2, 2)
    beside = Problem(((), (0,), (1,), ()), (*((HALVED,) * 3), (1.0, 0.5)), lanes=2)
    assert allotment(beside)[3] == 1
    wide = Problem(((),) * 4, (HALVED,) * 4, lanes=2)
    assert allotment(wide) == (1, 1, 1, 1)


def test_what_gains_nothing_by_lanes_gets_none() -> None:
    assert allotment(Problem(((), (0,)), ((4.0, 4.0), HALVED), lanes=2)) == (1, 2)


@each(range(60))
def test_at_the_end_the_chain_is_no_longer_than_the_work_or_cannot_be_shortened(seed: int) -> None:
    problem = random_problem(seed, most=15)
    counts = allotment(problem)
    lengths = [dict(problem.lengths(call))[count] for call, count in enumerate(counts)]
    ways = ways_to_the_end(problem.before, lengths, problem.handover_s)
    work = sum(count * length for count, length in zip(counts, lengths, strict=True))
    slow = [
        call
        for call, count in enumerate(counts)
        if any(more > count and length < lengths[call] for more, length in problem.lengths(call))
    ]
    critical = _critical(problem, ways)
    assert max(ways) <= work / problem.lanes or not critical & {*slow}


def _critical(problem: Problem, ways: list[float]) -> set[int]:
    """The calls of one longest chain."""
    at = max(problem.calls, key=lambda call: ways[call])
    chain = {at}
    while after := [call for call in problem.calls if at in problem.before[call]]:
        at = max(after, key=lambda call: ways[call])
        chain.add(at)
    return chain
