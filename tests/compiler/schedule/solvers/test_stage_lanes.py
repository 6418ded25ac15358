from __future__ import annotations

from dataclasses import replace
from itertools import product

from compiler.schedule.problem import Move, Problem, makespan, verify_schedule
from compiler.schedule.solvers.stage_lanes import StageLanes, placed_stages
from tests.compiler.schedule.problems import random_problem, with_moves
from tests.seeds import each

FOUR = Problem(((),) * 4, ((4.0, 2.0, 2.0, 1.0),) * 2 + ((4.0,),) * 2, lanes=4)


def test_a_lone_group_has_every_lane_that_helps_it() -> None:
    assert StageLanes(FOUR).seconds([(0,)]) == 1.0
    assert StageLanes(FOUR).seconds([(2,)]) == 4.0
    assert [seat.lanes for seat in StageLanes(FOUR).seats([(2,)])] == [1]


def test_the_slowest_group_gets_more_lanes() -> None:
    assert [(seat.lanes, seat.seconds) for seat in StageLanes(FOUR).seats([(0,), (1,)])] == [(2, 2.0), (2, 2.0)]
    assert [seat.lanes for seat in StageLanes(FOUR).seats([(0, 1), (2,)])] == [2, 1]


def test_no_group_takes_lanes_that_the_next_slowest_needs() -> None:
    """Call 0 is fastest on three lanes, but two are enough: call 1 is then no slower than it."""
    problem = Problem(((), ()), ((6.0, 3.5, 3.0), (5.0, 3.4)), lanes=4)
    assert [(one.lanes, one.seconds) for one in StageLanes(problem).seats([(0,), (1,)])] == [(2, 3.5), (2, 3.4)]


def test_groups_that_split_well_take_turns_on_more_lanes_than_one() -> None:
    """Three on two lanes: one after another on both they leave no lane idle."""
    problem = Problem(((),) * 3, ((4.0, 2.0),) * 3, lanes=2)
    assert [(one.lanes, len(one.groups), one.seconds) for one in StageLanes(problem).seats([(0,), (1,), (2,)])] == [
        (2, 3, 6.0)
    ]


@each(range(60))
def test_no_other_numbers_of_lanes_make_a_stage_of_few_groups_shorter(seed: int) -> None:
    problem = random_problem(seed, lanes=4)
    lanes = StageLanes(problem)
    groups = [(call,) for call in problem.calls][:4]
    ends = []
    for counts in product(range(1, 5), repeat=len(groups)):
        if sum(counts) <= 4:
            alone = zip(groups, counts, strict=True)
            ends.append(max(lanes.fastest[group[0]][count - 1][1] for group, count in alone))
    assert max(seat.seconds for seat in lanes.seats(groups)) == min(ends)


@each(range(60))
def test_groups_in_turn_end_no_later_than_packed_on_single_lanes(seed: int) -> None:
    """LPT on single lanes, which is within 4/3 of the best packing there (Graham, 1969)."""
    problem = random_problem(seed, most=12, least=5, lanes=4)
    filled = [0.0] * problem.lanes
    for length in sorted((problem.alone(call) for call in problem.calls), reverse=True):
        filled[filled.index(min(filled))] += length
    seats = StageLanes(problem).seats([(call,) for call in problem.calls])
    assert max(seat.seconds for seat in seats) <= max(filled)
    assert sorted(group for seat in seats for group in seat.groups) == [(call,) for call in problem.calls]
    assert sum(seat.lanes for seat in seats) <= problem.lanes


def test_more_groups_than_lanes_take_turns_longest_first() -> None:
    problem = Problem(((),) * 5, tuple((float(length),) for length in (3, 3, 2, 2, 2)), lanes=2)
    seats = StageLanes(problem).seats([(call,) for call in range(5)])
    assert [seat.seconds for seat in seats] == [7.0, 5.0]
    assert sorted(group for seat in seats for group in seat.groups) == [(call,) for call in range(5)]


def test_a_stage_of_more_than_one_lane_ends_with_a_hand_over() -> None:
    problem = Problem(((), ()), ((2.0,), (2.0,)), lanes=2, handover_s=0.25)
    assert StageLanes(problem).seconds([(0,), (1,)]) == 2.25
    assert StageLanes(problem).seconds([(0,)]) == 2.0


@each(range(60))
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


def test_a_group_on_several_lanes_counts_what_moves_between_them() -> None:
    seconds = ((4.0, 2.0), (4.0, 2.0))
    plain = Problem(((), (0,)), seconds, lanes=2)
    whole = replace(plain, moves=((), (Move(1.0),)))
    aligned = replace(plain, moves=((), (Move(1.0, (1.0, 0.6), (0.0, 0.1)),)))
    latencies = [StageLanes(problem).seconds([(0, 1)]) for problem in (plain, whole, aligned)]
    assert latencies == [4.0, 4.0 + 0.5, 4.0 + 0.1]
    placed = [makespan(placed_stages(problem, [((0, 1),)])) for problem in (plain, whole, aligned)]
    assert placed == latencies


@each(range(40))
def test_with_moves_stages_make_a_schedule_too(seed: int) -> None:
    problem = with_moves(random_problem(seed, most=15), seed)
    verify_schedule(problem, placed_stages(problem, [((call,),) for call in problem.calls]))


def test_a_group_stays_where_moving_would_cost_most() -> None:
    """Call 2 reads of both; what it reads of call 1 is dearer to move."""
    moves = ((), (), (Move(0.5), Move(2.0)))
    problem = Problem(((), (), (0, 1)), ((2.0,), (1.0,), (1.0,)), lanes=2, moves=moves)
    placed = {one.call: one for one in placed_stages(problem, [((0,), (1,)), ((2,),)])}
    assert placed[2].lanes == placed[1].lanes
    assert placed[2].end == 2.0 + 1.0 + 0.5
