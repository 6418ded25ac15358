from __future__ import annotations

import pytest

from compiler.schedule.candidates import candidates
from compiler.schedule.optimal import optimum
from compiler.schedule.problem import Problem, makespan, verify_schedule
from tests.compiler.schedule.problems import random_problem, shortest

pytest.importorskip("ortools")

LIMIT_S = 600.0
"""Never reached: these problems are solved in milliseconds."""


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_that_of_brute_force(seed: int) -> None:
    problem = random_problem(seed, most=5, lanes=2)
    found = optimum(problem, candidates(problem)[-1][1], LIMIT_S)
    verify_schedule(problem, found.placed)
    least = shortest(problem)
    assert found.proven
    assert found.makespan_s == pytest.approx(least, rel=1e-4)
    assert found.bound_s <= least * (1 + 1e-9)
    assert found.bound_s == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_with_three_lanes_too(seed: int) -> None:
    problem = random_problem(seed, most=4, lanes=3)
    assert optimum(problem, candidates(problem)[-1][1], LIMIT_S).makespan_s == pytest.approx(
        shortest(problem), rel=1e-4
    )


def test_calls_that_take_no_time_have_an_optimum() -> None:
    problem = Problem(((), (0,)), ((0.0,), (0.0,)), lanes=2)
    assert optimum(problem, candidates(problem)[0][1], LIMIT_S).proven


def test_what_the_solver_cannot_better_in_its_time_stays() -> None:
    problem = random_problem(5, most=40, least=40, lanes=2)
    known = candidates(problem)[0][1]
    found = optimum(problem, known, limit_s=1e-3)
    assert found.makespan_s <= makespan(known)
    assert 0.0 < found.bound_s <= found.makespan_s * (1 + 1e-9)
