from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.contract import Event
from compiler.devices.kinds import propose, tiles_of
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tile import Cost, Tile
from compiler.knowledge.budget import TuningBudget
from compiler.trace import Trace
from compiler.tuning.menus import SourceOf, Tiler
from compiler.tuning.tune import Measuring, Tiled, Tunable, Tuning, tune, workload_key
from tests.compiler.tuning.fakes import (
    SETTING,
    TARGET,
    WORKLOADS,
    FakeMachine,
    kept,
    record_of,
    tiled,
)
from tests.compiler.tuning.tuned import tuned


def test_records_of_another_version_of_the_compiler_are_measured_anew() -> None:
    older = [replace(record, compiler="0.0.1") for record in tiled(FakeMachine()).measured]
    machine = FakeMachine()
    assert not tiled(machine, older).reused
    assert machine.asked


def carried_by(source_of: SourceOf, records: Sequence[Record], machine: FakeMachine | None = None) -> Tiled:
    """Tiled with records, by a compiler whose code has these digests."""
    tuning = Tuning([*map(Tunable, WORKLOADS)], 2, SETTING)
    tiler = Tiler(TARGET, tiles_of(TARGET), lambda workload, tile: 4, source_of=source_of)
    return tune(tuning, tiler, records, Measuring(machine, TuningBudget(60.0), Trace()))


def test_records_of_an_earlier_compiler_count_where_the_code_is_the_same_and_are_told_as_of_this_one() -> None:
    first = tiled(FakeMachine())
    coded = [replace(one, variant={**one.variant, "source": one.workload}) for one in first.measured]
    earlier = [replace(one, compiler="0.1.0+before") for one in coded]
    asked: list[str] = []

    def same(workload: Workload, tile: Tile) -> str:
        asked.append(workload_key(workload))
        return asked[-1]

    held = carried_by(same, earlier)
    assert {cost.source for menu in held.menus for cost in (one.cost for one in menu.variants)} == {"record"}
    assert [menu.best for menu in held.menus] == [
        replace(one.best, cost=Cost(one.best.cost.seconds, "record")) for one in first.menus
    ]
    distinct = {(one.workload, str(one.variant), one.threads) for one in coded}
    assert len(held.carried) == len(asked) == len(distinct)
    assert {*map(repr, held.carried)} <= {*map(repr, coded)}

    asked.clear()
    again = carried_by(same, [*earlier, *held.carried])
    assert not asked, "records of this compiler say it"
    assert not again.carried
    assert again.menus == held.menus

    fixed = WORKLOADS[0]
    changed = carried_by(lambda one, tile: "fixed" if one == fixed else same(one, tile), earlier)
    sources = [menu.best.cost.source for menu in changed.menus]
    assert sources == ["model", "record", "record"]
    without = [replace(one, compiler="0.1.0") for one in first.measured]  # written before records had digests
    old = carried_by(lambda workload, tile: "", without)
    assert {menu.best.cost.source for menu in old.menus} == {"model"}
    assert not old.carried


def test_what_hints_say_of_a_kernel_that_was_fixed_is_measured_first() -> None:
    first = tiled(FakeMachine())
    earlier = [replace(one, compiler="0.1.0", variant={**one.variant, "source": "before"}) for one in first.measured]
    machine = FakeMachine()
    carried_by(lambda workload, tile: "after", earlier, machine)
    for menu, work in zip(first.menus, WORKLOADS, strict=True):
        assert menu.best.tile in [trial.tile for trial in machine.asked if trial.workload == work][:3]


def test_a_second_call_with_the_records_of_the_first_measures_nothing() -> None:
    first, machine = tiled(FakeMachine()), FakeMachine()
    second = tiled(machine, first.measured)
    assert not machine.asked
    assert not second.measured
    assert [menu.best.tile for menu in second.menus] == [menu.best.tile for menu in first.menus]
    assert {cost.source for tried in second.tried.values() for _, cost in tried} == {"record"}
    assert {record.workload for record in second.reused} == {workload_key(one) for one in WORKLOADS}


def test_a_model_that_was_searched_with_this_budget_is_not_searched_again_and_with_a_larger_one_is() -> None:
    def run(budget: TuningBudget, known: Sequence[Record]) -> tuple[list[Trial], list[Record]]:
        machine, events = FakeMachine(), list[Event]()
        trace = Trace(events.append)
        first = tuned(
            WORKLOADS, TARGET, tiles_of(TARGET), 2, known, SETTING, machine, budget, lambda workload, tile: 4, trace
        )
        return machine.asked, kept(first, events)

    asked, records = run(TuningBudget(60.0, trials=2), ())
    assert len({trial.tile for trial in asked}) == 2
    assert [record.kind for record in records][-1] == "search"
    assert run(TuningBudget(60.0, trials=2), records) == ([], [])
    assert run(TuningBudget(30.0, trials=1), records) == ([], [])
    for larger in (TuningBudget(60.0, trials=3), TuningBudget(61.0, trials=2), TuningBudget(60.0)):
        asked, more = run(larger, records)
        assert asked
        assert [record.kind for record in more][-1] == "search"
    # That last search had no limit, and ended because nothing promising was left: no budget finds more.
    assert run(TuningBudget(1e6), [*records, *more]) == ([], [])


