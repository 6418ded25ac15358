from __future__ import annotations

from typing import Any

import pytest

from compiler.contract import Event
from service.db.models import new_id
from service.jobs.scheduling.lease import Claim, Measured
from service.jobs.tuning.records import MAX_TEXT_BYTES, MAX_VARIANT_BYTES
from worker.attempt import measurements
from worker.attempt.measurements import Intake
from worker.processes.frames import GarbledFrame


@pytest.fixture
def intake() -> Intake:
    return Intake(Claim(new_id(), "compile", 1, new_id(), None, (), {}, 1, 30.0, False))


def event(said: Any, **data: Any) -> Event:
    return Event(said, "tile", 0.5, data=data)


def test_records_and_texts_are_handed_on(intake: Intake, record: dict[str, Any]) -> None:
    assert intake.take(event("record", **record)) == Measured(records=(record,))
    assert intake.take(event("workload", workload="w", text="kernel")) == Measured(workloads={"w": "kernel"})


def test_a_text_is_handed_on_once(intake: Intake) -> None:
    intake.take(event("workload", workload="w", text="kernel"))
    assert intake.take(event("workload", workload="w", text="kernel")) == Measured()


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": "fast"},
        {"workload": "w" * 501},
        {"target": "cpu:my own"},
        {"kind": "two words"},
        {"variant": {"x": "y" * MAX_VARIANT_BYTES}},
    ],
)
def test_a_record_that_is_none_is_garbled(intake: Intake, record: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(GarbledFrame):
        intake.take(event("record", **{**record, **wrong}))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"workload": "w"},
        {"workload": 3, "text": "t"},
        {"workload": "", "text": "t"},
        {"workload": "w" * 501, "text": "t"},
    ],
)
def test_a_workload_without_key_or_text_is_garbled(intake: Intake, data: dict[str, Any]) -> None:
    with pytest.raises(GarbledFrame):
        intake.take(event("workload", **data))


def test_a_text_that_is_too_long_is_left_out_and_the_job_goes_on(intake: Intake) -> None:
    assert intake.take(event("workload", workload="w", text="x" * (MAX_TEXT_BYTES + 1))) == Measured()
    assert intake.take(event("workload", workload="v", text="x" * MAX_TEXT_BYTES)).workloads.keys() == {"v"}


def test_all_texts_together_are_bounded(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MAX_TEXTS_BYTES", 10)
    assert intake.take(event("workload", workload="a", text="x" * 8)) != Measured()
    assert intake.take(event("workload", workload="b", text="x" * 8)) == Measured()


def test_no_text_holds_what_a_database_refuses(intake: Intake) -> None:
    (text,) = intake.take(event("workload", workload="w", text="a\0b\ud800")).workloads.values()
    assert "\0" not in text
    assert text.encode()
