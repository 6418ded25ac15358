from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from compiler.contract import Event, kinds
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.algorithms import ALGORITHMS
from compiler.devices.kinds import propose, tiles_of
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.parse import parse_kernel, parse_workload
from compiler.ir.tile import Cost, Tile
from compiler.knowledge.budget import TuningBudget
from compiler.trace import StopRequest, Trace, never_stops
from compiler.tuning.frugal import frugal
from compiler.tuning.tune import MOST_FRUGAL, Ranking, SourceOf, Tiled, Tiler, Tuning, tune, workload_key
from tests.compiler.tuning.tuned import tuned

SETTING = Setting("cache", "gcc 12")
TARGET = replace(PROFILES[0], hardware="here", lanes=2)
PRODUCT = """
kernel MatMul(in x0: f32[{m}, 64], in x1: f32[64, 96]; out y0: f32[{m}, 96])
  for m:{m}, n:96
    y0[m, n] = sum<f32> k:64 . mul(x0[m, k], x1[k, n])
"""
POINTWISE = """
kernel MatMul(in x0: f32[49, 512], in x1: f32[512, 96]; out y0: f32[49, 96])
  for m:49, n:96
    y0[m, n] = sum<f32> k:512 . mul(x0[m, k], x1[k, n])
"""
MAP = "kernel Relu(in x0: f32[5, 7]; out y0: f32[5, 7]) for i:5, j:7 y0[i, j] = max(x0[i, j], 0.0:f32)"


def workload(text: str, constant: Sequence[bool] = (), *, name: str = "") -> Workload:
    kernel = parse_kernel(text)
    inputs = tuple(Buffer.whole(0, slot.type, name=name) for slot in kernel.inputs)
    outputs = tuple(Buffer.whole(0, slot.type, name=name) for slot in kernel.outputs)
    return Workload(kernel, inputs, outputs, tuple(constant) or (False,) * len(inputs))


WORKLOADS = [
    workload(PRODUCT.format(m=32), (False, True)),
    workload(MAP),
    workload(PRODUCT.format(m=48), (False, True)),
]


@dataclass
class FakeMachine:
    """A device on which every trial takes a time that its tile decides."""

    asked: list[Trial] = field(default_factory=list)
    hardware: str = "here"
    lanes: int = 2
    broken: float | None = None

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        for trial in trials:
            self.asked.append(trial)
            yield record_of(trial, seconds_of(trial.tile) if self.broken is None else self.broken)


def seconds_of(tile: Tile) -> float:
    """Widest panels first: not the model's order."""
    return 1e-3 / (1 + tile.extent("register", "n"))


def record_of(trial: Trial, seconds: float) -> Record:
    variant = {**trial.tile.to_json(), "lanes": trial.lanes, **SETTING.to_json()}
    return Record("kernel", trial.key, "op", "", TARGET.name, "here", variant, 1, seconds, seconds, seconds, 9)


def tiled(
    machine: FakeMachine | None,
    records: Sequence[Record] = (),
    budget_s: float = 60.0,
    target: CpuTarget = TARGET,
    trace: Trace | None = None,
    stop_requested: StopRequest = never_stops,
) -> Tiled:
    budget = TuningBudget(budget_s, stop_requested=stop_requested)
    return tuned(
        WORKLOADS,
        target,
        tiles_of(target),
        2,
        records,
        SETTING,
        machine,
        budget,
        lambda workload, tile: 4,
        trace or Trace(),
    )


def test_the_fastest_measured_tile_leads_each_menu() -> None:
    machine = FakeMachine()
    result = tiled(machine)
    assert len(result.menus) == 3
    assert len(result.measured) == len(machine.asked)
    for menu, work in zip(result.menus, WORKLOADS, strict=True):
        tried = result.tried[menu.workload]
        times = [cost.seconds for _, cost in tried]
        assert times == sorted(times)
        assert {cost.source for _, cost in tried} == {"measured"}
        assert (menu.best.tile, menu.best.cost) == tried[0]
        assert menu.workload == workload_key(work)
        assert {tile for tile, _ in tried} <= {option.tile for option in propose(work, TARGET, 2)}


