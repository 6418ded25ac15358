from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest

from compiler.schedule.problem import Placed, Problem, lower_bound, makespan, verify_schedule
from compiler.schedule.solvers.beam import MOST_TRIED, as_allotted, at_best, beam, outlooks
from compiler.schedule.solvers.candidates import RULES, beam_in_blocks
from compiler.schedule.solvers.cut import series
from compiler.schedule.solvers.early_start import early_start
from compiler.schedule.solvers.placing import Options, Placing
from tests.compiler.schedule.problems import random_problem, shortest, with_moves
from tests.seeds import each


def dressed(seed: int, most: int, lanes: int | None = None) -> Problem:
    """Every other problem has something to move."""
    problem = random_problem(seed, most, lanes)
    return with_moves(problem, seed) if seed % 2 else problem


@each(range(80))
def test_no_schedule_is_longer_than_by_list_scheduling_without_looking_ahead(seed: int) -> None:
    problem = dressed(seed, most=20)
    placed = beam(problem, begun=100)
    verify_schedule(problem, placed)
    assert makespan(placed) <= min(makespan(early_start(problem, rules)) for _, rules in RULES)


@pytest.mark.parametrize(("seed", "lanes"), list(product(range(30), (2, 3))))
def test_small_problems_are_solved_to_the_optimum(seed: int, lanes: int) -> None:
    problem = dressed(seed, most=4, lanes=lanes)
    assert makespan(beam(problem)) == pytest.approx(shortest(problem), rel=1e-9)


def test_a_call_takes_all_lanes_where_one_by_one_would_delay_a_chain() -> None:
    """Call 1 on both lanes, then call 2 beside call 0; side by side calls 0 and 1 each take one lane for longer, and call 2 ends late."""
    problem = Problem(((), (), (1,)), ((4.0, 2.0), (2.0, 1.5), (4.0,)), lanes=2)
    assert min(makespan(early_start(problem, rules)) for _, rules in RULES) == 6.0
    assert makespan(beam(problem)) == lower_bound(problem) == 5.5


@each(range(20))
def test_the_best_outlook_is_below_every_schedule_and_the_mean_between_the_others(seed: int) -> None:
    problem = dressed(seed, most=12)
    best, allotted, between = outlooks(problem)
    assert (best, allotted) == (at_best(problem), as_allotted(problem))
    placed = sorted(beam(problem, begun=20), key=lambda one: one.call)
    for one, seconds, work in zip(placed, best.seconds, best.work, strict=True):
        length = one.end - one.begin
        assert seconds <= length + 1e-9
        assert work <= len(one.lanes) * length + 1e-9
    for call in problem.calls:
        assert 2 * between.seconds[call] == pytest.approx(best.seconds[call] + allotted.seconds[call])
        assert best.work[call] <= between.work[call] + 1e-9 <= allotted.work[call] + 2e-9


@pytest.mark.parametrize(("calls", "lanes"), [(80, 2), (40, 4), (12, 80)])
def test_where_many_calls_are_ready_or_lanes_are_many_no_more_placements_are_tried(
    calls: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls side by side, and a last one that reads all; of a call that may have more lanes than that, each number of them."""
    tried: Counter[int] = Counter()

    class Counting(Placing):
        def each(self, call: int, options: Options, free: Sequence[float], done: Mapping[int, Placed]) -> list[Placed]:
            tried[len(done)] += len(options)
            return super().each(call, options, free, done)

    seconds = tuple(tuple((1 + call % 7) / count + 0.01 for count in range(1, lanes + 1)) for call in range(calls + 1))
    problem = Problem((*((),) * calls, tuple(range(calls))), seconds, lanes)
    monkeypatch.setattr("compiler.schedule.solvers.beam.Placing", Counting)
    verify_schedule(problem, beam(problem, begun=1))
    assert [*tried] == [*range(calls + 1)]
    assert max(tried.values()) <= len(outlooks(problem)) * max(MOST_TRIED, lanes)


def test_few_schedules_begun_are_enough_for_a_schedule() -> None:
    problem = random_problem(9, most=40, least=40, lanes=4)
    one, many = beam(problem, begun=1), beam(problem, begun=400)
    verify_schedule(problem, one)
    assert makespan(many) <= makespan(one)


@each(range(10))
def test_a_whole_is_no_longer_than_its_blocks_in_turn(seed: int) -> None:
    """Two equal blocks between calls that all read and are read: solved once, and one after the other."""
    block = random_problem(seed, most=8, least=3, lanes=2)
    count = len(block.before)
    first, last = 0, 2 * count + 2
    before: list[tuple[int, ...]] = [()]
    for begin in (1, count + 2):
        joint = begin - 1
        before += [tuple(one + begin for one in earlier) or (joint,) for earlier in block.before]
        before.append(tuple(range(begin, begin + count)))
    assert (len(before) - 1, before[first]) == (last, ())
    lone: tuple[float | None, ...] = (1.0,)
    whole = Problem(tuple(before), (lone, *block.seconds, lone, *block.seconds, lone), 2, block.handover_s)
    assert len(series(whole.before, whole.calls)) >= 3
    placed = beam_in_blocks(whole)
    verify_schedule(whole, placed)
    assert makespan(placed) <= 3.0 + 2 * makespan(beam(block)) + 4 * block.handover_s + 1e-9
