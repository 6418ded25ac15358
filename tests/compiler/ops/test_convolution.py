from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.expr import Apply, Load, Where
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.convolution import OPERATORS, OWN
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import Attrs, Shape, check, compare, normal, octets, prepare, scalar
from tests.peers import signed_weights

CONV, TRANSPOSE, INTEGER, QLINEAR = OPERATORS


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))

    def many(low: int, high: int) -> Shape:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, dilations = many(1, 3), many(1, 2)
    extents = tuple((k - 1) * d + 1 + draw(st.integers(0, 3)) for k, d in zip(kernel, dilations, strict=True))
    attrs: dict[str, Any] = {
        "strides": many(1, 3),
        "dilations": dilations,
        "group": draw(st.sampled_from([1, 2, 4])),
    }
    if draw(st.booleans()):
        attrs["pads"] = (*many(0, 2), *many(0, 2))
    elif all(d == 1 for d in dilations):
        attrs["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    return {
        "attrs": attrs,
        "kernel": kernel,
        "extents": extents,
        "per": draw(st.integers(1, 2)),
        "n": draw(st.integers(1, 2)),
    }


@given(problems(), st.booleans())
@settings(max_examples=60)
def test_Conv_agrees_with_its_reference_and_with_onnxruntime(problem: Attrs, bias: bool) -> None:
    groups, per = problem["attrs"]["group"], problem["per"]
    x = normal(1, problem["n"], groups * per, *problem["extents"])
    w = normal(2, groups * per, per, *problem["kernel"])
    compare(CONV, [x, w, *([normal(3, groups * per)] if bias else [])], problem["attrs"])


@given(problems(), st.booleans(), st.integers(0, 1))
@settings(max_examples=60)
def test_ConvTranspose_agrees_with_its_reference_and_with_onnxruntime(problem: Attrs, bias: bool, extra: int) -> None:
    attrs = dict(problem["attrs"])
    groups, per, rank = attrs["group"], problem["per"], len(problem["kernel"])
    pads = attrs.pop("pads", None)
    if pads:
        attrs["pads"] = tuple(min(pad, (k - 1) // 2) for pad, k in zip(pads, problem["kernel"] * 2, strict=True))
    if not pads and str(attrs.get("auto_pad", "")).startswith("SAME"):
        attrs.pop("auto_pad")
    attrs["output_padding"] = tuple(min(extra, stride - 1) for stride in attrs["strides"])
    x = normal(1, problem["n"], groups * per, *problem["extents"])
    w = normal(2, groups * per, 2, *problem["kernel"])
    inputs = [x, w, *([normal(3, groups * 2)] if bias else [])]
    (compare if rank < 3 else check)(TRANSPOSE, inputs, attrs)


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": (2, 2), "auto_pad": "SAME_UPPER"},
        {"strides": (2, 3), "auto_pad": "SAME_LOWER"},
        {"strides": (3, 2), "output_shape": (10, 8)},
        {"strides": (3, 2), "output_shape": (10, 8), "auto_pad": "SAME_UPPER"},
    ],
)
def test_ConvTranspose_finds_pads_for_a_wanted_output(attrs: Attrs) -> None:
    compare(TRANSPOSE, [normal(1, 1, 3, 3, 4), normal(2, 3, 2, 4, 3)], attrs)


