"""Lanes keep to what they wrote where that costs nothing, and to few lanes where moving costs more than it gains."""

from __future__ import annotations

from random import Random

import pytest

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.tile import Cost, Menu, Variant
from compiler.schedule import schedule
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.problem import Placed
from compiler.schedule.solvers.aligned import aligned
from compiler.schedule.solvers.sequential import one_by_one
from tests.compiler.schedule.kernel_graphs import ROWS, SIZE, SPLITS, ExactRegions, chain, random_graph, run, tile_tasks
from tests.compiler.schedule.plans.test_tasks import in_turn
from tests.seeds import each

NEAR, FAR = LaneCosts(split_s=0.2), LaneCosts(split_s=2.0, byte_s=0.01)


def ways(seconds: float = 6.0, columns: float = 1.05) -> Menu:
    """Cut by rows, or by columns, which takes `columns` times as long."""
    options = (
        Variant(SPLITS[1], 4, 1, Cost(seconds * columns, "model")),
        Variant(SPLITS[0], ROWS, 1, Cost(seconds, "model")),
    )
    return Menu("", tuple(sorted(options, key=lambda one: one.cost.seconds)))


def test_of_two_ways_to_cut_a_call_the_one_is_taken_that_lets_lanes_read_what_they_wrote() -> None:
    """By columns each call is a little faster; each of them reads whole rows."""
    kernels, menus = chain("mix", "mix", "mix", "mix"), [ways(columns=0.95)] * 4
    variants, placed = aligned(kernels, menus, 2, FAR, ExactRegions(kernels))
    assert [one.tile for one in variants] == [SPLITS[0]] * 4
    assert [one.lanes for one in placed] == [(0, 1)] * 4
    assert placed[-1].end == pytest.approx(4 * 6 / 2)


def test_where_lanes_cost_each_other_nothing_the_fastest_way_is_taken() -> None:
    kernels = chain("mix", "mix", "mix", "mix")
    variants, _ = aligned(kernels, [ways(columns=0.95)] * 4, 2, LaneCosts(), ExactRegions(kernels))
    assert [one.tile for one in variants] == [SPLITS[1]] * 4


def test_small_calls_between_split_ones_are_split_too() -> None:
    """Alone none of them would be worth a hand-over; on one lane they would cost two."""
    kernels, menus = chain("sum", "sum", "sum", "sum"), [ways(60.0), ways(0.6), ways(0.6), ways(60.0)]
    _, placed = aligned(kernels, menus, 2, FAR, ExactRegions(kernels))
    assert [one.lanes for one in placed] == [(0, 1)] * 4
    assert placed[-1].end == pytest.approx((60 + 0.6 + 0.6 + 60) / 2)


def test_what_is_read_of_another_lane_arrives_a_handover_later_and_takes_longer() -> None:
    kernels = chain("sum", "flip")
    _, placed = aligned(kernels, [ways(60.0)] * 2, 2, FAR, ExactRegions(kernels))
    half = ROWS * 4 * SIZE / 2
    assert placed[1].begin == pytest.approx(30 + FAR.handover_s)
    assert placed[1].end == pytest.approx(30 + FAR.handover_s + half * FAR.byte_s + 30)


def test_what_was_measured_on_several_lanes_counts_there() -> None:
    menu = Menu("", (*ways(6.0).variants, Variant(SPLITS[0], ROWS, 2, Cost(5.0, "record"))))
    _, placed = aligned(chain("sum"), [menu], 2, LaneCosts(), ExactRegions(chain("sum")))
    assert placed == (Placed(0, (0, 1), 0.0, 5.0),)


def test_a_call_without_tiles_takes_no_time() -> None:
    kernels = chain("sum", "sum")
    menus = [Menu("", (Variant(SPLITS[0], 0, 1, Cost(0.0, "model")),)), ways()]
    _, placed = aligned(kernels, menus, 2, FAR, ExactRegions(kernels))
    assert [one.end for one in placed] == [0.0, 3.0]


@each(range(40))
def test_its_plans_compute_what_the_calls_in_turn_compute(seed: int) -> None:
    random = Random(seed)
    kernels, lanes = random_graph(random), random.randint(1, 4)
    menus = [menu(random, kernels, call) for call in range(len(kernels.calls))]
    costs, regions = random.choice([NEAR, FAR]), ExactRegions(kernels)
    variants, placed = aligned(kernels, menus, lanes, costs, regions)
    tiles = [(variant.tile, variant.tiles) for variant in variants]
    before = one_by_one(variants)
    plan = plan_of(kernels, placed, tiles, lanes, before, "aligned", regions)
    assert run(kernels, plan, random) == run(kernels, in_turn(kernels, plan), random)
    for one, earlier in zip(placed, predecessors(kernels), strict=True):
        assert one.begin >= max((min(placed[call].end, placed[call].begin) for call in earlier), default=0.0)
        assert one.begin <= one.end
    work = sum(variant.cost.seconds for variant in variants)
    assert max(one.end for one in placed) >= work / lanes * (1 - 1e-9)


def menu(random: Random, kernels: KernelGraph, call: int) -> Menu:
    dims = kernels.buffers[kernels.calls[call].outputs[0]].type.dims
    seconds = [random.uniform(0.1, 8.0) for _ in SPLITS]
    options = [
        Variant(tile, tile_tasks(tile, dims), 1, Cost(one, "model")) for tile, one in zip(SPLITS, seconds, strict=True)
    ]
    return Menu("", tuple(sorted(options, key=lambda one: one.cost.seconds)))


def test_it_is_a_candidate_wherever_it_is_known_what_parts_of_calls_touch() -> None:
    kernels, menus = chain("mix", "mix", "mix"), [ways(columns=0.95)] * 3
    regions = ExactRegions(kernels)
    assert [one.plan.scheduler for one in schedule(kernels, menus, 2, FAR)] == ["sequential"]
    found = schedule(kernels, menus, 2, FAR, regions=regions)
    assert [one.plan.scheduler for one in found] == ["sequential", "aligned"]
    (asked,) = schedule(kernels, menus, 2, FAR, "aligned", regions=regions)
    assert asked.plan == found[1].plan
    assert asked.plan.predicted_s < found[0].plan.predicted_s
    asked.plan.verify(kernels, regions)
    with pytest.raises(VerifyError):
        asked.plan.verify(kernels)
