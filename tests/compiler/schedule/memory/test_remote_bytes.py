"""What parts of a call touch beyond their own rows, against a list of every element.

Also the variants that are taken for it.
"""

from __future__ import annotations

from random import Random

import pytest

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Accesses
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.schedule.memory.remote_bytes import remote_bytes
from compiler.schedule.plans.instance import Instance
from tests.compiler.schedule.kernel_graphs import ROWS, SIZE, SPLITS, ExactRegions, chain, points, read_at, tile_tasks
from tests.compiler.schedule.solvers.test_aligned import ways
from tests.seeds import each

BY_ROWS, BY_COLUMNS = SPLITS
WIDE = (ROWS, 4)


def foreign(kind: str, tile: Tile, part: int, lanes: int) -> int:
    """Elements that a part reads of its operand, and writes, in rows that are another part's."""
    tasks = tile_tasks(tile, WIDE)
    made = [*points(tile, tasks, tasks * part // lanes, tasks * (part + 1) // lanes, WIDE)]
    read = {at for point in made for at in read_at(kind, point, WIDE)}
    own = range(ROWS * part // lanes, ROWS * (part + 1) // lanes)
    return sum(row not in own for found in (read, made) for row, _ in found)


@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("kind", ["sum", "halo", "mix", "flip", "all"])
def test_parts_of_rows_stray_as_far_as_the_elements_that_they_touch(kind: str, lanes: int) -> None:
    """The second of two calls, as nothing is told of inputs."""
    kernels = chain("sum", kind)
    found = remote_bytes(kernels, Accesses(kernels, ExactRegions(kernels)), 1, way(BY_ROWS), lanes)
    assert found == pytest.approx(SIZE * max(foreign(kind, BY_ROWS, part, lanes) for part in range(lanes)))


def test_parts_of_columns_read_all_rows_and_write_into_each() -> None:
    kernels = chain("sum", "mix")
    found = remote_bytes(kernels, Accesses(kernels, ExactRegions(kernels)), 1, way(BY_COLUMNS), 2)
    assert found == pytest.approx(SIZE * foreign("mix", BY_COLUMNS, 0, 2), rel=0.1)
    assert found > 0.7 * SIZE * ROWS * 4


def way(tile: Tile) -> Variant:
    return Variant(tile, tile_tasks(tile, WIDE), 1, Cost(6.0, "model"))


def taken(kernels: KernelGraph, menu: Menu, costs: LaneCosts) -> list[Tile | None]:
    """How calls are carried out on two lanes."""
    options = Instance.of(kernels, [menu] * len(kernels.calls), 2, costs, ExactRegions(kernels)).options
    return [variant.tile if variant else None for _, variant in options]


def test_a_way_that_keeps_to_its_rows_is_taken_where_bytes_cost_more_than_it_does() -> None:
    kernels, menu = chain("sum", "mix", "mix"), ways(columns=0.95)
    assert taken(kernels, menu, LaneCosts()) == [BY_COLUMNS] * 3
    assert taken(kernels, menu, LaneCosts(byte_s=1e-5)) == [BY_COLUMNS] * 3
    assert taken(kernels, menu, LaneCosts(byte_s=0.01)) == [BY_ROWS] * 3


def test_on_one_lane_nothing_moves_and_the_fastest_is_taken() -> None:
    kernels, menu = chain("sum", "mix"), ways(columns=0.95)
    options = Instance.of(kernels, [menu] * 2, 2, LaneCosts(byte_s=0.01), ExactRegions(kernels)).options
    assert [one.tile for one, _ in options if one] == [BY_COLUMNS] * 2


@each(range(20))
def test_no_other_way_takes_less_with_what_it_moves(seed: int) -> None:
    random = Random(seed)
    kernels = chain(*random.choices(["sum", "halo", "mix", "flip"], k=5))
    accesses = Accesses(kernels, ExactRegions(kernels))
    menu, costs = ways(columns=random.uniform(0.7, 1.3)), LaneCosts(byte_s=random.choice([0.0, 0.001, 0.01]))
    tiles = taken(kernels, menu, costs)
    assert len(tiles) == 5
    for call, tile in enumerate(tiles):
        total = {
            one.tile: one.cost.seconds / 2 + costs.byte_s * remote_bytes(kernels, accesses, call, one, 2)
            for one in menu.variants
        }
        assert total[tile or BY_ROWS] == pytest.approx(min(total.values()))
