"""Windows, channel by channel, that end in bytes: of bytes, whose sums in fp32 are those of integers, and of floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.products.window.tiles import window_tiles
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.forms.exact_floats import in_floats
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, Library, case_of, check, draws
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""
F32, I8, U8 = DType.F32, DType.I8, DType.U8


def ends(s: Sketch, dtype: DType, *shape: int) -> np.ndarray:
    """Bytes of which half are the least or the greatest."""
    limits = np.iinfo(dtype.numpy)
    plain = s.rng.integers(limits.min, limits.max + 1, shape)
    return np.where(s.rng.random(shape) < 0.5, s.rng.choice([limits.min, limits.max], shape), plain).astype(dtype.numpy)


def depthwise(s: Sketch, channels: int, window: int, x: DType, y: DType, zeros: tuple[int, int], stride: int) -> Graph:
    """A depthwise convolution of bytes, scaled, moved and rounded to bytes again.

    Factors are powers of two, and what is added are whole eighths: many results lie between two bytes, and fp32 rounds
    nothing before that.
    """
    image = s.x(1, channels, 9, 8, dtype=x)
    weights = s.c(ends(s, I8, channels, 1, window, window), I8)
    attrs = {"group": channels, "pads": (1, 1, 0, 1), "strides": (stride, stride), "kernel_shape": (window, window)}
    sums = s("ConvInteger", image, weights, s.c(zeros[0], x), **attrs)
    scaled = s("Mul", s("Cast", sums, to=1), s.c(2.0 ** -s.rng.integers(1, 13, (channels, 1, 1)), F32))
    moved = s("Add", scaled, s.c(s.rng.integers(-80, 80, (channels, 1, 1)) / 8, F32))
    return s.graph(s("QuantizeLinear", moved, s.c(1.0, F32), s.c(zeros[1], y)))


def zero_points(dtype: DType) -> st.SearchStrategy[int]:
    """Both ends, and one between them."""
    limits = np.iinfo(dtype.numpy)
    return st.sampled_from([int(limits.min), 3, int(limits.max)])


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Case:
    s = Sketch(draw(st.integers(0, 2**16)), F32)
    x, y = draw(st.sampled_from([U8, I8])), draw(st.sampled_from([U8, I8]))
    zeros = draw(zero_points(x)), draw(zero_points(y))
    channels, window, stride = (draw(st.sampled_from(one)) for one in ([16, 21, 32], [2, 3], [1, 2]))
    case = case_of(depthwise(s, channels, window, x, y, zeros, stride), ends(s, x, 1, channels, 9, 8))
    options = window_tiles(case.workload, target, 1)
    assert options
    return replace(case, tile=draw(st.sampled_from(options[:5])).tile, cuts=(draw(st.floats(0, 1)),))


@pytest.mark.parametrize("width", TARGETS)
def test_they_equal_their_definition_bit_by_bit(width: int) -> None:
    drawn = draws(cases(TARGETS[width]), 5)
    assert {case.tile.algorithm for case in drawn} == {"window"}
    check(drawn, TARGETS[width], "-O1")


def averaged(
    s: Sketch, image: np.ndarray, window: int, pads: int, stride: int, scale: float, zero: int, y: DType
) -> Graph:
    """An average pool that counts its padding, rounded to bytes."""
    attrs = {"kernel_shape": (window, window), "pads": (pads,) * 4, "strides": (stride, stride)}
    mean = s("AveragePool", s.x(*image.shape), count_include_pad=1, **attrs)
    return s.graph(s("QuantizeLinear", mean, s.c(scale, F32), s.c(zero, y)))


def averages_by_integers(
    image: np.ndarray, window: int, pads: int, stride: int, scale: int, zero: int, y: DType
) -> np.ndarray:
    """The same of whole numbers, without fp32: ties go to even numbers."""
    padded = np.pad(image.astype(np.int64), ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (window, window), (2, 3))[:, :, ::stride, ::stride]
    sums, whole = views.sum((-2, -1)), window * window * scale
    below, rest = sums // whole, 2 * (sums % whole)
    rounded = below + ((rest > whole) | ((rest == whole) & (below % 2 == 1)))
    limits = np.iinfo(y.numpy)
    return np.asarray(np.clip(rounded + zero, limits.min, limits.max), y.numpy)


def judge_averages(target: CpuTarget) -> None:
    """Windows of 2 and 4 have means halfway between two bytes; the means of 3 are never nearer to that than a 54th."""
    asked, wants = [], []
    for seed, (window, pads, stride, scale, y) in enumerate(
        [(2, 0, 2, 1, U8), (2, 1, 1, 2, I8), (4, 1, 1, 1, U8), (3, 1, 1, 1, U8), (3, 1, 2, 3, I8)]
    ):
        s = Sketch(seed, F32)
        image = s.rng.integers(-300, 600, (1, (16, 21, 40)[seed % 3], 9, 8)).astype(np.float32)
        zero = (0, 3, 7)[seed % 3]
        case = case_of(averaged(s, image, window, pads, stride, scale, zero, y), image)
        options = window_tiles(case.workload, target, 1)
        asked.append(replace(case, tile=options[seed % len(options)].tile, cuts=(0.4,)))
        wants.append(averages_by_integers(image, window, pads, stride, scale, zero, y))
    assert {case.tile.algorithm for case in asked} == {"window"}
    assert len({want.dtype for want in wants}) == 2
    library = Library.of(asked, target, "-O1")
    for number, (case, want) in enumerate(zip(asked, wants, strict=True)):
        (got,) = library.run(number, case)
        np.testing.assert_array_equal(got, want, err_msg=f"{case}\n{library.lowered[number].text}")


@pytest.mark.parametrize("width", TARGETS)
def test_averages_of_floats_that_end_in_bytes_are_those_of_whole_numbers(width: int) -> None:
    judge_averages(TARGETS[width])


def largest(window: int, *, rounded: bool = True) -> Case:
    """A depthwise convolution of a square window whose weights may be anything."""
    s = Sketch(0, F32)
    weights = s.c(np.ones((16, 1, window, window)), U8)
    sums = s("ConvInteger", s.x(1, 16, 40, 40, dtype=U8), weights, s.c(255, U8), s.c(255, U8), group=16)
    made = s("QuantizeLinear", s("Cast", sums, to=1), s.c(1.0, F32)) if rounded else sums
    return case_of(s.graph(made), np.zeros(()))


def test_sums_that_fp32_may_not_hold_stay_integers() -> None:
    """A product is 510 times 510 at most by the types of its operands, and 64 of these are below 2**24."""
    assert in_floats(largest(8).workload) is not None
    assert in_floats(largest(9).workload) is None


def test_sums_that_are_a_result_stay_integers() -> None:
    assert in_floats(largest(3, rounded=False).workload) is None
