from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random

import numpy as np
import pytest

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.lanes import NOTHING, LaneCosts
from compiler.ir.plans.plan import Place, Plan, Task, ended_before
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Tile
from compiler.schedule.memory import by_owner
from compiler.schedule.memory.buffers import MOST_MOVED, Lease, Mover, Tenant, laid_out
from compiler.schedule.memory.by_owner import ByOwner, Use
from compiler.schedule.memory.ownership import LINE, Held, Traffic, traffic
from compiler.schedule.plans import lanes_plan
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.plans.tasks import tasks_of
from compiler.schedule.problem import Placed
from tests.compiler.schedule.kernel_graphs import (
    ROWS,
    SIZE,
    SPLITS,
    ExactRegions,
    chain,
    random_graph,
    random_order,
    run,
    tile_tasks,
)
from tests.parse import parse_routine
from tests.seeds import each

FAR = LaneCosts(byte_s=1.0, upgrade_s=4.0)
WIDE = LINE // SIZE


class Scene:
    """A random graph in a random order, cut by rows or columns, on 2 to 4 lanes.

    Every other one with rows that are whole lines.
    """

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.kernels = random_graph(random, 10, WIDE if seed % 2 else 2)
        dims = [self.kernels.buffers[call.outputs[0]].type.dims for call in self.kernels.calls]
        cuts = [random.choice(SPLITS) for _ in dims]
        self.tiles: list[tuple[Tile, int]] = [(cut, tile_tasks(cut, of)) for cut, of in zip(cuts, dims, strict=True)]
        self.lanes = random.randint(2, 4)
        self.placed = random_order(random, self.kernels, self.lanes, [count for _, count in self.tiles])
        self.before = predecessors(self.kernels)
        self.regions = ExactRegions(self.kernels)

    def plan(self, costs: LaneCosts) -> Plan:
        """Storages placed for lanes that cost each other so much."""
        return plan_of(self.kernels, self.placed, self.tiles, self.lanes, self.before, "", self.regions, costs=costs)

    def seconds(self, plan: Plan) -> float:
        """Of all traffic."""
        return sum(one.seconds(FAR) for one in traffic(plan, self.kernels, self.regions))

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tasks_of(self.placed, self.before, [count for _, count in self.tiles], self.lanes)

    def mover(self, costs: LaneCosts = FAR) -> ByOwner:
        return ByOwner(self.kernels, self.tasks, self.tiles, self.lanes, costs, self.regions)

    def place(self, mover: Mover) -> tuple[Mapping[int, Place], int]:
        layout = laid_out(self.kernels, ended_before(self.tasks, self.lanes, len(self.tiles))).moved(mover)
        return layout.places, layout.bytes


@cache
def planned(seed: int) -> tuple[Scene, Plan, Plan]:
    """A scene with its plans for lanes that cost each other nothing and that do."""
    scene = Scene(seed)
    return scene, scene.plan(NOTHING), scene.plan(FAR)


@each(range(40))
def test_a_plan_whose_storages_moved_costs_no_more_in_hardly_more_memory_and_computes_the_same(seed: int) -> None:
    """Cells are lines in so small an arena: what moves are judged by is what `traffic` tells."""
    scene, placed, moved = planned(seed)
    assert moved.arena_bytes <= MOST_MOVED * placed.arena_bytes
    assert scene.seconds(moved) <= scene.seconds(placed) * (1 + 1e-5)
    assert moved == scene.plan(FAR)
    results = [run(scene.kernels, plan, Random(seed)) for plan in (placed, moved)]
    assert results[0] == results[1]


def test_many_a_plan_is_better_for_it() -> None:
    scenes = map(planned, range(40))
    assert sum(scene.seconds(moved) < 0.98 * scene.seconds(placed) for scene, placed, moved in scenes) > 5


@pytest.mark.parametrize("cells", [by_owner.CELLS, 5])
@each(range(20))
def test_leases_move_only_within_the_limit_and_to_where_nobody_is_meanwhile(
    seed: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_owner, "CELLS", cells)
    scene = Scene(100 + seed)
    judged: list[int] = []

    def check(tenants: Sequence[Tenant], leases: Sequence[Lease], limit: int) -> list[Lease]:
        before = [*leases]
        judged.append(len(before))
        found = scene.mover()(tenants, leases, limit)
        assert [*leases] == before
        assert [(one.bytes, one.users, one.ended) for one in found] == [(o.bytes, o.users, o.ended) for o in before]
        assert all(one.at >= 0 and one.at % LINE == 0 and one.at + one.bytes <= limit for one in found)
        for one, other in combinations(found, 2):
            assert not one.excludes(other) or one.at + one.bytes <= other.at or other.at + other.bytes <= one.at
        return found

    scene.place(check)
    assert judged


