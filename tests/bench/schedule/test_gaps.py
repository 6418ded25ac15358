from __future__ import annotations

import json
from typing import Any

import pytest

from bench.schedule import gap_table
from bench.schedule import gaps as gapping
from bench.schedule.gaps import BlockGaps, Gaps, every_schedule, gaps, solved
from compiler.schedule.problem import Problem, lower_bound, makespan, verify_schedule
from tests.compiler.schedule.problems import random_problem, shortest

SOLVER_S = 20.0
DIAMOND = ((), (0,), (0,), (0,), (1, 2, 3))
"""A block of three calls between two that are blocks by themselves."""


def ignore(more: str) -> None:
    """What is told."""


def alike(before: tuple[tuple[int, ...], ...], lanes: int = 2) -> Problem:
    """Calls of 3 s that cannot be split."""
    return Problem(before, ((3.0,),) * len(before), lanes)


@pytest.fixture
def no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **more: Any) -> None:
        raise AssertionError("nobody should have asked the solver")

    monkeypatch.setattr(gapping, "optimum", refuse)


@pytest.mark.usefixtures("no_solver")
def test_a_schedule_that_meets_a_bound_is_the_optimum_without_a_solver() -> None:
    found = solved(alike(((), ())), 1, SOLVER_S, 1)
    assert (found.best_s, found.bound_s, found.proven) == (3.0, 3.0, True)
    assert found.gap("stages") == 0.0


def test_the_optimum_of_small_blocks_is_that_of_trying_everything() -> None:
    pytest.importorskip("ortools")
    for seed in range(12):
        problem = random_problem(seed, most=4, lanes=2, least=2)
        found = solved(problem, 1, SOLVER_S, 1)
        assert found.proven
        assert found.best_s == pytest.approx(shortest(problem), rel=1e-4)
        assert all(found.gap(name) >= -1e-9 for name in found.seconds)


def test_what_the_solver_could_not_prove_is_not_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    problem = next(
        one
        for one in (random_problem(seed, most=12, lanes=3, least=12) for seed in range(50))
        if min(makespan(every.placed) for every in every_schedule(one)) > 1.01 * lower_bound(one)
    )
    found = solved(problem, 1, 1e-6, 1)
    assert not found.proven
    assert found.bound_s < found.best_s


def test_equal_blocks_are_counted_and_solved_once_and_single_calls_left_out(no_solver: None) -> None:
    twice = (*DIAMOND, *(tuple(one + 4 for one in earlier) for earlier in DIAMOND[1:]))
    reported: list[str] = []
    found = gaps(alike(twice, lanes=3), SOLVER_S, 1, reported.append)
    assert [(block.calls, block.times, block.best_s) for block in found.blocks] == [(3, 2, 3.0)]
    assert reported == ["block 1 of 1, 3 calls"]
    assert found.whole_s["stages"] == 15.0
    assert found.whole_s.keys() == found.found_s.keys() == found.blocks[0].seconds.keys()


def test_every_scheduler_gives_a_schedule_even_where_they_are_equal() -> None:
    problem = alike(DIAMOND)
    found = every_schedule(problem)
    for one in found:
        verify_schedule(problem, one.placed)
        assert one.predicted_s == makespan(one.placed)
    names = [one.name for one in found]
    assert len(names) == len({*names})
    assert {"early_start", "allotted", "greedy", "stages", "blocks", "descent"} <= {*names}
    assert len({one.placed for one in found}) < len(found)


def test_worst_and_mean_are_of_the_blocks_that_are_proven() -> None:
    names = ("early_start", "stages", "descent")
    block = [
        BlockGaps(3, 2, 1.0, 1.0, True, dict(zip(names, (1.0, 1.5, 1.0), strict=True))),
        BlockGaps(5, 1, 2.0, 2.0, True, dict(zip(names, (2.4, 2.2, 2.0), strict=True))),
        BlockGaps(40, 1, 9.0, 8.0, False, dict(zip(names, (9.0, 99.0, 99.0), strict=True))),
    ]
    whole = dict.fromkeys(names, 14.0)
    reported = json.loads(json.dumps(Gaps(tuple(block), whole, dict.fromkeys(names, 0.1), 0.25).to_json()))
    assert reported["proven"] == 2
    assert reported["worst_gap"] == {"early_start": pytest.approx(0.2), "stages": 0.5, "descent": 0.0}
    assert reported["mean_gap"] == {"early_start": pytest.approx(0.1), "stages": pytest.approx(0.3), "descent": 0.0}
    assert reported["worst_of_aimed"] == pytest.approx(0.1), (
        "list scheduling is exact in the first, stages 10% off in the second"
    )
    assert reported["worst_of_best"] == 0.0
    row = {"model": "net", "threads": 2, "calls": 60, "measured_calls": 58, **reported}
    text = gap_table.markdown([row, {"model": "broken", "threads": 2, "problem": "no such operator"}], 3.0)
    assert (
        "| net | 2 | 60 (58) | 4, 3 | 2 | 20.0% / 10.0% | 50.0% / 30.0% | 0.0% / 0.0% | 10.0% | 0.0% | 0.25 |" in text
    )
    assert "- broken, T2: no such operator" in text


def test_without_a_proven_block_there_is_no_gap() -> None:
    reported = Gaps(
        (BlockGaps(2, 1, 2.0, 1.0, False, {"stages": 2.0}),), {"stages": 2.0}, {"stages": 0.1}, 0.1
    ).to_json()
    assert (reported["proven"], reported["worst_gap"], reported["worst_of_best"]) == (0, {"stages": None}, None)
    row = {"model": "net", "threads": 2, "calls": 2, "measured_calls": 2, **reported}
    assert "| - / - | - | - |" in gap_table.markdown([row], 3.0)