def test_a_record_of_a_tile_measured_again_counts_before_those_of_its_first_measurement() -> None:
    trials = [
        Trial(WORKLOADS[0], workload_key(WORKLOADS[0]), option.tile, 1) for option in propose(WORKLOADS[0], TARGET, 2)
    ]
    first, again = record_of(trials[0], 1e-3), record_of(trials[0], 2e-3)
    again = replace(again, variant={**again.variant, "again": True})
    for records in ([first, again], [again, first]):
        result = tiled(None, records)
        assert [variant.cost.seconds for variant in result.menus[0].variants] == [2e-3]
        assert result.reused == (again,)


def test_near_hardware_and_near_shapes_decide_what_is_measured_first_and_what_is_taken_unmeasured() -> None:
    key = workload_key(WORKLOADS[0])
    options = propose(WORKLOADS[0], TARGET, 2)
    last = options[-1].tile
    elsewhere = [
        replace(
            record_of(Trial(WORKLOADS[0], key, option.tile, 1), 1e-6 if option.tile == last else 1.0), hardware="there"
        )
        for option in options
    ]
    assert tiled(None).menus[0].best.tile == options[0].tile
    hinted = tiled(None, elsewhere).menus[0].best
    assert (hinted.tile, hinted.cost.source) == (last, "model")
    assert not tiled(None, elsewhere).reused


def test_a_record_is_known_again_though_a_database_reordered_its_keys() -> None:
    def reordered(record: Record) -> Record:
        plain = json.loads(json.dumps(record.to_json()))
        levels = {name: dict(reversed(extents.items())) for name, extents in plain["variant"]["levels"].items()}
        variant = {**plain["variant"], "levels": dict(reversed(levels.items()))}
        return Record.from_json({**plain, "variant": dict(reversed(variant.items()))})

    machine = FakeMachine()
    tiled(machine, [reordered(record) for record in tiled(FakeMachine()).measured])
    assert not machine.asked


@pytest.mark.parametrize(
    "change", [{"hardware": "elsewhere"}, {"target": "cpu:other"}, {"threads": 2}, {"kind": "stage"}, {"workload": "0"}]
)
def test_records_of_something_else_are_not_used(change: dict[str, object]) -> None:
    machine = FakeMachine()
    records = [replace(record, **change) for record in tiled(FakeMachine()).measured]  # type: ignore[arg-type]
    assert not tiled(machine, records).reused
    assert machine.asked


@pytest.mark.parametrize("other", [Setting("memory", "gcc 12"), Setting("cache", "clang 19")])
def test_records_of_another_setting_are_not_used(other: Setting) -> None:
    records = tiled(FakeMachine()).measured
    budget = TuningBudget(60.0)
    there = tuned(
        WORKLOADS, TARGET, tiles_of(TARGET), 2, records, other, None, budget, lambda workload, tile: 4, Trace()
    )
    assert not there.reused


def test_a_known_tile_is_not_measured_beside_unknown_ones() -> None:
    known = tiled(FakeMachine()).measured[0]
    machine = FakeMachine()
    result = tiled(machine, [known])
    assert (known.workload, Tile.from_json(known.variant)) not in [(trial.key, trial.tile) for trial in machine.asked]
    sources = {(key, tile): cost.source for key, tried in result.tried.items() for tile, cost in tried}
    assert sources.pop((known.workload, Tile.from_json(known.variant))) == "record"
    assert set(sources.values()) == {"measured"}


def test_each_workload_is_told_once_before_the_first_record_of_it_as_a_text_that_reads_back() -> None:
    events: list[Event] = []
    tiled(FakeMachine(), trace=Trace(events.append))
    reported: dict[str, str] = {}
    for event in events:
        if event.kind == "workload":
            assert event.data["workload"] not in reported
            reported[event.data["workload"]] = event.data["text"]
        if event.kind == "record" and event.data["kind"] == "kernel":
            assert event.data["workload"] in reported
    assert set(reported) == {workload_key(work) for work in WORKLOADS}
    for key, text in reported.items():
        assert workload_key(parse_workload(text)) == key


def test_a_workload_known_from_records_alone_is_not_told() -> None:
    events: list[Event] = []
    tiled(FakeMachine(), tiled(FakeMachine()).measured, trace=Trace(events.append))
    assert not [event for event in events if event.kind == "workload"]
