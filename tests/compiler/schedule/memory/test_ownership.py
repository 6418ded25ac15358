from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.accesses import written_over
from compiler.ir.plans.lanes import NOTHING, LaneCosts
from compiler.ir.plans.plan import Plan, Task
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from compiler.schedule.memory.ownership import (
    LINE,
    MOST_GRANULES,
    Held,
    Memory,
    Traffic,
    crossing_bytes,
    granule_of,
    traffic,
)
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.lanes_plan import plan_of
from compiler.schedule.problem import Placed
from tests.compiler.schedule.kernel_graphs import (
    ROWS,
    SIZE,
    SPLITS,
    ExactRegions,
    chain,
    lies_at,
    points,
    random_graph,
    random_order,
    read_at,
    tile_tasks,
)
from tests.parse import parse_routine
from tests.seeds import each

WIDE = LINE // SIZE
"""Columns of a matrix each row of which is a cache line."""
FAR = LaneCosts(byte_s=1.0, upgrade_s=4.0)


def halves(kernels: KernelGraph, lanes: Sequence[int] = (0, 1), tile: Tile = SPLITS[0]) -> Plan:
    """Each call on so many lanes, in turn."""
    count = tile_tasks(tile, kernels.buffers[0].type.dims)
    placed = [Placed(call, tuple(lanes), 0.0, 0.0) for call in range(len(kernels.calls))]
    before = [(call - 1,) if call else () for call in range(len(placed))]
    return plan_of(kernels, placed, [(tile, count)] * len(placed), 2, before, "halves", ExactRegions(kernels))


@pytest.mark.parametrize(
    ("kind", "moved"), [("sum", 0), ("halo", 2 * LINE), ("mix", 0), ("flip", ROWS * LINE), ("all", ROWS * LINE)]
)
def test_lanes_that_keep_to_their_rows_move_only_what_they_read_of_the_others(kind: str, moved: int) -> None:
    kernels = chain("sum", kind, columns=WIDE)
    assert crossing_bytes(halves(kernels), kernels, ExactRegions(kernels)) == moved


def test_one_lane_moves_nothing() -> None:
    kernels = chain("sum", "all", "halo", columns=WIDE)
    for lanes in ((0,), (1,)):
        assert set(traffic(halves(kernels, lanes), kernels, ExactRegions(kernels))) == {Traffic()}


def test_where_nothing_is_known_of_tiles_each_lane_reads_the_half_of_the_other() -> None:
    kernels = chain("sum", "sum", columns=WIDE)
    assert crossing_bytes(halves(kernels), kernels) == ROWS * LINE


def test_what_a_lane_reads_twice_has_moved_once() -> None:
    kernels = chain("sum", "all", "sum", columns=WIDE)
    again = Call(kernels.calls[1].kernel, (1,), (4,))
    buffers = {**kernels.buffers, 4: Buffer.whole(4, TensorType(DType.F32, (ROWS, WIDE)))}
    twice = KernelGraph(buffers, (*kernels.calls, again), (0,), (3, 4))
    moved = [crossing_bytes(halves(graph), graph, ExactRegions(graph)) for graph in (kernels, twice)]
    assert moved[0] == moved[1] == ROWS * LINE


def test_a_slice_between_others_counts_by_its_elements() -> None:
    """The left half of a matrix, written by lane 0, read by lane 1: its segment holds most of the other half too."""
    inside = Buffer(2, TensorType(DType.F32, (ROWS, WIDE)), Layout.plain(2), 1, (2 * WIDE, 1), 0)
    wide, given = (
        Buffer.whole(id, TensorType(DType.F32, (ROWS, columns))) for id, columns in ((1, 2 * WIDE), (0, WIDE))
    )
    kernel = parse_routine(f"routine sum sum(in x: f32[{ROWS}, {WIDE}]; out y: f32[{ROWS}, {WIDE}])")
    result = Buffer.whole(3, TensorType(DType.F32, (ROWS, WIDE)))
    kernels = KernelGraph(
        {0: given, 1: wide, 2: inside, 3: result}, (Call(kernel, (0,), (2,)), Call(kernel, (2,), (3,))), (0,), (3,)
    )
    placed = [Placed(0, (0,), 0.0, 0.0), Placed(1, (1,), 0.0, 0.0)]
    plan = plan_of(kernels, placed, [(SPLITS[0], ROWS)] * 2, 2, [(), (0,)], "apart")
    assert crossing_bytes(plan, kernels) == ROWS * LINE


