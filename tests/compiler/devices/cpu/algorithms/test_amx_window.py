"""Convolutions by AMX tiles over an image staged once: under any tile they mean what their definition says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.amx_window import (
    AMX_BF16_WINDOW,
    AMX_INTEGER_WINDOW,
    BF16_NAMES,
    BYTE_NAMES,
    bf16_form,
    byte_form,
)
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.window_rows import WindowRows
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_amx import HERE, WITH_TILES
from tests.compiler.devices.cpu.algorithms.test_bf16 import BF16_STEP, bf16, is_plain
from tests.compiler.devices.cpu.algorithms.test_bf16 import cases as bf16_cases
from tests.compiler.devices.cpu.algorithms.test_contraction import convolutions
from tests.compiler.devices.cpu.algorithms.test_integer import BYTES, defined
from tests.compiler.devices.cpu.library import Case, bound, check, draws
from tests.parse import parse_kernel


def rows_of(case: Case, by_line: bool) -> WindowRows | None:
    """The windows of a case, in bf16 or in bytes."""
    found = bf16_form(case.workload, WITH_TILES, by_line) or byte_form(case.workload, WITH_TILES, by_line)
    return found[1] if found else None


@st.composite
def windows(draw: st.DrawFn, drawn: st.SearchStrategy[Case], by_line: bool) -> Case:
    """A case under a tile of windows: one that is proposed, or any that is legal."""
    case = draw(drawn.filter(lambda one: rows_of(one, by_line) is not None))
    rows = rows_of(case, by_line)
    assert rows is not None
    is_float = case.tile.algorithm == "bf16"
    algorithm = AMX_BF16_WINDOW if is_float else AMX_INTEGER_WINDOW
    if draw(st.booleans()):
        proposed = algorithm.tiles(case.workload, WITH_TILES, draw(st.integers(1, 4)))
        return replace(case, tile=draw(st.sampled_from(proposed)).tile)
    vectors = draw(st.integers(1, 4))
    parts = draw(st.integers(1, 4 // vectors))
    panel = vectors * WITH_TILES.vector_floats
    lines = draw(st.integers(1, rows.height))
    levels = (
        Level("block", (("m", lines * rows.width), ("n", panel * draw(st.integers(1, 2))))),
        Level("register", (("m", parts * draw(st.integers(1, 16))), ("n", panel))),
    )
    return replace(case, tile=Tile((BF16_NAMES if is_float else BYTE_NAMES)[by_line], levels))


@st.composite
def byte_convolutions(draw: st.DrawFn) -> Case:
    """A ConvInteger by constant weights, pixels of few to many channels, with zero points of both operands."""
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    a_type, b_type = draw(st.sampled_from(BYTES)), draw(st.sampled_from(BYTES))
    filters, channels = draw(st.sampled_from([2, 16, 19, 40])), draw(st.sampled_from([1, 3, 16, 64, 70]))
    window = [draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([2, 3]))]
    sizes = [draw(st.integers(5, 9)) for _ in window]
    attrs: dict[str, Attr] = {
        "group": 1,
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(4)),
        "strides": tuple(draw(st.integers(1, 3)) for _ in window),
        "dilations": tuple(draw(st.sampled_from([1, 1, 2])) for _ in window),
        "auto_pad": "NOTSET",
    }
    a, b = (
        random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        for kind, shape in ((a_type, (1, channels, *sizes)), (b_type, (filters, channels, *window)))
    )
    zeros = [random.integers(0, 128, ()).astype(a_type), np.asarray(128 if b_type is np.uint8 else 0, b_type)]
    kernel, given = defined("ConvInteger", [a, b, *zeros], attrs, fixed=True)
    case = replace(draw(bound(kernel)), inputs=tuple(given), constant=(1,), tile=Tile("integer"))
    dense = [type(one).whole(one.id, one.type, one.layout) if at == 1 else one for at, one in enumerate(case.buffers)]
    return replace(case, buffers=tuple(dense), cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))


def of_bf16(drawn: st.SearchStrategy[Kernel], count: int, tolerance: float) -> list[Case]:
    """Cases of both forms, in bf16."""
    cases = bf16_cases(WITH_TILES, drawn)
    found = [case for by_line in (False, True) for case in draws(windows(cases, by_line), count)]
    return [replace(case, tolerance=tolerance) for case in found]


@pytest.mark.parametrize("target", HERE)
def test_windows_of_rounded_operands_are_off_by_their_rounding(target: CpuTarget) -> None:
    check(of_bf16(convolutions(), 5, 4 * BF16_STEP), target, "-O1")


@pytest.mark.parametrize("target", HERE)
def test_windows_of_bf16_lose_nothing_but_what_fp32_sums_do(target: CpuTarget) -> None:
    plain = of_bf16(convolutions().filter(is_plain), 5, 1e-5)
    check([replace(one, inputs=(*map(bf16, one.inputs[:2]), *one.inputs[2:])) for one in plain], target, "-O1")


@pytest.mark.parametrize("target", HERE)
def test_windows_of_bytes_equal_their_definition_bit_by_bit(target: CpuTarget) -> None:
    drawn = [case for by_line in (False, True) for case in draws(windows(byte_convolutions(), by_line), 7)]
    check(drawn, target, "-O1")


KERNEL = """
kernel Conv(in x: f32[1, {c}, {h}, {w}], in k: f32[{n}, {c}, 3, 3]; out y: f32[1, {n}, {oh}, {ow}])
  for n:{n}, y:{oh}, x:{ow}
    y[0, n, y, x] = sum<f32> c:{c}, r:3, s:3 . mul(x[0, c, {stride}*y + {step}*r, {stride}*x + {step}*s], k[n, c, r, s])
