"""What ranges of tile tasks read and write: reported for kernels of every algorithm and compared with what they do.

Also how tight it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.emit.lower import count_tiles, task_grid
from compiler.devices.cpu.emit.regions import KernelRegions
from compiler.devices.cpu.target import resolve, this_machine
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.touched import Segment, Touched
from compiler.ir.tensor import Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms import test_attention as test_c_attention
from tests.compiler.devices.cpu.algorithms import test_bf16 as test_c_bf16
from tests.compiler.devices.cpu.algorithms import test_contraction as test_c_contraction
from tests.compiler.devices.cpu.algorithms import test_gemv as test_c_gemv
from tests.compiler.devices.cpu.algorithms import test_integer as test_c_integer
from tests.compiler.devices.cpu.algorithms import test_loops as test_c_loops
from tests.compiler.devices.cpu.algorithms import test_recurrent as test_c_recurrent
from tests.compiler.devices.cpu.algorithms import test_separable as test_c_separable
from tests.compiler.devices.cpu.algorithms import test_transpose as test_c_transpose
from tests.compiler.devices.cpu.algorithms import test_window as test_c_window
from tests.compiler.devices.cpu.algorithms import test_winograd as test_c_winograd
from tests.compiler.devices.cpu.library import LOOPS, Case, draws
from tests.compiler.devices.cpu.touching import prove, touched
from tests.parse import parse_kernel

HERE = this_machine()
V4 = resolve("cpu:x86-64-v4")


def contractions() -> list[Case]:
    return draws(test_c_contraction.tiled(test_c_contraction.kernels(), HERE), 60)


def windows() -> list[Case]:
    return [asked.case for asked in draws(test_c_window.asked(HERE), 45)]


def winograds() -> list[Case]:
    return [case for _, case in draws(test_c_winograd.cases(HERE), 32)]


def separables() -> list[Case]:
    return [case for case in draws(test_c_separable.cases(HERE), 30) if case]


def products_of_few_types() -> list[Case]:
    """Of bytes, and of bf16 where the machine has them."""
    found = draws(test_c_integer.cases(HERE), 30)
    if HERE.multiplies_bf16:
        found += draws(test_c_bf16.cases(HERE, test_c_contraction.kernels()), 30)
    return found


def rows_and_heads() -> list[Case]:
    """Products of few rows, and attention."""
    return draws(test_c_gemv.cases(HERE), 25) + draws(test_c_attention.cases(HERE), 25)


def maps() -> list[Case]:
    return draws(test_c_loops.maps(), 90) + draws(test_c_transpose.cases(), 30)


def reductions() -> list[Case]:
    return draws(test_c_loops.reductions(), 50) + draws(test_c_loops.many_blocks(), 50)


def of_one_task() -> list[Case]:
    return draws(test_c_loops.scans(), 20) + [case for case, _ in draws(test_c_recurrent.drawn(HERE), 8)]


FAMILIES: Sequence[tuple[str, Callable[[], list[Case]]]] = (
    ("contraction", contractions),
    ("window", windows),
    ("winograd", winograds),
    ("separable", separables),
    ("integer", products_of_few_types),
    ("attention", rows_and_heads),
    ("loops", maps),
    ("loops", reductions),
    ("loops", of_one_task),
)


@pytest.mark.parametrize(("algorithm", "drawn"), FAMILIES, ids=[drawn.__name__ for _, drawn in FAMILIES])
def test_parts_of_kernels_touch_no_more_than_is_told(algorithm: str, drawn: Callable[[], list[Case]]) -> None:
    cases = drawn()
    assert any(case.tile.algorithm == algorithm for case in cases)
    prove(cases, HERE)


@pytest.mark.parametrize("drawn", [windows, winograds, separables, maps], ids=lambda drawn: drawn.__name__)
def test_all_tasks_of_a_grid_are_all_tile_tasks(drawn: Callable[[], list[Case]]) -> None:
    for case in drawn()[::3]:
        grid, tiles = task_grid(case.workload, case.tile, HERE), count_tiles(case.workload, case.tile, HERE)
        assert grid is not None, case
        assert tiles in (grid.tasks, 0)


# How tight it is where it matters

WIDE, HIGH, DEEP, MANY = 10, 12, 8, 32
ROW = 4 * WIDE * DEEP
"""Bytes of a row of the image, channels-last."""
INSIDE = (
    f"and(and(ge(#(y + r - 1):i64, 0:i64), lt(#(y + r - 1):i64, {HIGH}:i64)), and(ge(#(x + s - 1):i64, 0:i64), "
    f"lt(#(x + s - 1):i64, {WIDE}:i64)))"
)
CONVOLUTION = f"""
kernel Conv(in x: f32[1, {DEEP}, {HIGH}, {WIDE}], in w: f32[{MANY}, {DEEP}, 3, 3]; \
out z: f32[1, {MANY}, {HIGH}, {WIDE}])
  for k:{MANY}, y:{HIGH}, x:{WIDE}
    z[0, k, y, x] = sum<f32> c:{DEEP}, r:3, s:3 . mul(where({INSIDE}, x[0, c, y + r - 1, x + s - 1], 0.0:f32), w[k, c, \
r, s])
"""
POINTWISE = f"""
kernel Conv(in x: f32[1, {DEEP}, {HIGH}, {WIDE}], in w: f32[{MANY}, {DEEP}]; out z: f32[1, {MANY}, {HIGH}, {WIDE}])
  for k:{MANY}, y:{HIGH}, x:{WIDE}
    z[0, k, y, x] = sum<f32> c:{DEEP} . mul(x[0, c, y, x], w[k, c])
