from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.devices.cpu.blocking import rest_step
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.products.contraction.tiles import contraction_tiles, tile_ns
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from compiler.ir.tile import Tile
from tests.compiler.devices.cpu.sizes import SCALAR, bounded
from tests.parse import parse_kernel

PRODUCT = """
kernel MatMul(in x: f32[{m}, {k}], in w: f32[{k}, {n}]; out y: f32[{m}, {n}])
  for m:{m}, n:{n}
    y[m, n] = sum<f32> k:{k} . mul(x[m, k], w[k, n])
"""
CONVOLUTION = """
kernel Conv(in x: f32[1, {c}, {size}, {size}], in w: f32[{n}, {c}, 3, 3]; out y: f32[1, {n}, {size}, {size}])
  for b:1, m:{n}, oy:{size}, ox:{size}
    y[b, m, oy, ox] = sum<f32> c:{c}, r:3, s:3 . mul(where(and(and(ge(#(oy + r - 1):i64, 0:i64), \
lt(#(oy + r - 1):i64, {size}:i64)),
      and(ge(#(ox + s - 1):i64, 0:i64), lt(#(ox + s - 1):i64, {size}:i64))), x[b, c, oy + r - 1, ox + s - 1], \
0.0:f32), w[m, c, r, s])
"""
WORKLOADS = {
    "wide": PRODUCT.format(m=197, k=192, n=768),
    "narrow": PRODUCT.format(m=300, k=64, n=10),
    "row": PRODUCT.format(m=1, k=2048, n=1000),
    "rows that share cache sets": PRODUCT.format(m=49, k=2048, n=512),
    "large image": CONVOLUTION.format(c=64, n=64, size=56),
    "small image": CONVOLUTION.format(c=512, n=512, size=7),
    "few channels": CONVOLUTION.format(c=3, n=24, size=35),
}


def workload(text: str) -> Workload:
    kernel = parse_kernel(text)
    buffers = [
        Buffer.whole(at, slot.type, Layout.channels_last(4) if slot.type.rank == 4 and slot.name != "w" else None)
        for at, slot in enumerate((*kernel.inputs, *kernel.outputs))
    ]
    return Workload(kernel, tuple(buffers[:2]), tuple(buffers[2:]), (False, True))


@pytest.mark.parametrize("target", PROFILES, ids=lambda target: target.name)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_tile_is_legal_and_leaves_room_for_an_element_of_each_operand(name: str, target: CpuTarget) -> None:
    options = contraction_tiles(workload(WORKLOADS[name]), target, 2)
    assert len({option.tile for option in options}) == len(options) > 1
    for option in options:
        rows = option.tile.extent("register", "y", 1) * option.tile.extent("register", "m", 1)
        vectors = option.tile.extent("register", "n") // target.vector_floats
        assert rows == 1 or rows * vectors + vectors + 1 <= target.vector_registers
        lowered = lower("k0_product", workload(WORKLOADS[name]), option.tile, target)
        assert lowered.tiles >= 1
        assert lowered.scratch_bytes < 2 * target.l2_bytes


def test_the_cheapest_comes_first_and_fills_the_registers() -> None:
    for text in WORKLOADS.values():
        options = contraction_tiles(workload(text), PROFILES[0], 1)
        assert [option.seconds for option in options] == sorted(option.seconds for option in options)
    best = contraction_tiles(workload(WORKLOADS["large image"]), PROFILES[0], 1)[0].tile
    sums = best.extent("register", "y", 1) * best.extent("register", "m") * best.extent("register", "n")
    assert sums >= 24 * PROFILES[0].vector_floats


def test_large_weights_against_few_rows_are_read_stretch_by_stretch() -> None:
    deep = contraction_tiles(workload(WORKLOADS["small image"]), PROFILES[0], 1)[0].tile
    shallow = contraction_tiles(workload(WORKLOADS["large image"]), PROFILES[0], 1)[0].tile
    assert deep.extent("block", "k") > 0
    assert shallow.extent("block", "k") == 0


def test_two_lanes_are_given_enough_tasks_to_share() -> None:
    for name in ("wide", "large image", "small image"):
        given = workload(WORKLOADS[name])
        best = contraction_tiles(given, PROFILES[0], 2)[0].tile
        assert lower("k0_product", given, best, PROFILES[0]).tiles >= 2


def test_weights_that_come_from_memory_are_dearer() -> None:
    target = PROFILES[0]
    memory = replace(target, rates=replace(target.rates, in_memory=True))
    given = workload(WORKLOADS["row"])
    assert contraction_tiles(given, memory, 1)[0].seconds > 1.5 * contraction_tiles(given, target, 1)[0].seconds


def with_open_sizes(closed: Workload, dims: tuple[int, ...]) -> Workload:
    """The same kernel, some dimensions of whose result end at sizes that are known while running."""
    assert isinstance(closed.kernel, Kernel)
    kernel = bounded(closed.kernel, dims)
    at = max(buffer.id for buffer in (*closed.inputs, *closed.outputs)) + 1
    sizes = tuple(Buffer.whole(at + dim, SCALAR) for dim in range(len(dims)))
    constant = (*closed.constant, *(False for _ in dims))
    return replace(closed, kernel=kernel, inputs=(*closed.inputs, *sizes), constant=constant)


@pytest.mark.parametrize("rows", [160, 197, 512])
def test_rows_that_a_size_ends_have_a_tile_that_leaves_little_over_at_any_size(rows: int) -> None:
    closed = workload(PRODUCT.format(m=rows, k=320, n=320))
    best, open_best = (
        contraction_tiles(one, PROFILES[0], 1)[0].tile for one in (closed, with_open_sizes(closed, (0,)))
    )

    def computed(tile: Tile, size: int) -> int:
        part = tile.extent("register", "m")
        rest = size % part
        return size - rest + min(part, -(-rest // rest_step(part)) * rest_step(part))

    sizes = [-(-rows * part // 16) for part in range(1, 17)]
    wasted = [sum(computed(tile, size) / size for size in sizes) / len(sizes) for tile in (best, open_best)]
    assert wasted[1] < min(wasted[0], 1.05), (str(best), str(open_best))


def test_sizes_of_columns_alone_change_no_tile_of_rows() -> None:
    closed = workload(PRODUCT.format(m=160, k=320, n=320))
    options, own = (contraction_tiles(one, PROFILES[0], 1) for one in (with_open_sizes(closed, (1,)), closed))
    assert [(one.tile.levels, one.seconds) for one in options] == [(one.tile.levels, one.seconds) for one in own]


def test_panels_from_the_second_level_cache_come_slower_beside_multiply_adds() -> None:
    """With two rows for each panel they are waited for, though reading alone would keep up; with four they are not."""
    v3 = next(profile for profile in PROFILES if profile.name == "cpu:x86-64-v3")
    rates = Rates(fma_per_ns=7.4, l1_per_ns=168.0, l2_per_ns=118.0, l3_per_ns=100.0, memory_per_ns=6.7)
    two, four = (
        tile_ns(rows, vectors, 512, 8 * vectors, replace(v3, rates=rates), False) / (rows * vectors)
        for rows, vectors in ((2, 5), (4, 3))
    )
    assert two > 1.3 * four
