from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from compiler.schedule.problem import Move, Problem
from compiler.schedule.solvers.clusters import linear_clusters, pieces, quotient
from tests.compiler.schedule.problems import random_problem
from tests.seeds import each


def problem_of(*before: tuple[int, ...], lengths: tuple[float, ...] = ()) -> Problem:
    return Problem(before, tuple((length,) for length in lengths or (1.0,) * len(before)), 2)


@each(range(200))
def test_clusters_are_chains_that_cover_the_calls(seed: int) -> None:
    problem = random_problem(seed, most=30)
    clusters = linear_clusters(problem)
    assert sorted(call for cluster in clusters for call in cluster) == list(problem.calls)
    for cluster in clusters:
        assert all(one in problem.before[call] for one, call in pairwise(cluster))


@pytest.mark.parametrize("most", [1, 2, 3, 30])
@each(range(200))
def test_the_graph_of_clusters_has_no_cycle(seed: int, most: int) -> None:
    problem = random_problem(seed, most=30)
    clusters = pieces(problem, linear_clusters(problem), most)
    for cluster, earlier in enumerate(quotient(problem.before, clusters)):
        assert all(one < cluster for one in earlier)
    assert max(map(len, clusters)) <= most


def test_the_longest_path_is_the_first_cluster() -> None:
    """Of the paths through 1 and through 2 that to the end of a third branch is longer."""
    lengths = (1.0, 5.0, 1.0, 1.0, 1.0)
    assert linear_clusters(problem_of((), (0,), (0,), (2,), (1,), lengths=lengths)) == [(0, 1, 4), (2, 3)]


def test_a_hand_over_makes_a_path_longer() -> None:
    problem = problem_of((), (0,), (1,), (0,), lengths=(1.0, 1.0, 1.0, 2.5))
    assert linear_clusters(problem) == [(0, 3), (1, 2)]
    assert linear_clusters(replace(problem, handover_s=1.0)) == [(0, 1, 2), (3,)]


def test_a_cluster_ends_where_a_path_reenters() -> None:
    """0, 1, 4 is the longest path, but 2 reads from 0 and 4 from what reads 2: 4 goes on with those."""
    lengths = (1.0, 5.0, 1.0, 1.0, 1.0)
    assert linear_clusters(problem_of((), (0,), (0,), (2,), (1, 3), lengths=lengths)) == [(0, 1), (2, 3, 4)]


def test_a_shortcut_splits_nothing() -> None:
    assert linear_clusters(problem_of((), (0,), (0, 1))) == [(0, 1, 2)]


def test_what_is_moved_on_an_edge_makes_a_path_longer() -> None:
    problem = problem_of((), (0,), (1,), (0,), lengths=(1.0, 1.0, 1.0, 2.5))
    moved = replace(problem, moves=((), (Move(1.0),), (Move(0.0),), (Move(0.0),)))
    assert linear_clusters(moved) == [(0, 1, 2), (3,)]
