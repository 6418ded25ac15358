from __future__ import annotations

from random import Random

import pytest

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.schedule.memory.moves import moves_of
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.plans.instance import Instance
from compiler.schedule.problem import Move
from tests.compiler.schedule.kernel_graphs import (
    SIZE,
    SPLITS,
    ExactRegions,
    lies_at,
    points,
    random_graph,
    read_at,
    tile_tasks,
)
from tests.seeds import each

ROWS, _ = SPLITS
BYTE_S = 1e-9


def variants(kernels: KernelGraph, lanes: int, tile: Tile = ROWS) -> list[tuple[Variant | None, ...]]:
    """Every call split by rows, on any number of lanes."""
    tasks = [tile_tasks(tile, kernels.buffers[call.outputs[0]].type.dims) for call in kernels.calls]
    one = [Variant(tile, count, 1, Cost(1e-6, "model")) for count in tasks]
    return [tuple(variant if lanes <= variant.tiles else None for lanes in range(1, lanes + 1)) for variant in one]


def written(kernels: KernelGraph, call: int, part: int, parts: int) -> set[int]:
    """The elements of its storage that a part of a call makes."""
    out = kernels.buffers[kernels.calls[call].outputs[0]]
    tasks = tile_tasks(ROWS, out.type.dims)
    made = points(ROWS, tasks, tasks * part // parts, tasks * (part + 1) // parts, out.type.dims)
    return {lies_at(out, point) for point in made}


def read(kernels: KernelGraph, call: int, part: int, parts: int, storage: int) -> list[int]:
    """The elements of a storage that a part of a call reads, each operand's by itself."""
    out = kernels.buffers[kernels.calls[call].outputs[0]]
    tasks = tile_tasks(ROWS, out.type.dims)
    made = [*points(ROWS, tasks, tasks * part // parts, tasks * (part + 1) // parts, out.type.dims)]
    found: list[int] = []
    for id in dict.fromkeys(kernels.calls[call].inputs):
        buffer = kernels.buffers[id]
        if buffer.storage == storage:
            dims = buffer.type.dims
            found += {
                lies_at(buffer, at) for point in made for at in read_at(kernels.calls[call].kernel.family, point, dims)
            }
    return found


@each(range(60))
@pytest.mark.parametrize("parts", [2, 3])
def test_shares_are_those_of_the_elements_one_by_one(seed: int, parts: int) -> None:
    """Where every buffer is one segment of memory, split evenly by rows.

    Then segments hold nothing but what is touched.
    """
    kernels = random_graph(Random(seed))
    before = predecessors(kernels)
    moves = moves_of(kernels, before, variants(kernels, parts), BYTE_S, ExactRegions(kernels))
    for reader, earlier in enumerate(before):
        for maker, move in zip(earlier, moves[reader], strict=True):
            operands = [kernels.buffers[id] for id in kernels.calls[reader].inputs]
            out = kernels.buffers[kernels.calls[maker].outputs[0]]
            shared = [one for one in operands if one.storage == out.storage]
            if not all(one.is_contiguous for one in (*shared, out)) or len(shared) > 1:
                continue
            whole = sum(at in written(kernels, maker, 0, 1) for at in read(kernels, reader, 0, 1, out.storage))
            own = [written(kernels, maker, part, parts) for part in range(parts)]
            segments = [read(kernels, reader, part, parts, out.storage) for part in range(parts)]
            reads = max(sum(at in set().union(*own) for at in some) for some in segments)
            crosses = max(
                sum(any(at in other for q, other in enumerate(own) if q != p) for at in some)
                for p, some in enumerate(segments)
            )
            assert move.seconds == pytest.approx(BYTE_S * SIZE * whole)
            if not whole:
                continue
            assert move.reads[parts - 1] == pytest.approx(reads / whole)
            assert move.crosses[parts - 1] == pytest.approx(crosses / whole)


@each(range(40))
def test_without_regions_every_part_reads_all(seed: int) -> None:
    kernels = random_graph(Random(seed))
    before = predecessors(kernels)
    plain = moves_of(kernels, before, variants(kernels, 3), BYTE_S)
    known = moves_of(kernels, before, variants(kernels, 3), BYTE_S, ExactRegions(kernels))
    for blind, seeing in zip(plain, known, strict=True):
        assert [Move(move.seconds) for move in seeing] == list(blind)
        for move in seeing:
            for count, (reads, crosses) in enumerate(zip(move.reads, move.crosses, strict=True), 1):
                assert 0.0 <= crosses <= min(reads, 1.0 - 1.0 / count)
                assert reads <= 1.0 + 1e-9


def test_where_a_byte_costs_nothing_nothing_is_moved() -> None:
    kernels = random_graph(Random(0))
    assert moves_of(kernels, predecessors(kernels), variants(kernels, 2), 0.0, ExactRegions(kernels)) == ()


def menus(kernels: KernelGraph, *extra: Variant) -> list[Menu]:
    return [Menu(f"w{at}", (Variant(ROWS, 6, 1, Cost(6e-6, "model")), *extra)) for at in range(len(kernels.calls))]


def test_times_measured_on_so_many_lanes_are_taken_as_they_are() -> None:
    """They contain the meeting of the lanes and what these do to each other; without any the tiles are shared out."""
    kernels, costs = random_graph(Random(1)), LaneCosts(split_s=1e-6)
    shared = Instance.of(kernels, menus(kernels), 3, costs).problem
    assert shared.seconds[0] == pytest.approx((6e-6, 3e-6 + 1e-6, 2e-6 + 1e-6))
    measured = Variant(ROWS, 6, 2, Cost(5e-6, "measured")), Variant(ROWS, 6, 2, Cost(4.5e-6, "measured"))
    instance = Instance.of(kernels, menus(kernels, *measured), 3, costs)
    assert instance.problem.seconds[0] == pytest.approx((6e-6, 4.5e-6, 2e-6 + 1e-6))
    assert instance.options[0][1] == measured[1]


class Clock:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[int, Tile], list[tuple[int, int, int]]]] = []

    def seconds(self, tiles, tasks):  # type: ignore[no-untyped-def]
        """As long as there are tasks."""
        self.asked.append((dict(tiles), [(task.call, task.first, task.last) for task in tasks]))
        return float(len(tasks))


@each(range(15))
def test_a_clock_gets_the_tasks_of_the_calls_of_a_stage_and_their_tiles(seed: int) -> None:
    kernels, clock = random_graph(Random(seed)), Clock()
    every = [Menu("", tuple(one for one in options[:1] if one)) for options in variants(kernels, 2)]
    instance = Instance.of(kernels, every, 2, LaneCosts(1e-7))
    seconds = instance.stage_seconds(clock)
    last = len(kernels.calls) - 1
    free = [call for call in range(last) if call not in instance.problem.before[last]]
    groups = ((free[-1],), (last,)) if free else ((last,),)
    assert seconds(groups) == float(len(clock.asked[0][1]))
    tiles, tasks = clock.asked[0]
    assert set(tiles) == {call for call, _, _ in tasks} == {call for group in groups for call in group}
    for call in tiles:
        covered = sorted((first, end) for of, first, end in tasks if of == call)
        assert covered[0][0] == 0
        assert covered[-1][1] == every[call].variants[0].tiles
