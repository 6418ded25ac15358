from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from compiler.contract import Event
from compiler.devices.cpu.target import PROFILES
from compiler.devices.kinds import tiles_of
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.known import measured_seconds
from compiler.trace import StopRequest, Trace, never_stops
from compiler.tuning.shared import WORTH_S, shared_trials, with_shared
from compiler.tuning.tune import Tiled, workload_key
from tests.compiler.tuning.tuned import tuned
from tests.parse import parse_kernel

SETTING = Setting("cache", "gcc 12")
PRODUCT = """
kernel MatMul(in x0: f32[{m}, 64], in x1: f32[64, 96]; out y0: f32[{m}, 96])
  for m:{m}, n:96
    y0[m, n] = sum<f32> k:64 . mul(x0[m, k], x1[k, n])
"""


def product(m: int) -> Workload:
    kernel = parse_kernel(PRODUCT.format(m=m))
    inputs = tuple(Buffer.whole(0, slot.type) for slot in kernel.inputs)
    return Workload(kernel, inputs, (Buffer.whole(0, kernel.outputs[0].type),), (False, True))


WORKLOADS = [product(32), product(48)]


@dataclass
class FakeMachine:
    """Lanes share a kernel evenly, and meeting takes them 3 microseconds; it was in `state` when it was measured."""

    state: str = "near"
    seconds: float = 1e-4
    asked: list[Trial] = field(default_factory=list)
    hardware: str = "here"
    lanes: int = 4

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        assert deadline_s > 0
        for trial in trials:
            self.asked.append(trial)
            took = self.seconds / (1 + trial.tile.extent("register", "n"))
            yield record_of(trial, took / trial.lanes + (3e-6 if trial.lanes > 1 else 0.0), self.state)


def record_of(trial: Trial, seconds: float, state: str) -> Record:
    variant = {**trial.tile.to_json(), "lanes": trial.lanes, **SETTING.to_json()}
    if trial.lanes > 1:
        variant["state"] = state
    spread = (seconds, seconds, seconds)
    return Record("kernel", trial.key, "op", "", TARGET.name, "here", variant, trial.lanes, *spread, 9)


TARGET = replace(PROFILES[0], hardware="here", lanes=4)


def tiled(
    machine: FakeMachine | None,
    records: Sequence[Record] = (),
    *,
    lanes: int = 2,
    state: str = "near",
    tasks: int = 8,
    budget_s: float = 60.0,
    stop_requested: StopRequest = never_stops,
) -> tuple[Tiled, list[Record]]:
    """What came of it, and all records that left."""
    events: list[Event] = []
    made = tuned(
        WORKLOADS,
        TARGET,
        tiles_of(TARGET),
        lanes,
        records,
        SETTING,
        machine,
        TuningBudget(budget_s, stop_requested=stop_requested),
        lambda workload, one: tasks,
        Trace(events.append),
        state=state,
    )
    return made, [Record.from_json(event.data) for event in events if event.kind == "record"]


def test_menus_say_what_was_measured_on_several_lanes_after_what_one_lane_takes() -> None:
    machine = FakeMachine(seconds=1e-2)
    made, reported = tiled(machine, lanes=4)
    for menu in made.menus:
        shared = [variant for variant in menu.variants if variant.lanes > 1]
        assert menu.best.lanes == 1
        assert menu.variants[-len(shared) :] == tuple(shared)
        assert {variant.lanes for variant in shared} == {2, 4}
        assert {variant.cost.source for variant in shared} == {"measured"}
        alone = {variant.tile: variant for variant in menu.variants if variant.lanes == 1}
        for variant in shared:
            assert variant.cost.seconds == pytest.approx(alone[variant.tile].cost.seconds / variant.lanes + 3e-6)
            assert variant.tiles == alone[variant.tile].tiles
    assert [record for record in reported if record.kind == "kernel"] == list(made.measured)


def test_with_the_records_of_the_first_call_a_second_measures_nothing_and_says_the_same() -> None:
    first, records = tiled(FakeMachine(seconds=1e-2))
    machine = FakeMachine()
    second, reported = tiled(machine, records)
    assert (machine.asked, reported, second.measured) == ([], [], ())
    assert [[(one.tile, one.lanes, one.cost.seconds) for one in menu.variants] for menu in second.menus] == [
        [(one.tile, one.lanes, one.cost.seconds) for one in menu.variants] for menu in first.menus
    ]
    assert {one.cost.source for menu in second.menus for one in menu.variants} == {"record"}
    assert {record.threads for record in second.reused} == {1, 2}


@pytest.mark.parametrize("impossible", [0.0, math.nan])
def test_what_nobody_can_have_measured_on_several_lanes_is_no_record(impossible: float) -> None:
    class Broken(FakeMachine):
        def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
            for record in super().measure(trials, deadline_s):
                yield replace(record, seconds=impossible) if record.threads > 1 else record

    machine = Broken(seconds=1e-2)
    made, records = tiled(machine)
    assert [trial for trial in machine.asked if trial.lanes > 1]
    assert {record.threads for record in records if record.kind == "kernel"} == {1}
    assert {one.lanes for menu in made.menus for one in menu.variants} == {1}


def test_records_on_several_lanes_are_not_taken_for_what_one_lane_takes() -> None:
    _, records = tiled(FakeMachine(seconds=1e-2))
    shared = [record for record in records if record.threads > 1]
    assert shared
    assert measured_seconds(shared, TARGET, SETTING) == {}
    made, _ = tiled(None, shared)
    assert {one.cost.source for menu in made.menus for one in menu.variants if one.lanes == 1} == {"model"}


