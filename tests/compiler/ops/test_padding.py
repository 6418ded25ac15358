from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.expr import Load
from compiler.ir.kernel import Kernel
from compiler.ops.operator import Unsupported
from compiler.ops.padding import MODES, OPERATORS
from tests.compiler.ops.single import Attrs, Inputs, Shape, check, compare, normal, octets, prepare, scalar

(PAD,) = OPERATORS


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@st.composite
def problems(draw: st.DrawFn, mode: str) -> tuple[Shape, tuple[int, ...], tuple[int, ...]]:
    """A shape, some axes of it and as much padding on them as the mode can fill."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axes = tuple(draw(st.permutations(range(len(shape))))[: draw(st.integers(1, len(shape)))])
    most = {"constant": [4] * 9, "edge": [4] * 9, "reflect": [e - 1 for e in shape], "wrap": list(shape)}[mode]
    pads = tuple(draw(st.integers(0, most[axis])) for _ in range(2) for axis in axes)
    signed = tuple(axis - len(shape) if draw(st.booleans()) else axis for axis in axes)
    return shape, pads, signed


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
@settings(max_examples=50)
def test_each_mode_agrees_with_its_reference_and_with_onnxruntime(mode: str, data: st.DataObject) -> None:
    shape, pads, axes = data.draw(problems(mode))
    value = scalar(2.5) if mode == "constant" and data.draw(st.booleans()) else None
    compare(PAD, [normal(1, *shape), whole(*pads), value, whole(*axes)], {"mode": mode})


@given(st.lists(st.integers(3, 6), min_size=1, max_size=3).map(tuple), st.data())
@settings(max_examples=50)
def test_negative_pads_cut_off(shape: Shape, data: st.DataObject) -> None:
    pads = [data.draw(st.integers(-1, 2)) for _ in range(2 * len(shape))]
    compare(PAD, [normal(1, *shape), whole(*pads)], {})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pads", [(-2, 0), (0, -3), (-1, 2), (2, -1), (-2, 1), (1, -3), (-2, -2)])
def test_negative_pads_cut_before_the_others_repeat_what_is_left(mode: str, pads: tuple[int, int]) -> None:
    compare(PAD, [np.arange(5, dtype=np.float32), whole(*pads)], {"mode": mode})


def test_what_is_left_must_fill_the_pads() -> None:
    node, _, types = prepare(PAD, [normal(1, 5), whole(-3, 3)], {"mode": "wrap"}, 1)
    with pytest.raises(Unsupported, match="wider than 2 elements"):
        PAD.infer(node, types)


def test_a_tensor_without_axes_stays_as_it_is() -> None:
    assert check(PAD, [scalar(3), whole()])[0] == 3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_any_constant_may_pad(value: float) -> None:
    compare(PAD, [normal(1, 3), whole(1, 2), scalar(value)])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.float16, np.float64])
def test_the_constant_has_the_type_of_the_tensor(dtype: Any) -> None:
    x = octets(1, np.int8, 4).astype(dtype)
    (result,) = check(PAD, [x, whole(1, 1), np.array(1, dtype)])
    assert result.dtype == dtype
    assert result[0] == result[-1] == dtype(1)


def test_a_pad_of_nothing_is_a_plain_load() -> None:
    for mode in MODES:
        node, _, types = prepare(PAD, [normal(1, 3), whole(0, 0)], {"mode": mode}, 1)
        kernel = PAD.define(node, types, PAD.infer(node, types))
        assert isinstance(kernel, Kernel)
        assert isinstance(kernel.blocks[0].values[0], Load)


def test_an_empty_list_of_axes_pads_none() -> None:
    x = normal(1, 2, 3)
    assert check(PAD, [x, whole(), None, whole()])[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("arrays", "attrs", "reason"),
    [
        ([normal(1, 3), whole(1)], {}, "1 pads do not fit"),
        ([normal(1, 3), whole(-2, -2)], {}, "cut off more"),
        ([normal(1, 3), whole(3, 0)], {"mode": "reflect"}, "wider"),
        ([normal(1, 3), whole(0, 4)], {"mode": "wrap"}, "wider"),
        ([np.zeros(0, np.float32), whole(1, 0)], {"mode": "edge"}, "wider"),
        ([normal(1, 3), whole(1, 0)], {"mode": "mirror"}, "mode is 'mirror'"),
        ([normal(1, 3), whole(1, 0), None, whole(1)], {}, "not all axes"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(arrays: Inputs, attrs: Attrs, reason: str) -> None:
    node, _, types = prepare(PAD, arrays, attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        PAD.infer(node, types)