def test_a_menu_leaves_out_what_is_slower_on_any_number_of_lanes() -> None:
    """Two lanes: a kernel of one task may be beaten by a slower one of many, but by none that takes twice as long."""
    work = WORKLOADS[0]
    options = propose(work, TARGET, 2)[:4]
    seconds = [1.0, 1.5, 1.6, 2.0]
    records = [
        record_of(Trial(work, workload_key(work), option.tile, 1), 1e-3 * s)
        for option, s in zip(options, seconds, strict=True)
    ]

    def menu(tasks: Sequence[int]) -> list[Tile]:
        by_tile = {option.tile: number for option, number in zip(options, tasks, strict=True)}
        result = tuned(
            [work],
            TARGET,
            tiles_of(TARGET),
            2,
            records,
            SETTING,
            None,
            TuningBudget(0.0),
            lambda _, one: by_tile[one],
            Trace(),
        )
        assert [one for one, _ in result.tried[workload_key(work)]] == [option.tile for option in options]
        return [variant.tile for variant in result.menus[0].variants]

    for tasks, count in (([1, 1, 1, 1], 3), ([1, 3, 8, 8], 3), ([1, 2, 8, 8], 2), ([2, 8, 8, 8], 1)):
        assert menu(tasks) == [option.tile for option in options[:count]]


def test_a_menu_keeps_one_tile_with_rows_for_each_lane_that_takes_little_longer() -> None:
    """Of those the one that takes least when its tasks are shared.

    None where a tile that is there anyway has such rows.
    """
    work = workload(POINTWISE, (False, True))
    options = propose(work, TARGET, 2)
    cuts = [option for option in options if option.row_blocks >= 2]
    whole = [option for option in options if option.row_blocks == 1]
    taken = [whole[0], whole[1], cuts[0], cuts[1], cuts[2]]

    def menu(seconds: Sequence[float], tasks: Sequence[int]) -> list[int]:
        records = [
            record_of(Trial(work, workload_key(work), option.tile, 1), 1e-3 * s)
            for option, s in zip(taken, seconds, strict=True)
        ]
        by_tile = {option.tile: number for option, number in zip(taken, tasks, strict=True)}
        result = tuned(
            [work],
            TARGET,
            tiles_of(TARGET),
            2,
            records,
            SETTING,
            None,
            TuningBudget(0.0),
            lambda _, one: by_tile[one],
            Trace(),
        )
        places = {option.tile: at for at, option in enumerate(taken)}
        for variant in result.menus[0].variants:
            assert variant.row_blocks == taken[places[variant.tile]].row_blocks
        return [places[variant.tile] for variant in result.menus[0].variants]

    assert menu([1.0, 1.02, 1.04, 1.06, 1.2], [8, 8, 8, 8, 8]) == [0, 2]
    assert menu([1.0, 1.02, 1.04, 1.06, 1.2], [8, 8, 3, 8, 8]) == [0, 3]
    assert menu([1.0, 1.02, 1.2, 1.3, 1.4], [8, 8, 8, 8, 8]) == [0]
    assert menu([1.02, 1.04, 1.0, 1.06, 1.2], [8, 8, 8, 8, 8]) == [2]


def test_records_of_another_version_of_the_compiler_are_measured_anew() -> None:
    older = [replace(record, compiler="0.0.1") for record in tiled(FakeMachine()).measured]
    machine = FakeMachine()
    assert not tiled(machine, older).reused
    assert machine.asked


def carried_by(source_of: SourceOf, records: Sequence[Record], machine: FakeMachine | None = None) -> Tiled:
    """Tiled with records, by a compiler whose code has these digests."""
    tuning = Tuning(WORKLOADS, 2, SETTING)
    tiler = Tiler(TARGET, tiles_of(TARGET), lambda workload, tile: 4, source_of=source_of)
    return tune(tuning, tiler, records, machine, TuningBudget(60.0), Trace())


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


def test_a_time_that_no_clock_has_shown_is_no_measurement() -> None:
    """A clock that stood still, or a number that is none: the tile is passed over, and the search ends."""
    for nothing in (0.0, math.nan, math.inf):
        machine = FakeMachine(broken=nothing)
        result = tiled(machine)
        assert machine.asked
        assert not result.measured
        assert {cost.source for tried in result.tried.values() for _, cost in tried} == {"model"}


