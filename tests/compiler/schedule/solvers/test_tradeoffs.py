"""Divisions between the most frames and the earliest one."""

from __future__ import annotations

from random import Random

import pytest

from compiler.schedule.solvers.ideals import Division
from compiler.schedule.solvers.least_load import least_load
from compiler.schedule.solvers.tradeoffs import tradeoffs
from tests.compiler.schedule.solvers.test_least_load import random_division
from tests.seeds import each


def test_a_slower_device_is_given_less_and_less() -> None:
    """Of ten calls in a chain, each twice as long on the second device."""
    chain = Division([(), *((call - 1,) for call in range(1, 10))], [[1.0] * 10, [2.0] * 10])
    found = [stages for stages, by in tradeoffs(chain) if by != "placement"]
    loads = [[chain.work_s(device, calls) for device, calls in stages] for stages in found]
    reached = [(max(each), sum(each)) for each in loads]
    assert reached[0] == (7.0, 13.0)
    assert reached[-1] == (10.0, 10.0)
    assert {(8.0, 12.0), (9.0, 11.0)} <= {*reached}


@each(range(40))
def test_they_begin_with_the_least_load_and_end_with_one_device(seed: int) -> None:
    division = random_division(Random(seed))
    found = tradeoffs(division)
    assert found[0][0] == least_load(division)[0]
    alone = [division.work_s(device, division.whole) for device in range(len(division.seconds))]
    assert any(len(stages) == 1 and division.work_s(*stages[0]) == pytest.approx(min(alone)) for stages, _ in found)
    for stages, _ in found:
        calls = [calls for _, calls in stages]
        assert sum(calls) == division.whole
        assert all(one & other == 0 for at, one in enumerate(calls) for other in calls[:at])
