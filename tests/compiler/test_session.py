"""Session: what is told of records, what may be measured, and what a job grants for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions, Event
from compiler.devices.cpu.target import this_machine
from compiler.errors import OptionsError
from compiler.ir.machine import Record
from compiler.ir.plans.lanes import Handover
from compiler.knowledge.budget import SHARES, TILES
from compiler.knowledge.making import handover_record
from compiler.request import Host
from compiler.session import ALONE_S, Session
from compiler.steps.costs.lanes import WAKE_SECONDS, split_seconds
from compiler.trace import Trace
from tests.compiling import compile_file

RECORD = Record("kernel", "key", "Conv", "", "cpu", "here", {"lanes": 1}, 1, 1e-3, 1e-3, 1e-3, 9)
OTHER = replace(RECORD, workload="another")


def test_new_records_are_told_once_and_those_that_were_known_never() -> None:
    events: list[Event] = []
    wrong = {**OTHER.to_json(), "seconds": -1.0}
    session = Session.of(CompileOptions(), Host([RECORD.to_json(), wrong]), Trace(events.append))
    assert [*session.records] == [RECORD], "what nobody can have measured is left out"
    session.add_records([RECORD, OTHER, OTHER])
    session.keep([replace(RECORD, samples=3), OTHER])
    assert [event.data for event in events if event.kind == "record"] == [OTHER.to_json()]
    assert len(session.records) == 3


@pytest.mark.parametrize(
    ("measures", "budget_s", "stopping", "may"),
    [(True, 5.0, False, True), (False, 5.0, False, False), (True, 0.0, False, False), (True, 5.0, True, False)],
)
def test_nothing_is_measured_that_is_not_granted(measures: bool, budget_s: float, stopping: bool, may: bool) -> None:
    options = CompileOptions(tuning_budget_s=budget_s)
    session = Session.of(options, Host(stop_requested=lambda: stopping, measure=measures))
    assert session.may_measure is may
    assert session.measures is (measures and budget_s > 0)


def test_what_a_job_has_no_use_for_is_the_tiles() -> None:
    def granted(**given: object) -> dict[str, float]:
        budget = Session.of(CompileOptions(tuning_budget_s=100.0, **given)).budget  # type: ignore[arg-type]
        found = {name: budget.granted(name) for name in SHARES}
        assert sum(found.values()) == pytest.approx(100.0)
        return found

    several, alone, asked = granted(threads=2), granted(threads=1), granted(threads=2, scheduler="stages")
    assert several == pytest.approx({name: 100 * part for name, part in SHARES.items()})
    assert (alone["lanes"], alone["stages"], alone["plans"]) == (0, 0, ALONE_S)
    assert asked["plans"] == ALONE_S
    assert asked["stages"] == several["stages"]
    assert several[TILES] < asked[TILES] < alone[TILES]
    assert granted(target="cuda:sm_90")["plans"] == pytest.approx(28)


def test_a_session_has_the_lanes_of_its_job_and_refuses_what_nobody_knows() -> None:
    assert Session.of(CompileOptions(threads=3)).lanes == 3
    session = Session.of(CompileOptions())
    assert session.lanes == session.backend.target.lanes
    with pytest.raises(OptionsError, match="without names"):
        Session.of(CompileOptions(without=("lunch",)))


def test_what_a_handover_costs_is_measured_once_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Handover] = []

    def measure(library: bytes) -> Handover:
        measured.append(Handover.of(60.0 + len(measured), 1e-12, 2e-12))
        return measured[-1]

    monkeypatch.setattr("compiler.devices.cpu.device.measure_handover", measure)
    events: list[Event] = []
    session = Session.of(CompileOptions(threads=2), trace=Trace(events.append))
    assert split_seconds(session) == pytest.approx(2 * 60e-9 + WAKE_SECONDS)
    assert session.handover is session.handover
    assert len(measured) == 1
    assert [event.data["kind"] for event in events if event.kind == "record"] == ["handover"]
    alone = Session.of(CompileOptions(threads=1))
    assert (alone.handover, split_seconds(alone)) == (None, 0.0)
    assert len(measured) == 1
    assert session.budget.spent["device"] > 0


@pytest.mark.parametrize("ns", [50.0, 400.0])
def test_choices_joins_and_schedules_go_by_the_same_hand_over(
    ns: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the record, without measuring; what nobody has measured is counted as 4 wakes."""
    onnx.save(build("tiny_inception"), tmp_path / "model.onnx")
    seen: dict[str, float] = {}

    def watching(name: str, at: int, made: Any) -> Any:
        def watched(*given: Any) -> Any:
            seen[name] = given[at]
            return made(*given)

        return watched

    for module, name, at in (("choosing", "FusedCosts", 1), ("tiling.step", "choose_joins", 5)):
        path = f"compiler.steps.{module}.{name}"
        monkeypatch.setattr(
            path, watching(name, at, getattr(__import__(f"compiler.steps.{module}", fromlist=[name]), name))
        )
    known = handover_record(Handover.of(ns), this_machine()).to_json()
    options = CompileOptions(threads=2, tuning_budget_s=0)
    compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", options, [known])
    assert seen == pytest.approx({"FusedCosts": 2e-9 * ns + WAKE_SECONDS, "choose_joins": 2e-9 * ns + WAKE_SECONDS})
    compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", options)
    assert seen == pytest.approx({"FusedCosts": 4 * WAKE_SECONDS, "choose_joins": 4 * WAKE_SECONDS})


def test_what_a_step_reports_is_known_to_those_behind_it_and_to_a_replay_alike() -> None:
    """Also what it reports by itself, such as kernels that were shared among cores in another state."""
    shared = replace(RECORD, workload="shared", variant={"lanes": 2, "state": "near"})

    def known(session: Session) -> list[set[str]]:
        found = []
        for phase, measured in (("tile", [OTHER, shared]), ("schedule", [])):
            with session.trace.step(phase):
                if session.log.replayed is False:
                    for record in measured:
                        session.trace.record(record.to_json())
                found.append({record.workload for record in session.records})
        return found

    first = Session.of(CompileOptions(), Host([RECORD.to_json()]))
    seen = known(first)
    assert seen == [{"key", "another", "shared"}] * 2
    assert [event.workload for event in first.log.of_step(1)] == ["another", "shared"]
    again = Session.of(CompileOptions(), log=replace(first.log, replayed=True))
    assert known(again) == seen
