from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.errors import VerifyError
from compiler.schedule.early_start import Rules, early_start
from compiler.schedule.problem import Placed, Problem, lower_bound, makespan, timed, verify_schedule, ways_to_the_end
from tests.compiler.schedule.problems import random_problem, shortest

CHAIN = Problem(((), (0,), (1,)), ((4.0, 2.0), (1.0,), (4.0, 2.0)), lanes=2, handover_s=0.25, split_s=0.5)


def placed(*calls: tuple[int, tuple[int, ...]]) -> tuple[Placed, ...]:
    return timed(CHAIN, (Placed(call, lanes, 0.0, 0.0) for call, lanes in calls))


def test_a_split_call_takes_its_share_and_the_cost_of_splitting() -> None:
    assert CHAIN.lengths(0) == [(1, 4.0), (2, 2.5)]
    assert CHAIN.lengths(1) == [(1, 1.0)]


def test_on_one_lane_nothing_is_handed_over() -> None:
    assert makespan(placed((0, (0,)), (1, (0,)), (2, (0,)))) == 9.0


def test_a_result_of_another_lane_is_waited_for() -> None:
    assert makespan(placed((0, (0,)), (1, (1,)), (2, (1,)))) == 9.25
    assert makespan(placed((0, (0, 1)), (1, (0,)), (2, (0, 1)))) == 2.5 + 0.25 + 1.0 + 0.25 + 2.5


def test_a_part_keeps_what_is_inside_of_it() -> None:
    part = CHAIN.part((1, 2))
    assert (part.before, part.seconds) == (((), (0,)), CHAIN.seconds[1:])
    part.verify()


@pytest.mark.parametrize(
    "broken",
    [
        replace(CHAIN, before=((), (0,), (3,))),
        replace(CHAIN, before=((1,), (0,), (1,))),
        replace(CHAIN, seconds=((4.0,), (1.0,))),
        replace(CHAIN, seconds=((4.0,), (None, 1.0), (1.0,))),
        replace(CHAIN, lanes=0),
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


@pytest.mark.parametrize("seed", range(40))
def test_list_scheduling_and_the_simulator_agree_to_the_bit(seed: int) -> None:
    problem = random_problem(seed, most=20)
    found = early_start(problem.before, problem.length, problem.lanes, problem.handover_s, Rules())
    assert timed(problem, found) == found


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_shorter_than_the_lower_bound(seed: int) -> None:
    problem = random_problem(seed, most=5, lanes=2)
    assert lower_bound(problem) <= shortest(problem) + 1e-9


def test_the_longest_way_counts_calls_and_steps() -> None:
    assert ways_to_the_end(((), (0,), (0,), (1, 2)), [1.0, 5.0, 2.0, 1.0], edge=0.5) == [8.0, 6.5, 3.5, 1.0]
