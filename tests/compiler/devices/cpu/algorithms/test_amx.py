"""Kernels by AMX tiles, by loops where this machine has none: the code is the same but for what a tile is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.amx import amx_bf16_tiles, amx_integer_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.products.dot.amx import TileProduct, parts_of
from compiler.devices.cpu.target import PROFILES, TILES, CpuTarget, runs_here
from compiler.forms.contraction import as_contraction
from compiler.forms.integer import as_integer
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.proposal import Proposal
from tests.compiler.devices.cpu.algorithms.test_bf16 import BF16_STEP, bf16, is_plain
from tests.compiler.devices.cpu.algorithms.test_bf16 import cases as bf16_cases
from tests.compiler.devices.cpu.algorithms.test_contraction import convolutions, kernels, products
from tests.compiler.devices.cpu.algorithms.test_integer import cases as integer_cases
from tests.compiler.devices.cpu.library import Case, check, draws
from tests.parse import parse_kernel

WITH_TILES = next(profile for profile in PROFILES if profile.has_tiles)
BY_LOOPS = replace(WITH_TILES, flags=tuple(flag for flag in WITH_TILES.flags if "amx" not in flag))
"""The same kernels, compiled for cores without tiles."""
LIKE = next(profile for profile in PROFILES if profile.name == "cpu:x86-64-v4-bf16")
HERE = [
    pytest.param(target, id=name, marks=pytest.mark.skipif(not able, reason=f"this machine is no {like.name}"))
    for name, target, like, able in (
        ("tiles", WITH_TILES, WITH_TILES, runs_here(WITH_TILES)),
        ("loops", BY_LOOPS, LIKE, runs_here(LIKE)),
    )
]
TilesOf = Callable[[Workload, CpuTarget, int], list[Proposal]]


@st.composite
def by_tiles(draw: st.DrawFn, drawn: st.SearchStrategy[Case], algorithm: str, tiles_of: TilesOf) -> Case:
    """A case under a tile of the algorithm: one that is proposed, or any that is legal."""
    case = draw(drawn.filter(lambda one: one.tile.algorithm in ("bf16", "integer")))
    if draw(st.booleans()):
        proposed = tiles_of(case.workload, WITH_TILES, draw(st.integers(1, 4)))
        return replace(case, tile=draw(st.sampled_from(proposed)).tile)
    form = as_integer(case.workload) if algorithm == "amx_integer" else None
    view = form.view if form else as_contraction(case.workload)
    assert view is not None
    vectors = draw(st.integers(1, 4))
    rows = min(draw(st.integers(1, 16 * (4 // vectors))), view.rows)
    panel = vectors * WITH_TILES.vector_floats
    levels = (
        Level("block", (("m", rows * draw(st.integers(1, 3))), ("n", panel * draw(st.integers(1, 2))))),
        Level("register", (("m", rows), ("n", panel))),
    )
    return replace(case, tile=Tile(algorithm, levels))


def of_bf16(drawn: st.SearchStrategy[Kernel]) -> st.SearchStrategy[Case]:
    return by_tiles(bf16_cases(WITH_TILES, drawn), "amx_bf16", amx_bf16_tiles)


@pytest.mark.parametrize("target", HERE)
def test_products_of_rounded_operands_are_off_by_their_rounding(target: CpuTarget) -> None:
    check([replace(case, tolerance=4 * BF16_STEP) for case in draws(of_bf16(kernels()), 40)], target, "-O1")


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("family", [convolutions, products], ids=lambda family: family.__name__)
def test_operands_that_are_bf16_lose_nothing_but_what_fp32_sums_do(target: CpuTarget, family) -> None:  # type: ignore[no-untyped-def]
    drawn = [
        replace(case, inputs=(*map(bf16, case.inputs[:2]), *case.inputs[2:]), tolerance=1e-5)
        for case in draws(of_bf16(family().filter(is_plain)), 40)
    ]
    check(drawn, target, "-O1")


@pytest.mark.parametrize("target", HERE)
def test_operators_on_bytes_equal_their_definition_bit_by_bit(target: CpuTarget) -> None:
    check(draws(by_tiles(integer_cases(WITH_TILES), "amx_integer", amx_integer_tiles), 60), target, "-O1")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_targets_without_tiles_are_offered_none(profile: CpuTarget) -> None:
    case = draws(of_bf16(products()), 1)[0]
    offered = amx_bf16_tiles(case.workload, profile, 1)
    assert bool(offered) == profile.has_tiles == ({*TILES} <= {*profile.features})


def test_sums_have_four_registers_and_parts_no_more_rows_than_a_tile() -> None:
    found = [
        TileProduct("amx_bf16", as_contraction(case.workload), 2, 5.0, True, True)  # type: ignore[arg-type]
        for case in draws(of_bf16(kernels()), 30)
    ]
    shapes = [(product, rows, vectors) for product in found for rows, vectors in product.registers(WITH_TILES)]
    assert {vectors for _, _, vectors in shapes} > {1, 2}
    for product, rows, vectors in shapes:
        parts, part = parts_of(rows)
        assert parts * vectors <= 4
        assert part <= 16
        assert parts * part >= rows
        assert 1 <= rows <= product.view.rows


def test_a_product_takes_a_cycle_for_each_row_and_sixteen_where_its_tile_of_b_is_new() -> None:
    rates = replace(
        WITH_TILES.rates, fma_per_ns=2.0, l2_per_ns=1e6
    )  # two multiply-adds a cycle: a cycle is a nanosecond
    target = replace(WITH_TILES, rates=rates)
    view = as_contraction(draws(of_bf16(products()), 1)[0].workload)
    assert view is not None
    product = TileProduct("amx_bf16", view, 2, 1.0, True, True)
    steps = -(-product.steps // 16)
    expected = {(16, 1): 16, (8, 1): 16, (32, 1): 32, (24, 1): 28, (32, 2): 64, (16, 4): 64, (64, 1): 64}
    assert {shape: product.sums_ns(*shape, target) / steps for shape in expected} == pytest.approx(expected)


def test_a_kernel_configures_its_registers_first_and_frees_them_last() -> None:
    case = draws(of_bf16(products()), 1)[0]
    text = lower("k0_product", case.workload, case.tile, WITH_TILES).text
    body = text[text.index("void k0_product(") :]
    assert body.index("tw_tiles_begin(") < body.index("tw_least_of(") < body.rindex("tw_tiles_end();")
    assert '#include "tw_tiles.h"' in text


@pytest.mark.parametrize(("constant", "fetched"), [((1,), True), ((), False)])
def test_constant_panels_are_fetched_ahead_and_those_packed_by_a_task_are_not(
    constant: tuple[int, ...], fetched: bool
) -> None:
    kernel = parse_kernel(
        "kernel Product(in x: f32[40, 64], in w: f32[64, 96]; out y: f32[40, 96])\n  for m:40, n:96\n"
        "y[m, n] = sum<f32> k:64 . mul(x[m, k], w[k, n])"
    )
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate(slots))
    case = Case(kernel, buffers, (), constant=constant)
    tile = amx_bf16_tiles(case.workload, WITH_TILES, 1)[0].tile
    text = lower("k0_product", case.workload, tile, WITH_TILES).text
    assert ("tw_tile_ahead(" in text) == fetched
