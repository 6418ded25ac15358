from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.tile import Cost, Menu, Variant
from compiler.schedule.memory.ownership import traffic
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.plans.works import works_of
from compiler.schedule.problem import Placed
from tests.compiler.schedule.kernel_graphs import (
    ROWS,
    SPLITS,
    ExactRegions,
    chain,
    random_graph,
    random_order,
    tile_tasks,
)
from tests.seeds import each

TILE = SPLITS[0]


def menu(*measured: tuple[int, float]) -> Menu:
    """One tile, in so many seconds on each number of lanes."""
    return Menu("w", tuple(Variant(TILE, ROWS, lanes, Cost(seconds, "record")) for lanes, seconds in measured))


def seconds_of(lanes: int, one: Menu) -> list[float]:
    """Of the tasks of a call on so many lanes."""
    kernels = chain("sum")
    placed = [Placed(0, tuple(range(lanes)), 0.0, 0.0)]
    plan = plan_of(kernels, placed, [(TILE, ROWS)], lanes, [()], "", ExactRegions(kernels))
    return [*works_of(plan, kernels, [one], LaneCosts(), ExactRegions(kernels))]


def test_a_call_that_was_measured_on_one_lane_is_shared_by_tiles() -> None:
    assert seconds_of(1, menu((1, ROWS * 1.0), (2, 9.0))) == [ROWS * 1.0]
    shares = [ROWS * part // 3 for part in range(4)]
    assert seconds_of(3, menu((1, ROWS * 1.0), (2, 9.0))) == [float(last - first) for first, last in pairwise(shares)]


def test_the_part_with_most_tiles_takes_what_was_measured_on_as_many_lanes() -> None:
    assert max(seconds_of(3, menu((1, 99.0), (3, 2.0)))) == pytest.approx(2.0)
    assert seconds_of(2, menu((1, 99.0), (2, 2.0))) == [2.0 * (ROWS // 2) / -(-ROWS // 2), 2.0]


@each(range(40))
def test_what_is_not_at_hand_takes_longer(seed: int) -> None:
    random = Random(seed)
    kernels = random_graph(random)
    lanes = random.randint(1, 3)
    tiles = [tile_tasks(TILE, kernels.buffers[call.outputs[0]].type.dims) for call in kernels.calls]
    placed = random_order(random, kernels, lanes, tiles)
    before = [(call - 1,) if call else () for call in range(len(tiles))]
    regions = ExactRegions(kernels)
    menus = [
        Menu(f"w{call}", (Variant(TILE, count, 1, Cost(float(call + 1), "record")),))
        for call, count in enumerate(tiles)
    ]
    order = sorted(placed, key=lambda one: one.call)
    plan = plan_of(kernels, order, [(TILE, count) for count in tiles], lanes, before, "", regions)
    costs = LaneCosts(0.0, 1e-3, 4e-3)
    works = works_of(plan, kernels, menus, costs, regions)
    free = works_of(plan, kernels, menus, LaneCosts(), regions)
    moved = traffic(plan, kernels, regions)
    for work, alone, missing in zip(works, free, moved, strict=True):
        longer = 1e-3 * missing.read + 1e-3 * missing.fetched + 4e-3 * missing.upgraded
        assert work == pytest.approx(alone + longer)
    by_call = {
        call: sum(w for w, t in zip(free, plan.runs, strict=True) if t.call == call) for call in range(len(tiles))
    }
    assert by_call == pytest.approx({call: float(call + 1) if count else 0.0 for call, count in enumerate(tiles)})
    assert not any(one.seconds(costs) for one in moved) or len({task.lane for task in plan.runs}) > 1
