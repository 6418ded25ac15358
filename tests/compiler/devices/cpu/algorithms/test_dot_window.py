"""Convolutions by dot products over an image staged once: under any tile they mean what their definition says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.dot_window import (
    BF16_WINDOW,
    INTEGER_WINDOW,
    MOST_POINTERS,
    Image,
    bf16_image,
    byte_image,
)
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_amx_window import byte_convolutions
from tests.compiler.devices.cpu.algorithms.test_bf16 import BF16_STEP, bf16, is_plain
from tests.compiler.devices.cpu.algorithms.test_bf16 import HERE as WITH_BF16
from tests.compiler.devices.cpu.algorithms.test_bf16 import cases as bf16_cases
from tests.compiler.devices.cpu.algorithms.test_contraction import convolutions
from tests.compiler.devices.cpu.algorithms.test_integer import defined
from tests.compiler.devices.cpu.library import Case, Library, check, draws
from tests.compiler.rewrite.sketch import Sketch

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
ImageOf = Callable[[Case, CpuTarget], Image | None]


def of_bytes(case: Case, target: CpuTarget) -> Image | None:
    found = byte_image(case.workload, target)
    return found[0] if found else None


def of_bf16(case: Case, target: CpuTarget) -> Image | None:
    found = bf16_image(case.workload, target)
    return found[0] if found else None


@st.composite
def windows(draw: st.DrawFn, drawn: st.SearchStrategy[Case], image_of: ImageOf, target: CpuTarget) -> Case:
    """A case under a tile of windows: one that is proposed, or any that is legal."""
    case = draw(drawn.filter(lambda one: image_of(one, target) is not None))
    image = image_of(case, target)
    assert image is not None
    algorithm = BF16_WINDOW if image_of is of_bf16 else INTEGER_WINDOW
    if draw(st.booleans()):
        proposed = algorithm.tiles(case.workload, target, draw(st.integers(1, 4)))
        return replace(case, tile=draw(st.sampled_from(proposed)).tile)
    panel = draw(st.integers(1, 3)) * target.vector_floats
    lines = draw(st.integers(1, image.rows.height))
    levels = (
        Level("block", (("m", lines * image.rows.width), ("n", panel * draw(st.integers(1, 2))))),
        Level("register", (("m", draw(st.sampled_from([1, 2, 3, 5, image.rows.width]))), ("n", panel))),
    )
    return replace(case, tile=Tile(algorithm.names[0], levels))


@pytest.mark.parametrize("name", HERE)
def test_windows_of_bytes_equal_their_definition_bit_by_bit(name: str) -> None:
    target = resolve(name)
    check(draws(windows(byte_convolutions(), of_bytes, target), 16), target, "-O1")


@pytest.mark.parametrize("name", WITH_BF16)
def test_windows_of_rounded_operands_are_off_by_their_rounding(name: str) -> None:
    target = resolve(name)
    drawn = draws(windows(bf16_cases(target, convolutions()), of_bf16, target), 10)
    check([replace(case, tolerance=4 * BF16_STEP) for case in drawn], target, "-O1")


@pytest.mark.parametrize("name", WITH_BF16)
def test_windows_of_bf16_lose_nothing_but_what_fp32_sums_do(name: str) -> None:
    target = resolve(name)
    plain = draws(windows(bf16_cases(target, convolutions().filter(is_plain)), of_bf16, target), 10)
    rounded = [replace(one, inputs=(*map(bf16, one.inputs[:2]), *one.inputs[2:]), tolerance=1e-5) for one in plain]
    check(rounded, target, "-O1")


def convolution(
    height: int, width: int, channels: int, filters: int = 32, window: int = 3, stride: int = 1, zero: int = 0
) -> Case:
    """A ConvInteger of unsigned pixels, channels last, padded so that it keeps its size at a stride of 1."""
    pad = window // 2
    attrs = {"group": 1, "pads": (pad,) * 4, "strides": (stride,) * 2, "dilations": (1, 1), "auto_pad": "NOTSET"}
    x, w = np.zeros((1, channels, height, width), np.uint8), np.zeros((filters, channels, window, window), np.int8)
    zeros = np.asarray(7, np.uint8), np.asarray(zero, np.int8)
    kernel, given = defined("ConvInteger", [x, w, *zeros], attrs, fixed=True)  # type: ignore[arg-type]
    last = Layout(((0, 0), (2, 0), (3, 0), (1, 0)))
    slots = (*kernel.inputs, *kernel.outputs)
    layouts = [last if slot.type.rank == 4 and at != 1 else None for at, slot in enumerate(slots)]
    buffers = tuple(
        Buffer.whole(at, slot.type, layout) for at, (slot, layout) in enumerate(zip(slots, layouts, strict=True))
    )
    return Case(kernel, buffers, tuple(given), constant=(1,), tile=Tile("integer"))


WITH_BYTES = [one for one in PROFILES if one.multiplies_bytes]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_tiles_fit_the_target(profile: CpuTarget, lanes: int) -> None:
    case = convolution(28, 28, 64, 200)
    options = INTEGER_WINDOW.tiles(case.workload, profile, lanes)
    assert options
    for option in options:
        rows, panel = option.tile.extent("register", "m"), option.tile.extent("register", "n")
        assert panel % profile.vector_floats == 0
        assert (rows + 1) * (panel // profile.vector_floats) < profile.vector_registers
        assert option.tile.extent("block", "m") % 28 == 0, "a block is whole lines"
        assert 28 % rows == 0 or rows <= MOST_POINTERS
        assert option.seconds > 0


def test_channels_that_fill_no_group_are_joined_along_a_line_of_taps() -> None:
    image = of_bytes(convolution(16, 16, 3), WITH_BYTES[0])
    assert image is not None
    assert (image.run, image.steps) == (9, 9), "three lines of three pixels of three bytes, each in three groups"
    assert (image.line_pixels, image.line_elements) == (18, 56), "a line of 54 bytes, in whole groups"
    assert [*image.offsets(16)] == [0, 56, 112]


def test_lines_of_a_stride_lie_in_phases_and_columns_do_not() -> None:
    image = of_bytes(convolution(16, 16, 4, stride=2), WITH_BYTES[0])
    assert image is not None
    assert image.line_phases == (0, 1)
    line, phase = 17 * 4, 9 * 17 * 4
    assert [*image.offsets(8)] == [0, phase, line], "taps of lines 0, 1 and 2"


def test_register_tiles_within_lines_need_no_pointers() -> None:
    profile = WITH_BYTES[0]
    case = convolution(26, 26, 64)
    panel = profile.vector_floats
    for rows, pointers in ((13, False), (6, True)):
        levels = (Level("block", (("m", 26 * 26), ("n", 32))), Level("register", (("m", rows), ("n", panel))))
        text = lower("k0_window", case.workload, Tile("integer_window", levels), profile).text
        assert ("const char *const *first" in text) is pointers


def test_zero_points_of_weights_that_are_not_0_in_bytes_are_left_to_other_algorithms() -> None:
    for zero, offered in ((0, True), (5, False)):
        case = convolution(16, 16, 4, zero=zero)
        assert bool(INTEGER_WINDOW.tiles(case.workload, WITH_BYTES[0], 1)) is offered


def image_of_planes(channels: int, window: int, stride: int, width: int, element: DType | None = None) -> Case:
    """A padded convolution in fp32 of an image whose channels are planes, with results channels last."""
    s = Sketch(channels, DType.F32)
    pads = (window // 2,) * 4
    weights = s.normal(40, channels, window, window)
    s("Conv", s.x(1, channels, 9, width), weights, s.normal(40), pads=pads, strides=(stride,) * 2, group=1)
    kernels = fuse(s.graph()).kernels
    (call,) = kernels.calls
    assert isinstance(call.kernel, Kernel)
    slots = (*call.kernel.inputs, *call.kernel.outputs)
    last = Layout(((0, 0), (2, 0), (3, 0), (1, 0)))
    buffers = [Buffer.whole(at, slot.type, last if at == 3 else None) for at, slot in enumerate(slots)]
    x = np.random.default_rng(width).uniform(-1, 1, slots[0].type.dims).astype(np.float32)
    inputs = (bf16(x), *(bf16(kernels.constants[id]) for id in call.inputs[1:]))
    buffers[0] = replace(buffers[0], element=element)
    case = Case(call.kernel, tuple(buffers), inputs, constant=(1, 2), cuts=(0.4,), tolerance=1e-5)
    proposed = BF16_WINDOW.tiles(case.workload, resolve("cpu:x86-64-v4-bf16"), 2)
    return replace(case, tile=proposed[width % len(proposed)].tile)


@pytest.mark.parametrize("name", WITH_BF16)
def test_planes_of_few_channels_are_staged_pixel_by_pixel(name: str) -> None:
    target = resolve(name)
    shapes = [(2, 3, 1, 5), (2, 5, 2, 16), (3, 3, 2, 17), (3, 7, 2, 50), (3, 3, 1, 33), (4, 3, 1, 31), (5, 3, 2, 21)]
    cases = [image_of_planes(*shape) for shape in shapes]
    cases.append(image_of_planes(3, 3, 1, 20, DType.BF16))
    texts = [lower("k", case.workload, case.tile, target).text for case in cases]
    assert ["tw_pixels_of_planes(" in text for text in texts] == [True] * 6 + [False] * 2
    assert ["tw_pixel_end(" in text for text in texts] == [False] * 2 + [True] * 3 + [False] + [True] * 2
    check(cases, target, "-O1")


@pytest.mark.parametrize("name", WITH_BF16)
def test_what_follows_an_odd_run_does_not_count_even_where_it_is_infinite(name: str) -> None:
    case = image_of_planes(3, 3, 1, 33)
    x = case.inputs[0].copy()
    x[0, 0, 4, 20] = np.inf
    case = replace(case, inputs=(x, *case.inputs[1:]))
    library = Library.of([case], resolve(name), optimise="-O1")
    (got,) = library.run(0, case)
    beside = np.ones(got.shape, bool)
    beside[:, :, 3:6, 19:22] = False
    assert np.isfinite(got[beside]).all()
    assert not np.isfinite(got[~beside]).any()


def test_runs_of_bf16_are_whole_groups_beside_tiles() -> None:
    target = resolve("cpu:x86-64-v4-amx")
    drawn = draws(bf16_cases(target, convolutions()), 30)
    images = [image for case in drawn if (image := of_bf16(case, target)) is not None]
    assert images
    assert all(image.dtype is DType.BF16 and image.run % 2 == 0 for image in images)
    without = [of_bf16(case, resolve("cpu:x86-64-v4-bf16")) for case in drawn]
    assert any(image is not None and image.run % 2 for image in without)
