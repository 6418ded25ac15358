from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.ir.lanes import Beside
from compiler.schedule.contention import contended, contended_makespan
from compiler.schedule.early_start import Rules, early_start
from compiler.schedule.problem import Placed, Problem, lower_bound, makespan, timed
from tests.compiler.schedule.problems import random_problem, with_loads, with_moves
from tests.seeds import each

HEAVY = Beside(1.0, 1.0)
LIGHT = Beside(0.0, 0.0)


def side_by_side(lengths: tuple[float, ...], loads: tuple[Beside, ...]) -> list[tuple[float, float]]:
    """Calls that begin together, each on a lane of its own, as they begin and end."""
    problem = Problem(((),) * len(lengths), tuple((one,) for one in lengths), len(lengths), beside=loads)
    placed = timed(problem, (Placed(call, (call,), 0.0, 0.0) for call in problem.calls))
    return [(one.begin, one.end) for one in contended(problem, placed)]


def test_two_that_saturate_memory_take_twice_as_long_while_both_run() -> None:
    assert side_by_side((2.0, 3.0), (HEAVY, HEAVY)) == [(0.0, 4.0), (0.0, 5.0)]


def test_who_does_not_suffer_ends_when_it_would_alone() -> None:
    assert side_by_side((2.0, 3.0), (LIGHT, HEAVY)) == [(0.0, 2.0), (0.0, 3.0)]


def test_what_presses_adds_up() -> None:
    """Three at once run at a third each; then two at a half, then one."""
    assert side_by_side((1.0, 2.0, 3.0), (HEAVY,) * 3) == [(0.0, 3.0), (0.0, 5.0), (0.0, 6.0)]


def test_a_neighbour_that_begins_later_counts_from_then_on() -> None:
    """Call 1 follows call 0 on the other lane of call 2: two seconds alone, then both at half speed."""
    problem = Problem(((), (0,), ()), ((2.0,), (1.0,), (4.0,)), 2, beside=(LIGHT, HEAVY, HEAVY))
    placed = timed(problem, [Placed(0, (0,), 0, 0), Placed(1, (0,), 0, 0), Placed(2, (1,), 0, 0)])
    assert {one.call: one.end for one in contended(problem, placed)} == {0: 2.0, 1: 4.0, 2: 5.0}


def test_a_call_on_several_lanes_presses_as_one() -> None:
    problem = Problem(((), ()), ((4.0, 2.0), (2.0,)), 3, beside=(HEAVY, HEAVY))
    placed = timed(problem, [Placed(0, (0, 1), 0, 0), Placed(1, (2,), 0, 0)])
    assert [one.end for one in contended(problem, placed)] == [4.0, 4.0]


@each(range(60))
def test_without_loads_it_is_the_schedule_itself(seed: int) -> None:
    problem = with_moves(random_problem(seed, most=20), seed)
    placed = early_start(problem, Rules())
    assert contended(problem, placed) == placed
    for load in (Beside(0.5, 0.0), Beside(0.0, 0.5)):
        assert contended(replace(problem, beside=(load,) * len(problem.before)), placed) == placed


@each(range(80))
def test_it_agrees_with_small_steps_of_time(seed: int) -> None:
    """A reference that moves on by a fixed small step and knows nothing of events."""
    problem = with_loads(with_moves(random_problem(seed, most=8), seed), seed)
    placed = early_start(problem, Rules())
    step = makespan(placed) / 4000
    assert contended_makespan(problem, placed) == pytest.approx(
        stepped(problem, placed, step), abs=3 * step * len(placed)
    )


def stepped(problem: Problem, placed: tuple[Placed, ...], step: float) -> float:
    ends: dict[int, float] = {}
    left: dict[int, float] = {}
    now = 0.0
    order = {one.call: at for at, one in enumerate(placed)}
    alone = {one.call: one.end - one.begin for one in placed}
    lanes = {one.call: one.lanes for one in placed}

    def may_begin(one: Placed) -> bool:
        if one.call in left or one.call in ends:
            return False
        earlier = [other for other in placed[: order[one.call]] if {*other.lanes} & {*one.lanes}]
        arrived = (
            ends.get(other, 1e99) + (0.0 if lanes[other] == one.lanes and len(one.lanes) == 1 else problem.handover_s)
            for other in problem.before[one.call]
        )
        return all(other.call in ends for other in earlier) and max(arrived, default=0.0) <= now + 1e-12

    while len(ends) < len(placed):
        left |= {one.call: alone[one.call] for one in placed if may_begin(one)}
        rates = {
            call: 1 / (1 + problem.beside[call].suffers * sum(problem.beside[o].presses for o in left if o != call))
            for call in left
        }
        now += step
        for call, rate in rates.items():
            left[call] -= step * rate
            if left[call] <= 0.0:
                ends[call] = now
                del left[call]
    return max(ends.values())


@each(range(60))
def test_nothing_ends_sooner_beside_others(seed: int) -> None:
    """So bounds without contention stay bounds."""
    problem = with_loads(random_problem(seed, most=20), seed)
    placed = early_start(problem, Rules())
    slowed = contended(problem, placed)
    assert all(then.end >= now.end - 1e-9 for now, then in zip(placed, slowed, strict=True))
    assert all(then.begin >= now.begin - 1e-9 for now, then in zip(placed, slowed, strict=True))
    assert makespan(slowed) >= lower_bound(problem) - 1e-9