@pytest.mark.parametrize("cut", SPLITS)
def test_lanes_that_write_between_each_other_each_have_their_part_of_every_line(cut: Tile) -> None:
    """By columns each lane reads a half of what it reads, all rows, of the other, whatever half that is.

    By rows nothing, and then it upgrades nothing.
    """
    kernels = chain("mix", "mix", columns=WIDE)
    total = sum(traffic(halves(kernels, tile=cut), kernels, ExactRegions(kernels)), Traffic())
    mixed = cut != SPLITS[0]
    assert (total.read > 0, total.upgraded > 0) == (mixed, mixed)
    assert total.read <= 2 * ROWS * LINE
    assert total.fetched + total.upgraded <= 2 * ROWS * LINE


def test_a_lane_may_write_free_of_charge_what_it_read_last_and_pays_for_what_another_read() -> None:
    memory = Memory(3, 4 * LINE, LINE)
    assert memory.write(0, 0, 4 * LINE, 1.0, tenant=0) == Traffic()
    assert memory.read(1, 0, 2 * LINE, 1.0) == Traffic(read=2 * LINE)
    assert memory.read(1, 0, 2 * LINE, 1.0) == memory.read(0, 0, LINE, 1.0) == Traffic()
    assert memory.write(1, 0, LINE, 1.0, tenant=1) == Traffic()
    assert memory.write(0, LINE, 2 * LINE, 1.0, tenant=1) == Traffic(upgraded=LINE)
    assert memory.write(1, 2 * LINE, 3 * LINE, 1.0, tenant=1) == Traffic(fetched=LINE)
    assert memory.write(0, 3 * LINE, 4 * LINE, 1.0, tenant=1) == Traffic()


def test_what_granules_are_priced_at_is_what_writing_them_costs() -> None:
    random = Random(0)
    memory = Memory(3, 5 * LINE, LINE)
    for tenant in range(4):
        for lane in range(3):
            memory.write(lane, 0, 5 * LINE, random.random() / 3, tenant)
        for _ in range(4):
            memory.read(random.randrange(3), 0, LINE * random.randint(1, 5), random.random())
    held = Held(memory.now.wrote.copy(), memory.now.read.copy())
    prices = held.prices(FAR)
    for lane in range(3):
        missing = Memory(3, 5 * LINE, LINE)
        missing.now = Held(held.wrote.copy(), held.read.copy())
        assert missing.write(lane, 0, 5 * LINE, 1.0, 4).seconds(FAR) == pytest.approx(LINE * prices[lane].sum(), 1e-5)
    assert not held.prices(NOTHING).any()


@pytest.mark.parametrize("bytes", [0, 1, LINE, LINE * MOST_GRANULES, LINE * MOST_GRANULES + 1, 10**8 + 7])
def test_a_granule_is_as_few_lines_as_can_be(bytes: int) -> None:
    granule = granule_of(bytes)
    assert granule >= LINE
    assert granule % LINE == 0
    assert bytes <= granule * MOST_GRANULES
    assert granule == LINE or bytes > (granule - LINE) * MOST_GRANULES


def random_plan(seed: int, lanes: int) -> tuple[KernelGraph, Plan, ExactRegions]:
    """Of rows that are lines, none beside another, so that whatever a task touches is whole lines.

    Calls in turn or as they come.
    """
    random = Random(seed)
    kernels = rows_only(random)
    tiles = [(SPLITS[0], tile_tasks(SPLITS[0], kernels.buffers[call.outputs[0]].type.dims)) for call in kernels.calls]
    regions = ExactRegions(kernels)
    if random.random() < 0.5:
        placed = [Placed(call, tuple(range(random.choice([1, lanes]))), 0.0, 0.0) for call in range(len(tiles))]
        before: list[Sequence[int]] = [range(max(call - 1, 0), call) for call in range(len(tiles))]
    else:
        placed = random_order(random, kernels, lanes, [count for _, count in tiles])
        before = [*predecessors(kernels)]
    costs = random.choice([NOTHING, FAR])
    return kernels, plan_of(kernels, placed, tiles, lanes, before, "random", regions, costs=costs), regions