def test_a_second_call_with_the_records_of_the_first_measures_nothing() -> None:
    first, machine = tiled(FakeMachine()), FakeMachine()
    second = tiled(machine, first.measured)
    assert not machine.asked
    assert not second.measured
    assert [menu.best.tile for menu in second.menus] == [menu.best.tile for menu in first.menus]
    assert {cost.source for tried in second.tried.values() for _, cost in tried} == {"record"}
    assert {record.workload for record in second.reused} == {workload_key(one) for one in WORKLOADS}


def kept(first: Tiled, trace_events: Sequence[Event]) -> list[Record]:
    """All records that left, in order."""
    records = [Record.from_json(event.data) for event in trace_events if event.kind == "record"]
    assert [record for record in records if record.kind == "kernel"] == list(first.measured)
    return records


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


def test_how_well_the_model_ranks_is_told_where_enough_was_measured() -> None:
    assert tiled(None).ranking is None
    work = WORKLOADS[0]
    options = propose(work, TARGET, 2)
    for order, correlation in ((1, 1.0), (-1, -1.0)):
        records = [
            record_of(Trial(work, workload_key(work), option.tile, 1), option.seconds**order) for option in options
        ]
        ranking = tiled(None, records).ranking
        assert isinstance(ranking, Ranking)
        assert ranking.kernels == 1
        assert ranking.within == pytest.approx(correlation)
    assert "-1.00 within a kernel (mean of 1)" in str(ranking)


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


@pytest.mark.parametrize("machine", [FakeMachine(), None])
def test_without_a_budget_or_a_machine_the_model_decides(machine: FakeMachine | None) -> None:
    result = tiled(machine, budget_s=0.0 if machine else 60.0)
    assert not result.measured
    assert machine is None or not machine.asked
    for menu, work in zip(result.menus, WORKLOADS, strict=True):
        assert [variant.cost.source for variant in menu.variants] == ["model"]
        assert menu.best.tile == propose(work, TARGET, 2)[0].tile


def test_each_workload_is_told_once_before_the_first_record_of_it_as_a_text_that_reads_back() -> None:
    events: list[Event] = []
    tiled(FakeMachine(), trace=Trace(events.append))
    told: dict[str, str] = {}
    for event in events:
        if event.kind == "workload":
            assert event.data["workload"] not in told
            told[event.data["workload"]] = event.data["text"]
        if event.kind == "record" and event.data["kind"] == "kernel":
            assert event.data["workload"] in told
    assert set(told) == {workload_key(work) for work in WORKLOADS}
    for key, text in told.items():
        assert workload_key(parse_workload(text)) == key


def test_a_workload_known_from_records_alone_is_not_told() -> None:
    events: list[Event] = []
    tiled(FakeMachine(), tiled(FakeMachine()).measured, trace=Trace(events.append))
    assert not [event for event in events if event.kind == "workload"]


def test_whoever_is_after_a_stop_request_gets_the_best_found_so_far_and_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compiler.tuning.search.FIRST_BATCH", 2)
    machine, events = FakeMachine(), list[Event]()
    trace = Trace(events.append)
    result = tiled(machine, trace=trace, stop_requested=lambda: len(machine.asked) >= 2)
    legal = sum(len(propose(work, TARGET, 2)) for work in WORKLOADS)
    assert len(result.measured) == len(machine.asked) == 2 < legal
    assert trace.notices == [f"finished early on request: 2 of {legal} candidates measured"]
    assert {record.kind for record in kept(result, events)} == {"kernel"}
    assert {variant.cost.source for menu in result.menus for variant in menu.variants} == {"measured", "model"}


def test_a_budget_that_ends_the_search_is_told() -> None:
    trace = Trace()
    budget = TuningBudget(60.0, trials=2)
    tuned(WORKLOADS, TARGET, tiles_of(TARGET), 2, (), SETTING, FakeMachine(), budget, lambda workload, tile: 4, trace)
    legal = sum(len(propose(work, TARGET, 2)) for work in WORKLOADS)
    assert trace.notices == [f"the tuning budget ended the search: 2 of {legal} candidates measured"]


def test_a_finish_that_comes_after_the_last_candidate_changes_nothing() -> None:
    machine, trace = FakeMachine(), Trace()
    everything = len(tiled(FakeMachine()).measured)
    result = tiled(machine, trace=trace, stop_requested=lambda: len(machine.asked) == everything)
    assert len(result.measured) == everything
    assert not trace.notices


