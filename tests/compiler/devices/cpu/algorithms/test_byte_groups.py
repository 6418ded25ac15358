"""Convolutions of bytes in groups, by dot products within vectors of channels: bit by bit what 32-bit integers give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.byte_groups import BYTE_GROUPS
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.forms.byte_groups import byte_groups
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr, Graph
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.algorithms.test_byte_windows import ends, zero_points
from tests.compiler.devices.cpu.library import Case, case_of, check, draws
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {
    (profile.vector_floats, profile.multiplies_bytes): profile for profile in reversed(PROFILES) if runs_here(profile)
}
"""One target for each width of vectors, with and without products of bytes."""
F32, I8, U8 = DType.F32, DType.I8, DType.U8
SIZE = (5, 9)


def grouped(
    s: Sketch,
    channels: int,
    members: int,
    window: tuple[int, int],
    x: DType,
    y: DType,
    zeros: tuple[int, int],
    **attrs: Attr,
) -> Graph:
    """A convolution of bytes in groups of so many members, scaled, moved and rounded to bytes again.

    Factors are powers of two, and what is added are whole eighths: many results lie between two bytes, and fp32 rounds
    nothing before that.
    """
    image = s.x(1, channels, *SIZE, dtype=x)
    weights = s.c(ends(s, I8, channels, members, *window), I8)
    attrs |= {"kernel_shape": window, "group": channels // members}
    sums = s("ConvInteger", image, weights, s.c(zeros[0], x), **attrs)
    scaled = s("Mul", s("Cast", sums, to=1), s.c(2.0 ** -s.rng.integers(1, 15, (channels, 1, 1)), F32))
    moved = s("Add", scaled, s.c(s.rng.integers(-80, 80, (channels, 1, 1)) / 8, F32))
    return s.graph(s("QuantizeLinear", moved, s.c(1.0, F32), s.c(zeros[1], y)))


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget, members: int) -> Case:
    s = Sketch(draw(st.integers(0, 2**16)), F32)
    x, y = draw(st.sampled_from([U8, I8])), draw(st.sampled_from([U8, I8]))
    zeros = draw(zero_points(x)), draw(zero_points(y))
    side = draw(st.sampled_from([1, 2, 3]))
    attrs: dict[str, Attr] = {"pads": (side - 1, 1, 0, draw(st.integers(0, 2)))}
    attrs |= {"strides": (draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2])))}
    attrs |= {"dilations": (1, draw(st.sampled_from([1, 2])))}
    channels = max(2 * members, target.vector_floats) * draw(st.sampled_from([1, 2]))
    case = case_of(grouped(s, channels, members, (side, 3), x, y, zeros, **attrs), ends(s, x, 1, channels, *SIZE))
    tiles = [one.tile for one in BYTE_GROUPS.tiles(case.workload, target, 1)]
    short = sorted(tiles, key=lambda tile: tile.extent("register", "rows") * tile.extent("register", "columns"))[:4]
    return replace(case, tile=draw(st.sampled_from(short)), cuts=(draw(st.floats(0, 1)),))


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_they_equal_their_definition_bit_by_bit(target: tuple[int, bool]) -> None:
    drawn = [one for members in (4, 8, 16, 32) for one in draws(cases(TARGETS[target], members), 2)[1:]]
    check(drawn, TARGETS[target], "-O1")


def a_case(channels: int, members: int) -> Case:
    s = Sketch(0, F32)
    return case_of(grouped(s, channels, members, (3, 3), U8, U8, (3, 0), pads=(1, 1, 1, 1)), np.zeros(()))


def test_they_are_offered_beside_what_takes_any_window() -> None:
    target = TARGETS[max(TARGETS)]
    offered = {one.tile.algorithm for one in legal_tiles(a_case(128, 4).workload, target, 1, "fp32")}
    assert {"byte_groups", "window", "integer"} <= offered


def test_channels_that_fill_no_vector_and_groups_that_lie_across_vectors_are_left_to_others() -> None:
    target = next(one for key, one in sorted(TARGETS.items()) if key[0] == max(TARGETS)[0])
    assert byte_groups(a_case(24, 4).workload) is not None
    assert not BYTE_GROUPS.tiles(a_case(24, 4).workload, replace(target, vector_floats=16), 1)
    assert not BYTE_GROUPS.tiles(a_case(48, 24).workload, replace(target, vector_floats=16), 1)


def test_groups_of_two_and_channels_apart_in_memory_are_another_form() -> None:
    assert byte_groups(a_case(32, 2).workload) is None
    case = a_case(32, 4)
    plain = tuple(Buffer.whole(one.id, one.type) for one in case.buffers)
    assert byte_groups(case.workload) is not None
    assert byte_groups(replace(case, buffers=plain).workload) is None