@pytest.mark.parametrize(
    ("kernel", "stride", "pads"),
    [((2, 2), (2, 2), (0, 0, 0, 0)), ((4, 4), (2, 2), (1, 1, 1, 1)), ((6, 3), (3, 3), (2, 0, 1, 0))],
)
def test_ConvTranspose_visits_only_the_taps_of_a_phase_where_stride_divides_kernel_and_output(
    kernel: tuple[int, int], stride: tuple[int, int], pads: tuple[int, ...]
) -> None:
    arrays = [normal(1, 2, 3, 5, 4), normal(2, 3, 2, *kernel)]
    attrs: Attrs = {"strides": stride, "pads": pads}
    compare(TRANSPOSE, arrays, attrs)
    node, _, types = prepare(TRANSPOSE, arrays, attrs, 1)
    defined = TRANSPOSE.define(node, types, TRANSPOSE.infer(node, types))
    assert isinstance(defined, Kernel)
    taps = [axis.extent for axis in defined.blocks[0].reduction[1:]]
    assert taps == [k // s for k, s in zip(kernel, stride, strict=True)]
    if kernel == stride:
        assert not any(isinstance(expr, Where) for expr in defined.blocks[0].values[0].walk())


def test_a_convolution_is_a_sum_of_products_of_loads_with_its_bias_in_a_second_block() -> None:
    arrays = [normal(1, 1, 4, 5, 5), normal(2, 4, 2, 3, 3), normal(3, 4)]
    node, _, types = prepare(CONV, arrays, {"group": 2, "pads": (1, 1, 1, 1)}, 1)
    kernel = CONV.define(node, types, CONV.infer(node, types))
    assert isinstance(kernel, Kernel)
    assert [axis.name for axis in kernel.shared] == ["n", "g", "k", "oy", "ox"]
    product, bias = kernel.blocks
    assert [axis.name for axis in product.reduction] == ["c", "r", "s"]
    assert isinstance(product.values[0], Apply)
    x, w = product.values[0].args
    assert isinstance(x, Where)
    assert isinstance(x.then, Load)
    assert isinstance(w, Load)
    assert bias.monoid == ""


def test_halves_are_added_up_in_f32() -> None:
    arrays = [
        normal(1, 1, 4, 5, 5).astype(np.float16),
        normal(2, 4, 4, 3, 3).astype(np.float16),
        normal(3, 4).astype(np.float16),
    ]
    check(CONV, arrays, {}, rtol=1e-3)
    node, _, types = prepare(CONV, arrays, {}, 1)
    kernel = CONV.define(node, types, CONV.infer(node, types))
    assert isinstance(kernel, Kernel)
    assert kernel.blocks[0].accumulator is DType.F32


def test_a_large_convolution_is_unfolded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [normal(1, 2, 3, 9, 7), normal(2, 5, 3, 3, 3)]
    whole = check(CONV, arrays)[0]
    monkeypatch.setattr("compiler.ops.pieces.PIECE_ELEMENTS", 500)
    np.testing.assert_allclose(check(CONV, arrays)[0], whole, rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "reason"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "do not fit"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"group": 2}, "does not divide"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, "window"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"strides": (0, 1)}, "below 1"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"strides": (1,)}, "2 integers"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"kernel_shape": (2, 2)}, "kernel_shape"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"pads": (0, -1, 0, 0)}, "negative"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"auto_pad": "SAME"}, "auto_pad"),
        ((1, 1, 2, 2, 2, 2), (1, 1, 1, 1, 1, 1), {}, "4 spatial axes"),
    ],
)
def test_Conv_refuses_what_does_not_fit(x: tuple[Any, ...], w: tuple[Any, ...], attrs: Attrs, reason: str) -> None:
    node, _, _ = prepare(CONV, [np.zeros(x, np.float32), np.zeros(w, np.float32)], attrs, 1)
    types = (TensorType(DType.F32, x), TensorType(DType.F32, w))
    with pytest.raises(Unsupported, match=reason):
        CONV.infer(node, types)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_ConvInteger_is_exact(zeros: int) -> None:
    x, w = octets(1, np.uint8, 2, 4, 5, 5), octets(2, np.uint8, 6, 2, 3, 3)
    points = [np.array(130, np.uint8), octets(3, np.uint8, 6)][:zeros]
    attrs: Attrs = {"group": 2, "pads": (1, 0, 2, 1), "strides": (2, 1)}
    ours = check(INTEGER, [x, w, *points], attrs)[0]
    if zeros < 2:
        compare(INTEGER, [x, w, *points], attrs)
    shifted = w.astype(np.float64) - (points[1].reshape(-1, 1, 1, 1) if zeros == 2 else 0)
    again = check(CONV, [(x.astype(np.float64) - (130 if zeros else 0)), shifted], attrs)[0]
    np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_transposed_convolution_of_bytes_is_that_of_what_they_are_above_their_zero_points(zeros: int) -> None:
    x, w = octets(1, np.uint8, 2, 4, 3, 5), octets(2, np.int8, 4, 3, 3, 2)
    points = [np.array(130, np.uint8), octets(3, np.int8, 6)][:zeros]
    attrs: Attrs = {"group": 2, "pads": (1, 0, 0, 1), "strides": (2, 3), "output_padding": (0, 1)}
    ours = check(OWN[0], [x, w, *points], {**attrs, "auto_pad": "NOTSET"})[0]
    assert ours.dtype == np.int32
    of_groups = points[1].astype(np.float64).reshape(2, 1, 3, 1, 1) if zeros == 2 else 0
    shifted = (w.astype(np.float64).reshape(2, 2, 3, 3, 2) - of_groups).reshape(w.shape)
    again = check(TRANSPOSE, [(x.astype(np.float64) - (130 if zeros else 0)), shifted], attrs)[0]
    np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_QLinearConv_rounds_and_saturates_like_onnxruntime(dtype: Any, per_channel: bool, bias: bool) -> None:
    x, w = octets(1, dtype, 1, 3, 6, 5), signed_weights(np.random.default_rng(2), 4, 3, 3, 3)
    scale = np.linspace(0.01, 0.02, 4, dtype=np.float32) if per_channel else np.array(0.013, np.float32)
    zero = np.zeros(4, np.int8) if per_channel else np.array(0, np.int8)
    arrays = [x, scalar(0.02), np.array(3, dtype), w, scale, zero, scalar(0.13), np.array(7, dtype)]
    if bias:
        arrays.append(np.array([100, -2000, 0, 5000], np.int32))
    compare(QLINEAR, arrays, {"pads": (1, 1, 1, 1)})


def test_scales_and_zero_points_are_one_or_one_for_each_filter() -> None:
    x, w, one = np.zeros((1, 1, 3, 3), np.uint8), np.zeros((2, 1, 1, 1), np.uint8), np.ones((), np.float32)
    zero, many = np.zeros((), np.uint8), np.ones(5, np.float32)
    arrays: list[np.ndarray | None] = [x, one, zero, w, many, zero, one, zero]
    operator, integer = QLINEAR, INTEGER
    node, _, types = prepare(operator, arrays, {}, 1)
    with pytest.raises(Unsupported, match="5 elements for 2 filters"):
        operator.infer(node, types)
    node, _, types = prepare(integer, [x, w, zero, np.zeros(5, np.uint8)], {}, 1)
    with pytest.raises(Unsupported, match="5 elements for 2 filters"):
        integer.infer(node, types)
