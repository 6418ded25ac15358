from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bench.service import fan_out
from tilewright.errors import UsageError

POINT = {"elapsed_s": 5.0, "measured": 30, "best_s": 0.25, "exhausted": False}


def test_a_search_is_told_by_its_last_point_and_all_who_helped() -> None:
    helpers = [{"kernels": 2, "measured": 7, "seconds": 3.0}, {"kernels": 1, "measured": 4, "seconds": 1.5}]
    reported = {"points": [{**POINT, "measured": 1}, POINT], "kernels": [{}] * 4, "helpers": helpers}
    found = fan_out.searched(2, reported, {"run_seconds": 9.0})
    assert found == fan_out.Searched(2, 5.0, 30, 4, 3, 11, 4.5, 0.25, False, 9.0)
    assert found.tiles_per_s == 6.0


def test_a_search_that_measured_nothing_has_no_figures() -> None:
    with pytest.raises(UsageError, match="nothing was measured"):
        fan_out.searched(1, {"points": [], "kernels": [], "helpers": []}, {"run_seconds": 9.0})


def test_each_worker_needs_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with pytest.raises(UsageError, match="2 workers"):
        fan_out.fan_out(Path("data"), Path("model"), 1.0, 2)


def test_what_is_started_inside_the_block_has_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: reported.append(cores))
    with fan_out._on(3):
        reported.append("started")
    assert reported == [{3}, "started", {0, 3}]