"""
POOL = f"""
kernel MaxPool(in x: f32[1, {DEEP}, {HIGH}, {WIDE}]; out z: f32[1, {DEEP}, {HIGH // 2}, {WIDE // 2}])
  for c:{DEEP}, y:{HIGH // 2}, x:{WIDE // 2}
    z[0, c, y, x] = max<f32> r:3, s:2 . where(lt(#(2*y + r):i64, {HIGH}:i64), x[0, c, 2*y + r, 2*x + s], -inf:f32)
"""


def image_case(text: str, tile: Tile, constant: tuple[int, ...] = ()) -> Case:
    """Images channels-last, everything else plain."""
    kernel = parse_kernel(text)
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(
        Buffer.whole(at, slot.type, Layout.channels_last(4) if slot.name in "xz" else None)
        for at, slot in enumerate(slots)
    )
    inputs = tuple(np.zeros(slot.type.dims, np.float32) for slot in kernel.inputs)
    return Case(kernel, buffers, inputs, tile, constant)


def plain_case(text: str, **buffers: Buffer) -> Case:
    """Plain buffers but for those that are given, by slot."""
    kernel = parse_kernel(text)
    slots = (*kernel.inputs, *kernel.outputs)
    bound = tuple(buffers.get(slot.name, Buffer.whole(at, slot.type)) for at, slot in enumerate(slots))
    return Case(kernel, bound, tuple(np.zeros(slot.type.dims, slot.type.dtype.numpy) for slot in kernel.inputs))


def blocked(**block: int) -> Tile:
    """A contraction of one panel, with register tiles of one row."""
    levels = (Level("block", tuple(block.items())), Level("register", (("y", 1), ("m", 1), ("n", 32))))
    return Tile("contraction", (*levels, Level("vector", (("n", 16),))))


BY_WINOGRAD = Tile(
    "winograd",
    (
        Level("transform", (("y", 2), ("x", 2))),
        Level("block", (("m", WIDE // 2), ("n", 32))),
        Level("register", (("m", 5), ("n", 32))),
    ),
)
"""A task is a row of tiles, which is two rows of the image."""


@pytest.mark.parametrize("tile", [blocked(y=2, m=WIDE, n=32), BY_WINOGRAD], ids=["contraction", "winograd"])
@pytest.mark.parametrize(("first", "last", "low", "high"), [(0, 3, 0, 7), (3, 6, 5, 12), (1, 2, 1, 5)])
def test_a_convolution_split_by_rows_reads_them_and_their_halo(
    tile: Tile, first: int, last: int, low: int, high: int
) -> None:
    reported = touched(image_case(CONVOLUTION, tile, (1,)), V4, first, last)
    assert reported.reads[0] == Segment(low * ROW, high * ROW)
    assert reported.writes[0] == Segment(2 * first * ROW * MANY // DEEP, 2 * last * ROW * MANY // DEEP)


def test_a_stretch_that_ends_within_a_row_does_not_write_the_rest_of_it() -> None:
    reported = touched(image_case(CONVOLUTION, blocked(y=1, m=5, n=32), (1,)), V4, 0, 3)
    assert reported.writes[0] == Segment(0, 4 * MANY * (WIDE + 5))
    assert reported.reads[0] == Segment(0, 2 * ROW + 4 * DEEP * 6)


def test_a_pointwise_convolution_reads_the_pixels_that_it_writes() -> None:
    reported = touched(image_case(POINTWISE, blocked(m=30, n=32), (1,)), V4, 1, 3)
    assert reported == Touched((Segment(4 * DEEP * 30, 4 * DEEP * 90), Segment(0, 4 * DEEP * MANY)), reported.writes)
    assert reported.writes == (Segment(4 * MANY * 30, 4 * MANY * 90),)


def test_a_pool_reads_the_rows_under_its_windows() -> None:
    sizes = (("rows", 1), ("columns", 1), ("channels", 16))
    tile = Tile("window", (Level("block", (("rows", 2), ("channels", DEEP))), Level("register", sizes)))
    reported = touched(image_case(POOL, tile), V4, 1, 2)
    assert reported == Touched((Segment(4 * ROW, 9 * ROW),), (Segment(2 * ROW // 2, 4 * ROW // 2),))


def test_maps_are_split_evenly() -> None:
    text = (
        "kernel Add(in a: f32[24, 512], in b: f32[24, 512]; out c: f32[24, 512]) for i:24, j:512\n"
        " c[i, j] = add(a[i, j], b[i, j])"
    )
    assert count_tiles(plain_case(text).workload, LOOPS, V4) == 3
    reported = touched(plain_case(text), V4, 1, 2)
    assert {*reported.reads, *reported.writes} == {Segment(4 * 4096, 8 * 4096)}


def test_what_conditions_keep_out_of_a_part_is_not_read_by_it() -> None:
    text = (
        "kernel Concat(in a: f32[3, 64], in b: f32[5, 64]; out c: f32[8, 64]) for i:8, j:64\n"
        " c[i, j] = where(lt(#(i):i64, 3:i64), a[i, j], b[i - 3, j])"
    )
    assert count_tiles(plain_case(text).workload, LOOPS, V4) == 8
    above, below = (touched(plain_case(text), V4, *part) for part in ((0, 3), (3, 8)))
    assert above.reads == (Segment(0, 768), Segment(0, 0))
    assert below.reads == (Segment(0, 0), Segment(0, 1280))


def test_what_data_decide_is_read_from_anywhere() -> None:
    text = (
        "kernel Gather(in a: f32[9, 64], in at: i64[8]; out c: f32[8, 64]) for i:8, j:64\n"
        " c[i, j] = a[[at[i] in 0..8], j]"
    )
    assert touched(plain_case(text), V4, 2, 4).reads == (Segment(0, 4 * 9 * 64), Segment(16, 32))


def test_a_view_that_goes_backwards_is_told_where_it_lies() -> None:
    text = "kernel Neg(in a: f32[8, 64]; out c: f32[8, 64]) for i:8, j:64\n c[i, j] = neg(a[i, j])"
    kernel = parse_kernel(text)
    backwards = replace(Buffer.whole(0, kernel.inputs[0].type), strides=(-64, 1), offset=7 * 64)
    assert touched(plain_case(text, a=backwards), V4, 0, 2).reads == (Segment(4 * 6 * 64, 4 * 8 * 64),)


def test_stretches_count_from_the_beginning_of_the_storage() -> None:
    """Two calls of one workload write beside each other: the second half of the columns, and the first."""
    kernel = parse_kernel("kernel Neg(in a: f32[8, 64]; out c: f32[8, 64]) for i:8, j:64\n c[i, j] = neg(a[i, j])")
    type = kernel.inputs[0].type
    whole = Buffer.whole(0, type)
    halves = [Buffer(id, type, whole.layout, 9, (128, 1), offset) for id, offset in ((1, 64), (2, 0))]
    kernels = KernelGraph(
        {0: whole, 1: halves[0], 2: halves[1]}, (Call(kernel, (0,), (1,)), Call(kernel, (0,), (2,))), (0,), (1, 2)
    )
    regions = KernelRegions(kernels, V4)
    row = 4 * 128
    assert regions.touched(0, LOOPS, 2, 4).writes == (Segment(2 * row + 256, 4 * row),)
    assert regions.touched(1, LOOPS, 2, 4).writes == (Segment(2 * row, 4 * row - 256),)


def test_a_kernel_without_a_grid_may_touch_everything() -> None:
    recurrent = next(one for one, _ in draws(test_c_recurrent.drawn(V4), 20) if one.tile.algorithm == "recurrent")
    assert task_grid(recurrent.workload, recurrent.tile, V4) is None
    reported = touched(recurrent, V4, 0, 1)
    spans = [buffer.span * buffer.dtype.bytes for buffer in recurrent.buffers]
    assert [segment.end for segment in (*reported.reads, *reported.writes)] == spans
