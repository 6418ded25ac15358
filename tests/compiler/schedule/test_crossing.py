from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.parse import parse_routine
from compiler.ir.plan import Plan, Task
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Tile
from compiler.schedule.crossing import crossing_bytes
from compiler.schedule.lanes_plan import plan_of
from compiler.schedule.problem import Placed
from tests.compiler.schedule.kernel_graphs import (
    ROWS,
    SIZE,
    SPLITS,
    ExactRegions,
    lies_at,
    points,
    random_graph,
    read_at,
)

ROW = 4 * SIZE


def chain(*kinds: str) -> KernelGraph:
    """Kernels on a matrix of four columns, each of which reads the one before."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (ROWS, 4))) for id in range(len(kinds) + 1)}
    calls = tuple(
        Call(parse_routine(f"routine {kind} {kind}(in x: f32[{ROWS}, 4]; out y: f32[{ROWS}, 4])"), (id,), (id + 1,))
        for id, kind in enumerate(kinds)
    )
    return KernelGraph(buffers, calls, (0,), (len(kinds),))


def halves(kernels: KernelGraph, tile: Tile, lanes: Sequence[int] = (0, 1)) -> Plan:
    """Each call on so many lanes, in turn."""
    count = ROWS if tile == SPLITS[0] else 4
    placed = [Placed(call, tuple(lanes), 0.0, 0.0) for call in range(len(kernels.calls))]
    before = [(call - 1,) if call else () for call in range(len(placed))]
    return plan_of(kernels, placed, [(tile, count)] * len(placed), 2, before, "halves", 0.0, ExactRegions(kernels))


@pytest.mark.parametrize(
    ("kind", "moved"), [("sum", 0), ("halo", 2 * ROW), ("mix", 0), ("flip", ROWS * ROW), ("all", ROWS * ROW)]
)
def test_lanes_that_keep_to_their_rows_move_only_what_they_read_of_the_others(kind: str, moved: int) -> None:
    kernels = chain("sum", kind)
    assert crossing_bytes(halves(kernels, SPLITS[0]), kernels, ExactRegions(kernels)) == moved


def test_one_lane_moves_nothing() -> None:
    kernels = chain("sum", "all", "halo")
    assert crossing_bytes(halves(kernels, SPLITS[0], (1,)), kernels, ExactRegions(kernels)) == 0


def test_where_nothing_is_known_of_tiles_each_lane_reads_the_half_of_the_other() -> None:
    kernels = chain("sum", "sum")
    assert crossing_bytes(halves(kernels, SPLITS[0]), kernels) == ROWS * ROW


def test_what_a_lane_reads_twice_has_moved_once() -> None:
    kernels = chain("sum", "all", "sum")
    again = Call(kernels.calls[1].kernel, (1,), (4,))
    buffers = {**kernels.buffers, 4: Buffer.whole(4, TensorType(DType.F32, (ROWS, 4)))}
    twice = KernelGraph(buffers, (*kernels.calls, again), (0,), (3, 4))
    moved = [crossing_bytes(halves(graph, SPLITS[0]), graph, ExactRegions(graph)) for graph in (kernels, twice)]
    assert moved[0] == moved[1] == ROWS * ROW


def test_a_slice_between_others_counts_by_its_elements() -> None:
    """Two columns of four, written by lane 0, read by lane 1: their stretch holds the others too."""
    inside = Buffer(2, TensorType(DType.F32, (ROWS, 2)), Layout.plain(2), 1, (4, 1), 0)
    wide, given = (Buffer.whole(id, TensorType(DType.F32, (ROWS, columns))) for id, columns in ((1, 4), (0, 2)))
    kernel = parse_routine(f"routine sum sum(in x: f32[{ROWS}, 2]; out y: f32[{ROWS}, 2])")
    result = Buffer.whole(3, TensorType(DType.F32, (ROWS, 2)))
    kernels = KernelGraph(
        {0: given, 1: wide, 2: inside, 3: result}, (Call(kernel, (0,), (2,)), Call(kernel, (2,), (3,))), (0,), (3,)
    )
    placed = [Placed(0, (0,), 0.0, 0.0), Placed(1, (1,), 0.0, 0.0)]
    plan = plan_of(kernels, placed, [(SPLITS[0], ROWS)] * 2, 2, [(), (0,)], "apart", 0.0)
    span = 4 * (ROWS - 1) + 2
    assert crossing_bytes(plan, kernels) == round(span * SIZE * (2 * ROWS) / span) == 2 * ROWS * SIZE


@pytest.mark.parametrize("seed", range(40))
def test_with_rows_it_is_what_lanes_read_of_each_other_element_by_element(seed: int) -> None:
    """Rows that are whole lie in stretches of their own, so that nothing is estimated."""
    random = Random(seed)
    kernels = rows_only(random)
    lanes = random.randint(1, 3)
    placed = [Placed(call, tuple(range(random.choice([1, lanes]))), 0.0, 0.0) for call in range(len(kernels.calls))]
    before = [(call - 1,) if call else () for call in range(len(placed))]
    tiles = [(SPLITS[0], ROWS)] * len(placed)
    plan = plan_of(kernels, placed, tiles, lanes, before, "rows", 0.0, ExactRegions(kernels))
    assert crossing_bytes(plan, kernels, ExactRegions(kernels)) == SIZE * len(moved_elements(kernels, plan.tasks))


def rows_only(random: Random) -> KernelGraph:
    """A random graph in which no two results lie side by side."""
    while True:
        kernels = random_graph(random)
        if all(buffer.is_contiguous for buffer in kernels.buffers.values()):
            return kernels


def moved_elements(kernels: KernelGraph, tasks: Sequence[Task]) -> set[tuple[int, int, int]]:
    """Reading lane, storage, element."""
    wrote: dict[tuple[int, int], int] = {}
    found = set()
    for task in tasks:
        call = kernels.calls[task.call]
        out = kernels.buffers[call.outputs[0]]
        made = [*points(SPLITS[0], ROWS, task.first, task.last, out.type.dims)]
        for id in call.inputs:
            buffer = kernels.buffers[id]
            for place in {lies_at(buffer, q) for p in made for q in read_at(call.kernel.family, p, buffer.type.dims)}:
                if wrote.get((buffer.storage, place), task.lane) != task.lane:
                    found.add((task.lane, buffer.storage, place))
        for point in made:
            wrote[out.storage, lies_at(out, point)] = task.lane
    return found
