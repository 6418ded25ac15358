from __future__ import annotations

import pytest

from compiler.schedule.problem import Problem, makespan, verify_schedule
from compiler.schedule.stage_lanes import StageLanes, placed_stages
from tests.compiler.schedule.problems import random_problem

FOUR = Problem(((),) * 4, ((4.0, 2.0, 2.0, 1.0),) * 2 + ((4.0,),) * 2, lanes=4)


def test_a_lone_group_has_every_lane_that_helps_it() -> None:
    assert StageLanes(FOUR).seconds([(0,)]) == 1.0
    assert StageLanes(FOUR).seconds([(2,)]) == 4.0
    assert [seat.lanes for seat in StageLanes(FOUR).seats([(2,)])] == [1]


def test_the_slowest_group_gets_more_lanes() -> None:
    assert [(seat.lanes, seat.seconds) for seat in StageLanes(FOUR).seats([(0,), (1,)])] == [(2, 2.0), (2, 2.0)]
    assert [seat.lanes for seat in StageLanes(FOUR).seats([(0, 1), (2,)])] == [2, 1]


def test_more_groups_than_lanes_take_turns_longest_first() -> None:
    problem = Problem(((),) * 5, tuple((float(length),) for length in (3, 3, 2, 2, 2)), lanes=2)
    seats = StageLanes(problem).seats([(call,) for call in range(5)])
    assert [seat.seconds for seat in seats] == [7.0, 5.0]
    assert sorted(group for seat in seats for group in seat.groups) == [(call,) for call in range(5)]


def test_a_stage_of_more_than_one_lane_ends_with_a_hand_over() -> None:
    problem = Problem(((), ()), ((2.0,), (2.0,)), lanes=2, handover_s=0.25)
    assert StageLanes(problem).seconds([(0,), (1,)]) == 2.25
    assert StageLanes(problem).seconds([(0,)]) == 2.0


@pytest.mark.parametrize("seed", range(60))
def test_a_schedule_takes_no_longer_than_its_stages(seed: int) -> None:
    """Each call alone in a stage: nothing but what was counted may keep it waiting."""
    problem = random_problem(seed, most=15)
    found = [((call,),) for call in problem.calls]
    placed = placed_stages(problem, found)
    verify_schedule(problem, placed)
    lanes = StageLanes(problem)
    moved = problem.handover_s * len(found)
    assert makespan(placed) <= sum(map(lanes.seconds, found)) + moved + 1e-9


def test_a_group_stays_where_what_it_reads_was_made() -> None:
    problem = Problem(((), (), (0,), (1,)), ((1.0,), (2.0,), (2.0,), (1.0,)), lanes=2, handover_s=0.25)
    placed = placed_stages(problem, [((0,), (1,)), ((2,), (3,))])
    lanes = {one.call: one.lanes for one in placed}
    assert lanes[0] == lanes[2] != lanes[1] == lanes[3]
    assert makespan(placed) == 3.0
