"""On the CPU: all but the target is as on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.gpu import schedules
from bench.gpu.subjects import TOLERANCE, inputs_of, model_file
from bench.schedule.found import Schedules, find
from bench.subject import Subject
from compiler.contract import CompileOptions


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedules, Path]:
    """Three plans of a small network."""
    file = model_file("tiny_inception", tmp_path_factory.mktemp("plans"))
    every = find(Subject("tiny_inception", "zoo", file), CompileOptions(threads=2, tuning_budget_s=0.0), [], 0.0)
    return replace(every, found=every.found[:3]), file


def test_each_plan_is_run_and_compared_with_the_first(found: tuple[Schedules, Path]) -> None:
    plans, file = found
    rows = schedules.raced(plans, None, "tiny_inception", "tf32", file)
    assert [row["scheduler"] for row in rows] == [one.plan.scheduler for one in plans.found]
    assert all(row["ms"] > 0 and row["predicted_ms"] > 0 for row in rows)
    assert [row["wrong"] for row in rows] == [False] * 3
    assert rows[0]["differs"] == 0.0
    assert not [*file.parent.glob(".plan*")]


def test_a_plan_that_computes_something_else_is_seen(found: tuple[Schedules, Path]) -> None:
    plans, file = found
    program = plans.settled.backend.emit(plans.kernels, plans.found[0].plan)
    weights = np.frombuffer(program.weights, np.float32) * np.float32(1.5)
    two = replace(plans, found=(plans.found[0],) * 2)
    given = inputs_of(onnx.load(file), 0)
    same, other = schedules.differences(two, [program, replace(program, weights=weights.tobytes())], given, file.parent)
    assert same == 0.0
    assert other > TOLERANCE["fp16"]


def test_what_cannot_be_compiled_ends_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--folder", str(tmp_path), "--records", str(tmp_path / "none"), "--json", str(tmp_path / "rows")]
    assert schedules.main(["tiny_inception", "fp16", "--target", "cuda:sm_10", *where]) == 1
    assert "'cuda:sm_10' is unknown. Fix: use cuda" in capsys.readouterr().err
