from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from compiler.errors import VerifyError
from compiler.schedule.problem import (
    Move,
    Placed,
    Problem,
    lower_bound,
    makespan,
    timed,
    verify_schedule,
    ways_to_the_end,
)
from compiler.schedule.solvers.early_start import Rules, early_start
from tests.compiler.schedule.problems import random_problem, shortest, with_moves
from tests.seeds import each

CHAIN = Problem(((), (0,), (1,)), ((4.0, 2.5), (1.0,), (4.0, 2.5)), lanes=2, handover_s=0.25)


def placed(*calls: tuple[int, tuple[int, ...]]) -> tuple[Placed, ...]:
    return timed(CHAIN, (Placed(call, lanes, 0.0, 0.0) for call, lanes in calls))


def test_a_call_takes_what_it_takes_on_so_many_lanes() -> None:
    assert CHAIN.lengths(0) == ((1, 4.0), (2, 2.5))
    assert CHAIN.lengths(1) == ((1, 1.0),)
    assert replace(CHAIN, seconds=((4.0, None, 2.0),) * 3, lanes=3).lengths(0) == ((1, 4.0), (3, 2.0))
    assert replace(CHAIN, lanes=1).lengths(0) == ((1, 4.0),)


def test_on_one_lane_nothing_is_handed_over() -> None:
    assert makespan(placed((0, (0,)), (1, (0,)), (2, (0,)))) == 9.0


def test_a_result_of_another_lane_is_waited_for() -> None:
    assert makespan(placed((0, (0,)), (1, (1,)), (2, (1,)))) == 9.25
    assert makespan(placed((0, (0, 1)), (1, (0,)), (2, (0, 1)))) == 2.5 + 0.25 + 1.0 + 0.25 + 2.5


def test_a_part_keeps_what_is_inside_of_it() -> None:
    part = CHAIN.part((1, 2))
    assert (part.before, part.seconds) == (((), (0,)), CHAIN.seconds[1:])
    part.verify()


@each(range(20))
def test_the_edges_of_a_part_keep_what_is_moved(seed: int) -> None:
    whole = with_moves(random_problem(seed, most=15), seed)
    calls = [call for call in whole.calls if Random(seed * 99 + call).random() < 0.6]
    part = whole.part(calls)
    part.verify()
    for at, call in enumerate(calls):
        moves = dict(zip(whole.before[call], whole.moves[call], strict=True))
        assert [moves[calls[one]] for one in part.before[at]] == list(part.moves[at])
        assert {calls[one] for one in part.before[at]} == {*calls} & {*whole.before[call]}


@pytest.mark.parametrize(
    "broken",
    [
        replace(CHAIN, before=((), (0,), (3,))),
        replace(CHAIN, before=((1,), (0,), (1,))),
        replace(CHAIN, seconds=((4.0,), (1.0,))),
        replace(CHAIN, seconds=((4.0,), (None, 1.0), (1.0,))),
        replace(CHAIN, lanes=0),
        replace(CHAIN, moves=((), ())),
        replace(CHAIN, moves=((), (), ())),
    ],
)
def test_a_problem_that_is_none_is_refused(broken: Problem) -> None:
    with pytest.raises(VerifyError):
        broken.verify()


@pytest.mark.parametrize(
    ("call", "changed", "reason"),
    [
        (1, {"begin": 3.0, "end": 4.0}, "before its lanes are free"),
        (1, {"lanes": (1,)}, "what it reads is there"),
        (1, {"lanes": (0, 1)}, "cannot run on lanes"),
        (1, {"lanes": (2,)}, "cannot run on lanes"),
        (1, {"end": 4.5}, "takes"),
        (1, {"call": 0}, "not each"),
    ],
)
def test_a_schedule_that_is_none_is_refused(call: int, changed: dict[str, object], reason: str) -> None:
    whole = list(placed((0, (0,)), (1, (0,)), (2, (0,))))
    verify_schedule(CHAIN, whole)
    whole[call] = replace(whole[call], **changed)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match=reason):
        verify_schedule(CHAIN, whole)


def test_a_call_before_its_predecessor_is_refused() -> None:
    whole = placed((0, (0,)), (1, (0,)), (2, (0,)))
    with pytest.raises(VerifyError, match="before one of its predecessors"):
        verify_schedule(CHAIN, (whole[1], whole[0], whole[2]))


MOVED = replace(CHAIN, moves=((), (Move(2.0),), (Move(2.0, (1.0, 0.75), (0.0, 0.125)),)), seconds=((4.0, 2.5),) * 3)


def length_of_last(*lanes: tuple[int, ...]) -> float:
    """Of call 2, which reads of call 1."""
    return (found := timed(MOVED, (Placed(call, on, 0.0, 0.0) for call, on in enumerate(lanes))))[2].end - found[
        2
    ].begin


def test_what_another_lane_wrote_makes_a_call_longer() -> None:
    assert length_of_last((0,), (0,), (0,)) == 4.0
    assert length_of_last((0,), (0,), (1,)) == 4.0 + 2.0
    assert length_of_last((0,), (0, 1), (1,)) == 4.0 + 1.0  # the half that lane 0 wrote
    assert length_of_last((0,), (0, 1), (0, 1)) == 2.5 + 2.0 * 0.125  # aligned
    assert length_of_last((0,), (0,), (0, 1)) == 2.5 + 2.0 * 0.75  # lane 1 reads its part, all from lane 0


def test_of_a_call_that_is_not_aligned_each_part_reads_all() -> None:
    found = timed(MOVED, (Placed(call, (0, 1), 0.0, 0.0) for call in range(3)))
    assert found[1].end - found[1].begin == 2.5 + 2.0 * 0.5
    verify_schedule(MOVED, found)
    with pytest.raises(VerifyError, match="takes"):
        verify_schedule(MOVED, timed(CHAIN, placed((0, (0,)), (1, (1,)), (2, (1,)))))


@each(range(60))
def test_the_slowest_lane_reads_at_least_what_any_lanes_would(seed: int) -> None:
    """`Move.least` against every pair of sets of lanes, for one edge and for the sum of several."""
    random, lanes = Random(seed), 3
    problem = with_moves(random_problem(seed, most=9, least=4, lanes=lanes), seed)
    every = [set for count in range(1, lanes + 1) for set in combinations(range(lanes), count)]
    for call in problem.calls:
        for on in every:
            done = {one: Placed(one, random.choice(every), 0.0, 0.0) for one in problem.before[call]}
            edges = zip(problem.moves[call], problem.before[call], strict=True)
            least = sum(move.seconds * move.least(len(on), len(done[one].lanes)) for move, one in edges)
            assert problem.moving(call, on, done) >= least - 1e-9


@each(range(40))
@pytest.mark.parametrize("moves", [False, True])
def test_list_scheduling_and_the_simulator_agree_to_the_bit(seed: int, moves: bool) -> None:
    problem = random_problem(seed, most=20)
    problem = with_moves(problem, seed) if moves else problem
    found = early_start(problem, Rules())
    assert timed(problem, found) == found
    verify_schedule(problem, found)


@each(range(25))
def test_nothing_is_shorter_than_the_lower_bound(seed: int) -> None:
    problem = random_problem(seed, most=5, lanes=2)
    assert lower_bound(problem) <= shortest(problem) + 1e-9
    moved = with_moves(problem, seed)
    assert shortest(problem) - 1e-9 <= shortest(moved)


def test_the_longest_way_counts_calls_and_steps() -> None:
    assert ways_to_the_end(((), (0,), (0,), (1, 2)), [1.0, 5.0, 2.0, 1.0], edge=0.5) == [8.0, 6.5, 3.5, 1.0]
