from __future__ import annotations

import pytest

from compiler.codegen.calls import workload_of
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.separable import separable_tiles
from compiler.devices.cpu.emit.lower import count_tiles, lower
from compiler.devices.cpu.target import PROFILES, CpuTarget
from compiler.forms.separable import as_halves
from compiler.fuse import fuse
from compiler.fuse.joins import joins
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from tests.compiler.rewrite.sketch import Sketch

V4 = PROFILES[0]


def pair(channels: int, columns: int, size: int, taps: int = 3, stride: int = 1, batch: int = 1) -> Workload:
    """A depthwise convolution with a pointwise one, channels-last."""
    s = Sketch(0, DType.F32)
    y = s("Conv", s.x(batch, 3, size, size), s.normal(channels, 3, 1, 1))
    pads, strides = (taps // 2,) * 4, (stride, stride)
    y = s("Conv", y, s.normal(channels, 1, taps, taps), pads=pads, strides=strides, group=channels)
    y = s("Conv", y, s.normal(columns, channels, 1, 1))
    kernels = fuse(s.graph(s("MaxPool", y, kernel_shape=(2, 2)))).kernels
    (join,) = joins(kernels)
    return workload_of(kernels, join.call)


SHAPES = [pair(32, 16, 56), pair(96, 24, 28, 5, 2), pair(33, 20, 15, 7), pair(400, 64, 14), pair(24, 40, 9, batch=2)]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: str(profile.name))
@pytest.mark.parametrize("lanes", [1, 2, 7])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_tiles_fit_the_vector_file_and_are_ordered_by_the_model(profile: CpuTarget, lanes: int, shape: int) -> None:
    options = separable_tiles(SHAPES[shape], profile, lanes)
    assert options
    assert [one.seconds for one in options] == sorted(one.seconds for one in options)
    assert len({one.tile for one in options}) == len(options)
    for one in options:
        vectors = one.tile.extent("register", "n") // profile.vector_floats
        assert one.tile.extent("register", "n") % profile.vector_floats == 0
        assert one.tile.extent("register", "m") * vectors < profile.vector_registers
        assert one.tile.extent("block", "rows") % one.tile.extent("register", "rows") == 0


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_rows_between_the_halves_stay_in_the_second_level_cache(shape: int) -> None:
    options = separable_tiles(SHAPES[shape], V4, 1)
    assert options
    for one in options:
        assert lower("k0", SHAPES[shape], one.tile, V4).scratch_bytes < V4.l2_bytes


@pytest.mark.parametrize("lanes", [2, 4])
def test_some_tile_gives_every_lane_several_tasks(lanes: int) -> None:
    options = separable_tiles(SHAPES[0], V4, lanes)
    assert max(count_tiles(SHAPES[0], one.tile, V4) for one in options) >= 4 * lanes


def test_no_other_algorithm_takes_a_joined_kernel() -> None:
    assert {one.tile.algorithm for one in legal_tiles(SHAPES[0], V4, 1, "fp32")} == {"separable"}


def test_kernels_of_a_few_pixels_and_of_one_half_are_refused() -> None:
    assert separable_tiles(pair(32, 16, 2), V4, 1)
    halves = as_halves(SHAPES[0])
    assert halves is not None
    assert not separable_tiles(halves.window, V4, 1)
    assert not separable_tiles(halves.product, V4, 1)
    assert not separable_tiles(pair(4, 8, 9), V4, 1)