def test_lanes_that_cost_each_other_nothing_move_no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LaneCosts] = []

    def mover(*given: object) -> Mover:
        asked.extend(one for one in given if isinstance(one, LaneCosts))
        return lambda tenants, leases, limit: [*leases]

    monkeypatch.setattr(lanes_plan, "ByOwner", mover)
    for costs in (NOTHING, LaneCosts(split_s=1.0), LaneCosts(byte_s=1.0), LaneCosts(upgrade_s=1.0)):
        Scene(1).plan(costs)
    assert asked == [LaneCosts(byte_s=1.0), LaneCosts(upgrade_s=1.0)]
    scene = Scene(1)
    assert scene.place(scene.mover(NOTHING)) == scene.place(lambda tenants, leases, limit: [*leases])


def by_turns(kernels: KernelGraph, mover_of: Callable[[ByOwner], Mover]) -> Traffic:
    """What calls on two lanes by turns have of the arena."""
    tiles = [(SPLITS[0], ROWS)] * len(kernels.calls)
    placed = [Placed(call, (call % 2,), 0.0, 0.0) for call in range(len(tiles))]
    before = [(call - 1,) if call else () for call in range(len(tiles))]
    tasks = tasks_of(placed, before, [ROWS] * len(tiles), 2)
    ended = ended_before(tasks, 2, len(tiles))
    layout = laid_out(kernels, ended).moved(mover_of(ByOwner(kernels, tasks, tiles, 2, FAR)))
    places, arena = layout.places, layout.bytes
    plan = Plan(2, tasks, tuple(tiles), places, arena, "")
    plan.verify(kernels)
    moved = zip(tasks, traffic(plan, kernels), strict=True)
    return sum((one for task, one in moved if kernels.calls[task.call].outputs[0] not in kernels.outputs), Traffic())


def still(mover: ByOwner) -> Mover:
    """Moves nothing."""
    return lambda tenants, leases, limit: [*leases]


def test_by_turns_lanes_write_free_of_charge_over_what_they_read_of_the_other() -> None:
    """In two places each would write what it wrote last, and the other has read since.

    In three it writes what the other wrote, and it has read.
    """

    def from_apart(mover: ByOwner) -> Mover:
        def move(tenants: Sequence[Tenant], leases: Sequence[Lease], limit: int) -> list[Lease]:
            apart = [replace(lease, at=number * lease.bytes) for number, lease in enumerate(leases)]
            return mover(tenants, apart, 6 * ROWS * LINE)

        return move

    kernels = chain(*["sum"] * 7, columns=WIDE)
    placed, moved = by_turns(kernels, still), by_turns(kernels, from_apart)
    assert placed == Traffic(read=5 * ROWS * LINE, upgraded=6 * ROWS * LINE)
    assert moved == Traffic(read=5 * ROWS * LINE)


def test_where_a_large_storage_leaves_room_the_small_ones_after_it_move() -> None:
    wide, narrow = (TensorType(DType.F32, (ROWS, columns)) for columns in (8 * WIDE, WIDE))
    first = Call(parse_routine(f"routine sum sum(in x: {wide}; out y: {wide})"), (0,), (1,))
    second = Call(parse_routine(f"routine mix mix(in x: {wide}; out y: {narrow})"), (1,), (2,))
    kernel = parse_routine(f"routine sum sum(in x: {narrow}; out y: {narrow})")
    rest = [Call(kernel, (id,), (id + 1,)) for id in range(2, 10)]
    buffers = {id: Buffer.whole(id, wide if id < 2 else narrow) for id in range(11)}
    kernels = KernelGraph(buffers, (first, second, *rest), (0,), (10,))
    placed, moved = by_turns(kernels, still), by_turns(kernels, lambda mover: mover)
    assert moved.seconds(FAR) < placed.seconds(FAR)
    assert moved.upgraded < placed.upgraded


