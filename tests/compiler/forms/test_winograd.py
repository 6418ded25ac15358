from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.forms.winograd import (
    POSITIVE_POINTS,
    TAPS,
    Convolution,
    TransformedPanels,
    as_convolution,
    form,
    inside_of,
    relative_error,
    sums_channels,
    transformed_panels,
)
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from tests.parse import parse_kernel

FORMS = [(elements - taps + 1, taps) for elements in POSITIVE_POINTS for taps in TAPS if elements - taps + 1 >= 2]


@pytest.mark.parametrize(("outputs", "taps"), FORMS)
def test_a_form_is_a_filter_exactly(outputs: int, taps: int) -> None:
    """Sum over e of A[o, e] G[e, t] B[e, i] is 1 where i = o + t, else 0, in rational arithmetic."""
    one = form(outputs, taps)
    for o in range(outputs):
        for t in range(taps):
            for i in range(one.elements):
                product = sum(a * g[t] * b[i] for a, g, b in zip(one.output[o], one.weights, one.input, strict=True))
                assert product == (1 if i == o + t else 0)


@pytest.mark.parametrize(("outputs", "taps"), FORMS)
def test_every_number_used_at_run_time_is_a_float32(outputs: int, taps: int) -> None:
    one = form(outputs, taps)
    numbers = [number for matrix in (one.input, one.output) for row in matrix for number in row]
    for row, twin, point in zip(one.input, one.input[1:], one.points, strict=False):
        if point > 0:  # what differs between the rows of a pair is odd in the point, which is taken out of it
            numbers += [number / point for number, other in zip(row, twin, strict=True) if number == -other]
    for number in numbers:
        assert Fraction(float(np.float32(float(number)))) == number


@pytest.mark.parametrize("elements", POSITIVE_POINTS)
def test_points_come_in_pairs(elements: int) -> None:
    points = form(elements - 2, 3).points
    assert len(set(points)) == elements - 1
    assert all(-point in points for point in points)


def test_better_points_than_whole_numbers_are_used() -> None:
    """0, +-1, +-2 of F(4, 3) amplify errors by 5.6 along each axis."""
    assert form(2, 3).amplification < 1.3
    assert form(4, 3).amplification < 2.9
    assert form(6, 3).amplification < 6.9


def test_unknown_sizes_are_refused() -> None:
    with pytest.raises(KeyError):
        form(9, 3)


def nested(forms: Sequence[tuple[int, int]], matrices: Sequence[np.ndarray], array: np.ndarray) -> np.ndarray:
    """Matrices applied along the last axes of a float32 array."""
    for axis, matrix in zip(range(-len(forms), 0), matrices, strict=True):
        array = np.moveaxis(np.tensordot(matrix, array, (1, axis)), 0, axis)
    return array


@pytest.mark.parametrize("depth", [16, 128])
@pytest.mark.parametrize(
    "forms",
    [
        *(((4, 3),), ((6, 3),), ((4, 5),), ((2, 7),), ((4, 7),), ((2, 3), (2, 3)), ((3, 3), (3, 3)), ((4, 3), (4, 3))),
        *(((5, 3), (5, 3)), ((6, 3), (6, 3)), ((7, 3), (7, 3)), ((2, 5), (2, 5)), ((4, 5), (4, 5)), ((3, 3), (2, 3))),
    ],
)
def test_errors_grow_as_estimated(forms: tuple[tuple[int, int], ...], depth: int) -> None:
    """In float32, sums one by one, against float64: between a quarter of the estimate and twice it."""
    random = np.random.default_rng(3)
    ours = [form(*one) for one in forms]
    data = random.standard_normal((depth, 1, 200, *(one.elements for one in ours))).astype(np.float32)
    taps = random.standard_normal((depth, 6, 1, *(one.taps for one in ours))).astype(np.float32)
    matrices = {
        name: [np.array([[float(x) for x in row] for row in getattr(one, name)]) for one in ours]
        for name in ("input", "weights", "output")
    }
    narrow = {name: [one.astype(np.float32) for one in matrices[name]] for name in ("input", "output")}
    weights = nested(forms, matrices["weights"], taps.astype(np.float64)).astype(np.float32)
    inputs = nested(forms, narrow["input"], data)
    total = np.zeros((6, 200, *(one.elements for one in ours)), np.float32)
    for v, u in zip(inputs, weights, strict=True):
        total += v * u
    got = nested(forms, narrow["output"], total)
    exact = (
        nested(forms, matrices["input"], data.astype(np.float64))
        * nested(forms, matrices["weights"], taps.astype(np.float64))
    ).sum(0)
    want = nested(forms, matrices["output"], exact)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    estimate = relative_error(ours, depth)
    assert estimate / 4 < error < 2 * estimate