"""


def three_by_three(stride: int, step: int, channels: int = 32) -> Case:
    """A 3x3 convolution without padding, of 5 x 6 outputs, channels last."""
    sizes = {"c": channels, "n": 16, "oh": 5, "ow": 6, "stride": stride, "step": step}
    sizes |= {"h": 4 * stride + 2 * step + 1, "w": 5 * stride + 2 * step + 1}
    kernel = parse_kernel(KERNEL.format(**sizes))
    last = Layout(((0, 0), (2, 0), (3, 0), (1, 0)))
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = tuple(Buffer.whole(at, slot.type, last if at != 1 else None) for at, slot in enumerate(slots))
    return Case(kernel, buffers, (), constant=(1,), tile=Tile("bf16"))


def form_of(stride: int, step: int, channels: int = 32, by_line: bool = False) -> WindowRows:
    """Its windows."""
    found = rows_of(three_by_three(stride, step, channels), by_line)
    assert found is not None
    return found


def test_taps_of_unit_stride_read_one_phase_and_those_of_two_read_four() -> None:
    one, two = form_of(1, 1), form_of(2, 1)
    assert (one.pitch, one.phases) == (8, ((0, 0),))
    assert [*one.offsets(5)] == [0, 1, 2, 8, 9, 10, 16, 17, 18]
    assert (two.pitch, two.phases) == (7, ((0, 0), (0, 1), (1, 0), (1, 1)))
    size = two.phase_pixels(5)
    assert size == 6 * 7
    assert [*two.offsets(5)] == [0, size, 1, 2 * size, 3 * size, 2 * size + 1, 7, size + 7, 8]


def test_taps_as_far_apart_as_outputs_read_one_phase() -> None:
    both = form_of(2, 2)
    assert both.phases == ((0, 0),)
    assert [*both.offsets(5)] == [0, 1, 2, 8, 9, 10, 16, 17, 18]


def test_pixels_of_few_channels_hold_all_taps_of_a_line() -> None:
    few = form_of(1, 1, channels=3, by_line=True)
    assert (few.run, few.pitch, [*few.offsets(5)]) == (9, 6, [0, 6, 12])


def test_the_form_that_takes_fewer_products_is_proposed() -> None:
    for channels, name in ((16, BF16_NAMES[True]), (64, BF16_NAMES[False])):
        proposed = AMX_BF16_WINDOW.tiles(three_by_three(1, 1, channels).workload, WITH_TILES, 1)
        assert {one.tile.algorithm for one in proposed} == {name}
