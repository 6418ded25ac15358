"""Programs of which one has a fault: by themselves on the CPU, and in a whole compilation on the double of CUDA."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.gpu import child
from bench.gpu.subjects import model_file
from bench.schedule.found import find
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.cuda.measure import programs
from compiler.devices.cuda.measure.programs import farthest, race_apart
from compiler.devices.whole import laid_out
from compiler.ir.machine import MOST_SECONDS
from compiler.measure import plans
from compiler.pack.loader import RunError
from compiler.trace import never_stops
from tests.compiler.devices.cuda.measure import faulty_programs
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import build_runtime

pytestmark = pytest.mark.processes
FAULTY = (sys.executable, "-m", faulty_programs.__name__)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Three plans of a small network for this CPU, laid out."""
    place = tmp_path_factory.mktemp("programs")
    file = model_file("tiny_inception", place)
    every = find(Subject("tiny_inception", "zoo", file), CompileOptions(threads=2, tuning_budget_s=0.0), [], 0.0)
    three, backend = [one.plan for one in every.found[:3]], every.settled.backend
    emitted = [backend.emit(every.kernels, plan) for plan in three]
    with laid_out(emitted, three, backend.target.name, place) as found:
        yield found


def raced(folders: list[Path], fault: str, patch: pytest.MonkeyPatch) -> list[str]:
    """The problem of each plan, where the one that `fault` names has one."""
    patch.setattr(programs, "COMMAND", FAULTY)
    patch.setattr(programs, "RUNNING_S", faulty_programs.RUNNING_S)
    patch.setattr(programs, "RACING_S", faulty_programs.RACING_S)
    patch.setattr(plans, "SECONDS", 0.01)
    patch.setenv("TW_PLAN_FAULT", fault)
    found = race_apart(folders, 1e-4, 0, never_stops)
    assert found is not None
    assert all((one.spread.median < 1) == (not one.problem) for one in found)
    assert all((one.ratio.high is None) == bool(one.problem) for one in found)
    return [one.problem for one in found]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("crash", "the measuring process ended with status -11"),
        ("hang", "a kernel did not end within 10 s"),
        ("illegal", "a kernel failed with 700"),
        ("wrong", "differs from the sequential plan's by 0.25 of its largest value, granted 0.0001"),
        ("unsteady", "1 of 2 further runs on the same inputs give other bits"),
    ],
)
def test_a_plan_with_a_fault_is_left_out_and_the_others_are_raced(
    fault: str, why: str, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = raced(folders, f"{fault} plan1", monkeypatch)
    assert (first, third) == ("", "")
    assert why in second


@pytest.mark.parametrize("fault", ["race-crash", "race-hang"])
def test_where_a_race_is_lost_the_first_plan_is_timed_alone(
    fault: str, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = raced(folders, f"{fault} plan2", monkeypatch)
    assert first == ""
    assert all(one.startswith("the race that it was in was lost: ") for one in others)
    assert len(others) == 2


def test_without_a_fault_none_is_left_out(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert raced(folders, "hang plan9", monkeypatch) == ["", "", ""]


@pytest.mark.parametrize("fault", ["illegal", "race-crash"])
def test_a_first_plan_that_fails_fails_the_race(
    fault: str, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="the sequential plan"):
        raced(folders, f"{fault} plan0", monkeypatch)


def test_a_stop_request_ends_the_race(folders: list[Path]) -> None:
    assert race_apart(folders, 1e-4, 0, lambda: True) is None


def test_how_far_outputs_are_apart() -> None:
    one = np.array([1.0, -4.0, np.nan, np.inf], np.float32)
    assert farthest(one, one) == 0.0
    assert farthest(one + np.float32(0.5), one) == 0.125
    assert farthest(one, np.nan_to_num(one)) == float("inf")
    assert farthest(np.array([1, 2]), np.array([1, 3])) == float("inf")
    assert farthest(np.zeros(0), np.zeros(0)) == 0.0


@needs_double
@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("hang", "did not end within 10 s"),
        ("illegal", "a kernel failed on the GPU"),
        ("launch", "a kernel failed on the GPU"),
        ("wrong", "differs from the sequential plan's by 0.2"),
    ],
)
def test_a_whole_compilation_leaves_a_plan_with_a_fault_out_and_says_so(fault: str, why: str, tmp_path: Path) -> None:
    """The double of CUDA is the GPU, found by the processes under the driver's name."""
    environment = {
        "LD_LIBRARY_PATH": str(build_runtime().parent),
        "TW_DOUBLE": "sm=90",
        "TW_PLAN_FAULT": f"{fault} plan1",
    }
    records, artifact = tmp_path / "records.jsonl", tmp_path / "a.tw"
    where = ["--records", str(records), "--folder", str(tmp_path), "--artifact", str(artifact)]
    ended = child.run(
        "tests.bench.gpu.on_double",
        ["bench.gpu.compiling", "tiny_cnn", "fp16", "--budget", "20", *where],
        300,
        environment,
    )
    assert ended.status == 0, ended.said
    (said,) = (line for line in ended.output.splitlines() if "a plan was left out of the race" in line)
    assert why in said
    kept = [json.loads(line) for line in records.read_text().splitlines()]
    left_out = [one for one in kept if "problem" in one["variant"]]
    (record,) = left_out
    assert (record["kind"], record["seconds"]) == ("plan", MOST_SECONDS)
    assert why in record["variant"]["problem"]
    report = json.loads(artifact.with_suffix(".json").read_text())
    assert report["errors"]
    assert record["variant"]["scheduler"] not in [plan["scheduler"] for plan in report["plans"] if plan["taken"]]