# Recognition

CONV = """
kernel Conv(in x0: f32[1, {c}, {h}, {w}], in x1: f32[{k}, {c}, {r}, {s}]; out y0: f32[1, {k}, {oh}, {ow}])
  for k:{k}, oy:{oh}, ox:{ow}
    y0[0, k, oy, ox] = sum<f32> c:{c}, r:{r}, s:{s} . mul({data}, x1[k, c, r, s])
"""
PADDED = (
    "where(and(and(ge(#(oy + r - 1):i64, 0:i64), lt(#(oy + r - 1):i64, {h}:i64)), "
    "and(ge(#(ox + s - 1):i64, 0:i64), lt(#(ox + s - 1):i64, {w}:i64))), x0[0, c, oy + r - 1, ox + s - 1], 0.0:f32)"
)


def convolution(data: str, *, constant: int = True, plain: int = False, **sizes: int) -> Workload:
    """16 -> 24 channels, 3 x 3 taps, 9 x 11 outputs of an image of 9 x 11, unless `sizes` say otherwise."""
    known: dict[str, int] = {"c": 16, "k": 24, "h": 9, "w": 11, "r": 3, "s": 3, "oh": 9, "ow": 11, **sizes}
    kernel = parse_kernel(CONV.format(data=data.format(**known), **known))
    layouts = (None if plain else Layout.channels_last(4), None)
    inputs = tuple(Buffer.whole(0, slot.type, one) for slot, one in zip(kernel.inputs, layouts, strict=True))
    output = Buffer.whole(0, kernel.outputs[0].type, Layout.channels_last(4))
    return Workload(kernel, inputs, (output,), (False, bool(constant)))


def view_of(workload: Workload) -> Convolution:
    found = as_convolution(workload)
    assert found is not None
    assert isinstance(workload.kernel, Kernel)
    assert sums_channels(workload.kernel)
    return found


def test_a_padded_convolution_is_one_over_two_sweeps() -> None:
    view = view_of(convolution(PADDED))
    assert [(sweep.output.name, sweep.tap.name) for sweep in view.sweeps] == [("oy", "r"), ("ox", "s")]
    assert (view.column.name, view.depth.name, view.free, view.groups) == ("k", "c", (), ())
    assert view.tiles((4, 2)) == (3, 6)
    inside = inside_of(view)
    assert inside is not None
    assert inside.bounds == ((1, 10), (1, 12))


def test_without_padding_neither_rows_and_taps_nor_taps_and_channels_are_joined() -> None:
    view = view_of(convolution("x0[0, c, oy + r, ox + s]", oh=7, ow=9))
    assert [sweep.tap.extent for sweep in view.sweeps] == [3, 3]
    inside = inside_of(view)
    assert inside is not None
    assert inside.bounds == ((0, 9), (0, 11))


