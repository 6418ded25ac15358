from __future__ import annotations

import math
from dataclasses import replace

import pytest

from compiler.devices.cpu.algorithms.winograd import winograd_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.devices.kinds import propose, tiles_of
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Setting, Workload
from compiler.ir.tensor import Layout
from compiler.knowledge.budget import TuningBudget
from compiler.trace import Trace
from compiler.tuning.error_budget import SHARE, allowed_error
from tests.compiler.devices.cpu.sizes import SCALAR, bounded
from tests.compiler.tuning.tuned import tuned
from tests.parse import parse_kernel

V4 = PROFILES[0]
CONV = """
kernel Conv(in x0: f32[1, {c}, {h}, {h}], in x1: f32[{k}, {c}, {r}, {s}]; out y0: f32[1, {k}, {oh}, {ow}])
  for k:{k}, oy:{oh}, ox:{ow}
    y0[0, k, oy, ox] = sum<f32> c:{c}, r:{r}, s:{s} . mul(x0[0, c, {stride}*oy + r, ox + s], x1[k, c, r, s])
"""


def conv(c: int, k: int, h: int, r: int = 3, s: int = 3, stride: int = 1) -> Workload:
    sizes = {"c": c, "k": k, "h": h, "r": r, "s": s, "stride": stride}
    kernel = parse_kernel(CONV.format(oh=(h - r) // stride + 1, ow=h - s + 1, **sizes))
    channels_last = Layout.channels_last(4)
    inputs = (Buffer.whole(0, kernel.inputs[0].type, channels_last), Buffer.whole(0, kernel.inputs[1].type))
    return Workload(kernel, inputs, (Buffer.whole(0, kernel.outputs[0].type, channels_last),), (False, True))


SHAPES = [conv(64, 64, 58), conv(256, 256, 16), conv(48, 64, 39, 5, 5), conv(192, 192, 17, 1, 7), conv(20, 33, 12)]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: str(profile.name))
@pytest.mark.parametrize("lanes", [1, 2, 7])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_tiles_fit_the_vector_file_and_are_ordered_by_the_model(profile: CpuTarget, lanes: int, shape: int) -> None:
    options = winograd_tiles(SHAPES[shape], profile, lanes)
    assert options
    assert [one.seconds for one in options] == sorted(one.seconds for one in options)
    assert len({one.tile for one in options}) == len(options)
    for one in options:
        rows, panel = one.tile.extent("register", "m"), one.tile.extent("register", "n")
        assert panel % profile.vector_floats == 0
        assert rows * (panel // profile.vector_floats) < profile.vector_registers
        assert one.tile.extent("block", "m") % rows == one.tile.extent("block", "n") % panel == 0
        assert one.error > 0


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_scratch_stays_in_the_second_level_cache_where_a_register_tile_lets_it(shape: int) -> None:
    options = winograd_tiles(SHAPES[shape], V4, 1)
    small = [one.tile for one in options if one.tile.extent("block", "m") > one.tile.extent("register", "m")]
    assert small
    for one in small:
        assert lower("k0", SHAPES[shape], one, V4).scratch_bytes < V4.l2_bytes


@pytest.mark.parametrize("lanes", [2, 3])
def test_every_lane_has_a_task_though_few_tiles_exist(lanes: int) -> None:
    work = conv(256, 256, 9)
    options = winograd_tiles(work, V4, lanes)
    assert options
    for one in options:
        assert lower("k0", work, one.tile, V4).tiles >= lanes


def test_larger_tiles_are_less_exact() -> None:
    errors: dict[int, float] = {}
    for one in winograd_tiles(conv(128, 128, 30), V4, 1):
        if one.tile.extent("transform", "y") == one.tile.extent("transform", "x"):
            errors[one.tile.extent("transform", "x")] = one.error
    assert len(errors) >= 3
    assert [errors[many] for many in sorted(errors)] == sorted(errors.values())


def test_what_is_no_filter_of_unit_stride_has_none() -> None:
    assert not winograd_tiles(conv(64, 64, 57, stride=2), V4, 1)
    assert not winograd_tiles(conv(64, 8, 58), V4, 1), "fewer channels than lanes"


# The error budget


def test_exactness_is_what_is_given_unless_asked_otherwise() -> None:
    assert all(one.error == 0 for one in propose(SHAPES[0], V4, 1))
    some = propose(SHAPES[0], V4, 1, 2e-6)
    assert {one.tile.algorithm for one in some} == {"contraction", "winograd"}
    assert max(one.error for one in some) <= 2e-6
    assert max(one.error for one in propose(SHAPES[0], V4, 1, math.inf)) > 2e-6


def test_a_call_may_lose_its_part_of_half_the_tolerance() -> None:
    inexact = winograd_tiles(SHAPES[0], V4, 1)
    exact = [replace(inexact[0], error=0.0)]
    assert allowed_error([inexact], 1e-4) == SHARE * 1e-4
    assert allowed_error([inexact, exact, inexact, inexact, inexact], 1e-4) == pytest.approx(SHARE * 1e-4 / 2)
    assert allowed_error([exact], 0.0) == allowed_error([], 0.0) == allowed_error([inexact], 0.0) == 0.0


@pytest.mark.parametrize(("tolerance", "algorithm"), [(0.0, "contraction"), (1e-7, "contraction"), (1e-4, "winograd")])
def test_the_tolerance_decides_which_algorithms_take_part(tolerance: float, algorithm: str) -> None:
    works = [SHAPES[0], SHAPES[0], SHAPES[1]]
    result = tuned(
        works,
        V4,
        tiles_of(V4),
        1,
        (),
        Setting(),
        None,
        TuningBudget(0),
        lambda work, one: 1,
        Trace(),
        tolerance=tolerance,
    )
    assert {menu.best.tile.algorithm for menu in result.menus} == {algorithm}


def test_where_a_size_ends_tiles_the_form_is_one_for_small_sizes_too() -> None:
    closed = conv(64, 64, 42)
    assert isinstance(closed.kernel, Kernel)
    kernel = bounded(closed.kernel, (2, 3))
    sizes = tuple(Buffer.whole(3 + at, SCALAR) for at in range(2))
    opened = replace(closed, kernel=kernel, inputs=(*closed.inputs, *sizes), constant=(*closed.constant, False, False))
    best, open_best = (winograd_tiles(one, V4, 1)[0] for one in (closed, opened))
    outputs = [one.tile.extent("transform", "y") * one.tile.extent("transform", "x") for one in (best, open_best)]
    assert outputs[1] < outputs[0]
    assert open_best.seconds > best.seconds, "the mean over sizes, of which small ones wait for weights"


def test_weights_are_fetched_while_products_are_made() -> None:
    """They are waited for only where there are few products for each of them."""
    far = replace(V4, rates=replace(V4.rates, in_memory=True))
    for work, waits in ((conv(64, 64, 114), False), (conv(512, 512, 9), True)):
        near_s, far_s = (winograd_tiles(work, target, 1)[0].seconds for target in (V4, far))
        assert (far_s > near_s) is waits


def test_register_tiles_of_one_vector_pay_for_their_loads() -> None:
    """A load of an element for each multiply-add, where wider ones share them: on AVX2 more rows gain nothing."""
    v3 = next(profile for profile in PROFILES if profile.name == "cpu:x86-64-v3")
    best = winograd_tiles(conv(64, 256, 15), v3, 1)[0].tile
    assert best.extent("register", "n") > v3.vector_floats