def test_equal_workloads_are_measured_once() -> None:
    machine = FakeMachine()
    work = WORKLOADS[0]
    result = tuned(
        [work, WORKLOADS[1], work],
        TARGET,
        tiles_of(TARGET),
        1,
        (),
        SETTING,
        machine,
        TuningBudget(60),
        lambda workload, tile: 1,
        Trace(),
    )
    assert result.menus[0] == result.menus[2]
    once = [record for record in result.measured if not record.variant.get("again")]
    assert len(once) == len({(trial.key, trial.tile) for trial in machine.asked})


def test_the_key_of_a_workload_is_stable_and_knows_no_names() -> None:
    work = WORKLOADS[1]
    assert isinstance(work.kernel, Kernel)
    renamed = replace(work, kernel=replace(work.kernel, family="Something else"))
    assert workload_key(renamed) == workload_key(work) == workload_key(workload(MAP))
    assert workload_key(replace(work, inputs=(replace(work.inputs[0], strides=(14, 2)),))) != workload_key(work)
    assert workload_key(replace(work, constant=(True,))) != workload_key(work)
    assert workload_key(work) == "2a0c4b0e5d07c322b891c53c"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_tiles_fit_the_target(profile: CpuTarget, lanes: int) -> None:
    for work in (WORKLOADS[0], WORKLOADS[2]):
        options = propose(work, profile, lanes)
        assert options
        for option in options:
            rows, panel = option.tile.extent("register", "m"), option.tile.extent("register", "n")
            assert panel % profile.vector_floats == 0
            assert rows * (panel // profile.vector_floats) < profile.vector_registers
            assert option.tile.extent("block", "m") % rows == 0 or option.tile.extent("block", "m") in (32, 48)
            assert option.tile.extent("block", "n") % panel == 0
            assert option.seconds > 0


def test_of_what_nothing_is_known_the_caller_chooses_among_all_tiles_best_by_the_model_first() -> None:
    asked: list[tuple[Workload, list[Tile]]] = []

    def choose(options: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
        asked.extend((workload, list(tiles)) for workload, tiles in options)
        return [len(tiles) - 1 for _, tiles in options]

    records = tiled(FakeMachine()).measured
    known = [record for record in records if record.workload == workload_key(WORKLOADS[0])]
    result = tuned(
        WORKLOADS,
        TARGET,
        tiles_of(TARGET),
        2,
        known,
        SETTING,
        None,
        TuningBudget(0.0),
        lambda workload, tile: 4,
        Trace(),
        choose=choose,
    )
    assert [workload for workload, _ in asked] == WORKLOADS[1:]
    for workload, tiles in asked:
        proposed = propose(workload, TARGET, 2)
        assert tiles == [option.tile for option in proposed]
        ((taken, cost),) = result.tried[workload_key(workload)]
        assert (taken, cost) == (proposed[-1].tile, Cost(proposed[-1].seconds, "model"))
    assert {cost.source for _, cost in result.tried[workload_key(WORKLOADS[0])]} == {"record"}


@pytest.mark.parametrize("precision", kinds.CUDA.precisions)
def test_a_cuda_target_is_tiled_like_any_other_by_its_own_algorithms(precision: str) -> None:
    """Legal tiles, records, menus and search are the same; lanes are one stream."""
    target = replace(cuda.resolve("cuda:sm_90"), hardware="here")
    for work in WORKLOADS:
        names = {option.tile.algorithm for option in propose(work, target, 1, precision=precision)}
        mine = {
            option.tile.algorithm for algorithm in ALGORITHMS for option in algorithm.tiles(work, target, precision)
        }
        assert names == (mine or {"loops"})
    blocks: list[Tile] = []

    def count(workload: Workload, tile: Tile) -> int:
        blocks.append(tile)
        return 1000

    arguments = (TuningBudget(60.0), count, Trace(), 0.0, precision)
    first = tuned(WORKLOADS, target, tiles_of(target), 1, [], SETTING, CudaFake(), *arguments)
    assert first.measured
    assert {menu.best.tiles for menu in first.menus} == {1000}
    assert all(len(menu.variants) == 1 for menu in first.menus)
    again = tuned(WORKLOADS, target, tiles_of(target), 1, first.measured, SETTING, None, *arguments)
    assert [menu.best.tile for menu in again.menus] == [menu.best.tile for menu in first.menus]
    assert blocks


@pytest.mark.parametrize("taken", ["first", "none", "measured"])
def test_calls_in_company_have_a_frugal_tile_beside_the_fastest(taken: str) -> None:
    """That which `choose` takes before the fastest one; of measured tiles the most frugal.

    None for calls that run alone, or on a CPU.
    """
    target = cuda.resolve("cuda:sm_90")
    work = workload(PRODUCT.format(m=512), (False, True))
    options = propose(work, target, 1, precision="fp32")
    seconds = {at: option.seconds for at, option in enumerate(options)}
    saves = [options[at].tile for at in frugal(options, seconds, 0)]
    assert saves
    offered: list[Sequence[Tile]] = []

    def choose(asked: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
        offered.extend(tiles for _, tiles in asked)
        return [len(tiles) - 1 if taken == "none" and tiles[0] in saves else 0 for _, tiles in asked]

    records = [record_of(Trial(work, workload_key(work), one.tile, 1), one.seconds) for one in options]
    known = [replace(record, target=target.name, hardware="") for record in records] if taken == "measured" else []

    def menu(*company: bool) -> list[Tile]:
        (found,) = tuned(
            [work],
            target,
            tiles_of(target),
            1,
            known,
            SETTING,
            None,
            TuningBudget(0.0),
            lambda *_: 4,
            Trace(),
            choose=choose,
            may_run_concurrently=company,
        ).menus
        return [variant.tile for variant in found.variants]

    assert menu() == menu(False) == [options[0].tile]
    assert menu(True) == [options[0].tile, *([saves[0]] if taken != "none" else [])]
    if taken != "measured":
        assert [*offered[-1]] == [*saves[:MOST_FRUGAL], options[0].tile]
    on_cpu = tuned(
        WORKLOADS,
        TARGET,
        tiles_of(TARGET),
        1,
        [],
        SETTING,
        None,
        TuningBudget(0.0),
        lambda *_: 4,
        Trace(),
        may_run_concurrently=(True,) * len(WORKLOADS),
    )
    assert all(len(one.variants) == 1 for one in on_cpu.menus)


def test_a_frugal_tile_is_never_before_the_one_that_hints_put_first() -> None:
    """Records of near hardware say that another tile than the model's favourite is best.

    The model's seconds of both stand in the menu.
    """
    target = cuda.resolve("cuda:sm_90")
    work = workload(PRODUCT.format(m=512), (False, True))
    options = propose(work, target, 1, precision="fp32")
    for taken in options:
        trials = [Trial(work, workload_key(work), option.tile, 1) for option in options]
        found = [record_of(trial, 1e-6 if trial.tile == taken.tile else 9e-6) for trial in trials]
        records = [replace(record, target=target.name) for record in found]
        (menu,) = tuned(
            [work],
            target,
            tiles_of(target),
            1,
            records,
            SETTING,
            None,
            TuningBudget(0.0),
            lambda *_: 4,
            Trace(),
            may_run_concurrently=(True,),
        ).menus
        assert menu.best.tile == taken.tile
        assert all(one.cost.seconds >= menu.best.cost.seconds for one in menu.variants)


class CudaFake(FakeMachine):
    """A GPU on which every trial takes a time that its tile decides."""

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        for record in super().measure(trials, deadline_s):
            yield replace(record, target="cuda:sm_90")


def test_what_an_earlier_search_of_the_same_compilation_used_of_the_budget_is_gone() -> None:
    for tried, left in ((0, 5), (3, 2), (9, 0)):
        machine, budget = FakeMachine(), TuningBudget(60.0, trials=5, tried=tried, clock=lambda: 0.0)
        tuned(WORKLOADS, TARGET, tiles_of(TARGET), 1, (), SETTING, machine, budget, lambda workload, tile: 4, Trace())
        assert budget.tried == max(tried, 5)
        assert len({(trial.key, trial.tile) for trial in machine.asked}) == left
    machine, budget = FakeMachine(), TuningBudget(60.0, spent={"plans": 60.0}, clock=lambda: 0.0)
    tuned(WORKLOADS, TARGET, tiles_of(TARGET), 1, (), SETTING, machine, budget, lambda workload, tile: 4, Trace())
    assert machine.asked == []
