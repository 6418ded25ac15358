"""TuningBudget: whatever steps leave or take too much, all together take what was granted."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from compiler.errors import InternalError
from compiler.knowledge.budget import SHARES, TILES, TuningBudget


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_shares_are_all_of_the_budget() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    for most in ({}, {"plans": 0.5}, {"plans": 0.5, "lanes": 0.0, "stages": 0.0}):
        for seconds in (0.0, 1.0, 15.0, 3600.0):
            budget = TuningBudget(seconds, most=most)
            assert sum(map(budget.granted, SHARES)) == pytest.approx(seconds)
            for name, limit in most.items():
                assert budget.granted(name) <= limit


def test_shares_that_nothing_will_use_are_the_tile_searchs() -> None:
    budget = TuningBudget(100.0, most={"plans": 5.0})
    before = budget.granted(TILES)
    budget.leave("lanes", "stages")
    assert (budget.granted("lanes"), budget.granted("plans")) == (0.0, 5.0)
    assert budget.granted(TILES) == pytest.approx(before + 12.0)


def test_what_a_step_leaves_or_takes_too_much_is_that_of_the_steps_after_it() -> None:
    clock = Clock()
    budget = TuningBudget(100.0, clock=clock)
    choices, tiles, plans = (budget.share(name) for name in ("choices", TILES, "plans"))
    assert (choices.left(), tiles.left(), plans.left()) == pytest.approx((10, 60, 100))
    with choices.spending():
        clock.now += 3
        assert (choices.left(), budget.total) == pytest.approx((7, 3))
    clock.now += 1000  # what is no measuring is not counted
    assert tiles.left() == pytest.approx(57)
    with tiles.spending():
        clock.now += 62
    assert tiles.is_over()
    assert (tiles.left(), plans.left(), tiles.spent) == pytest.approx((-5, 35, 62))
    assert (tiles.seconds, plans.seconds) == pytest.approx((50, 28)), (
        "what was granted does not depend on what was spent"
    )


def test_steps_that_heed_their_share_spend_the_budget_and_no_more() -> None:
    """Seed 3: steps on a fake machine whose batches take from 1 to 150 ms, and which end a batch with their share."""
    chance = random.Random(3)
    for seconds in (3.0, 5.0, 10.0, 60.0):
        clock = Clock()
        budget = TuningBudget(seconds, clock=clock)
        for name in SHARES:
            share = budget.share(name)
            wants = chance.choice((0.2, 1.0, 5.0)) * share.seconds if name not in (TILES, "plans") else 1e9
            began = share.spent
            while not share.is_over() and share.spent - began < wants:
                with share.spending():
                    clock.now += min(chance.uniform(0.001, 0.15), share.left() + 0.01)
        assert seconds <= budget.total <= 1.05 * seconds
        assert budget.total == pytest.approx(clock.now)


def test_who_is_after_a_stop_request_measures_no_more() -> None:
    stopping = [False]
    share = TuningBudget(10.0, stop_requested=lambda: stopping[0], clock=lambda: 0.0).share(TILES)
    assert not share.is_over()
    stopping[0] = True
    assert share.is_over()


def test_two_steps_do_not_measure_at_a_time() -> None:
    budget = TuningBudget(10.0)
    with (
        budget.spending(TILES),
        pytest.raises(InternalError, match="plans is measured while tiles is"),
        budget.spending("plans"),
    ):
        pass
    with budget.spending("plans"):
        pass
    with pytest.raises(KeyError):
        budget.share("lunch")


def test_time_is_spent_also_when_measuring_fails() -> None:
    clock = Clock()
    budget = TuningBudget(10.0, clock=clock)

    def fail() -> None:
        with budget.spending(TILES):
            clock.now += 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert budget.total == 2


def test_trials_are_shared_too() -> None:
    budget = TuningBudget(10.0, trials=50)
    assert budget.share("choices").trials == 4
    budget.tried = 3
    assert budget.trials_left == 47
    budget.tried = 60
    assert budget.trials_left == 0
    assert TuningBudget(10.0).trials_left is None
    assert TuningBudget(10.0).share("choices").trials is None


def test_a_budget_says_what_was_spent_on_what() -> None:
    clock = Clock()
    budget = TuningBudget(10.0, clock=clock)
    with budget.spending("plans"):
        clock.now += 2.5
    first, *others = str(budget).splitlines()
    assert first == "   2.500 of 10 s spent on measuring"
    assert [line.split()[-1] for line in others] == [*SHARES]
    assert "   2.500 of   2.800 s  plans" in others
