"""How far the schedulers are from the optimum on blocks of real networks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.schedule.problem import Move, lower_bound, makespan, verify_schedule
from compiler.schedule.solvers.candidates import candidates, named
from compiler.schedule.solvers.optimal import optimum
from tests.compiler.schedule.cells import (
    MIXED_5B,
    MIXED_6B,
    MIXED_7B,
    NORMAL_CELL,
    RANDWIRE,
    REDUCTION,
    Cell,
    nasnet_large,
)

LIMIT_S = 60.0
"""Each of these is solved within a second or two."""
PROVEN = [(MIXED_5B, 2), (MIXED_5B, 4), (MIXED_6B, 2), (MIXED_7B, 2), (MIXED_7B, 4), (REDUCTION, 2), (REDUCTION, 4)]
IDS = ["5b on 2", "5b on 4", "6b on 2", "7b on 2", "7b on 4", "reduction on 2", "reduction on 4"]


@pytest.mark.parametrize(("cell", "lanes"), PROVEN, ids=IDS)
def test_a_block_ends_within_5_percent_of_the_optimum(cell: Cell, lanes: int) -> None:
    pytest.importorskip("ortools")
    problem = cell.on(lanes)
    best = candidates(problem)[0].placed
    found = optimum(problem, best, LIMIT_S)
    verify_schedule(problem, found.placed)
    assert found.bound_s <= makespan(found.placed) * (1 + 1e-9)
    assert found.proven
    assert makespan(best) <= 1.05 * found.bound_s
    without_annealing = [*named(problem, "stages"), *named(problem, "early_start")]
    assert min(makespan(one.placed) for one in without_annealing) <= 1.05 * found.bound_s


@pytest.mark.parametrize("lanes", [2, 4])
def test_where_lanes_are_far_apart_too(lanes: int) -> None:
    """Every edge costs a fifth of a call to move; the solver's bound counts less of it where calls are split."""
    pytest.importorskip("ortools")
    plain = REDUCTION.on(lanes)
    problem = replace(plain, moves=tuple(tuple(Move(2e-6) for _ in earlier) for earlier in plain.before))
    best = candidates(problem)[0].placed
    found = optimum(problem, best, LIMIT_S)
    verify_schedule(problem, found.placed)
    assert makespan(best) <= 1.05 * makespan(found.placed)


def test_a_network_of_900_calls_keeps_two_lanes_busy() -> None:
    problem = nasnet_large().on(2)
    assert len(problem.before) > 800
    assert candidates(problem)[0].predicted_s <= 1.01 * lower_bound(problem)


@pytest.mark.parametrize("cell", [MIXED_5B, MIXED_6B, NORMAL_CELL, RANDWIRE], ids=["5b", "6b", "normal", "randwire"])
def test_on_two_lanes_hardly_a_lane_is_idle(cell: Cell) -> None:
    """Within 8% of what both lanes could do if nothing waited for anything, so without a solver."""
    problem = cell.on(2)
    assert makespan(candidates(problem)[0].placed) <= 1.08 * lower_bound(problem)
