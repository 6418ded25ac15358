"""Tiles that give each lane rows of its own: proposed where the others cut columns, and true to their word."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.bf16 import bf16_tiles
from compiler.devices.cpu.algorithms.integer import integer_tiles
from compiler.devices.cpu.algorithms.separable import separable_tiles
from compiler.devices.cpu.algorithms.winograd import winograd_tiles
from compiler.devices.cpu.emit.lower import count_tiles, task_grid
from compiler.devices.cpu.emit.regions import Footprint
from compiler.devices.cpu.products.contraction.tiles import contraction_tiles
from compiler.devices.cpu.products.row_cuts import MOST, busiest, sizes, with_row_cuts
from compiler.devices.cpu.products.window.tiles import window_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.plans.touched import Touched
from compiler.ir.tensor import Layout
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal
from tests.compiler.devices.cpu.algorithms.test_separable_tiles import pair
from tests.compiler.devices.cpu.algorithms.test_winograd_tiles import conv
from tests.parse import parse_kernel

V4 = PROFILES[0]
ROUNDS = next(one for one in PROFILES if one.multiplies_bf16)
POINTWISE = """
kernel Conv(in x: f32[1, {c}, {size}, {size}], in w: f32[{n}, {c}]; out y: f32[1, {n}, {size}, {size}])
  for n:{n}, oy:{size}, ox:{size}
    y[0, n, oy, ox] = sum<f32> c:{c} . mul(x[0, c, oy, ox], w[n, c])
"""
DEPTHWISE = """
kernel Conv(in x: f32[1, {c}, {wide}, {wide}], in w: f32[{c}, 1, 3, 3]; out y: f32[1, {c}, {size}, {size}])
  for c:{c}, oy:{size}, ox:{size}
    y[0, c, oy, ox] = sum<f32> r:3, s:3 . mul(x[0, c, oy + r, ox + s], w[c, 0, r, s])
"""
BYTE_PRODUCT = """
kernel MatMulInteger(in x: u8[{m}, 64], in w: i8[64, 96]; out y: i32[{m}, 96])
  for m:{m}, n:96
    y[m, n] = sum<i32> k:64 . mul(cast(x[m, k]):i32, cast(w[k, n]):i32)