@pytest.mark.parametrize(
    ("data", "sizes", "sweeps", "free"),
    [
        ("x0[0, c, oy, ox + s]", {"r": 1, "s": 7, "ow": 5}, ["ox"], ["oy"]),
        ("x0[0, c, oy + r, ox]", {"r": 5, "s": 1, "oh": 5}, ["oy"], ["ox"]),
        ("max(x0[0, c, oy + r, ox + s], 0.0:f32)", {"oh": 7, "ow": 9}, ["oy", "ox"], []),
    ],
)
def test_windows_of_one_row_and_maps_on_the_data_are_convolutions_too(
    data: str, sizes: dict[str, int], sweeps: list[str], free: list[str]
) -> None:
    view = view_of(convolution(data, **sizes))
    assert [sweep.output.name for sweep in view.sweeps] == sweeps
    assert [axis.name for axis in view.free] == free
    assert (inside_of(view) is None) == ("max" in data)


@pytest.mark.parametrize(
    "workload",
    [
        convolution("x0[0, c, 2*oy + r, ox + s]", oh=4, ow=9),
        convolution("x0[0, c, oy + 2*r, ox + s]", oh=5, ow=9),
        convolution("x0[0, c, oy + r, ox + s]", r=2, oh=8, ow=9),
        convolution("x0[0, c, oy + r, ox + s]", r=4, oh=6, ow=9),
        convolution("x0[0, c, oy, ox]", r=1, s=1),
        convolution("x0[0, c, oy + r, ox + s]", oh=7, ow=9, constant=False),
        convolution("x0[0, c, oy + r, ox + s]", oh=7, ow=9, plain=True),
        convolution("x0[0, c, oy + r, ox + s]", oh=7, ow=9, c=1),
    ],
    ids=["stride", "dilation", "two taps", "four taps", "one tap", "computed weights", "channels first", "one channel"],
)
def test_what_is_no_filter_of_unit_stride_is_refused(workload: Workload) -> None:
    assert as_convolution(workload) is None


# Packing


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([((2, 3), (4, 3)), ((6, 3), (3, 3)), ((4, 7),), ((2, 5), (2, 5))]),
    st.integers(1, 2),
    st.integers(1, 5),
    st.integers(1, 9),
    st.sampled_from([4, 8]),
    st.integers(0, 2**16),
)
def test_weights_are_transformed_in_float64_and_rounded_once(
    forms: tuple[tuple[int, int], ...], groups: int, depth: int, columns: int, panel: int, seed: int
) -> None:
    taps = [many for _, many in forms]
    weights = np.random.default_rng(seed).standard_normal((groups, columns, depth, *taps)).astype(np.float32)
    strides = [step // 4 for step in weights.strides]
    axes = [0, *range(3, 3 + len(taps)), 2, 1]
    source = tuple((weights.shape[axis], strides[axis]) for axis in axes)
    packing = TransformedPanels(groups, depth, columns, panel, forms, source)
    packed = packing.pack(weights)
    matrices = [np.array([[float(x) for x in row] for row in form(*one).weights]) for one in forms]
    exact = nested(forms, matrices, weights.astype(np.float64)).reshape(groups, columns, depth, -1)
    elements = prod(form(*one).elements for one in forms)
    assert packed.dtype == np.float32
    assert packed.size == packing.elements
    assert packed.shape == (groups, -(-columns // panel), elements, depth, panel)
    for at in range(packed.shape[1] * panel):
        got = packed[:, at // panel, :, :, at % panel].transpose(0, 2, 1)
        if at < columns:
            np.testing.assert_allclose(got, exact[:, at].astype(np.float32), rtol=2e-7, atol=1e-9)
        else:
            assert not got.any()


def test_packings_compare_by_value_and_follow_the_view() -> None:
    workload = convolution(PADDED)
    packing = transformed_panels(view_of(workload), (4, 2), 16)
    assert packing == transformed_panels(view_of(workload), (4, 2), 16)
    assert packing != transformed_panels(view_of(workload), (2, 4), 16)
    assert packing != replace(packing, panel=32)
    assert packing.source == ((3, 3), (3, 1), (16, 9), (24, 144))
    assert packing.elements == 24 * 16 * 32
