from __future__ import annotations

import pytest

from compiler.schedule.problem import Move, Problem, makespan, timed, verify_schedule
from compiler.schedule.solvers.critical_path import critical_path_list, upward_ranks
from tests.compiler.schedule.problems import random_problem, reaches, with_moves
from tests.seeds import each


@each(range(80))
@pytest.mark.parametrize("moves", [False, True])
def test_it_makes_a_schedule(seed: int, moves: bool) -> None:
    problem = random_problem(seed, most=25)
    problem = with_moves(problem, seed) if moves else problem
    placed = critical_path_list(problem)
    verify_schedule(problem, placed)
    assert timed(problem, placed) == placed


@each(range(40))
def test_a_rank_is_the_longest_of_all_ways(seed: int) -> None:
    problem = with_moves(random_problem(seed, most=9), seed)
    means = [sum(length for _, length in problem.lengths(call)) / len(problem.lengths(call)) for call in problem.calls]

    def longest(call: int) -> float:
        steps = [
            problem.handover_s + move.seconds + longest(reader)
            for reader in problem.calls
            for one, move in zip(problem.before[reader], problem.moves[reader], strict=True)
            if one == call
        ]
        return means[call] + max(steps, default=0.0)

    ranks = upward_ranks(problem)
    assert ranks == pytest.approx([longest(call) for call in problem.calls])
    for call, earlier in enumerate(reaches(problem)):
        assert all(ranks[one] > ranks[call] for one in earlier)


def test_a_short_call_goes_into_a_gap() -> None:
    """Call 2 waits for what is moved to its lane; call 3, of the least rank, fits before it."""
    before: tuple[tuple[int, ...], ...] = ((), (), (0, 1), ())
    moves = ((), (), (Move(0.0), Move(0.0)), ())
    problem = Problem(before, ((4.0,), (1.0,), (5.0,), (2.0,)), 2, moves=moves)
    placed = critical_path_list(problem)
    assert makespan(placed) == 9.0
    by_call = {one.call: one for one in placed}
    assert (by_call[3].begin, by_call[3].end) == (1.0, 3.0)


def test_what_must_be_moved_far_stays_where_it_was_made() -> None:
    problem = Problem(((), (0,), (0,)), ((1.0,), (2.0,), (2.0,)), 2, moves=((), (Move(9.0),), (Move(9.0),)))
    assert {one.lanes for one in critical_path_list(problem)} == {(0,)}
