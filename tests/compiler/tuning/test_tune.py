from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from compiler.contract import Event, kinds
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.algorithms import ALGORITHMS
from compiler.devices.kinds import propose, tiles_of
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Record, Trial, Workload
from compiler.ir.tile import Cost, Tile
from compiler.knowledge.budget import TuningBudget
from compiler.trace import Trace
from compiler.tuning.frugal import frugal
from compiler.tuning.menus import MOST_FRUGAL, Tiler
from compiler.tuning.tune import Measuring, Ranking, Tunable, Tuning, tune, workload_key
from tests.compiler.tuning.fakes import (
    MAP,
    POINTWISE,
    PRODUCT,
    SETTING,
    TARGET,
    WORKLOADS,
    FakeMachine,
    kept,
    record_of,
    tiled,
    workload,
)
from tests.compiler.tuning.tuned import tuned


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


def test_a_time_that_no_clock_has_shown_is_no_measurement() -> None:
    """A clock that stood still, or a number that is none: the tile is passed over, and the search ends."""
    for nothing in (0.0, math.nan, math.inf):
        machine = FakeMachine(broken=nothing)
        result = tiled(machine)
        assert machine.asked
        assert not result.measured
        assert {cost.source for tried in result.tried.values() for _, cost in tried} == {"model"}


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


@pytest.mark.parametrize("machine", [FakeMachine(), None])
def test_without_a_budget_or_a_machine_the_model_decides(machine: FakeMachine | None) -> None:
    result = tiled(machine, budget_s=0.0 if machine else 60.0)
    assert not result.measured
    assert machine is None or not machine.asked
    for menu, work in zip(result.menus, WORKLOADS, strict=True):
        assert [variant.cost.source for variant in menu.variants] == ["model"]
        assert menu.best.tile == propose(work, TARGET, 2)[0].tile


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


def test_an_exact_call_has_no_tile_that_rounds_though_its_workload_was_searched_with_them() -> None:
    target = next(profile for profile in PROFILES if profile.name == "cpu:x86-64-v4-bf16")
    work = WORKLOADS[0]
    rounding = {one.tile for one in tiles_of(target)(work, 1, "bf16")} - {
        one.tile for one in tiles_of(target)(work, 1, "fp32")
    }
    assert rounding

    def menus(machine: FakeMachine | None, exact: Sequence[bool]) -> list[set[Tile]]:
        budget, one = TuningBudget(60), lambda workload, tile: 1
        options = [work, work], target, tiles_of(target), 1, (), SETTING, machine, budget, one, Trace()
        found = tuned(*options, precision="bf16", exact=exact).menus
        return [{variant.tile for variant in menu.variants} for menu in found]

    for machine in (FakeMachine(), None):
        rounded, exact = menus(machine, (False, True))
        assert exact
        assert exact.isdisjoint(rounding)
        assert rounded == menus(FakeMachine() if machine else None, ())[0]
        assert all(one.isdisjoint(rounding) for one in menus(FakeMachine() if machine else None, (True, True)))


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
    assert [one for one, _ in asked] == WORKLOADS[1:]
    for one, tiles in asked:
        proposed = propose(one, TARGET, 2)
        assert tiles == [option.tile for option in proposed]
        ((taken, cost),) = result.tried[workload_key(one)]
        assert (taken, cost) == (proposed[-1].tile, Cost(proposed[-1].seconds, "model"))
    assert {cost.source for _, cost in result.tried[workload_key(WORKLOADS[0])]} == {"record"}


@pytest.mark.parametrize("precision", [one for one in kinds.CUDA.precisions if one != "int8"])
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


def test_a_menu_has_the_fastest_tile_for_blocks_that_stay_where_one_was_measured() -> None:
    target = cuda.resolve("cuda:sm_90")
    work = workload(PRODUCT.format(m=512), (False, True))
    tiles = [option.tile for option in propose(work, target, 1, precision="fp32")]

    def menu(resident: Sequence[Tile], measured: Sequence[Tile]) -> list[Tile]:
        records = [
            replace(
                record_of(Trial(work, workload_key(work), tile, 1), 1e-6 * (1 + at)), target=target.name, hardware=""
            )
            for at, tile in enumerate(measured)
        ]
        tiler = Tiler(target, tiles_of(target), lambda *_: 4, resident=lambda tile: tile in resident)
        found = tune(Tuning([Tunable(work)], 1, SETTING), tiler, records, Measuring(None, TuningBudget(0.0), Trace()))
        return [variant.tile for variant in found.menus[0].variants]

    assert menu(tiles[3:], tiles) == [tiles[0], tiles[3]]
    assert menu(tiles, tiles) == tiles[:1]
    assert menu(tiles[3:], tiles[:2]) == tiles[:1]
    assert menu((), tiles) == tiles[:1]