"""


def image(text: str) -> Workload:
    """Channels-last, with constant weights."""
    kernel = parse_kernel(text)
    buffers = [
        Buffer.whole(at, slot.type, Layout.channels_last(4) if slot.type.rank == 4 and slot.name != "w" else None)
        for at, slot in enumerate((*kernel.inputs, *kernel.outputs))
    ]
    return Workload(kernel, tuple(buffers[:2]), tuple(buffers[2:]), (False, True))


def pointwise(c: int, n: int, size: int) -> Workload:
    return image(POINTWISE.format(c=c, n=n, size=size))


def depthwise(c: int, size: int) -> Workload:
    return image(DEPTHWISE.format(c=c, size=size, wide=size + 2))


def proposed(work: Workload, lanes: int, target: CpuTarget = V4) -> list[Proposal]:
    """By the algorithms that tell how they cut rows."""
    algorithms = (contraction_tiles, window_tiles, winograd_tiles, separable_tiles, bf16_tiles, integer_tiles)
    return [one for algorithm in algorithms for one in algorithm(work, target, lanes)]


SHAPES = {
    "contraction 7x7": (pointwise(192, 192, 7), V4),
    "contraction 14x14": (pointwise(96, 96, 14), V4),
    "bf16": (pointwise(64, 96, 9), ROUNDS),
    "integer": (image(BYTE_PRODUCT.format(m=49)), V4),
    "window 7x7": (depthwise(512, 7), V4),
    "window 14x14": (depthwise(96, 14), V4),
    "winograd": (conv(256, 256, 16), V4),
    "separable": (pair(96, 24, 28), V4),
}
ROW_BYTES = {"winograd": 4 * 256 * 14}
"""Of a row of results."""


def parts(work: Workload, tile: Tile, target: CpuTarget, lanes: int) -> list[Touched]:
    """What each lane touches that has as many tile tasks as the others."""
    tiles, footprint = count_tiles(work, tile, target), Footprint.of(work, task_grid(work, tile, target))
    ends = [tiles * part // lanes for part in range(lanes + 1)]
    return [footprint.touched(first, last) for first, last in pairwise(ends)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("lanes", [2, 3])
def test_as_many_blocks_of_rows_as_a_tile_tells_are_written_one_after_the_other(name: str, lanes: int) -> None:
    """Each in a stretch of memory of its own; blocks of Winograd tiles may end within a row of these."""
    work, target = SHAPES[name]
    options = [option for option in proposed(work, lanes, target) if option.row_blocks > 1]
    assert options
    for option in options:
        tiles = count_tiles(work, option.tile, target)
        assert tiles % option.row_blocks == 0
        written = [part.writes[0] for part in parts(work, option.tile, target, option.row_blocks)]
        shared = option.tile.extent("transform", "y") * ROW_BYTES.get(name, 0)
        assert all(one.end <= after.begin + shared for one, after in pairwise(written)), option


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("lanes", [2, 3])
def test_some_tile_gives_each_lane_rows_of_its_own(name: str, lanes: int) -> None:
    work, target = SHAPES[name]
    assert any(option.row_blocks >= lanes for option in proposed(work, lanes, target))


@pytest.mark.parametrize("name", ["contraction 7x7", "window 7x7"])
def test_lanes_that_cut_a_small_image_by_rows_read_little_of_each_others(name: str) -> None:
    """Of a tile that does not, each lane reads nearly all."""
    work, target = SHAPES[name]
    judged = set()
    for option in proposed(work, 2, target):
        first, second = (part.reads[0] for part in parts(work, option.tile, target, 2))
        if option.row_blocks % 2 == 0:
            judged.add("by rows")
            halo = 4 * 9 * 512 * 2 if "window" in name else 0
            assert first.common(second) <= halo, option
        elif option.row_blocks == 1 and count_tiles(work, option.tile, target) > 1:
            judged.add("otherwise")
            assert first.common(second) > 0.8 * (second.end - second.begin), option
    assert judged == {"by rows", "otherwise"}


def test_images_of_which_there_are_several_are_cut_before_their_rows() -> None:
    work = pair(24, 40, 9, batch=2)
    assert {option.row_blocks for option in separable_tiles(work, V4, 2)} == {1}


def option(number: int, seconds: float, row_blocks: int) -> Proposal:
    return Proposal(Tile(f"t{number}"), seconds, row_blocks=row_blocks)


def test_only_the_fastest_few_are_added_each_once_and_in_order() -> None:
    """Those whose slowest lane takes least, whatever one lane takes for all."""
    options = [option(0, 1.0, 1), option(1, 4.0, 2)]
    cuts = [option(9, 0.5, 1), option(2, 5.0, 4), option(1, 4.0, 2), option(3, 3.0, 2), option(4, 2.0, 3)]
    slowest = [*zip([0.1, 1.0, 1.5, 2.0, 1.9], cuts, strict=True), (2.0, option(3, 3.0, 2))]
    assert MOST == 2
    assert [one.tile.algorithm for one in with_row_cuts(options, slowest, 2)] == ["t0", "t4", "t1", "t2"]
    assert with_row_cuts(options, slowest, 4) == [options[0], options[1], cuts[1]]
    assert with_row_cuts(options, slowest, 1) == options


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
def test_the_busiest_lane_has_as_many_points_as_counting_them_gives(
    rows: int, tall: int, columns: int, wide: int, lanes: int
) -> None:
    blocks = [range(at, min(at + tall, rows)) for at in range(0, rows, tall)]
    tasks = [len(block) * len(range(at, min(at + wide, columns))) for block in blocks for at in range(0, columns, wide)]
    lane_of = [next(lane for lane in range(lanes) if at < len(tasks) * (lane + 1) // lanes) for at in range(len(tasks))]
    most = max(sum(task for task, lane in zip(tasks, lane_of, strict=True) if lane == one) for one in range(lanes))
    assert busiest(sizes(rows, tall), sizes(columns, wide), lanes) == pytest.approx(most / (rows * columns))


@pytest.mark.parametrize("name", ["contraction 7x7", "window 7x7", "window 14x14"])
def test_rows_that_do_not_divide_evenly_are_shared_evenly_all_the_same(name: str) -> None:
    """Seven rows in two blocks would give one lane four of them."""
    work, target = SHAPES[name]
    shares = []
    for one in proposed(work, 2, target):
        grid = task_grid(work, one.tile, target)
        if grid and one.row_blocks >= 2:
            half = [*grid.boxes(0, grid.tasks // 2)]
            points = sum(prod(high - low + 1 for low, high in box.values()) for box in half)
            whole = prod(axis.extent for axis in grid.kernel.shared if any(axis in cut.axes for cut in grid.levels))
            shares.append(abs(points / whole - 0.5))
    assert min(shares) <= 0.03
