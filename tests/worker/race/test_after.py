from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler.contract import CompileOptions, CompileReport
from compiler.contract.races import PeerReport
from tests.end_to_end import models
from tests.servers import GUARD_S
from worker.attempt.child import Spec
from worker.attempt.supervise import supervise
from worker.lease.wakeup import Wakeup
from worker.limits import Limits
from worker.processes.group import Group
from worker.race import after, peers

MADE = CompileReport("m", "a", 1, "cpu", "h", 1, {}, 1, 1, 1, 0, 0, 1e-3)


def spec_of(folder: Path, **changes: Any) -> Spec:
    scratch = folder / "job" / "work"
    scratch.mkdir(parents=True)
    model = folder / "0"
    model.write_bytes(models.tiny("tiny_lstm"))
    spec = Spec(
        kind="compile",
        inputs=(("model.onnx", model),),
        output=scratch / "output",
        scratch=scratch,
        finish=scratch / "finish",
        options={},
        records=(),
        limits=Limits(wall_s=GUARD_S, memory_bytes=4 << 30),
    )
    return replace(spec, **changes)


@pytest.mark.processes
def test_a_job_races_its_artifact_behind_the_walls(tmp_path: Path) -> None:
    asked = {"tuning_budget_s": 0.0, "threads": 1, "compare": [*peers.installed()]}
    spec = spec_of(tmp_path, options=asked)
    wakeup = Wakeup()
    ending = supervise(Group.start(spec.to_json(), spec.scratch), spec.limits, wakeup, lambda event: None)
    wakeup.close()
    assert ending.kind == "report", ending
    assert [one["peer"] for one in ending.report["compared"]] == asked["compare"]
    for one in ending.report["compared"]:
        assert one["rounds"] > 0, one["said"]
        assert one["difference"] < 1e-4
        assert "times as fast" in one["said"]


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """With whom races were begun; ONNX Runtime alone is installed."""
    begun: list[tuple[str, ...]] = []

    def race(model: Path, artifact: Path, wanted: Sequence[str], **_: object) -> tuple[PeerReport, ...]:
        begun.append(tuple(wanted))
        return tuple(PeerReport(peer, "raced") for peer in wanted)

    monkeypatch.setattr(after, "race", race)
    monkeypatch.setattr(peers, "installed", lambda: ("onnxruntime",))
    return begun


def said(spec: Spec, made: CompileReport = MADE, began: float | None = None, **options: Any) -> list[str]:
    found = after.raced(spec, CompileOptions(**options), made, time.monotonic() if began is None else began)
    return [one.said for one in found]


def test_without_a_word_those_that_are_installed_are_raced_and_with_none_nobody(
    racing: list[tuple[str, ...]], tmp_path: Path
) -> None:
    spec = spec_of(tmp_path)
    assert said(spec) == ["raced"]
    assert said(spec, compare=()) == []
    assert said(spec, compare=("openvino", "onnxruntime", "openvino")) == ["raced", "raced"]
    assert racing == [("onnxruntime",), ("openvino", "onnxruntime")]


@pytest.mark.parametrize(
    ("changes", "made", "options", "why", "silent"),
    [
        ({}, {}, {"target": "cuda:sm_90"}, "artifacts for CPUs alone are raced", True),
        ({}, {}, {"devices": ("cpu:0", "cpu:1")}, "artifacts for several devices are not raced", True),
        ({}, {"latency_s": 0.0}, {"target": "cpu:aarch64"}, "the target is not the machine that compiled", True),
        ({"measures": False}, {}, {}, "the target is not the machine that compiled", True),
        ({"inputs": (("m", Path("0")), ("w", Path("1")))}, {}, {}, "models with external data are not raced", False),
        ({}, {}, {"carry": {"next": "h"}}, "the artifact keeps states from run to run", False),
        ({"limits": Limits(wall_s=5.0)}, {}, {}, "no time of the job was left for a race", False),
        ({"finish": Path(__file__)}, {}, {}, "the job was asked to finish before a race", False),
    ],
)
def test_who_is_named_and_not_raced_is_told_why(
    racing: list[tuple[str, ...]],
    tmp_path: Path,
    changes: dict[str, Any],
    made: dict[str, Any],
    options: dict[str, Any],
    why: str,
    silent: bool,
) -> None:
    spec, report = spec_of(tmp_path, **changes), replace(MADE, **made)
    (told,) = said(spec, report, compare=("openvino",), **options)
    assert told.startswith(f"OpenVINO: {why}")
    assert said(spec, report, **options) == ([] if silent else [told.replace("OpenVINO", "ONNX Runtime")])
    assert racing == []


def test_a_race_that_fails_fails_no_job(
    racing: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(after, "race", broken)
    assert said(spec_of(tmp_path)) == ["ONNX Runtime: no race, because of ZeroDivisionError"]


def test_the_time_of_a_race_is_what_the_job_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def record(*_: object, seconds: float, **__: object) -> tuple[PeerReport, ...]:
        given.append(seconds)
        return ()

    monkeypatch.setattr(after, "race", record)
    said(spec_of(tmp_path, limits=Limits(wall_s=100.0)), compare=("onnxruntime",), began=time.monotonic() - 82.0)
    assert given == [pytest.approx(8.0, abs=0.5)]