@pytest.mark.parametrize("cell", [LINE, 3 * LINE])
@each(range(10))
def test_all_places_at_once_are_judged_as_each_would_be_alone(seed: int, cell: int) -> None:
    """Of storages of any sizes, none at all too, anywhere, some of which no task touches."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    lanes, limit = random.randint(2, 4), 20 * LINE
    uses, leases = [], []
    for _ in range(8):
        bytes = LINE * random.randint(0, 9)
        shape = (lanes, -(-bytes // cell))
        touched = random.random() < 0.8
        first, wrote, read = (np.float32(touched) * numbers.random(shape, np.float32) for _ in range(3))
        uses.append(Use(random.randrange(100), first, Held(wrote / np.float32(lanes), read)))
        leases.append(Lease(LINE * random.randint(0, (limit - bytes) // LINE), bytes, 1, 0))
    descent = by_owner._Descent(uses, leases, limit, cell, lanes, FAR)
    for at, (use, lease) in enumerate(zip(uses, leases, strict=True)):
        if not lease.bytes:
            continue
        begins = [one.at // cell for one in leases]
        without = all_writes(uses, [None if other == at else begin for other, begin in enumerate(begins)], cell)
        expected = [
            all_writes(uses, [place if other == at else begin for other, begin in enumerate(begins)], cell) - without
            for place in range(-(-limit // cell) - use.first.shape[1] + 1)
        ]
        assert descent._seconds(at) == pytest.approx(expected, rel=1e-4, abs=1e-3 * cell)


def all_writes(uses: Sequence[Use], begins: Sequence[int | None], cell: int) -> float:
    """Seconds that all first writes cost, cell by cell and lane by lane.

    Storages begin at these cells, None are nowhere.
    """
    total = 0.0
    by_cell: dict[int, list[tuple[Use, int]]] = {}
    for use, begin in sorted(zip(uses, begins, strict=True), key=lambda one: one[0].begins):
        for at in range(use.first.shape[1] if begin is not None else 0):
            by_cell.setdefault((begin or 0) + at, []).append((use, at))
    for here in by_cell.values():
        for number, (use, at) in enumerate(here):
            last, there = here[number - 1]
            for lane in range(len(use.first)):
                others = [other for other in range(len(use.first)) if other != lane]
                wrote, read = last.last.wrote[:, there], last.last.read[:, there]
                fetched = sum(float(wrote[other]) for other in others) * (1 - float(read[lane]))
                upgraded = float(wrote[lane]) * max(float(read[other]) for other in others)
                total += cell * float(use.first[lane, at]) * (FAR.byte_s * fetched + FAR.upgrade_s * upgraded)
    return total


def test_no_storages_and_storages_of_no_bytes_stay_where_they_are() -> None:
    scene = Scene(3)
    assert scene.mover()([], [], 0) == []
    lease = Lease(0, 0, 1, 0)
    assert scene.mover()([Tenant([99], 0, {0})], [lease], 0) == [lease]
    untouched = Lease(LINE, LINE, 1, 0)
    assert scene.mover()([Tenant([99], LINE, {0})], [untouched], 4 * LINE) == [untouched]


def test_memory_that_is_written_over_in_place_is_met_by_its_first_writer_and_left_by_its_last() -> None:
    """Lane 0 writes it first, lane 1 over that, and lane 0 reads the result."""
    apart = chain("sum", "sum", "sum", columns=WIDE)
    calls = (apart.calls[0], replace(apart.calls[1], in_place=((0, 0),)), apart.calls[2])
    kernels = replace(apart, calls=calls)
    tasks = tuple(Task(call, lane, 0, ROWS) for call, lane in enumerate((0, 1, 0)))
    mover = ByOwner(kernels, tasks, [(SPLITS[0], ROWS)] * 3, 2, FAR, ExactRegions(kernels))
    asked: list[Tenant] = []

    def keep(tenants: Sequence[Tenant], leases: Sequence[Lease], limit: int) -> list[Lease]:
        asked.extend(tenants)
        return [*leases]

    laid_out(kernels).moved(keep)
    assert [tenant.storages for tenant in asked] == [[1, 2]]
    (use,) = mover._uses(asked, LINE)
    assert use.begins == 0
    assert use.first.tolist() == [[1.0] * ROWS, [0.0] * ROWS]
    assert use.last.wrote.tolist() == [[0.0] * ROWS, [1.0] * ROWS]
    assert use.last.read.tolist() == [[1.0] * ROWS, [0.0] * ROWS]
