"""How far the schedulers are from the optimum on blocks of real networks."""

from __future__ import annotations

import pytest

from compiler.schedule.candidates import candidates
from compiler.schedule.optimal import optimum
from compiler.schedule.problem import lower_bound, makespan, verify_schedule
from tests.compiler.schedule.cells import MIXED_5B, MIXED_6B, MIXED_7B, NORMAL_CELL, RANDWIRE, REDUCTION, Cell

LIMIT_S = 60.0
"""Each of these is solved within a second or two."""


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("cell", [MIXED_5B, MIXED_7B, REDUCTION], ids=["mixed_5b", "mixed_7b", "reduction"])
def test_a_block_ends_within_5_percent_of_the_optimum(cell: Cell, lanes: int) -> None:
    pytest.importorskip("ortools")
    problem = cell.on(lanes)
    best = candidates(problem)[0][1]
    found = optimum(problem, best, LIMIT_S)
    verify_schedule(problem, found.placed)
    assert found.bound_s <= found.makespan_s * (1 + 1e-9)
    assert makespan(best) <= 1.05 * found.makespan_s
    assert makespan(best) <= 1.05 * found.bound_s or not found.proven


@pytest.mark.parametrize("cell", [MIXED_5B, MIXED_6B, NORMAL_CELL, RANDWIRE], ids=["5b", "6b", "normal", "randwire"])
def test_on_two_lanes_hardly_a_lane_is_idle(cell: Cell) -> None:
    """Within 8% of what both lanes could do if nothing waited for anything, so without a solver."""
    problem = cell.on(2)
    assert makespan(candidates(problem)[0][1]) <= 1.08 * lower_bound(problem)
