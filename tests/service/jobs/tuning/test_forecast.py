"""What the rest of a search's budget is expected to bring."""

from __future__ import annotations

from typing import Any

import pytest

from service.jobs.tuning.forecast import Reached, outlook

REPORTED: dict[str, Any] = {
    "elapsed_s": 10.0,
    "spent": 0.25,
    "measured": 20,
    "best_s": 1.0,
    "promising": 4,
    "expected_gain_s": 0.5,
    "gains": [(1, 0.25), (2, 0.375), (4, 0.5)],
    "budget_s": 40.0,
    "left_s": 24.0,
    "each_s": 2.0,
}


def test_each_candidate_takes_its_time_and_saves_what_is_expected_of_it() -> None:
    assert outlook(REPORTED) == [
        Reached(10.0, 20, 1.0),
        Reached(12.0, 21, 0.75),
        Reached(14.0, 22, 0.625),
        Reached(18.0, 24, 0.5),
        Reached(40.0, 24, 0.5),
    ]


def test_for_what_no_time_is_left_nothing_is_expected() -> None:
    line = outlook({**REPORTED, "left_s": 6.0})
    assert line is not None
    assert line[-2:] == [Reached(16.0, 23, 0.5625), Reached(40.0, 23, 0.5625)]
    assert outlook({**REPORTED, "left_s": 0.0}) == [Reached(10.0, 20, 1.0), Reached(40.0, 20, 1.0)]
    over = {**REPORTED, "left_s": 0.0, "spent": 1.0}
    assert outlook(over) == [Reached(10.0, 20, 1.0), Reached(10.0, 20, 1.0)]


def test_where_nothing_is_promising_the_line_is_flat() -> None:
    done = {**REPORTED, "gains": [], "promising": 0, "expected_gain_s": 0.0}
    assert outlook(done) == [Reached(10.0, 20, 1.0), Reached(40.0, 20, 1.0)]


def test_no_inference_is_expected_to_take_less_than_no_time() -> None:
    line = outlook({**REPORTED, "gains": [(1, 3.0)], "promising": 1, "expected_gain_s": 3.0})
    assert line is not None
    assert line[-1].best_s == 0.0


@pytest.mark.parametrize("lacking", ["gains", "each_s"])
def test_what_an_older_compiler_told_is_no_forecast(lacking: str) -> None:
    assert outlook({name: value for name, value in REPORTED.items() if name != lacking}) is None


def test_before_each_kernel_was_measured_nothing_is_known() -> None:
    assert outlook({**REPORTED, "promising": None, "expected_gain_s": None, "gains": []}) is None
