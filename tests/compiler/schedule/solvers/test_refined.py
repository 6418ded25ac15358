from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from compiler.schedule.problem import Problem, verify_schedule
from compiler.schedule.solvers.refined import refined
from compiler.schedule.solvers.stage_lanes import placed_stages
from compiler.schedule.solvers.stage_schedule import blocks, stage_schedule, staged
from compiler.schedule.solvers.stages import Endings, Latency, Pruning, Stage
from tests.compiler.schedule.problems import random_problem
from tests.compiler.schedule.solvers.test_stage_schedule import repeated
from tests.compiler.schedule.solvers.test_stages import WIDE, least, priced
from tests.seeds import each


class Clock:
    """Stands in for the device: a price for every stage, by no rule; None once it was asked `most` times."""

    def __init__(self, seed: int, most: int = 10_000) -> None:
        self.prices, self.most = priced(seed), most
        self.asked: list[Stage] = []

    def __call__(self, stage: Stage) -> float | None:
        self.asked.append(stage)
        return self.prices[stage] if len(self.asked) <= self.most else None


def search(problem: Problem, pruning: Pruning = WIDE) -> Endings:
    return Endings(problem.before, pruning)


@each(range(40))
@pytest.mark.parametrize("pruning", [WIDE, Pruning(2, 3)])
def test_no_stages_take_less_where_no_prediction_is_too_long(seed: int, pruning: Pruning) -> None:
    """Predictions of nothing hold back no stage, so the true optimum is found: that of all stagings with every stage measured."""
    problem, clock = random_problem(seed, most=6), Clock(seed)
    found = refined(search(problem, pruning).least, lambda stage: 0.0, clock)
    assert sum(clock.prices[stage] for stage in found) == pytest.approx(least(problem, priced(seed), pruning))
    assert {*found} <= {*clock.asked}
    assert len(clock.asked) == len({*clock.asked})


@each(range(40))
def test_it_ends_with_measured_stages_that_no_others_beat_by_what_is_known(seed: int) -> None:
    """Measured where measured, else predicted times the median ratio: by these the end is an optimum. Few stages are measured."""
    problem, clock = random_problem(seed, most=6), Clock(seed)
    wrong = Random(seed)
    ratios: dict[Stage, float] = {}

    def predicted(stage: Stage) -> float:
        return 0.25 * clock.prices[stage] * ratios.setdefault(stage, wrong.uniform(0.5, 2.0))

    found = refined(search(problem).least, predicted, clock)
    assert {*found} <= {*clock.asked}
    known = {stage: clock.prices[stage] for stage in clock.asked}
    scales = sorted(seconds / predicted(stage) for stage, seconds in known.items())
    middle = len(scales) // 2
    scale = scales[middle] if len(scales) % 2 else (scales[middle - 1] + scales[middle]) / 2

    class Believed(dict[Stage, float]):
        def __missing__(self, stage: Stage) -> float:
            return known[stage] if stage in known else predicted(stage) * scale

    assert sum(known[stage] for stage in found) == pytest.approx(least(problem, Believed(), WIDE))


@each(range(20))
def test_true_predictions_need_one_round_whatever_their_unit(seed: int) -> None:
    problem, clock = random_problem(seed, most=6), Clock(seed)
    rounds = 0

    def solve(latency: Latency) -> Sequence[Stage]:
        nonlocal rounds
        rounds += 1
        return search(problem).least(latency)

    found = refined(solve, lambda stage: 1000.0 * clock.prices[stage], clock)
    assert rounds == 2
    assert sum(clock.prices[stage] for stage in found) == pytest.approx(least(problem, priced(seed), WIDE))


@pytest.mark.parametrize("most", [0, 1, 3])
def test_when_the_time_for_measuring_is_up_predictions_decide(most: int) -> None:
    for seed in range(20):
        problem, clock = random_problem(seed, most=6), Clock(seed, most)
        found = refined(search(problem).least, lambda stage: float(len(stage)), clock)
        assert sorted(node for stage in found for group in stage for node in group) == list(problem.calls)
        assert len(clock.asked) == len({*clock.asked})
        if not most:
            assert sum(map(len, found)) == sum(map(len, search(problem).least(lambda stage: float(len(stage)))))


def test_equal_blocks_are_measured_once() -> None:
    """In the numbers of the whole problem: those of the first block of each kind."""
    problem, clock = repeated(7, (2.0, 1.0, 1.0)), Clock(0)
    found = staged(problem, measured=clock)
    assert sorted(call for stage in found for group in stage for call in group) == list(problem.calls)
    first = {call for calls in [*blocks(problem)][:2] for call in calls}
    assert {call for stage in clock.asked for group in stage for call in group} <= first
    assert len(set(clock.asked)) == len(clock.asked)


@each(range(20))
def test_measured_stages_make_a_schedule(seed: int) -> None:
    problem, clock = random_problem(seed, most=18), Clock(seed)
    placed = stage_schedule(problem, measured=clock)
    verify_schedule(problem, placed)
    found = staged(problem, measured=Clock(seed))
    assert placed == placed_stages(problem, found)
