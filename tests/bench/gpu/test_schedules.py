"""On the CPU: all but the target is as on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import parts, schedules
from bench.gpu.subjects import model_file
from bench.schedule.found import Schedules, find
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.cuda.measure import programs
from tests.compiler.devices.cuda.measure import faulty_programs


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedules, Path]:
    """Three plans of a small network."""
    file = model_file("tiny_inception", tmp_path_factory.mktemp("plans"))
    every = find(Subject("tiny_inception", "zoo", file), CompileOptions(threads=2, tuning_budget_s=0.0), [], 0.0)
    return replace(every, found=every.found[:3]), file


def test_each_plan_is_run_and_compared_with_the_first_and_its_row_kept_at_once(
    found: tuple[Schedules, Path],
) -> None:
    plans, file = found
    kept: list[list[Mapping[str, Any]]] = []
    rows = schedules.raced(plans, None, "tiny_inception", "tf32", file, lambda rows: kept.append(list(rows)))
    assert [row["scheduler"] for row in rows] == [one.plan.scheduler for one in plans.found]
    assert all(row["ms"] > 0 and row["predicted_ms"] > 0 for row in rows)
    assert [(row["wrong"], row["differing"]) for row in rows] == [(False, 0)] * 3
    assert rows[0]["differs"] == 0.0
    assert not [*file.parent.glob(".plan*")]
    assert [len(one) for one in kept] == [1, 2, 3, 3]
    assert [row["ms"] for row in kept[2]] == [None] * 3
    assert kept[3] == rows


@pytest.mark.parametrize(
    ("fault", "wrong", "why"),
    [
        ("crash plan1", False, "ended with status -11"),
        ("hang plan1", False, "did not end within"),
        ("wrong plan1", True, ""),
        ("unsteady plan1", True, ""),
    ],
)
def test_a_plan_with_a_fault_has_a_row_that_says_so_and_the_others_are_timed(
    fault: str, wrong: bool, why: str, found: tuple[Schedules, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, file = found
    monkeypatch.setattr(programs, "COMMAND", (sys.executable, "-m", faulty_programs.__name__))
    monkeypatch.setattr(programs, "RUNNING_S", faulty_programs.RUNNING_S)
    monkeypatch.setenv("TW_PLAN_FAULT", fault)
    first, second, third = schedules.raced(plans, None, "tiny_inception", "tf32", file, lambda rows: None)
    assert not first["wrong"]
    assert not third["wrong"]
    assert first["ms"] > 0
    assert third["ms"] > 0
    assert second["ms"] is None
    assert second["wrong"] is wrong
    assert why in second.get("problem", "")
    assert bool(why) == ("problem" in second)
    assert f"{'WRONG' if wrong else 'FAILED'}" in parts.told_plans({"plans": [first, second, third]})


def test_where_the_race_is_lost_the_rows_are_there_without_times(
    found: tuple[Schedules, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, file = found
    monkeypatch.setattr(programs, "COMMAND", (sys.executable, "-m", faulty_programs.__name__))
    monkeypatch.setenv("TW_PLAN_FAULT", "race-crash plan2")
    rows = schedules.raced(plans, None, "tiny_inception", "tf32", file, lambda rows: None)
    assert [(row["ms"], row["differs"] < 1e-3) for row in rows] == [(None, True)] * 3
    assert all(row["problem"].startswith("the race was lost: ") for row in rows)
    assert "not timed" in parts.told_plans({"plans": rows})


def test_what_cannot_be_compiled_ends_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--folder", str(tmp_path), "--records", str(tmp_path / "none"), "--json", str(tmp_path / "rows")]
    assert schedules.main(["tiny_inception", "fp16", "--target", "cuda:sm_10", *where]) == 1
    assert "'cuda:sm_10' is unknown. Fix: use cuda" in capsys.readouterr().err
