from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.schedule.problem import Problem, makespan, verify_schedule
from compiler.schedule.solvers.candidates import candidates
from compiler.schedule.solvers.optimal import optimum
from tests.compiler.schedule.problems import random_problem, shortest, with_moves
from tests.seeds import each

pytest.importorskip("ortools")

LIMIT_S = 600.0
"""Never reached: these problems are solved in milliseconds."""


@each(range(40))
def test_the_optimum_is_that_of_brute_force(seed: int) -> None:
    problem = random_problem(seed, most=5, lanes=2)
    found = optimum(problem, candidates(problem)[-1].placed, LIMIT_S)
    verify_schedule(problem, found.placed)
    least = shortest(problem)
    assert found.proven
    assert makespan(found.placed) == pytest.approx(least, rel=1e-4)
    assert found.bound_s <= least * (1 + 1e-9)
    assert found.bound_s == pytest.approx(least, rel=1e-3)


@each(range(40))
def test_where_results_are_moved_it_is_exact_for_calls_on_one_lane(seed: int) -> None:
    problem = random_problem(seed, most=5, lanes=2)
    problem = with_moves(replace(problem, seconds=tuple(one[:1] for one in problem.seconds)), seed)
    found = optimum(problem, candidates(problem)[-1].placed, LIMIT_S)
    verify_schedule(problem, found.placed)
    assert found.proven
    assert makespan(found.placed) == pytest.approx(shortest(problem), rel=1e-4)


@each(range(60))
def test_where_split_calls_are_moved_the_bound_stays_one(seed: int) -> None:
    problem = with_moves(random_problem(seed, most=4, lanes=2 + seed % 2), seed)
    found = optimum(problem, candidates(problem)[-1].placed, LIMIT_S)
    verify_schedule(problem, found.placed)
    assert found.bound_s <= shortest(problem) * (1 + 1e-9)
    assert shortest(problem) * (1 - 1e-9) <= makespan(found.placed)


@each(range(10))
def test_with_three_lanes_too(seed: int) -> None:
    problem = random_problem(seed, most=4, lanes=3)
    assert makespan(optimum(problem, candidates(problem)[-1].placed, LIMIT_S).placed) == pytest.approx(
        shortest(problem), rel=1e-4
    )


def test_calls_that_take_no_time_have_an_optimum() -> None:
    problem = Problem(((), (0,)), ((0.0,), (0.0,)), lanes=2)
    assert optimum(problem, candidates(problem)[0].placed, LIMIT_S).proven


def test_what_the_solver_cannot_better_in_its_time_stays() -> None:
    problem = random_problem(5, most=40, least=40, lanes=2)
    known = candidates(problem)[0].placed
    found = optimum(problem, known, limit_s=1e-3)
    assert makespan(found.placed) <= makespan(known)
    assert 0.0 < found.bound_s <= makespan(found.placed) * (1 + 1e-9)
