from __future__ import annotations

import pytest

from compiler.measure.latency import LEAST, MOST, WARM_UPS, model_latency
from compiler.measure.spread import Spread


class Model:
    """Advances its own clock by a given time each run."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.now, self.runs = seconds, 0.0, 0

    def clock(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1


def test_runs_fill_the_budget_and_the_first_do_not_count() -> None:
    model = Model(50.0, 50.0, 1.0)
    found = model_latency(model.run, 120.0, clock=model.clock)
    assert len(found.samples) == 20
    assert model.runs == 20 + WARM_UPS
    assert (found.p10, found.median, found.p90) == (1.0, 1.0, 1.0)


def test_a_run_that_measures_itself_is_taken_at_its_word() -> None:
    model = Model(3.0)

    def run() -> float:
        model.run()
        return 2.0

    found = model_latency(run, 30.0, clock=model.clock)
    assert found.samples == (2.0,) * (10 - WARM_UPS)


def test_a_slow_model_still_gives_a_few_samples() -> None:
    model = Model(4.0)
    assert len(model_latency(model.run, 5.0, clock=model.clock).samples) == LEAST


def test_one_run_beyond_the_budget_is_enough() -> None:
    model = Model(100.0)
    assert model_latency(model.run, 5.0, clock=model.clock).samples == (100.0,)
    assert model.runs == 2


def test_a_fast_model_is_not_run_for_ever() -> None:
    model = Model(0.0)
    assert len(model_latency(model.run, 5.0, clock=model.clock).samples) == MOST


def test_a_spread_is_the_median_and_the_outer_tenths() -> None:
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0, 0.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert (spread.p10, spread.median, spread.p90) == (1.0, 5.0, 9.0)
    with pytest.raises(ValueError, match="at least one sample"):
        Spread.of([])
