from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from compiler.forms.cache_lines import ALIAS
from compiler.forms.contraction import Contraction, as_contraction
from compiler.forms.normal_form import Slots
from compiler.forms.operand import InPlace, Staged, merged, offsets_of, operand, row_axes
from compiler.ir.buffers import Buffer
from compiler.ir.index import Axis
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from tests.parse import parse_kernel

CONVOLUTION = """
kernel Conv(in x: f32[1, {c}, {h}, {w}], in k: f32[32, {c}, {r}, {r}]; out y: f32[1, 32, {oy}, {ox}])
  for n:1, m:32, oy:{oy}, ox:{ox}
    y[n, m, oy, ox] = sum<f32> c:{c}, r:{r}, s:{r} . mul({x}, k[m, c, r, s])
"""
PADDED = (
    "where(and(and(ge(#(oy + r - 1):i64, 0:i64), lt(#(oy + r - 1):i64, {h}:i64)), and(ge(#(ox + s - 1):i64, 0:i64), "
    "lt(#(ox + s - 1):i64, {w}:i64))), x[n, c, oy + r - 1, ox + s - 1], 0.0:f32)"
)


def convolution(c: int, oy: int, ox: int, *, r: int = 3, padded: bool = False) -> tuple[Contraction, Slots]:
    h, w = (oy, ox) if padded else (oy + r - 1, ox + r - 1)
    x = PADDED.format(h=h, w=w) if padded else "x[n, c, oy + r, ox + s]"
    kernel = parse_kernel(CONVOLUTION.format(c=c, h=h, w=w, oy=oy, ox=ox, r=r, x=x))
    return bound(kernel_workload(kernel))


def kernel_workload(kernel: object) -> Workload:
    buffers = [
        Buffer.whole(at, slot.type, Layout.channels_last(4) if slot.name != "k" else None)
        for at, slot in enumerate((*kernel.inputs, *kernel.outputs))  # type: ignore[attr-defined]
    ]
    return Workload(kernel, tuple(buffers[:2]), tuple(buffers[2:]), (False, True))  # type: ignore[arg-type]


def bound(workload: Workload) -> tuple[Contraction, Slots]:
    view = as_contraction(workload)
    assert view is not None
    return view, Slots(workload)


def by_name(axes: Sequence[Axis], name: str) -> Axis:
    return next(axis for axis in axes if axis.name == name)


def test_a_convolution_without_padding_is_read_where_it_lies() -> None:
    view, slots = convolution(16, 6, 10)
    access = operand(view, slots, {})
    assert isinstance(access, InPlace)
    rows = row_axes(view)
    assert access.steps[rows["m"]] == 16
    assert access.steps[rows["y"]] == 12 * 16
    assert merged([(axis.extent, access.steps[axis]) for axis in view.k]) == ((3, 12 * 16), (3 * 16, 1))


def test_a_padded_one_is_staged_and_its_taps_and_channels_join() -> None:
    view, slots = convolution(16, 6, 10, padded=True)
    access = operand(view, slots, {})
    assert isinstance(access, Staged)
    rows = row_axes(view)
    blocks = {rows["y"]: 2, rows["m"]: 10}
    assert access.floats(blocks, rows["m"]) == (2 + 2) * (10 + 2) * 16
    steps = access.steps((*view.m, *view.k), blocks, rows["m"])
    assert (steps[rows["y"]], steps[rows["m"]]) == (12 * 16, 16)
    assert merged([(axis.extent, steps[axis]) for axis in view.k]) == ((3, 12 * 16), (3 * 16, 1))


def test_zeros_begin_where_the_padding_does() -> None:
    view, slots = convolution(4, 5, 7, padded=True)
    access = operand(view, slots, {})
    assert isinstance(access, Staged)
    bounds = {dim.axis.name: (str(dim.low), str(dim.past), dim.axis.extent) for dim in access.dims}
    assert bounds == {"oyr": ("1", "6", 7), "oxs": ("1", "8", 9), "c": ("0", "4", 4)}


@pytest.mark.parametrize(("channels", "apart"), [(512, False), (1024, True), (2048, True)])
def test_rows_that_share_cache_sets_are_moved_apart(channels: int, apart: bool) -> None:
    view, slots = convolution(channels, 7, 7, r=1)
    rows = row_axes(view)
    many = operand(view, slots, {rows["m"]: 14})
    few = operand(view, slots, {rows["m"]: 6})
    assert isinstance(few, InPlace)
    assert isinstance(many, Staged if apart else InPlace)
    if isinstance(many, Staged):
        step = many.steps(view.m, {rows["m"]: 49}, rows["m"])[rows["m"]]
        assert step > channels
        assert step % ALIAS


def test_rows_in_strange_steps_are_gathered() -> None:
    text = """
    kernel MatMul(in x: f32[5, 6], in k: f32[30, 8]; out y: f32[9, 8])
      for m:9, n:8
        y[m, n] = sum<f32> k:30 . mul(x[(m + k) % 5, (m * k0) % 6], k[k, n])
    """.replace("m * k0", "m + k")
    kernel = parse_kernel(text)
    buffers = [Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs))]
    view, slots = bound(Workload(kernel, tuple(buffers[:2]), tuple(buffers[2:]), (False, True)))
    assert operand(view, slots, {}) is None


def test_offsets_of_a_tile_run_along_its_last_axis_first() -> None:
    y, x = Axis("y", 4), Axis("x", 9)
    assert offsets_of([(y, 2), (x, 3)], {y: 100, x: 7}) == (0, 7, 14, 100, 107, 114)


def test_loops_that_go_on_where_the_inner_one_ends_are_one() -> None:
    assert merged([(3, 40), (5, 8), (8, 1)]) == ((15 * 8, 1),)
    assert merged([(3, 50), (5, 8), (8, 1)]) == ((3, 50), (40, 1))
    assert np.prod([extent for extent, _ in merged([(2, 7), (3, 5)])]) == 6