def test_what_was_measured_of_cores_in_another_state_is_measured_anew() -> None:
    _, near = tiled(FakeMachine("near", 1e-2))
    machine = FakeMachine("far", 1e-2)
    far, reported = tiled(machine, near, state="far")
    assert {trial.lanes for trial in machine.asked} == {2}
    for state in ("near", "far"):
        known = [*near, *reported]
        menus = with_shared(far.menus, known, TARGET, SETTING, state)
        assert all(any(variant.lanes == 2 for variant in menu.variants) for menu in menus)
        assert not tiled(FakeMachine(), known, state=state)[1]
    menus = with_shared(far.menus, near, TARGET, SETTING, "far")
    assert all(variant.lanes == 1 for menu in menus for variant in menu.variants)


def test_cores_that_moved_meanwhile_are_measured_again_in_the_state_that_was_asked_for() -> None:
    made, records = tiled(FakeMachine("far", 1e-2), state="near")
    assert all(variant.lanes == 1 for menu in made.menus for variant in menu.variants)
    machine = FakeMachine("near", 1e-2)
    made, _ = tiled(machine, records, state="near")
    assert machine.asked
    assert all(any(variant.lanes == 2 for variant in menu.variants) for menu in made.menus)


@pytest.mark.parametrize(
    ("lanes", "state", "tasks", "seconds"),
    [(1, "near", 8, 1e-2), (2, "", 8, 1e-2), (2, "near", 1, 1e-2), (2, "near", 8, WORTH_S)],
)
def test_what_cannot_be_shared_or_is_not_worth_it_is_measured_on_one_lane_only(
    lanes: int, state: str, tasks: int, seconds: float
) -> None:
    machine = FakeMachine(seconds=seconds)
    made, _ = tiled(machine, lanes=lanes, state=state, tasks=tasks)
    assert {trial.lanes for trial in machine.asked} == {1}
    assert {variant.lanes for menu in made.menus for variant in menu.variants} == {1}


def test_the_dearest_kernels_come_first_each_with_its_best_tiles() -> None:
    keys = [workload_key(one) for one in WORKLOADS]
    tiles = [Tile(name) for name in ("a", "b", "c")]

    def menu(key: str, seconds: float, counts: Sequence[int]) -> Menu:
        return Menu(
            key,
            tuple(
                Variant(one, count, 1, Cost(seconds * (1 + 0.1 * at), "record"))
                for at, (one, count) in enumerate(zip(tiles, counts, strict=True))
            ),
        )

    # Of the first kernel the fastest tile is one task, and that of three tasks leaves one lane with two of them.
    menus = {keys[0]: menu(keys[0], 1e-3, (1, 3, 8)), keys[1]: menu(keys[1], 0.4e-3, (8, 8, 8))}
    workloads = dict(zip(keys, WORKLOADS, strict=True))
    found = shared_trials(menus, workloads, {keys[0]: 1, keys[1]: 3}, 2)
    wanted = [(keys[1], "a"), (keys[1], "b"), (keys[0], "c"), (keys[0], "b")]
    assert [(trial.key, trial.tile.algorithm) for trial in found] == wanted
    assert shared_trials(menus, workloads, {keys[0]: 4, keys[1]: 3}, 2)[0].key == keys[0]


@pytest.mark.parametrize(
    ("row_blocks", "wanted"), [((1, 1, 2), "ac"), ((1, 2, 4), "ab"), ((2, 1, 1), "ab"), ((1, 1, 1), "ab")]
)
def test_one_of_those_measured_gives_each_lane_rows_of_its_own(row_blocks: tuple[int, ...], wanted: str) -> None:
    key = workload_key(WORKLOADS[0])
    variants = [
        Variant(Tile(name), 8, 1, Cost(1e-3 * (1 + 0.1 * at), "record"), blocks)
        for at, (name, blocks) in enumerate(zip("abc", row_blocks, strict=True))
    ]
    found = shared_trials({key: Menu(key, tuple(variants))}, {key: WORKLOADS[0]}, {key: 1}, 2)
    assert "".join(trial.tile.algorithm for trial in found) == wanted


def test_no_more_than_a_part_of_the_budget_is_spent_and_a_second_call_with_no_more_does_not_go_on() -> None:
    now, given = [0.0], [TuningBudget(0.0)]

    @dataclass
    class Slow(FakeMachine):
        def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
            if trials[0].lanes > 1:
                assert deadline_s == pytest.approx(given[-1].left("lanes"))
                trials = trials[:1]
                now[0] += deadline_s
            yield from super().measure(trials, deadline_s)

    def run(machine: FakeMachine, records: Sequence[Record], seconds: float) -> list[Record]:
        events: list[Event] = []
        given.append(budget := TuningBudget(seconds, clock=lambda: now[0]))
        trace = Trace(events.append)
        tuned(
            WORKLOADS,
            TARGET,
            tiles_of(TARGET),
            2,
            records,
            SETTING,
            machine,
            budget,
            lambda _, one: 8,
            trace,
            state="near",
        )
        return [Record.from_json(event.data) for event in events if event.kind == "record"]

    machine = Slow(seconds=1e-2)
    records = run(machine, (), 100.0)
    assert sum(trial.lanes > 1 for trial in machine.asked) == 1
    machine = Slow(seconds=1e-2)
    assert run(machine, records, 100.0) == []
    more = run(machine, records, 101.0)
    assert [trial.lanes for trial in machine.asked] == [2]
    assert run(Slow(), [*records, *more], 101.0) == []


def test_who_is_after_a_stop_request_gets_what_there_is_and_may_go_on_later() -> None:
    machine = FakeMachine(seconds=1e-2)
    alone, _ = tiled(FakeMachine(seconds=1e-2), lanes=1)
    made, records = tiled(machine, alone.measured, stop_requested=lambda: True)
    assert machine.asked == []
    assert records == []
    assert {variant.lanes for menu in made.menus for variant in menu.variants} == {1}
