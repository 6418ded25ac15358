from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported
from compiler.ops.pooling import OPERATORS
from tests.compiler.ops.single import Attrs, Shape, check, compare, normal, prepare

RECORDS = {operator.name: operator for operator in OPERATORS}


@st.composite
def problems(draw: st.DrawFn) -> tuple[Shape, dict[str, Any]]:
    rank = draw(st.integers(1, 3))

    def many(low: int, high: int) -> Shape:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, dilations = many(1, 4), many(1, 2)
    extents = tuple((k - 1) * d + 1 + draw(st.integers(0, 4)) for k, d in zip(kernel, dilations, strict=True))
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": many(1, 3),
        "ceil_mode": draw(st.integers(0, 1)),
        "dilations": dilations,
    }
    if draw(st.booleans()):
        pads = tuple((k - 1) // 2 for k in kernel)
        attrs["pads"] = (*(draw(st.integers(0, pad)) for pad in pads), *(draw(st.integers(0, pad)) for pad in pads))
    elif all(d == 1 for d in dilations):
        attrs["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
        # ONNX Runtime refuses SAME where windows leave gaps.
        attrs["strides"] = tuple(min(pair) for pair in zip(attrs["strides"], kernel, strict=True))
    return extents, attrs


@given(problems(), st.booleans(), st.integers(0, 1))
@settings(max_examples=60)
def test_MaxPool_agrees_with_its_reference_and_with_onnxruntime(
    problem: tuple[Any, ...], indices: bool, order: int
) -> None:
    extents, attrs = problem
    compare(RECORDS["MaxPool"], [normal(1, 2, 3, *extents)], {**attrs, "storage_order": order}, 1 + indices)


@given(problems(), st.integers(0, 1))
@settings(max_examples=60)
def test_AveragePool_agrees_with_its_reference_and_with_onnxruntime(problem: tuple[Any, ...], include: int) -> None:
    extents, attrs = problem
    compare(RECORDS["AveragePool"], [normal(1, 2, 3, *extents)], {**attrs, "count_include_pad": include})


@given(problems(), st.integers(1, 4))
@settings(max_examples=40)
def test_LpPool_agrees_with_its_reference_and_with_onnxruntime(problem: tuple[Any, ...], p: int) -> None:
    extents, attrs = problem
    compare(RECORDS["LpPool"], [normal(1, 2, 3, *extents)], {**attrs, "p": p})


@pytest.mark.parametrize("name", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4, 3, 5), (2, 1, 2, 3, 4), (1, 2, 1, 1)])
def test_global_pools_cover_every_spatial_axis(name: str, shape: tuple[int, ...]) -> None:
    compare(RECORDS[name], [normal(1, *shape)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_MaxPool_pads_integers_with_their_least_value(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(limits.min, limits.max, (1, 2, 5, 5)).astype(dtype)
    compare(RECORDS["MaxPool"], [x], {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)})


def test_the_index_of_a_maximum_is_the_first_of_equal_ones_in_row_major_order() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    for order in (0, 1):
        attrs: Attrs = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "storage_order": order}
        compare(RECORDS["MaxPool"], [x], attrs, 2)


def test_the_index_of_a_maximum_is_never_in_the_padding() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    indices = check(RECORDS["MaxPool"], [x], {"kernel_shape": (2, 2), "pads": (1, 1, 1, 1)}, 2)[1]
    assert indices.tolist() == [[[[0, 0, 1], [0, 0, 1], [2, 2, 3]]]]


def test_a_window_that_would_start_in_the_padding_on_the_right_is_left_out() -> None:
    for include in (0, 1):
        attrs: dict[str, Any] = {
            "kernel_shape": (3,),
            "strides": (3,),
            "pads": (1, 1),
            "ceil_mode": 1,
            "count_include_pad": include,
        }
        assert check(RECORDS["AveragePool"], [normal(1, 1, 1, 5)], attrs)[0].shape == (1, 1, 2)


@pytest.mark.parametrize(
    ("name", "shape", "attrs", "reason"),
    [
        ("MaxPool", (2, 3), {"kernel_shape": (2,)}, "rank 2"),
        ("MaxPool", (1, 1, 4), {"kernel_shape": (2, 2)}, "kernel has 2 axes"),
        ("MaxPool", (1, 1, 4), {"kernel_shape": (5,)}, "window"),
        ("GlobalMaxPool", (1, 1, 0), {}, "extent"),
    ],
)
def test_a_pool_refuses_what_does_not_fit(name: str, shape: tuple[int, ...], attrs: Attrs, reason: str) -> None:
    node, _, _ = prepare(RECORDS[name], [np.zeros(shape, np.float32)], attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        RECORDS[name].infer(node, (TensorType(DType.F32, shape),))
