from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from compiler.schedule.problem import Problem
from compiler.schedule.solvers.cut import branches
from compiler.schedule.solvers.stages import Pruning, Stage, TooManyEndings, stages
from tests.compiler.schedule.problems import random_problem
from tests.seeds import each

WIDE = Pruning(nodes=99, groups=99)


def priced(seed: int) -> dict[Stage, float]:
    """A latency for every stage that is asked for, by no rule: as measured."""

    class Prices(dict[Stage, float]):
        def __missing__(self, stage: Stage) -> float:
            self[stage] = sum(map(len, stage)) ** 0.5 + Random(f"{seed} {stage}").random()
            return self[stage]

    return Prices()


def endings(problem: Problem, rest: frozenset[int]) -> list[frozenset[int]]:
    """By definition: no node that stays reads from one that goes."""
    sets = (frozenset(some) for size in range(1, len(rest) + 1) for some in combinations(sorted(rest), size))
    return [some for some in sets if all(some.isdisjoint(problem.before[node]) for node in rest - some)]


def groups(problem: Problem, ending: frozenset[int]) -> Stage:
    return tuple(branches(problem.before, sorted(ending)))


def least(problem: Problem, prices: dict[Stage, float], pruning: Pruning) -> float:
    """Over all sequences of endings."""

    def cost(rest: frozenset[int]) -> float:
        if not rest:
            return 0.0
        allowed = [
            (ending, stage)
            for ending in endings(problem, rest)
            if len(stage := groups(problem, ending)) <= pruning.groups and max(map(len, stage)) <= pruning.nodes
        ]
        return min(cost(rest - ending) + prices[stage] for ending, stage in allowed)

    return cost(frozenset(problem.calls))


@pytest.mark.parametrize("pruning", [WIDE, Pruning(3, 8), Pruning(2, 2), Pruning(1, 8), Pruning(3, 1), Pruning(1, 1)])
@each(range(25))
def test_no_sequence_of_stages_takes_less(seed: int, pruning: Pruning) -> None:
    problem, prices = random_problem(seed, most=6), priced(seed)
    found = stages(problem.before, prices.__getitem__, pruning)
    assert sum(prices[stage] for stage in found) == pytest.approx(least(problem, prices, pruning))


@each(range(60))
def test_each_node_is_in_one_stage_after_those_it_reads_from(seed: int) -> None:
    problem = random_problem(seed, most=10)
    found = stages(problem.before, priced(seed).__getitem__, Pruning(3, 3))
    stage_of = {node: at for at, stage in enumerate(found) for group in stage for node in group}
    assert sorted(node for stage in found for group in stage for node in group) == list(problem.calls)
    for stage in found:
        assert list(stage) == branches(problem.before, sorted(node for group in stage for node in group))
        assert len(stage) <= 3
        assert max(map(len, stage)) <= 3
    assert all(stage_of[one] <= stage_of[node] for node in problem.calls for one in problem.before[node])


def test_nodes_that_share_only_a_reader_outside_of_the_stage_are_two_groups() -> None:
    """And with the reader inside they are one: groups are components, not chains."""
    joined: tuple[tuple[int, ...], ...] = ((), (), (0, 1))
    apart = {((0,), (1,)): 1.0, ((2,),): 1.0, ((0, 1, 2),): 5.0}
    assert stages(joined, lambda stage: apart.get(stage, 9.0), WIDE) == (((0,), (1,)), ((2,),))
    assert stages(joined, lambda stage: 0.5 if stage == ((0, 1, 2),) else 1.0, WIDE) == (((0, 1, 2),),)


def test_too_many_endings_are_refused_before_they_are_tried() -> None:
    alone = ((),) * 16
    asked: list[Stage] = []

    def latency(stage: Stage) -> float:
        asked.append(stage)
        return 1.0

    with pytest.raises(TooManyEndings):
        stages(alone, latency, WIDE, most_endings=1000)
    assert len(asked) <= 1000
    assert len(stages(((),) * 4, latency, WIDE, most_endings=1000)) == 1


def test_no_nodes_have_no_stages() -> None:
    assert stages((), lambda stage: 1.0, WIDE) == ()