def rows_only(random: Random) -> KernelGraph:
    """A random graph in which no two results lie side by side."""
    while True:
        kernels = random_graph(random, 8, WIDE)
        if all(buffer.is_contiguous for buffer in kernels.buffers.values()):
            return kernels


@pytest.mark.parametrize("lanes", [1, 2, 3, 4])
@each(range(12))
def test_where_tasks_touch_whole_lines_it_is_what_each_line_goes_through(seed: int, lanes: int) -> None:
    """Line by line: who wrote it last, and who has read it since."""
    kernels, plan, regions = random_plan(10 * seed + lanes, lanes)
    found = traffic(plan, kernels, regions)
    expected = by_line(kernels, plan)
    assert [[one.read, one.fetched, one.upgraded] for one in found] == [
        pytest.approx([LINE * count for count in counts], abs=0.01) for counts in expected
    ]
    assert crossing_bytes(plan, kernels, regions) == LINE * sum(counts[0] for counts in expected)
    assert lanes > 1 or not any(map(any, expected))


def test_random_plans_have_traffic_of_all_kinds_and_memory_that_is_shared_and_written_in_place() -> None:
    plans = [random_plan(seed, 2) for seed in range(12)]
    totals = [sum(traffic(plan, kernels, regions), Traffic()) for kernels, plan, regions in plans]
    assert sum(one.read > 0 for one in totals) > 6
    assert sum(one.fetched > 0 for one in totals) > 3
    assert sum(one.upgraded > 0 for one in totals) > 3
    in_arena = [[place.at for place in plan.places.values() if place.space == "arena"] for _, plan, _ in plans]
    assert any(len({*places}) < len(places) for places in in_arena)
    assert any(
        plan.places[new] == plan.places[old]
        for kernels, plan, _ in plans
        for call in range(len(kernels.calls))
        for new, old in written_over(kernels, call)
    )


def by_line(kernels: KernelGraph, plan: Plan) -> list[list[int]]:
    """Lines that each task reads, fetches and upgrades, in the second of two inferences."""
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], set[int]] = {}
    found: list[list[int]] = []
    for _ in range(2):
        found = [[0, 0, 0] for _ in plan.runs]
        for task, counts in zip(plan.runs, found, strict=True):
            read, written = map(set, lines_of(kernels, plan, task))
            for line in read:
                counts[0] += writer.get(line, task.lane) != task.lane and task.lane not in readers[line]
                readers.setdefault(line, set()).add(task.lane)
            for line in written:
                last, since = writer.get(line), readers.get(line, set())
                counts[1] += last not in (None, task.lane) and task.lane not in since
                counts[2] += last == task.lane and bool(since - {task.lane})
                writer[line], readers[line] = task.lane, set()
    return found


def lines_of(
    kernels: KernelGraph, plan: Plan, task: Task
) -> tuple[Iterator[tuple[int, int]], Iterator[tuple[int, int]]]:
    """What a task reads and what it writes, element by element.

    Lines of the arena, or else of a storage that some call writes.
    """
    call, (tile, tiles) = kernels.calls[task.call], plan.tiles[task.call]
    out = kernels.buffers[call.outputs[0]]
    made = [*points(tile, tiles, task.first, task.last, out.type.dims)]
    into = [kernels.buffers[id] for id in call.inputs if kernels.buffers[id].storage not in kernels.inputs]
    reads = (
        line_at(plan, buffer, lies_at(buffer, at))
        for buffer in into
        for at in {at for point in made for at in read_at(call.kernel.family, point, buffer.type.dims)}
    )
    return reads, (line_at(plan, out, lies_at(out, point)) for point in made)


def line_at(plan: Plan, buffer: Buffer, element: int) -> tuple[int, int]:
    """A number of the memory that a storage lies in, and one of the line there."""
    place = plan.places[buffer.storage]
    in_arena = place.space == "arena"
    return -1 if in_arena else buffer.storage, ((place.at if in_arena else 0) + SIZE * element) // LINE
